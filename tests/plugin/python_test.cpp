// Python files as plugins: what is right is measured, and each thing that can go wrong is one line.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "catch.h"
#include "support/gpu.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

const std::string kKernels = "tests/plugin/python/kernels.py";
const std::string kTorchKernels = "tests/plugin/python/torch_kernels.py";
const std::string kLinear =
    "run tests/mutants/steps.json --op linear_scan --device cpu --runs 3 --reruns 1 --json - --plugin ";

/// Has ssmbench run the first python3 that has a module, and can be embedded, as long as this lives.
class PythonWith {
 public:
  /// Says so where there is none.
  explicit PythonWith(const std::string& module) {
    const auto has_it = [&](const std::string& python) {
      const std::string question = " -c 'import sys, sysconfig, " + module +
                                   "; sys.exit(sys.version_info < (3, 10) or not "
                                   "sysconfig.get_config_var(\"Py_ENABLE_SHARED\"))'";
      return run_shell(python + question, SSMBENCH_SOURCE_DIR).exit_code == 0;
    };
    if (has_it("python3")) return;
    const char* made_for_tests = std::getenv("SSMBENCH_TEST_VENV");
    for (const std::string folder : {"/usr", made_for_tests == nullptr ? "/usr" : made_for_tests})
      if (has_it(folder + "/bin/python3")) {
        setenv("VIRTUAL_ENV", folder.c_str(), 1);
        return;
      }
    WARN("skipped: no python3 with " << module);
    found_ = false;
  }
  ~PythonWith() {
    if (before_)
      setenv("VIRTUAL_ENV", before_->c_str(), 1);
    else
      unsetenv("VIRTUAL_ENV");
  }
  PythonWith(const PythonWith&) = delete;
  PythonWith& operator=(const PythonWith&) = delete;
  PythonWith(PythonWith&&) = delete;
  PythonWith& operator=(PythonWith&&) = delete;

  bool found() const { return found_; }

 private:
  static std::optional<std::string> virtual_environment() {
    const char* value = std::getenv("VIRTUAL_ENV");
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }

  std::optional<std::string> before_ = virtual_environment();
  bool found_ = true;
};

/// Records of cases by implementation.
std::map<std::string, Json> by_implementation(const std::string& lines) {
  std::map<std::string, Json> records;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);)  // and nothing but records
    if (const Json record = Json::parse(line); record.at("record") == "case")
      records[record.at("impl")] = record;
  return records;
}

/// What ssmbench says when `python3` of the virtual environment prints these lines.
std::string refusal_by(const std::string& answer) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "bin");
  const auto python = folder.write("bin/python3", "#!/bin/sh\n" + answer);
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const CommandResult result = run_shell(
      "VIRTUAL_ENV=" + folder.path().string() + " '" SSMBENCH_EXECUTABLE "' list impls --plugin " + kKernels,
      SSMBENCH_SOURCE_DIR);
  CHECK(result.exit_code == 2);
  const std::string start = "ssmbench: --plugin " + kKernels + ": ";
  REQUIRE(result.err.starts_with(start));
  CHECK(std::ranges::count(result.err, '\n') == 1);
  return result.err.substr(start.size(), result.err.size() - start.size() - 1);
}

}  // namespace

TEST_CASE("kernels in Python are measured like others, and what goes wrong is one line", "[python]") {
  const PythonWith python("numpy");
  if (!python.found()) return;
  const CommandResult result = run_ssmbench(kLinear + kKernels + " --impl 'np-*'");
  INFO(result.err);
  CHECK(result.exit_code == 4);
  const auto records = by_implementation(result.out);
  for (const char* name : {"np-right", "np-returns", "np-returns-some", "np-prepared"}) {
    INFO(name);
    REQUIRE(records.contains(name));
    CHECK(records.at(name).at("status") == "pass");
    CHECK(records.at(name).at("timing").at("hot").at("median_ms") > 0);
    CHECK(records.at(name).at("determinism").at("bitwise_equal") == true);
  }
  const auto expect = [&](const std::string& name, const std::string& status, const std::string& reason) {
    INFO(name);
    REQUIRE(records.contains(name));
    CHECK(records.at(name).at("status") == status);
    CHECK(records.at(name).at("reason") == reason);
  };
  const auto fails = [&](const std::string& name, const std::string& reason) {
    expect(name, "error", name + " of kernels.py: " + reason);
  };
  expect("np-unsupported", "skip", "not 37 steps");
  expect("np-leaves", "error", "exited with status 3");
  fails("np-raises", "ValueError: no kernel; for (2, 37, 3) (kernels.py:47)");
  fails("np-exits", "SystemExit: 3 (kernels.py:60)");
  fails("np-writes-input", "ValueError: assignment destination is read-only (kernels.py:70)");
  fails("np-wrong-shape", "returned out of shape (2, 1, 3), not (2, 37, 3)");
  fails("np-asks-wrongly", "AttributeError: linear_scan has no axis 'heads' (kernels.py:83)");
  fails("np-no-such-tensor",
        "no_such_tensor: linear_scan has no 'c' here; a parameter with a default need not be there");
}

TEST_CASE("axes come as Python's values, and those that are off as defaults", "[python]") {
  const PythonWith python("numpy");
  if (!python.found()) return;
  const CommandResult result = run_ssmbench(
      "run configs/mamba2-small.json --op ssd_chunk_scan_fwd --dtype f32 --device cpu --quick --no-timing "
      "--set batch=2 --set seqlen=3 --set nheads=2 --set groups=1 --set headdim=4 --set dstate=5 "
      "--set chunk_size=64 --set D=none --set z=false --set dt_bias=false --set dt_softplus=true "
      "--set dt_limit=0.5..inf --json - --impl np-options --plugin " +
      kKernels);
  INFO(result.out << result.err);
  const auto records = by_implementation(result.out);
  REQUIRE(records.contains("np-options"));
  CHECK(records.at("np-options")
            .at("reason")
            .get<std::string>()
            .find("Exception: None None True (0.5, inf) 64 1 2 (96, 32, 16, 4)") != std::string::npos);
}

TEST_CASE("tensors of PyTorch alias those of a case, bf16 too", "[python]") {
  const PythonWith python("torch");
  if (!python.found()) return;
  for (const char* dtype : {"f32", "bf16"}) {
    const CommandResult result =
        run_ssmbench(kLinear + kTorchKernels + " --impl 'torch-*' --set dtype=" + dtype);
    INFO(result.err);
    const auto records = by_implementation(result.out);
    REQUIRE(records.size() == 2);
    CHECK(records.at("torch-right").at("status") == "pass");
    CHECK(records.at("torch-right").at("timing").at("hot").at("median_ms") > 0);
    CHECK(records.at("torch-writes-input").at("status") == "invalid");
    CHECK(records.at("torch-writes-input").at("cause") == "inputs_changed");
  }
}

TEST_CASE("the libraries of Python packages get along with a preloaded allocator", "[python]") {
  const PythonWith python("numpy");
  if (!python.found()) return;
  const CommandResult result =
      run_shell("LD_PRELOAD='" OTHER_MALLOC_LIBRARY "' FREES_MEMORY_LIBRARY='" FREES_MEMORY_LIBRARY
                "' '" SSMBENCH_EXECUTABLE "' " +
                    kLinear + kKernels + " --no-timing --impl np-loads-library",
                SSMBENCH_SOURCE_DIR);
  INFO(result.err);
  const auto records = by_implementation(result.out);
  REQUIRE(records.contains("np-loads-library"));
  CHECK(records.at("np-loads-library").at("status") == "pass");
}

TEST_CASE("the program has no function that could take the place of one of a library") {
  const CommandResult symbols = run_shell(
      "nm -D --defined-only '" SSMBENCH_EXECUTABLE "' | grep -c -e ' [TWi] ' -e ' H5'", SSMBENCH_SOURCE_DIR);
  CHECK(symbols.out == "0\n");
}

TEST_CASE("Python files that cannot be used are refused in a line", "[python]") {
  const PythonWith python("sys");
  const TemporaryFolder folder;
  const auto refusal_of = [&](const std::string& text) {
    const std::string file = folder.write("mine.py", text).string();
    const CommandResult result = run_ssmbench("list impls --plugin " + file);
    CHECK(result.exit_code == (text.find("_exit") == std::string::npos ? 2 : 4));
    CHECK(result.out == "");
    CHECK(result.err.starts_with("ssmbench: --plugin " + file + ": "));
    CHECK(std::ranges::count(result.err, '\n') == 1);
    return result.err.substr(result.err.find("mine.py: ") + 9);
  };
  const std::string decorated = "import ssmbench\n@ssmbench.kernel('linear_scan', ";
  CHECK(refusal_of("x = 1\n") == "decorates no function with @ssmbench.kernel(...); see plugins/README.md\n");
  CHECK(refusal_of("\nimport no_such_module\n") ==
        "ModuleNotFoundError: No module named 'no_such_module' (mine.py:2)\n");
  CHECK(refusal_of("x = (\n").starts_with("SyntaxError: "));
  CHECK(refusal_of("import os\nos._exit(7)\n") ==
        "exited with status 7 while its implementations were queried\n");
  // Followed by the line of the decorator, or of the function (Python 3.10).
  CHECK(refusal_of(decorated + "device='tpu')\ndef f(): pass\n")
            .starts_with("ValueError: f: device 'tpu': expected one of ('cpu', 'cuda') (mine.py:"));
  CHECK(refusal_of(decorated + "math='fp8')\ndef f(): pass\n").starts_with("ValueError: math 'fp8' for "));
  CHECK(refusal_of(decorated + "device='cpu', framework='cupy')\ndef f(): pass\n")
            .starts_with("ValueError: f: framework 'cupy' on cpu: "));
  CHECK(refusal_of(decorated + ")\ndef f(*all): pass\n")
            .starts_with("TypeError: f: parameter *all: parameters are chosen by name (mine.py:"));
  // The folder of the file comes first, as with `python3 mine.py`.
  const std::string needs_torch = decorated + "device='cpu', framework='torch')\ndef f(): pass\n";
  folder.write("torch.py", "raise ImportError('libcudart.so.13: cannot open')\n");
  CHECK(refusal_of(needs_torch) == "ImportError: libcudart.so.13: cannot open\n");
  folder.write("torch.py", "raise ImportError('libstdc++.so.6: GLIBCXX_3.4.99 not found')\n");
  CHECK(refusal_of(needs_torch) ==
        "ImportError: libstdc++.so.6: GLIBCXX_3.4.99 not found; LD_LIBRARY_PATH=$CONDA_PREFIX/lib lets the "
        "program use that of the environment\n");
  const PythonWith with_numpy("numpy");
  if (!with_numpy.found()) return;
  CHECK(refusal_of("import ssmbench\n@ssmbench.kernel('no_op', device='cpu')\ndef f(): pass\n") ==
        "f computes 'no_op', which is no operation (see ssmbench list ops)\n");
}

TEST_CASE("an interpreter that cannot be run in process is refused in a line") {
  CHECK(refusal_by("exit 1\n") == "no python3 answers, neither in $VIRTUAL_ENV nor on PATH");
  CHECK(refusal_by("echo /old/python3; echo 3.9; echo /old/libpython3.9.so\n") ==
        "needs Python 3.10 or later; /old/python3 is older");
  CHECK(refusal_by("echo /static/python3; echo 3.12; echo\n")
            .starts_with("/static/python3 has no shared libpython ("));
  CHECK(refusal_by("echo /gone/python3; echo 3.12; echo /gone/libpython3.12.so\n")
            .starts_with("libpython does not load: /gone/libpython3.12.so: cannot open"));
  CHECK(refusal_by("echo /odd/python3; echo 3.12; echo '" FREES_MEMORY_LIBRARY "'\n") == FREES_MEMORY_LIBRARY
        " is no libpython");
}

TEST_CASE("what runs Python files says which file of its own it misses", "[python]") {
  const PythonWith python("sys");
  if (!python.found()) return;
  const TemporaryFolder folder;
  const auto bridge =
      std::filesystem::path(SSMBENCH_EXECUTABLE).parent_path() / "lib/ssmbench/ssmbench_python.so";
  std::filesystem::copy(bridge, folder.path() / "bridge.so");
  const std::string plugin = (folder.path() / "bridge.so").string();
  const CommandResult result = run_ssmbench("list impls --plugin " + plugin + "=mine.py");
  CHECK(result.exit_code == 2);
  CHECK(result.err == "ssmbench: --plugin " + plugin + "=mine.py: needs " + folder.path().string() +
                          "/python/ssmbench/_bridge.py, which was not installed\n");
}

TEST_CASE("the example in Triton is right, timed without its host and as a graph, and the wrong one fails",
          "[gpu][python]") {
  const PythonWith python("triton");
  if (!gpu_or_skip() || !python.found()) return;
  const CommandResult result = run_ssmbench(
      "run configs/small.json --device cuda --op selective_scan_fwd --quick --json - "
      "--plugin plugins/example_python/scan_triton.py --impl 'triton-*'");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 1);
  std::istringstream stream(result.out);
  int right = 0;
  int wrong = 0;
  for (std::string line; std::getline(stream, line);) {
    const Json record = Json::parse(line);
    if (record.at("record") != "case" || record.at("status") == "skip") continue;
    INFO(line);
    const bool is_right = record.at("impl") == "triton-scan";
    ++(is_right ? right : wrong);
    CHECK(record.at("status") == (is_right ? "pass" : "fail"));
    if (!is_right) continue;
    CHECK(record.at("timing").contains("graph"));
    CHECK(record.at("timing").at("hot").at("queue_ran_dry") < 5);
  }
  CHECK(right > 0);
  CHECK(wrong > 0);
}

TEST_CASE("kernels in PyTorch on a GPU have graphs where they can, and spoil nothing for others",
          "[gpu][python]") {
  const PythonWith python("torch");
  if (!gpu_or_skip() || !python.found()) return;
  const CommandResult result = run_ssmbench(
      "run tests/mutants/steps.json --op linear_scan --device cuda --runs 5 --json - "
      "--plugin tests/plugin/python/gpu_kernels.py --impl 'gpu-*,cuda-sequential'");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 4);
  const auto records = by_implementation(result.out);
  const auto status = [&](const char* name) { return records.at(name).at("status").get<std::string>(); };
  REQUIRE(records.size() == 5);
  CHECK(status("cuda-sequential") == "pass");
  CHECK(status("gpu-temporaries") == "pass");
  CHECK(records.at("gpu-temporaries").at("timing").contains("graph"));
  CHECK(status("gpu-waits") == "pass");
  CHECK_FALSE(records.at("gpu-waits").at("timing").contains("graph"));
  CHECK(records.at("gpu-waits").at("timing").at("hot").at("queue_ran_dry") == 5);
  CHECK(status("gpu-out-of-bounds") == "error");
  CHECK(status("gpu-writes-input") == "invalid");
}

TEST_CASE("kernels in CuPy are measured like others", "[gpu][python]") {
  const PythonWith python("cupy");
  if (!gpu_or_skip() || !python.found()) return;
  const std::string run =
      "run tests/mutants/steps.json --op linear_scan --device cuda --runs 5 --json - "
      "--plugin tests/plugin/python/cupy_kernels.py --impl 'cupy-*'";
  const CommandResult result = run_ssmbench(run);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 4);
  const auto records = by_implementation(result.out);
  const auto status = [&](const char* name) { return records.at(name).at("status").get<std::string>(); };
  REQUIRE(records.size() == 5);
  CHECK(status("cupy-right") == "pass");
  CHECK(records.at("cupy-right").at("timing").contains("graph"));
  CHECK(status("cupy-temporaries") == "pass");
  CHECK(status("cupy-waits") == "pass");
  CHECK_FALSE(records.at("cupy-waits").at("timing").contains("graph"));
  CHECK(records.at("cupy-waits").at("timing").at("hot").at("queue_ran_dry") == 5);
  CHECK(status("cupy-writes-input") == "invalid");
  CHECK(status("cupy-raises") == "error");
  CHECK(records.at("cupy-raises").at("reason").get<std::string>().find("ValueError: ") != std::string::npos);

  const CommandResult without = run_ssmbench(run + " --set dtype=bf16");
  INFO(without.out << without.err);
  const auto skips = by_implementation(without.out);
  CHECK(skips.size() == 5);
  for (const auto& [name, record] : skips) {
    INFO(name);
    CHECK(record.at("status") == "skip");
    CHECK(record.at("reason").get<std::string>().find("CuPy has no bf16") != std::string::npos);
  }
}
