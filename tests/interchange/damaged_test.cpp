// Damaged and inconsistent copies of the golden files: exit code 2 and one line that says what is wrong,
// never a crash, and a pass only of outputs that are right.

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/errors.h"
#include "catch.h"
#include "check/difference.h"
#include "files.h"
#include "interchange/format.h"
#include "interchange/reader.h"
#include "interchange/rehearse.h"
#include "support/host_tensors.h"
#include "support/run_command.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::string bytes_of(const std::filesystem::path& path) {
  return read_file(path);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// What reading the case of a copy says after `change`, without the file's name in front.
std::string complaint_after(const std::filesystem::path& golden, const std::function<void(hid_t)>& change) {
  const TemporaryFolder folder;
  const std::string copy = folder / "copy.h5";
  std::filesystem::copy_file(golden, copy);
  change(open_for_change(copy));
  const std::string message = message_of<UsageError>([&] { InterchangeFile(copy).read_case(golden.stem()); });
  return message.starts_with(copy + ": ") ? message.substr(copy.size() + 2)
                                          : fmt::format("no file in: {}", message);
}

/// Real, complex and a step, forward and backward, f32 and bf16.
std::vector<std::filesystem::path> some_golden_files() {
  std::vector<std::filesystem::path> files;
  for (const char* name : {"m1_fwd_f32", "m1_bwd_c64", "step_m1_bf16"})
    files.emplace_back(SSMBENCH_SOURCE_DIR + fmt::format("/tests/golden/{}.h5", name));
  return files;
}

}  // namespace

TEST_CASE("golden files cut at every sixteenth of their length: exit code 2, a line each, no pass") {
  const TemporaryFolder folder;
  std::string arguments;
  std::vector<std::string> copies;
  for (const auto& golden : golden_files()) {
    const std::string bytes = bytes_of(golden);
    for (std::size_t part = 0; part < 16; ++part) {
      copies.push_back(folder.write(golden.stem().string() + "-" + std::to_string(part) + ".h5",
                                    std::string_view(bytes).substr(0, bytes.size() * part / 16)));
      arguments += fmt::format(" {}", copies.back());
    }
  }
  const CommandResult result = run_ssmbench("check" + arguments);
  CHECK(result.exit_code == 2);
  CHECK(result.out == "0 pass, 0 fail\n");
  const auto lines = lines_of(result.err);
  REQUIRE(lines.size() == copies.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].starts_with(fmt::format("ssmbench: {}: ", copies[i]))) FAIL(copies[i] << ": " << lines[i]);
}

TEST_CASE("golden files with flipped bytes: no crash, and a pass only of outputs that are right") {
  const TemporaryFolder folder;
  std::mt19937 random(20261122);  // NOLINT(cert-msc51-cpp): the same flips each time
  std::string arguments;
  std::map<std::string, std::filesystem::path> original;
  for (const auto& golden : some_golden_files()) {
    const std::string bytes = bytes_of(golden);
    for (int copy = 0; copy < 4; ++copy) {
      std::string flipped = bytes;
      // Half of them in the first kilobytes, where what describes the data is.
      const std::size_t range = copy % 2 == 0 ? std::min<std::size_t>(6000, bytes.size()) : bytes.size();
      for (int flip = 0; flip <= copy / 2; ++flip)
        flipped[random() % range] ^= static_cast<char>(1 + random() % 255);
      const auto path = folder.write(golden.stem().string() + "-" + std::to_string(copy) + ".h5", flipped);
      original[path] = golden;
      arguments += fmt::format(" {}", path.string());
    }
  }
  const CommandResult result = run_ssmbench("check --quiet --json -" + arguments);
  CHECK((result.exit_code == 1 || result.exit_code == 2));  // some have to be found out
  for (const auto& line : lines_of(result.err)) CHECK(line.starts_with("ssmbench: "));
  std::size_t passed = 0;
  for (const auto& line : lines_of(result.out)) {
    const auto record = nlohmann::json::parse(line);
    if (record.at("status") != "pass") continue;
    ++passed;
    const std::string file = record.at("file");
    CAPTURE(file);
    const auto& golden = original.at(file);
    const CaseRead right = InterchangeFile(golden).read_case(golden.stem());
    const InterchangeFile opened(file);
    const CaseRead copy = opened.read_case(opened.case_ids().front());  // JSON shows no id that is not UTF-8
    if (!different_inputs(right, copy).empty()) continue;               // judged by what they give
    for (const auto& output : compare_cases(right, copy, never_stop)) CHECK(output.agrees());
  }
  CHECK(passed < original.size());
}

TEST_CASE("HDF5 prints nothing of its own at exit about what it cannot close") {
  const TemporaryFolder folder;
  std::string bytes = bytes_of(SSMBENCH_SOURCE_DIR "/tests/golden/m1_bwd_c64.h5");
  bytes.at(1789) = '\xD2';  // a group is said to take more memory than there is, and is then open for good
  const std::string path = folder.write("copy.h5", bytes);
  const CommandResult result = run_ssmbench("check --quiet " + path);
  CHECK(result.exit_code == 2);
  const auto lines = lines_of(result.err);
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().starts_with("ssmbench: " + path + ": /cases/m1_bwd_c64: "));
}

TEST_CASE("a golden file without one of its inputs names it") {
  for (const auto& golden : golden_files()) {
    const std::string inputs = fmt::format("/cases/{}/inputs/", golden.stem().string());
    for (const auto& tensor : InterchangeFile(golden).read_case(golden.stem()).inputs) {
      const std::string path = inputs + tensor.spec.name;
      const std::string message = complaint_after(golden, [&](hid_t file) { delete_link(file, path); });
      // Without an optional input there is one gradient too many, or out has another shape.
      const bool optional =
          message.find("/outputs/d" + tensor.spec.name + ": unknown tensor") != message.npos ||
          (tensor.spec.name == "MIMO_Out" && message.find("/outputs/out: expected 5 axes") != message.npos);
      const bool absent = message == "(nothing was thrown)" || message.ends_with("(nothing was thrown)");
      if (message != path + ": the dataset is missing" && !optional && !absent) FAIL(path << ": " << message);
    }
  }
}

TEST_CASE("a golden file whose tensors disagree about a size names the tensor") {
  for (const auto& golden : some_golden_files()) {
    const std::string group = fmt::format("/cases/{}", golden.stem().string());
    const CaseRead read = InterchangeFile(golden).read_case(golden.stem());
    for (const auto* tensors : {&read.inputs, &read.outputs})
      for (const auto& tensor : *tensors) {
        const std::string path =
            group + (tensors == &read.inputs ? "/inputs/" : "/outputs/") + tensor.spec.name;
        const Shape stored = tensor.spec.stored_shape();
        std::vector<hsize_t> shape(stored.begin(), stored.end());
        shape.back() += 1;
        const std::string message = complaint_after(golden, [&](hid_t file) {
          replace_dataset_unwritten(file, path, shape, tensor.spec.dtype,
                                    std::string(name_of(tensor.spec.dtype)));
        });
        // Where this tensor decides about the size, it is another one that does not fit.
        if (!message.starts_with(group)) FAIL(path << ": " << message);
      }
  }
}

TEST_CASE("a golden file whose dtype attribute disagrees with its storage names the tensor") {
  for (const auto& golden : some_golden_files()) {
    const std::string group = fmt::format("/cases/{}", golden.stem().string());
    const CaseRead read = InterchangeFile(golden).read_case(golden.stem());
    for (const auto* tensors : {&read.inputs, &read.outputs})
      for (const auto& tensor : *tensors) {
        const std::string path =
            group + (tensors == &read.inputs ? "/inputs/" : "/outputs/") + tensor.spec.name;
        const std::string other = tensor.spec.dtype == DType::f64 ? "i32" : "f64";
        const std::string message =
            complaint_after(golden, [&](hid_t file) { replace_attribute(file, path, "dtype", other); });
        if (!message.starts_with(path + ": the attribute 'dtype' says " + other +
                                 ", but values are stored as "))
          FAIL(path << ": " << message);
      }
  }
}

TEST_CASE("golden files with a NaN in an input: exit code 2, which names the input") {
  const TemporaryFolder folder;
  std::string arguments;
  std::vector<std::string> expected;
  for (const auto& golden : some_golden_files()) {
    const std::string id = golden.stem();
    const CaseRead read = InterchangeFile(golden).read_case(id);
    for (const auto& tensor : read.inputs) {
      const std::string copy = folder / (id + "-" + tensor.spec.name + ".h5");
      std::filesystem::copy_file(golden, copy);
      const TensorView view = real_view(tensor.view());
      store_from_double(view.data, 0, view.dtype, std::numeric_limits<double>::quiet_NaN());
      const h5::File file = open_for_change(copy);
      const std::string path = fmt::format("/cases/{}/inputs/{}", id, tensor.spec.name);
      const h5::Dataset dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), "open");
      h5::check(H5Dwrite(dataset, h5::native_type_of(tensor.spec.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                         tensor.buffer.data()),
                "write");
      expected.push_back("ssmbench: " + copy + ": /cases/" + id + "/inputs: NaN or Inf in " +
                         tensor.spec.name + "; judged only with --allow-nonfinite");
      arguments += fmt::format(" {}", copy);
    }
  }
  const CommandResult result = run_ssmbench("check" + arguments);
  CHECK(result.exit_code == 2);
  CHECK(lines_of(result.err) == expected);
  CHECK(result.out.ends_with("\n0 pass, 0 fail\n"));
}

TEST_CASE("what crashes or hangs while it reads is the file's fault, in one line") {
  const auto complaint = [](const std::function<void()>& read) {
    return message_of<UsageError>(
        [&] { rehearse("x.h5", "/cases/a", read, never_stop, {.cpu_seconds = 1, .wall_seconds = 300}); });
  };
  CHECK(complaint([] {}) == "(nothing was thrown)");
  CHECK(complaint([] { throw UsageError("the parent says so itself"); }) == "(nothing was thrown)");
  CHECK(complaint([] { std::raise(SIGSEGV); }) ==
        "x.h5: /cases/a: damaged: HDF5 crashes while reading it (Segmentation fault)");
  CHECK(complaint([] { std::abort(); }) ==
        "x.h5: /cases/a: damaged: HDF5 crashes while reading it (Aborted)");
  CHECK(complaint([] {
          std::atomic<bool> stop = false;
          while (!stop) {
          }
        }) == "x.h5: /cases/a: damaged: reading takes more than 1 s, or more memory than is available");
}

TEST_CASE("reading that waits for something ends at the wall-time limit, or when it is interrupted") {
  const auto wait_for_ever = [] {
    while (true) pause();
  };
  CHECK(message_of<UsageError>([&] {
          rehearse("x.h5", "/cases/a", wait_for_ever, never_stop, {.cpu_seconds = 1, .wall_seconds = 1});
        }) == "x.h5: /cases/a: damaged: reading takes more than 1 s");
  const std::atomic<bool> stop = true;
  CHECK_THROWS_AS(rehearse("x.h5", "", wait_for_ever, stop), Interrupted);
}

TEST_CASE("a reading process says nothing itself, whatever ends it") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  CHECK_THROWS_AS(rehearse(
                      "x.h5", "",
                      [] {
                        std::fputs("malloc(): corrupted top size\n", stderr);
                        std::abort();
                      },
                      never_stop),
                  UsageError);
  dup2(before, STDERR_FILENO);
  close(before);
  close(ends[1]);
  char said = 0;
  CHECK(read(ends[0], &said, 1) == 0);
  close(ends[0]);
}

TEST_CASE("a reader that is killed takes the process that reads for it along") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t reader = fork();
  if (reader == 0) {
    rehearse(
        "x.h5", "",
        [&] {
          const pid_t own = getpid();
          if (write(ends[1], &own, sizeof own) == sizeof own)
            while (true) pause();
        },
        never_stop);
    _exit(0);
  }
  pid_t child = 0;
  REQUIRE(read(ends[0], &child, sizeof child) == sizeof child);
  kill(reader, SIGKILL);
  waitpid(reader, nullptr, 0);
  close(ends[1]);  // the child has the other one, and then nobody
  pollfd its_end{.fd = ends[0], .events = POLLIN, .revents = 0};
  const bool has_ended = poll(&its_end, 1, 60000) == 1;
  CHECK(has_ended);
  if (!has_ended) kill(child, SIGKILL);
  close(ends[0]);
}

TEST_CASE("inputs that fuzzing found are read, or rejected in one line") {
  for (const auto& entry :
       std::filesystem::directory_iterator(SSMBENCH_SOURCE_DIR "/tests/golden/fuzz/hdf5")) {
    const std::string path = entry.path();
    try {
      const InterchangeFile file(path);
      for (const auto& id : file.case_ids()) file.read_case(id);
    } catch (const UsageError& error) {
      CHECK(lines_of(error.what()).size() == 1);
      CHECK(std::string(error.what()).starts_with(path + ": "));
    }
  }
}
