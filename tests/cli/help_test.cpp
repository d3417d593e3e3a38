// Golden texts of help and listings. To accept a change: SSMBENCH_UPDATE_GOLDEN=1 ctest -R golden, then read
// the diff.

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;

namespace {

/// Runs of white space as one blank: CLI11's versions break and indent lines differently.
std::string words(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n';
    if (!blank || (!result.empty() && result.back() != ' ')) result += blank ? ' ' : c;
  }
  return result;
}

void check_golden(const std::string& arguments, const std::string& name) {
  const std::string file = std::string(SSMBENCH_SOURCE_DIR) + "/tests/cli/golden/" + name;
  const CommandResult result = run_ssmbench(arguments);
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  if (std::getenv("SSMBENCH_UPDATE_GOLDEN") != nullptr) std::ofstream(file) << result.out;
  CHECK(words(result.out) == words(read_file(file)));
}

}  // namespace

TEST_CASE("golden: help of the program and of each subcommand") {
  check_golden("--help", "help.txt");
  check_golden("run --help", "run_help.txt");
  check_golden("report --help", "report_help.txt");
  check_golden("list --help", "list_help.txt");
  check_golden("dump --help", "dump_help.txt");
  check_golden("check --help", "check_help.txt");
  check_golden("compare --help", "compare_help.txt");
  check_golden("gate --help", "gate_help.txt");
  check_golden("validate-config --help", "validate_config_help.txt");
}

TEST_CASE("golden: listings") {
  check_golden("list ops", "list_ops.txt");
  check_golden("list methods", "list_methods.txt");
}

TEST_CASE("list cases says where a case comes from and which implementation supports it") {
  const auto result = run_ssmbench("list cases configs/realtime-60fps.json --json");
  CHECK(result.exit_code == 0);
  const auto cases = nlohmann::json::parse(result.out);
  REQUIRE(cases.size() == 3);  // one, and two of trained inputs
  CHECK(cases[0].at("id") == "selective_scan_fwd-f32-bld-b32-d512-l60-n16-softplus-mamba-native-s0");
  CHECK(cases[0].at("file") == "configs/realtime-60fps.json");
  CHECK(cases[0].at("pointer") == "/sweeps/0");
  CHECK(cases[0].at("implementations").at("cpu-simd") == "supported");
  if (cases[0].at("implementations").contains("cuda-blockscan"))  // not in a build without CUDA
    CHECK(cases[0].at("implementations").at("cuda-blockscan") ==
          "needs layout bdl: a block loads runs of time steps of one channel");
}

TEST_CASE(
    "list cases: sweeps follow each other, and what is there twice is said before anything is printed") {
  const TemporaryFolder folder;
  const auto list = [&](const std::string& second, const std::string& options) {
    const std::string sweep =
        R"({"op": "linear_scan", "axes": {"batch": 1, "dim": 1, "dtype": "f32", "seqlen": )";
    const std::string text =
        R"({"format": "ssmbench-config/1", "sweeps": [)" + sweep + R"([5, 6]}}, )" + sweep + second + "}}]}";
    std::ofstream(folder / "two.json") << text;
    return run_ssmbench("list cases " + (folder / "two.json") + options);
  };
  const auto cases = nlohmann::json::parse(list("[7, 8]", " --json").out);
  REQUIRE(cases.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(cases[i].at("pointer") == (i < 2 ? "/sweeps/0" : "/sweeps/1"));
  CHECK(list("[7, 8]", "").out.find("-l8-") != std::string::npos);
  const CommandResult twice = list("[7, 6]", "");
  CHECK(twice.exit_code == 2);
  CHECK(twice.out.empty());
  CHECK(twice.err.find("is already in ") != std::string::npos);
}

TEST_CASE("list impls names every implementation of this build with its operation") {
  const CommandResult result = run_ssmbench("list impls");
  CHECK(result.exit_code == 0);
  for (const char* name : {"cpu-scalar", "cpu-simd"}) CHECK(result.out.find(name) != std::string::npos);
  CHECK(result.out.find("selective_scan_fwd") != std::string::npos);
}

TEST_CASE("list devices names the CPU") {
  const CommandResult result = run_ssmbench("list devices");
  CHECK(result.exit_code == 0);
  CHECK(result.out.starts_with("cpu "));
}
