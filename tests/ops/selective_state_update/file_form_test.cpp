// Decoding steps in files: the form follows from the state's axes, and the state is both an input and an
// output.

#include <array>
#include <cstring>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "interchange/files.h"
#include "interchange/h5.h"
#include "interchange/reader.h"
#include "support/host_tensors.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void check_same(const std::vector<HostTensor>& read, const std::vector<HostTensor>& written) {
  REQUIRE(read.size() == written.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    CAPTURE(written[i].spec.name);
    CHECK(read[i].spec.name == written[i].spec.name);
    CHECK(read[i].spec.shape == written[i].spec.shape);
    CHECK(std::memcmp(read[i].buffer.data(), written[i].buffer.data(), written[i].spec.bytes()) == 0);
  }
}

const std::map<std::string, AxisValue> kSizes{{"batch", size(2)}, {"dstate", size(5)}};

Problem with_sizes(Problem (*form)(Axes), Axes axes) {
  axes.merge(Axes(kSizes));
  return form(std::move(axes));
}

}  // namespace

TEST_CASE(
    "decoding steps survive a file, in both forms, with one group and several, with and without options") {
  const TemporaryFolder folder;
  std::vector<Problem> problems;
  for (const std::int64_t groups : {1, 3})
    for (const bool options : {false, true}) {
      const Axes more{{"groups", groups},
                      {"D", options},
                      {"z", options},
                      {"dt_bias", options},
                      {"dt_softplus", options},
                      {"dtype", options ? "bf16" : "f32"},
                      {"state_dtype", options ? "f16" : "f32"}};
      Axes channels{{"dim", size(6)}};
      channels.merge(Axes(more));
      problems.push_back(with_sizes(mamba1_step, channels));
      Axes heads{{"nheads", size(6)}, {"headdim", size(4)}};
      heads.merge(Axes(more));
      problems.push_back(with_sizes(mamba2_step, heads));
      for (const Problem& one : {problems[problems.size() - 2], problems.back()})
        problems.push_back(
            one.with({{"tokens", size(3)}, {"intermediate", true}, {"dt_dtype", options ? "f32" : "io"}}));
    }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    INFO(problems[i].id());
    const std::string path = folder / std::to_string(i);
    write_one_case(path, problems[i]);
    const CaseRead read = InterchangeFile(path).read_case("a");
    CHECK(read.problem.axes() == problems[i].axes());
    check_same(read.inputs, filled_tensors(problems[i], Role::input));
    check_same(read.outputs, filled_tensors(problems[i], Role::output));
  }
}

namespace {

/// The complaint about case "a" of a file after a change to its group; empty when it can be read.
std::string complaint_after(const Problem& problem, const std::function<void(hid_t)>& change) {
  const TemporaryFolder folder;
  write_one_case(folder / "x.h5", problem);
  {
    const h5::File file(H5Fopen((folder / "x.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "open");
    const h5::Group group(H5Gopen2(file, "/cases/a", H5P_DEFAULT), "open");
    change(group);
  }
  try {
    const CaseRead read = InterchangeFile(folder / "x.h5").read_case("a");
    CHECK(read.problem.axes() == problem.axes());
    check_same(read.inputs, filled_tensors(problem, Role::input));
  } catch (const UsageError& error) {
    const std::string message = error.what();
    return message.substr(message.find("/cases"));
  }
  return "";
}

/// Puts an input in place of another of the same name, in another shape.
void reshape(hid_t group, const HostTensor& tensor, const std::vector<hsize_t>& shape) {
  const std::string name = "inputs/" + tensor.spec.name;
  h5::check(H5Ldelete(group, name.c_str(), H5P_DEFAULT), "delete");
  const h5::DataSpace space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), "space");
  const h5::DataType type = h5::native_type_of(tensor.spec.dtype);
  const h5::Dataset dataset(
      H5Dcreate2(group, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "create");
  h5::write_attribute(dataset, "dtype", std::string(name_of(tensor.spec.dtype)));
  h5::check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.buffer.data()), "write");
}

}  // namespace

TEST_CASE("the dtype of states is that of the dataset, and an attribute may repeat it") {
  const Problem problem = with_sizes(mamba1_step, {{"dtype", "bf16"}, {"state_dtype", "bf16"}});
  CHECK(complaint_after(problem, [](hid_t group) { H5Adelete(group, "state_dtype"); }) == "");
  CHECK(complaint_after(problem, [](hid_t group) {
          H5Adelete(group, "state_dtype");
          h5::write_attribute(group, "state_dtype", std::string("f32"));
        }) == "/cases/a: the attribute 'state_dtype' says f32, the datasets bf16");
  const auto set_dtype = [](const char* name) {
    return [name](hid_t group) {
      const h5::Dataset state(H5Dopen2(group, "inputs/state", H5P_DEFAULT), "open");
      H5Adelete(state, "dtype");
      h5::write_attribute(state, "dtype", std::string(name));
      H5Adelete(group, "state_dtype");
    };
  };
  CHECK(complaint_after(problem, set_dtype("nonsense")) == "/cases/a/inputs/state: unknown dtype 'nonsense'");
  CHECK(complaint_after(problem, set_dtype("i32")) ==
        "/cases/a/inputs/state: the attribute 'dtype' says i32, but values are stored as 2-byte unsigned "
        "integer");
}

namespace {

/// One case "a" with inputs as they are drawn.
void write_drawn_case(const std::string& path, const Problem& problem) {
  const auto inputs = generate_inputs(problem, {}, never_stop);
  const auto outputs = filled_tensors(problem, Role::output);
  InterchangeWriter writer(path, {.producer = "a test", .device = {}, .created = {}, .argv = {}}, true);
  writer.add_case({.id = "a",
                   .problem = problem,
                   .arithmetic = {},
                   .seed = {},
                   .inputs = views_of(inputs),
                   .outputs = views_of(outputs),
                   .reference = {}});
  writer.finish();
}

}  // namespace

TEST_CASE("states with scales and seeds survive a file, and missing or senseless scales are refused") {
  const TemporaryFolder folder;
  for (const char* dtype : {"i8", "i16", "e4m3", "f16"})
    for (const char* rounding : {"nearest", "stochastic"}) {
      // Of several tokens f16 states are read as having intermediate ones, which states with scales cannot have.
      const std::int64_t tokens = dtype == std::string("f16") ? 1 : 3;
      const Problem problem = with_sizes(mamba2_step, {{"nheads", size(3)},
                                                       {"state_dtype", dtype},
                                                       {"rounding", rounding},
                                                       {"slots", size(5)},
                                                       {"tokens", tokens}});
      INFO(problem.id());
      const std::string path = folder / problem.id();
      write_drawn_case(path, problem);
      const CaseRead read = InterchangeFile(path).read_case("a");
      CHECK(read.problem.axes() == problem.axes());
      check_same(read.inputs, generate_inputs(problem, {}, never_stop));
      check_same(read.outputs, filled_tensors(problem, Role::output));
    }
  const Problem problem = with_sizes(mamba1_step, {{"state_dtype", "i8"}});
  std::string path = folder / "scales";
  const auto complaint = [&] {
    const std::string message = message_of<UsageError>([&] { InterchangeFile(path).read_case("a"); });
    return message.substr(message.find("/cases"));
  };
  write_drawn_case(path, problem);
  delete_link(open_for_change(path), "/cases/a/outputs/state_scale");
  CHECK(complaint() == "/cases/a/outputs/state: is in units of state_scale, which is missing");
  delete_link(open_for_change(path), "/cases/a/inputs/state_scale");
  CHECK(complaint() == "/cases/a/inputs/state_scale: the dataset is missing");
  path = folder / "negative";
  write_drawn_case(path, problem);
  {
    const h5::File file = open_for_change(path);
    const h5::Dataset scales(H5Dopen2(file, "/cases/a/inputs/state_scale", H5P_DEFAULT), "open");
    const std::array<float, 2> values{0.5F, -0.5F};
    h5::check(H5Dwrite(scales, h5::native_type_of(DType::f32), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
              "write");
  }
  CHECK(complaint() == "/cases/a/inputs/state_scale: -0.5 at (b 1, d 0): a scale is finite and not negative");
}

TEST_CASE("B and C of form mamba1 may have their one group as an axis") {
  const Problem one_group = with_sizes(mamba1_step, {{"dim", size(6)}});
  const auto inputs = filled_tensors(one_group, Role::input);
  const auto with_shape = [&](const char* name, const std::vector<hsize_t>& shape) {
    for (const auto& input : inputs)
      if (input.spec.name == name)
        return complaint_after(one_group, [&](hid_t group) { reshape(group, input, shape); });
    return std::string("no such input");
  };
  CHECK(with_shape("B", {2, 1, 5}) == "");
  CHECK(with_shape("C", {2, 1, 5}) == "");
  CHECK(with_shape("C", {2, 5, 1}) == "/cases/a/inputs/C: expected 2 axes, found 3");
  CHECK(with_shape("x", {2, 1, 6}) == "/cases/a/inputs/B: expected 4 axes, found 2");
  CHECK(with_shape("x", {12}) == "/cases/a/inputs/x: expected 2 axes, or one more with tokens, found 1");
}
