#include "interchange/writer.h"

#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "base/errors.h"
#include "catch.h"
#include "files.h"
#include "interchange/h5.h"
#include "interchange/reader.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const FileInfo kInfo{
    .producer = "a test", .device = "a CPU", .created = "2000-01-01T00:00:00Z", .argv = "x --y"};

h5::File open_read_only(const std::string& path) {
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "open"};
}

h5::Dataset open_dataset(const h5::File& file, const std::string& path) {
  return {H5Dopen2(file, path.c_str(), H5P_DEFAULT), "open"};
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Makes writes past `bytes` of any file fail with EFBIG, as a full disk makes them fail with ENOSPC.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit old_{};
};

}  // namespace

TEST_CASE("a written file says who made it and what its cases are") {
  const TemporaryFolder folder;
  const Problem problem = full_problem({{"layout", "bld"}, {"delta_softplus", false}});
  const auto inputs = filled_tensors(problem, Role::input);
  InterchangeWriter writer(folder / "x.h5", kInfo, true);
  writer.add_case({"a", problem, {}, 42, views_of(inputs), {}, {}});
  writer.finish();

  const h5::File file = open_read_only(folder / "x.h5");
  CHECK(h5::read_text(file, "schema") == "ssmbench-interchange/1");
  CHECK(h5::read_text(file, "producer") == "a test");
  CHECK(h5::read_text(file, "device") == "a CPU");
  CHECK(h5::read_text(file, "created") == "2000-01-01T00:00:00Z");
  CHECK(h5::read_text(file, "argv") == "x --y");
  const h5::Group group(H5Gopen2(file, "/cases/a", H5P_DEFAULT), "open");
  CHECK(h5::read_text(group, "op") == "selective_scan_fwd");
  CHECK(h5::read_text(group, "dtype") == "f32");
  CHECK(h5::read_text(group, "layout") == "bld");
  CHECK(h5::read_text(group, "math") == "f32");
  CHECK(h5::read_text(group, "method") == "zoh");
  CHECK(h5::read_integer(group, "delta_softplus") == 0);
  CHECK(h5::read_integer(group, "seed") == 42);
}

TEST_CASE("what is not known is not written") {
  const TemporaryFolder folder;
  write_one_case(folder / "x.h5", full_problem());
  const h5::File file = open_read_only(folder / "x.h5");
  CHECK_FALSE(h5::read_text(file, "device"));
  const h5::Group group(H5Gopen2(file, "/cases/a", H5P_DEFAULT), "open");
  CHECK_FALSE(h5::read_integer(group, "seed"));
  CHECK(h5::members(group) == std::vector<std::string>{"inputs", "outputs"});
}

TEST_CASE("datasets have the types, shapes and names of the format") {
  const TemporaryFolder folder;
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    const std::string path = folder / dtype;
    write_one_case(path, full_problem({{"dtype", dtype}, {"layout", "bld"}}));
    const h5::File file = open_read_only(path);
    const h5::Dataset u = open_dataset(file, "/cases/a/inputs/u");
    CHECK(h5::read_text(u, "dtype") == dtype);
    CHECK(h5::extents(u) == Shape{2, 5, 6});
    CHECK(h5::extents(open_dataset(file, "/cases/a/inputs/B")) == Shape{2, 5, 2, 3});
    CHECK(h5::extents(open_dataset(file, "/cases/a/outputs/last_state")) == Shape{2, 6, 3});
    CHECK(h5::read_text(open_dataset(file, "/cases/a/inputs/A"), "dtype") == "f32");

    const h5::DataType type(H5Dget_type(u), "type");
    if (std::string(dtype) == "bf16") {
      CHECK(H5Tget_class(type) == H5T_INTEGER);
      CHECK(H5Tget_sign(type) == H5T_SGN_NONE);
      CHECK(H5Tget_size(type) == 2);
    } else {
      std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
      REQUIRE(H5Tget_class(type) == H5T_FLOAT);
      H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits);
      const bool half = std::string(dtype) == "f16";  // IEEE 754 binary16 and binary32
      CHECK(H5Tget_size(type) == (half ? 2 : 4));
      CHECK(sign == (half ? 15 : 31));
      CHECK(exponent == (half ? 10 : 23));
      CHECK(exponent_bits == (half ? 5 : 8));
      CHECK(mantissa == 0);
      CHECK(mantissa_bits == (half ? 10 : 23));
      CHECK(H5Tget_ebias(type) == (half ? 15 : 127));
      CHECK(H5Tget_norm(type) == H5T_NORM_IMPLIED);
    }
  }
}

TEST_CASE("past 64 KiB datasets are chunked, shuffled and gzipped, unless compression is off") {
  const TemporaryFolder folder;
  // u holds 2 · 4 · L f32: 65536 bytes at L = 2048, the last size that stays plain, and 32 more at L = 2049.
  // At L = 300000 it is 9.6 MB, more than the 1 MiB of a chunk.
  struct Expected {
    std::int64_t seqlen;
    bool compress, chunked;
  };
  for (const auto& [seqlen, compress, chunked] :
       {Expected{2048, true, false}, {2049, true, true}, {300000, true, true}, {2049, false, false}}) {
    const std::string path = folder / "x.h5";
    write_one_case(path, full_problem({{"dim", std::int64_t{4}}, {"seqlen", seqlen}}), compress);
    {
      const h5::File file = open_read_only(path);
      const h5::Dataset u = open_dataset(file, "/cases/a/inputs/u");
      const h5::PropertyList properties(H5Dget_create_plist(u), "properties");
      CHECK((H5Pget_layout(properties) == H5D_CHUNKED) == chunked);
      CHECK(H5Pget_nfilters(properties) == (chunked ? 2 : 0));
      if (chunked) {
        CHECK(H5Pget_filter2(properties, 0, nullptr, nullptr, nullptr, 0, nullptr, nullptr) ==
              H5Z_FILTER_SHUFFLE);
        CHECK(H5Pget_filter2(properties, 1, nullptr, nullptr, nullptr, 0, nullptr, nullptr) ==
              H5Z_FILTER_DEFLATE);
        hsize_t chunk[3] = {};
        H5Pget_chunk(properties, 3, chunk);
        CHECK(chunk[0] * chunk[1] * chunk[2] * sizeof(float) <= 1U << 20U);
      }
    }
    std::filesystem::remove(path);
  }
}

TEST_CASE("the reference is given in logical order and lies in the order of the layout") {
  const TemporaryFolder folder;
  const Problem problem = full_problem({{"layout", "bld"}, {"dtype", "bf16"}});
  const auto inputs = filled_tensors(problem, Role::input);
  const std::int64_t batch = 2, dim = 6, seqlen = 5;
  std::vector<double> out;
  for (int b = 0; b < batch; ++b)
    for (int d = 0; d < dim; ++d)
      for (int t = 0; t < seqlen; ++t) out.push_back(100 * b + 10 * d + t);
  InterchangeWriter writer(folder / "x.h5", kInfo, true);
  writer.add_case({"a", problem, {}, {}, views_of(inputs), {}, {{"out", out}}});
  writer.finish();

  const h5::File file = open_read_only(folder / "x.h5");
  const h5::Dataset dataset = open_dataset(file, "/cases/a/reference/out");
  CHECK(h5::read_text(dataset, "dtype") == "f64");
  REQUIRE(h5::extents(dataset) == Shape{batch, seqlen, dim});
  std::vector<double> stored(out.size());
  H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored.data());
  for (int b = 0; b < batch; ++b)
    for (int t = 0; t < seqlen; ++t)
      for (int d = 0; d < dim; ++d) CHECK(stored[(b * seqlen + t) * dim + d] == 100 * b + 10 * d + t);
}

TEST_CASE("complex values are compounds of r and i, as h5py has them") {
  const TemporaryFolder folder;
  write_one_case(folder / "x.h5", full_problem({{"A", "complex"}, {"dtype", "f16"}, {"layout", "bld"}}));
  const h5::File file = open_read_only(folder / "x.h5");
  for (const auto& [name, shape] : std::map<std::string, Shape>{{"inputs/A", {6, 3}},
                                                                {"inputs/B", {2, 5, 2, 3}},
                                                                {"inputs/initial_state", {2, 6, 3}},
                                                                {"outputs/last_state", {2, 6, 3}}}) {
    CAPTURE(name);
    const h5::Dataset dataset = open_dataset(file, "/cases/a/" + name);
    CHECK(h5::read_text(dataset, "dtype") == "c64");
    CHECK(h5::extents(dataset) == shape);
    const h5::DataType type(H5Dget_type(dataset), "type");
    REQUIRE(H5Tget_class(type) == H5T_COMPOUND);
    REQUIRE(H5Tget_nmembers(type) == 2);
    CHECK(H5Tget_size(type) == 8);
    CHECK(H5Tget_member_index(type, "r") == 0);
    CHECK(H5Tget_member_index(type, "i") == 1);
  }
  CHECK(h5::read_text(open_dataset(file, "/cases/a/inputs/u"), "dtype") == "f16");
}

TEST_CASE("the reference of a complex output is in pairs of real and imaginary part") {
  const TemporaryFolder folder;
  const Problem problem = full_problem({{"A", "complex"}});
  const auto inputs = filled_tensors(problem, Role::input);
  std::vector<double> state(72);  // batch 2, dim 6, dstate 3, two parts
  for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<double>(i);
  InterchangeWriter writer(folder / "x.h5", kInfo, true);
  writer.add_case({"a", problem, {}, {}, views_of(inputs), {}, {{"last_state", state}}});
  writer.finish();
  {
    const h5::File file = open_read_only(folder / "x.h5");
    const h5::Dataset dataset = open_dataset(file, "/cases/a/reference/last_state");
    CHECK(h5::read_text(dataset, "dtype") == "f64");
    REQUIRE(h5::extents(dataset) == Shape{2, 6, 3, 2});
    std::vector<double> stored(state.size());
    H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored.data());
    CHECK(stored == state);
  }
  CHECK(InterchangeFile(folder / "x.h5").read_case("a").problem.axes() == problem.axes());
}

TEST_CASE("a file that exists is refused and stays as it is") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  std::ofstream(path) << "precious";
  CHECK(message_of<UsageError>([&] { InterchangeWriter(path, kInfo, true); }) ==
        path + " exists already; it is not overwritten");
  CHECK(contents(path) == "precious");
  CHECK(folder.entries() == std::vector<std::string>{"x.h5"});
}

TEST_CASE("a file that appears while another is being written is not overwritten") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  {
    InterchangeWriter writer(path, kInfo, true);
    std::ofstream(path) << "precious";
    CHECK(message_of<UsageError>([&] { writer.finish(); }) ==
          path + " exists already; it is not overwritten");
  }
  CHECK(contents(path) == "precious");
  CHECK(folder.entries() == std::vector<std::string>{"x.h5"});
}

TEST_CASE("the final name appears with finish, and without it nothing stays behind") {
  const TemporaryFolder folder;
  {
    InterchangeWriter writer(folder / "x.h5", kInfo, true);
    REQUIRE(folder.entries().size() == 1);
    CHECK(folder.entries()[0] != "x.h5");
  }
  CHECK(folder.entries().empty());
  write_one_case(folder / "x.h5", full_problem());
  CHECK(folder.entries() == std::vector<std::string>{"x.h5"});
}

TEST_CASE("a folder that is not there is a usage error") {
  const TemporaryFolder folder;
  const std::string path = folder / "no/x.h5";
  CHECK(message_of<UsageError>([&] { InterchangeWriter(path, kInfo, true); }) ==
        "cannot create " + path + ": No such file or directory");
}

TEST_CASE("tensors that do not fit the problem are refused and the file stays usable") {
  const TemporaryFolder folder;
  const Problem problem = full_problem();
  const auto inputs = filled_tensors(problem, Role::input);
  const auto outputs = filled_tensors(problem, Role::output);
  const auto others = filled_tensors(full_problem({{"layout", "bld"}}), Role::input);
  const std::vector<double> short_reference(7);
  InterchangeWriter writer(folder / "x.h5", kInfo, true);
  const auto refusal = [&](const CaseToWrite& the_case) {
    return message_of<ContractError>([&] { writer.add_case(the_case); });
  };
  TensorSet all = views_of(inputs);
  TensorSet only_delta;
  only_delta.add("delta", all.at("delta"));

  CHECK(refusal({"a/b", problem, {}, {}, views_of(inputs), {}, {}}) == "'a/b' cannot be the id of a case");
  CHECK(refusal({"a", problem, {}, {}, only_delta, {}, {}}) == "tensor 'u' is missing");
  CHECK(refusal({"a", problem, {}, {}, views_of(inputs), views_of(inputs), {}}) ==
        "selective_scan_fwd has no tensor 'A' with these options");
  CHECK(refusal({"a", problem, {}, {}, views_of(others), {}, {}}) ==
        "tensor 'B' is not as " + problem.id() + " has it: f32 2×2×3×5 in layout bdl");
  CHECK(refusal({"a", problem, {}, {}, views_of(inputs), {}, {{"out", short_reference}}}) ==
        "the reference of 'out' has 7 values, " + problem.id() + " has 2×6×5");

  const CaseToWrite good{"a", problem, {}, {}, views_of(inputs), views_of(outputs), {}};
  writer.add_case(good);
  CHECK(refusal(good) == "case 'a' is in the file already");
  writer.finish();
  CHECK(InterchangeFile(folder / "x.h5").read_case("a").outputs.size() == 2);
}

TEST_CASE("a disk that fills up at any byte gives one error, no file and no crash") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  for (const bool compress : {false, true}) {
    // 80 KB tensors, so that the compressed file has chunks, and a problem small enough to fail at every
    // write.
    const Problem problem = full_problem({{"seqlen", std::int64_t{1700}}});
    write_one_case(path, problem, compress);
    const auto whole = std::filesystem::file_size(path);
    std::filesystem::remove(path);
    int failures = 0;
    for (rlim_t limit = 0; limit < whole; limit += whole / 100) {
      const FileSizeLimit full(limit);
      const std::string message = message_of<OutputError>([&] { write_one_case(path, problem, compress); });
      if (message != "cannot write " + path + ": File too large") FAIL(limit << ": " << message);
      if (!folder.entries().empty()) FAIL(limit << ": left " << folder.entries()[0]);
      ++failures;
    }
    CHECK(failures >= 100);
    write_one_case(path, problem, compress);  // HDF5 is none the worse for it
    CHECK(InterchangeFile(path).read_case("a").inputs.size() == 9);
    std::filesystem::remove(path);
  }
}

TEST_CASE("after a failure the writer refuses to go on") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.h5";
  const Problem problem = full_problem({{"seqlen", std::int64_t{1700}}});
  const auto inputs = filled_tensors(problem, Role::input);
  InterchangeWriter writer(path, kInfo, true);
  {
    const FileSizeLimit full(4096);
    CHECK_THROWS_AS(writer.add_case({"a", problem, {}, {}, views_of(inputs), {}, {}}), OutputError);
  }
  CHECK(message_of<OutputError>([&] { writer.finish(); }) == path + " was given up after an earlier failure");
  CHECK_FALSE(std::filesystem::exists(path));
}
