#include "interchange/reader.h"

#include <cstring>
#include <fstream>

#include "base/errors.h"
#include "catch.h"
#include "files.h"
#include "interchange/format.h"
#include "interchange/h5.h"
#include "model/method.h"
#include "support/mamba3_problem.h"
#include "support/op_names.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const HostTensor* find_tensor(const std::vector<HostTensor>& tensors, const std::string& name) {
  for (const auto& tensor : tensors)
    if (tensor.spec.name == name) return &tensor;
  return nullptr;
}

void check_same(const std::vector<HostTensor>& read, const std::vector<HostTensor>& written) {
  REQUIRE(read.size() == written.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    const TensorSpec& spec = written[i].spec;
    CAPTURE(spec.name);
    CHECK(read[i].spec.name == spec.name);
    CHECK(read[i].spec.dtype == spec.dtype);
    CHECK(read[i].spec.shape == spec.shape);
    CHECK(read[i].spec.storage_order == spec.storage_order);
    CHECK(std::memcmp(read[i].buffer.data(), written[i].buffer.data(), spec.bytes()) == 0);
  }
}

/// What reading all of a good file says after `change`, without the file's name in front.
std::string complaint_after(const std::function<void(hid_t)>& change,
                            const Problem& problem = full_problem()) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  write_one_case(path, problem);
  change(open_for_change(path));
  const std::string message = message_of<UsageError>([&] { InterchangeFile(path).read_case("a"); });
  return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : "no file in: " + message;
}

}  // namespace

TEST_CASE("what is written is read back, bit for bit, whatever dtype and layout") {
  const TemporaryFolder folder;
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const char* layout : {"bdl", "bld"})
      for (const std::int64_t seqlen : {5, 3000}) {  // 3000: u of every dtype is past 64 KiB, so compressed
        CAPTURE(dtype, layout, seqlen);
        const Problem problem = full_problem({{"dtype", dtype}, {"layout", layout}, {"seqlen", seqlen}});
        const std::string path = folder / problem.id();
        write_one_case(path, problem);
        const CaseRead read = InterchangeFile(path).read_case("a");
        CHECK(read.problem.axes() == problem.axes());
        check_same(read.inputs, filled_tensors(problem, Role::input));
        check_same(read.outputs, filled_tensors(problem, Role::output));
      }
}

TEST_CASE("complex tensors are read back, and A says that they are complex") {
  const TemporaryFolder folder;
  for (const char* layout : {"bdl", "bld"})
    for (const char* B : {"variable", "constant"})
      for (const std::int64_t seqlen : {5, 3000}) {  // 3000: compressed
        const Problem problem = full_problem(
            {{"A", "complex"}, {"dtype", "bf16"}, {"layout", layout}, {"B", B}, {"seqlen", seqlen}});
        CAPTURE(problem.id());
        write_one_case(folder / problem.id(), problem);
        const CaseRead read = InterchangeFile(folder / problem.id()).read_case("a");
        CHECK(read.problem.axes() == problem.axes());
        check_same(read.inputs, filled_tensors(problem, Role::input));
        check_same(read.outputs, filled_tensors(problem, Role::output));
      }
}

TEST_CASE("an A of three axes is dense") {
  const TemporaryFolder folder;
  const Problem problem = full_problem({{"A", "dense"}, {"method", "foh"}, {"layout", "bld"}});
  write_one_case(folder / "dense", problem);
  const CaseRead read = InterchangeFile(folder / "dense").read_case("a");
  CHECK(read.problem.axes() == problem.axes());
  check_same(read.inputs, filled_tensors(problem, Role::input));
  check_same(read.outputs, filled_tensors(problem, Role::output));
}

TEST_CASE("files may hold any method") {
  const TemporaryFolder folder;
  for (const auto& method : method_names()) {
    write_one_case(folder / method, full_problem({{"method", method}}));
    CHECK(InterchangeFile(folder / method).read_case("a").problem.choice("method") == method);
  }
}

TEST_CASE("the problem is rebuilt from attributes, shapes and which datasets there are") {
  const TemporaryFolder folder;
  for (const char* flag : {"D", "z", "delta_bias", "delta_softplus", "initial_state"})
    for (const bool value : {false, true}) {
      CAPTURE(flag, value);
      const Problem problem = full_problem({{flag, value}});
      const std::string path = folder / (std::string(flag) + (value ? "1" : "0"));
      write_one_case(path, problem);
      CHECK(InterchangeFile(path).read_case("a").problem.axes() == problem.axes());
    }
  const std::int64_t one = 1;
  for (const auto& changes : {std::map<std::string, AxisValue>{{"B", "constant"}},
                              {{"C", "constant"}},
                              {{"B", "constant"}, {"C", "constant"}, {"groups", one}},
                              {{"B", "constant"}, {"layout", "bld"}}}) {
    const Problem problem = full_problem(changes);
    CAPTURE(problem.id());
    write_one_case(folder / problem.id(), problem);
    CHECK(InterchangeFile(folder / problem.id()).read_case("a").problem.axes() == problem.axes());
  }
}

TEST_CASE("a file may hold many cases, with seed, arithmetic and any subset of outputs") {
  const TemporaryFolder folder;
  const Problem first = full_problem();
  const Problem second = full_problem({{"dtype", "f16"}});
  const auto first_inputs = filled_tensors(first, Role::input);
  const auto second_inputs = filled_tensors(second, Role::input);
  const auto outputs = filled_tensors(second, Role::output);
  TensorSet only_out;
  only_out.add("out", find_tensor(outputs, "out")->view());
  const FileInfo info{.producer = "P", .device = "D", .created = "C", .argv = "A"};
  InterchangeWriter writer(folder / "x.h5", info, true);
  writer.add_case({"z", first, {}, -7, views_of(first_inputs), {}, {}});
  writer.add_case({"b", second, {Math::f16}, {}, views_of(second_inputs), only_out, {}});
  writer.finish();

  const InterchangeFile file(folder / "x.h5");
  CHECK(file.info().producer == "P");
  CHECK(file.info().device == "D");
  CHECK(file.info().created == "C");
  CHECK(file.info().argv == "A");
  CHECK(file.case_ids() == std::vector<std::string>{"b", "z"});
  const CaseRead z = file.read_case("z");
  CHECK(z.id == "z");
  CHECK(z.seed == -7);
  CHECK(z.arithmetic.math == Math::f32);
  CHECK(z.outputs.empty());
  const CaseRead b = file.read_case("b");
  CHECK_FALSE(b.seed);
  CHECK(b.arithmetic.math == Math::f16);
  REQUIRE(b.outputs.size() == 1);
  CHECK(b.outputs[0].spec.name == "out");
  CHECK(message_of<UsageError>([&] { file.read_case("y"); }) ==
        (folder / "x.h5") + ": /cases/y: there is no such case");
}

TEST_CASE("every operation has its place in the format") {
  for (const OpSpec* op : all_ops()) {
    REQUIRE(op->file.infer != nullptr);
    for (const auto& attribute : op->file.attributes) CHECK(op->find_axis(attribute) != nullptr);
  }
}

TEST_CASE("foreign ways of storing the same are read: fixed strings, booleans, big-endian values") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  const Problem problem = full_problem({{"dtype", "f16"}, {"delta_softplus", false}});
  write_one_case(path, problem);
  {
    const h5::File file = open_for_change(path);
    const h5::Group group(H5Gopen2(file, "/cases/a", H5P_DEFAULT), "open");
    const h5::DataSpace scalar(H5Screate(H5S_SCALAR), "space");

    H5Adelete(group, "layout");
    const h5::DataType fixed(H5Tcopy(H5T_C_S1), "type");
    H5Tset_size(fixed, 6);
    H5Tset_strpad(fixed, H5T_STR_SPACEPAD);
    const h5::Attribute layout(H5Acreate2(group, "layout", fixed, scalar, H5P_DEFAULT, H5P_DEFAULT),
                               "layout");
    H5Awrite(layout, fixed, "bdl   ");

    H5Adelete(group, "delta_softplus");
    const h5::DataType boolean(H5Tenum_create(H5T_NATIVE_INT8), "type");  // as h5py makes numpy.bool_
    const std::int8_t no = 0, yes = 1;
    H5Tenum_insert(boolean, "FALSE", &no);
    H5Tenum_insert(boolean, "TRUE", &yes);
    const h5::Attribute softplus(
        H5Acreate2(group, "delta_softplus", boolean, scalar, H5P_DEFAULT, H5P_DEFAULT), "softplus");
    H5Awrite(softplus, boolean, &yes);

    const hsize_t extents[] = {2, 6, 5};
    delete_link(group, "inputs/u");
    const h5::DataSpace space(H5Screate_simple(3, extents, nullptr), "space");
    const h5::DataType big = h5::type_of(DType::f16, h5::ByteOrder::big);
    const h5::Dataset u(H5Dcreate2(group, "inputs/u", big, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                        "u");
    h5::write_attribute(u, "dtype", std::string("f16"));
    std::vector<unsigned char> values(120);  // 2 bytes of 2 × 6 × 5 elements
    values[0] = 0xC1;                        // 0xC100 is -2.5
    H5Dwrite(u, big, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  }
  const CaseRead read = InterchangeFile(path).read_case("a");
  CHECK(read.problem.axes() == problem.with({{"delta_softplus", true}}).axes());
  CHECK(load_as_double(find_tensor(read.inputs, "u")->buffer.data(), 0, DType::f16) == -2.5);
}

TEST_CASE("files that are not interchange files are named as what they are") {
  const TemporaryFolder folder;
  const auto complaint = [](const std::string& path) {
    return message_of<UsageError>([&] { const InterchangeFile file(path); });
  };
  CHECK(complaint(folder / "no.h5") == (folder / "no.h5") + ": no such file");
  CHECK(complaint(folder / ".") == (folder / ".") + ": not a regular file");
  std::ofstream(folder / "empty.h5").close();
  CHECK(complaint(folder / "empty.h5") == (folder / "empty.h5") + ": not an HDF5 file");
  std::ofstream(folder / "text.h5") << "{\"sweeps\": []}";
  CHECK(complaint(folder / "text.h5") == (folder / "text.h5") + ": not an HDF5 file");
}

TEST_CASE("files of a newer HDF5 say what to do") {
  const TemporaryFolder folder;
  const std::string golden = read_file(SSMBENCH_SOURCE_DIR "/tests/golden/m1_fwd_f32.h5");
  const auto complaint = [&](const std::string& bytes) {
    const InterchangeFile file(folder.write("new.h5", bytes));
    file.read_case("m1_fwd_f32");
  };
  std::string superblock = golden;
  constexpr std::size_t kVersion = 8;  // after the signature
  superblock.at(kVersion) = 4;
  std::string types = golden;  // of f32, little endian: class and version, then bits that say what floats are
  const std::string_view of_f32("\x11\x20\x1F\x00\x04\x00\x00\x00", 8);
  for (auto at = types.find(of_f32); at != types.npos; at = types.find(of_f32, at + 1)) types[at] = 0x51;
  REQUIRE(types != golden);
  for (const auto& bytes : {superblock, types}) {
    const std::string message = message_of<UsageError>([&] { complaint(bytes); });
    INFO(message);
    CHECK(message.find("version number") != message.npos);
    CHECK(message.find("h5repack --low=0 --high=2") != message.npos);
  }
}

TEST_CASE("a file cut short anywhere is rejected") {
  const TemporaryFolder folder;
  for (const std::int64_t seqlen : {5, 3000}) {  // plain datasets, and compressed ones
    const std::string whole = folder / "whole.h5";
    const std::string cut = folder / "cut.h5";
    write_one_case(whole, full_problem({{"seqlen", seqlen}}));
    const auto size = std::filesystem::file_size(whole);
    for (std::uintmax_t length = 0; length < size; length += 1 + size / 200) {
      std::filesystem::copy_file(whole, cut, std::filesystem::copy_options::overwrite_existing);
      std::filesystem::resize_file(cut, length);
      const std::string message = message_of<UsageError>([&] { InterchangeFile(cut).read_case("a"); });
      if (!message.starts_with(cut + ": ") || message.find('\n') != std::string::npos)
        FAIL(length << ": " << message);
    }
    std::filesystem::remove(whole);
  }
}

TEST_CASE("a compressed chunk that was damaged is rejected") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  write_one_case(path, full_problem({{"seqlen", std::int64_t{3000}}}));
  haddr_t address = 0;
  hsize_t size = 0;
  {
    const h5::File file = open_for_change(path);
    const h5::Dataset u(H5Dopen2(file, "/cases/a/inputs/u", H5P_DEFAULT), "open");
    const hsize_t first[] = {0, 0, 0};
    unsigned filters = 0;
    h5::check(H5Dget_chunk_info_by_coord(u, first, &filters, &address, &size), "find the chunk");
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(address + size / 2));
  file << "damaged";
  file.close();
  CHECK(message_of<UsageError>([&] {
          InterchangeFile(path).read_case("a");
        }).starts_with(path + ": /cases/a/inputs/u: cannot read the values: "));
}

TEST_CASE("file attributes that are missing or unknown are rejected") {
  CHECK(complaint_after([](hid_t file) { delete_attribute(file, "/", "schema"); }) ==
        "/: the attribute 'schema' is missing");
  CHECK(complaint_after([](hid_t file) {
          replace_attribute(file, "/", "schema", std::string("ssmbench-interchange/2"));
        }) == "/: the schema is 'ssmbench-interchange/2', this build reads 'ssmbench-interchange/1'");
  CHECK(complaint_after([](hid_t file) { delete_attribute(file, "/", "producer"); }) ==
        "/: the attribute 'producer' is missing");
  CHECK(complaint_after([](hid_t file) { delete_link(file, "/cases"); }) == "/cases: the group is missing");
}

TEST_CASE("case attributes that are missing or unknown are rejected") {
  for (const char* name : {"op", "dtype", "layout", "math", "method", "delta_softplus"})
    CHECK(complaint_after([&](hid_t file) { delete_attribute(file, "/cases/a", name); }) ==
          "/cases/a: the attribute '" + std::string(name) + "' is missing");
  const auto after_setting = [](const char* name, const std::string& value) {
    return complaint_after([&](hid_t file) { replace_attribute(file, "/cases/a", name, value); });
  };
  CHECK(after_setting("op", "matmul") == "/cases/a: unknown op 'matmul'; this build knows " + op_names());
  CHECK(after_setting("method", "euler") ==
        "/cases/a: method must be one of zoh, foh, bilinear, bilinear_flipped, poly, highorder, rk4, "
        "vim_foh, vim_poly, vim_highorder, foh_exact, trapezoidal, got euler");
  CHECK(after_setting("dtype", "f64") == "/cases/a: dtype must be one of f32, f16, bf16, got f64");
  CHECK(after_setting("math", "fp8") ==
        "/cases/a: unknown math 'fp8'; this build knows f32, f64, tf32, f16, bf16");
  CHECK(after_setting("delta_softplus", "yes") ==
        "/cases/a: attribute 'delta_softplus' is neither an integer nor a boolean");
  CHECK(complaint_after([](hid_t file) {
          replace_attribute(file, "/cases/a", "delta_softplus", std::int64_t{2});
        }) == "/cases/a: the attribute 'delta_softplus' must be 0 or 1, got 2");
  CHECK(complaint_after([](hid_t file) { replace_attribute(file, "/cases/a", "op", std::int64_t{1}); }) ==
        "/cases/a: attribute 'op' is not a string");
}

TEST_CASE("groups and tensors that are missing or unknown are rejected") {
  CHECK(complaint_after([](hid_t file) { h5::create_group(file, "/cases/a/output"); }) ==
        "/cases/a/output: unknown; a case has inputs, outputs, reference");
  CHECK(complaint_after([](hid_t file) { delete_link(file, "/cases/a/inputs"); }) ==
        "/cases/a/inputs: the group is missing");
  for (const char* name : {"u", "delta", "A", "B", "C"}) {
    const std::string path = "/cases/a/inputs/" + std::string(name);
    CHECK(complaint_after([&](hid_t file) { delete_link(file, path.c_str()); }) ==
          path + ": the dataset is missing");
  }
  CHECK(
      complaint_after(
          [](hid_t file) { replace_dataset(file, "/cases/a/inputs/w", {3}, DType::f32, "f32"); }) ==
      "/cases/a/inputs/w: unknown tensor; with these options there are u, delta, A, B, C, D, z, delta_bias, "
      "initial_state");
  CHECK(complaint_after([](hid_t file) {
          replace_dataset(file, "/cases/a/outputs/y", {3}, DType::f32, "f32");
        }) == "/cases/a/outputs/y: unknown tensor; with these options there are out, last_state");
  CHECK(complaint_after([](hid_t file) {
          h5::create_group(file, "/cases/a/reference");
          replace_dataset(file, "/cases/a/reference/out", {2, 6, 5}, DType::f32, "f32");
        }) == "/cases/a/reference/out: expected f64, found f32");
  CHECK(complaint_after([](hid_t file) {
          delete_link(file, "/cases/a/inputs/u");
          h5::create_group(file, "/cases/a/inputs/u");
        }).starts_with("/cases/a/inputs/u: cannot open the dataset: "));
}

TEST_CASE("datasets of the wrong shape are rejected") {
  const auto with_shape = [](const std::string& name, const std::vector<hsize_t>& shape) {
    const std::string path = "/cases/a/" + name;
    const std::string message =
        complaint_after([&](hid_t file) { replace_dataset(file, path, shape, DType::f32, "f32"); });
    return message.starts_with("/cases/a/") ? message.substr(std::strlen("/cases/a/")) : message;
  };
  CHECK(with_shape("inputs/u", {2, 6}) == "inputs/u: expected 3 axes, found 2");
  CHECK(with_shape("inputs/A", {3}) == "inputs/A: expected 2 axes, found 1");
  CHECK(with_shape("inputs/B", {2, 3, 5}) ==
        "inputs/B: expected 2 axes (constant) or 4 (one value per step), found 3");
  CHECK(with_shape("inputs/delta", {2, 6, 4}) == "inputs/delta: expected shape 2×6×5, found 2×6×4");
  CHECK(with_shape("inputs/z", {2, 5, 6}) == "inputs/z: expected shape 2×6×5, found 2×5×6");
  CHECK(with_shape("inputs/C", {2, 3, 3, 5}) == "inputs/C: expected shape 2×2×3×5, found 2×3×3×5");
  CHECK(with_shape("inputs/D", {6, 1}) == "inputs/D: expected 1 axes, found 2");
  CHECK(with_shape("outputs/out", {2, 6, 6}) == "outputs/out: expected shape 2×6×5, found 2×6×6");
  CHECK(with_shape("outputs/last_state", {}) == "outputs/last_state: expected 3 axes, found 0");
  CHECK(with_shape("inputs/B", {2, 4, 3, 5}) == "/cases/a: dim 6 is not a multiple of groups 4");
}

TEST_CASE("sizes that no machine holds are rejected before memory is asked for") {
  const auto with_seqlen = [](hsize_t seqlen) {
    return complaint_after([&](hid_t file) {
      const std::string inputs = "/cases/a/inputs/";
      for (const char* name : {"u", "delta", "z"})
        replace_dataset_unwritten(file, inputs + name, {2, 6, seqlen}, DType::f32, "f32");
      for (const char* name : {"B", "C"})
        replace_dataset_unwritten(file, inputs + name, {2, 2, 3, seqlen}, DType::f32, "f32");
    });
  };
  // 2·6·2^50 f32 are 48 PiB; at 2^60 the byte count of u overflows 64 bits.
  for (const int power : {50, 60})
    CHECK(with_seqlen(hsize_t{1} << power)
              .starts_with("/cases/a: tensors up to 'u' (2×6×" + std::to_string(std::int64_t{1} << power) +
                           ") need more than this machine's memory of "));
  CHECK(complaint_after([](hid_t file) {
          replace_dataset_unwritten(file, "/cases/a/inputs/u", {2, 6, 0}, DType::f32, "f32");
        }) == "/cases/a: seqlen must be an integer of at least 1, got 0");
}

TEST_CASE("datasets of the wrong type are rejected") {
  const auto with_type = [](const std::string& name, const std::vector<hsize_t>& shape, DType stored,
                            const std::string& attribute) {
    return complaint_after(
        [&](hid_t file) { replace_dataset(file, "/cases/a/inputs/" + name, shape, stored, attribute); });
  };
  CHECK(with_type("u", {2, 6, 5}, DType::f32, "") == "/cases/a/inputs/u: the attribute 'dtype' is missing");
  CHECK(with_type("u", {2, 6, 5}, DType::f32, "fp32") == "/cases/a/inputs/u: unknown dtype 'fp32'");
  CHECK(with_type("u", {2, 6, 5}, DType::f32, "bf16") ==
        "/cases/a/inputs/u: the attribute 'dtype' says bf16, but values are stored as 4-byte float");
  CHECK(
      with_type("u", {2, 6, 5}, DType::bf16, "f16") ==
      "/cases/a/inputs/u: the attribute 'dtype' says f16, but values are stored as 2-byte unsigned integer");
  CHECK(with_type("u", {2, 6, 5}, DType::i32, "f32") ==
        "/cases/a/inputs/u: the attribute 'dtype' says f32, but values are stored as 4-byte signed integer");
  CHECK(with_type("u", {2, 6, 5}, DType::f16, "f16") == "/cases/a/inputs/u: expected f32, found f16");
  CHECK(with_type("D", {6}, DType::f64, "f64") == "/cases/a/inputs/D: expected f32, found f64");
  CHECK(with_type("A", {6, 3}, DType::f64, "f64") == "/cases/a/inputs/A: expected f32, found f64");
}

TEST_CASE(
    "where an operation allows it, tensors have other dtypes: outputs keep theirs, inputs are widened") {
  const Problem problem = mamba3_problem({{"initial_states", true}, {"final_states", true}});
  const auto with_type = [&](const std::string& path, DType stored) {
    return complaint_after(
        [&](hid_t file) {
          replace_dataset(file, "/cases/a/" + path, {1, 1, 1}, stored, std::string(name_of(stored)));
        },
        problem);
  };
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    CHECK(with_type("outputs/Final_V_State", dtype) == "no file in: (nothing was thrown)");
    const std::string of_input = with_type("inputs/Input_V_State", dtype);
    CHECK(of_input == (dtype == DType::f64 ? "/cases/a/inputs/Input_V_State: expected f32, found f64"
                                           : "no file in: (nothing was thrown)"));
  }
  CHECK(with_type("outputs/Final_V_State", DType::i32) ==
        "/cases/a/outputs/Final_V_State: expected f32, found i32");
  CHECK(with_type("inputs/DT", DType::f16) == "/cases/a/inputs/DT: expected f32, found f16");

  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  write_one_case(path, problem);
  {
    const h5::File file = open_for_change(path);
    const auto dataset =
        replace_dataset_unwritten(file, "/cases/a/inputs/Input_V_State", {1, 1, 1}, DType::bf16, "bf16");
    const std::uint16_t value = float_to_bf16(-1.5F);
    h5::check(H5Dwrite(dataset, h5::native_type_of(DType::bf16), H5S_ALL, H5S_ALL, H5P_DEFAULT, &value),
              "write");
  }
  const CaseRead read = InterchangeFile(path).read_case("a");
  const HostTensor* widened = find_tensor(read.inputs, "Input_V_State");
  REQUIRE(widened->spec.dtype == DType::f32);
  CHECK(*static_cast<const float*>(widened->buffer.data()) == -1.5F);
}

TEST_CASE("tensors of which some are complex and some are not are rejected") {
  // A decides: B, C and the states have to be as it is.
  CHECK(complaint_after([](hid_t file) {
          replace_dataset(file, "/cases/a/inputs/A", {6, 3}, DType::c64, "c64");
        }) == "/cases/a/inputs/B: expected c64, found f32");
  CHECK(complaint_after([](hid_t file) {
          replace_dataset(file, "/cases/a/inputs/C", {2, 2, 3, 5}, DType::c64, "c64");
        }) == "/cases/a/inputs/C: expected f32, found c64");
  const Problem complex = full_problem({{"A", "complex"}});
  const auto complaint = [&](const std::string& name, const std::vector<hsize_t>& shape, DType dtype) {
    return complaint_after(
        [&](hid_t file) {
          replace_dataset(file, "/cases/a/" + name, shape, dtype, std::string(name_of(dtype)));
        },
        complex);
  };
  CHECK(complaint("inputs/A", {6, 3}, DType::f32) == "/cases/a/inputs/B: expected f32, found c64");
  CHECK(complaint("inputs/B", {6, 3}, DType::f32) == "/cases/a/inputs/B: expected c64, found f32");
  CHECK(complaint("inputs/initial_state", {2, 6, 3}, DType::f32) ==
        "/cases/a/inputs/initial_state: expected c64, found f32");
  CHECK(complaint("inputs/u", {2, 6, 5}, DType::c64) == "/cases/a/inputs/u: expected f32, found c64");
  CHECK(complaint("outputs/last_state", {2, 6, 3}, DType::f32) ==
        "/cases/a/outputs/last_state: expected c64, found f32");
  CHECK(complaint_after(
            [](hid_t file) {
              replace_dataset(file, "/cases/a/inputs/A", {6, 3}, DType::f64, "c64");
            },
            complex) ==
        "/cases/a/inputs/A: the attribute 'dtype' says c64, but values are stored as 8-byte float");
  CHECK(complaint_after(
            [](hid_t file) {
              h5::create_group(file, "/cases/a/reference");
              replace_dataset(file, "/cases/a/reference/last_state", {2, 6, 3}, DType::f64, "f64");
            },
            complex) == "/cases/a/reference/last_state: expected 4 axes, found 3");
}

TEST_CASE("a dataset that was created but never written is rejected") {
  CHECK(complaint_after([](hid_t file) {
          replace_dataset_unwritten(file, "/cases/a/outputs/out", {2, 6, 5}, DType::f32, "f32");
        }) == "/cases/a/outputs/out: no values have been written");
}

TEST_CASE("a name with a line break in it does not break the message's one line") {
  CHECK(complaint_after([](hid_t file) { h5::create_group(file, "/cases/a/in\nputs"); }) ==
        "/cases/a/in?puts: unknown; a case has inputs, outputs, reference");
}
