// What interchange files of Mamba-2's scan have beyond others: two claims of arithmetic, a pair of numbers,
// and sequence numbers that not any values will do for.

#include <algorithm>
#include <array>
#include <functional>

#include "base/errors.h"
#include "catch.h"
#include "interchange/files.h"
#include "interchange/h5.h"
#include "interchange/reader.h"
#include "support/ssd_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem packed_problem(std::map<std::string, AxisValue> axes, const OpSpec& op) {
  axes.merge(std::map<std::string, AxisValue>{{"batch", std::int64_t{2}},
                                              {"seqlen", std::int64_t{5}},
                                              {"nheads", std::int64_t{4}},
                                              {"headdim", std::int64_t{3}},
                                              {"dstate", std::int64_t{6}},
                                              {"groups", std::int64_t{2}},
                                              {"chunk_size", std::int64_t{64}},
                                              {"seq_idx", true},
                                              {"final_states", true}});
  return ssd_problem(axes, op);
}

/// Writes one case "a" whose second batch has these sequence numbers.
void write(const std::string& path, const Problem& problem, const std::vector<std::int32_t>& second) {
  auto inputs = filled_tensors(problem, Role::input);
  for (auto& input : inputs)
    if (input.spec.name == "seq_idx") {
      auto* values = static_cast<std::int32_t*>(input.buffer.data());
      std::fill_n(values, 5, 0);
      std::ranges::copy(second, values + 5);
    }
  InterchangeWriter writer(path, {.producer = "a test", .device = {}, .created = {}, .argv = {}}, true);
  writer.add_case({.id = "a",
                   .problem = problem,
                   .arithmetic = {Math::tf32, DType::bf16},
                   .seed = {},
                   .inputs = views_of(inputs),
                   .outputs = {},
                   .reference = {}});
  writer.finish();
}

std::string complaint(const std::vector<std::int32_t>& second) {
  const TemporaryFolder folder;
  write(folder / "x.h5", packed_problem({}, ssd_chunk_scan_fwd()), second);
  const std::string message =
      message_of<UsageError>([&] { InterchangeFile(folder / "x.h5").read_case("a"); });
  return message.substr(message.find("seq_idx"));
}

}  // namespace

TEST_CASE("a chunked scan is read back as it was written") {
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()})
    for (const char* D : {"none", "head", "headdim"})
      for (const char* limit : {"0..inf", "0.001..0.1", "1e-300..3"}) {
        const TemporaryFolder folder;
        const Problem problem =
            packed_problem({{"D", D}, {"dt_limit", limit}, {"z", true}, {"initial_states", true}}, *op);
        write(folder / "x.h5", problem, {0, 0, 1, 1, 7});
        const CaseRead read = InterchangeFile(folder / "x.h5").read_case("a");
        CHECK(read.problem.axes() == problem.axes());
        CHECK(read.arithmetic == Arithmetic{Math::tf32, DType::bf16});
      }
}

TEST_CASE("sequence numbers that decrease or do not start at 0 are rejected, with their place") {
  CHECK(complaint({0, 0, 1, 0, 2}) == "seq_idx: batch 1 decreases from 1 to 0 at step 3");
  CHECK(complaint({1, 1, 1, 1, 1}) == "seq_idx: batch 1 starts with 1, not with 0");
  CHECK(complaint({-1, 0, 0, 0, 0}) == "seq_idx: batch 1 starts with -1, not with 0");
}

TEST_CASE("a claim or a limit that is missing or makes no sense is rejected") {
  const auto after = [](const std::function<void(hid_t)>& change) {
    const TemporaryFolder folder;
    write(folder / "x.h5", packed_problem({}, ssd_chunk_scan_fwd()), {0, 0, 0, 0, 0});
    {
      const h5::File file(H5Fopen((folder / "x.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "open");
      const h5::Group group(H5Gopen2(file, "/cases/a", H5P_DEFAULT), "open");
      change(group);
    }
    const std::string message =
        message_of<UsageError>([&] { InterchangeFile(folder / "x.h5").read_case("a"); });
    return message.substr(message.find("/cases"));
  };
  const auto replaced = [&](const char* name, auto value) {
    return after([&](hid_t group) {
      H5Adelete(group, name);
      h5::write_attribute(group, name, value);
    });
  };
  CHECK(after([](hid_t group) { H5Adelete(group, "state_dtype"); }) ==
        "/cases/a: the attribute 'state_dtype' is missing");
  CHECK(after([](hid_t group) { H5Adelete(group, "dt_limit"); }) ==
        "/cases/a: the attribute 'dt_limit' is missing");
  CHECK(replaced("state_dtype", std::string("i32")) ==
        "/cases/a: unknown state_dtype 'i32'; this build knows f32, f64, f16, bf16");
  CHECK(replaced("dt_limit", std::int64_t{1}) == "/cases/a: attribute 'dt_limit' is not two values");
  CHECK(replaced("dt_limit", std::array{0.2, 0.1}) ==
        "/cases/a: dt_limit must be two numbers LOW..HIGH with LOW at most HIGH, got 0.2..0.1");
  CHECK(replaced("chunk_size", std::int64_t{0}) ==
        "/cases/a: chunk_size must be an integer of at least 1, got 0");
  CHECK(replaced("chunk_size", std::int64_t{257}) == "/cases/a: chunk_size 257 is over the limit of 256");
}
