// Plugins: what is wrong with one is said in a line, and a right one is measured like what is built in.

#include <nlohmann/json.hpp>

#include <cfenv>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "catch.h"
#include "device/device.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"
#include "plugin/plugin.h"
#include "support/gpu.h"
#include "support/run_command.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

const std::string kExample = SSMBENCH_EXAMPLE_C;
const std::string kOdd = SSMBENCH_ODD_PLUGIN;
const std::string kRude = SSMBENCH_RUDE_PLUGIN;

/// The message that loading the plugin fails with; empty when it does not.
std::string refusal(const std::string& file) {
  try {
    load_plugin(file);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

/// How the odd plugin is refused when that is wrong with it.
std::string refusal_with(const char* oddity) {
  setenv("SSMBENCH_ODD_PLUGIN", oddity, 1);
  const std::string message = refusal(kOdd);
  unsetenv("SSMBENCH_ODD_PLUGIN");
  const std::string start = "--plugin " + kOdd + ": ";
  REQUIRE(message.starts_with(start));
  return message.substr(start.size());
}

/// Runs the odd plugin's implementations on one linear scan; results in their order.
std::vector<CaseResult> run_odd(const std::string& dtype) {
  const auto implementations = load_plugin(kOdd);
  PlannedCase planned{
      .the_case = make_case(Problem(
          linear_scan(), {{"dtype", dtype}, {"batch", size(2)}, {"seqlen", size(9)}, {"dim", size(3)}})),
      .jobs = {}};
  for (const auto& implementation : implementations) {
    Job& job = planned.jobs.emplace_back(Job{.implementation = &implementation});
    if (const auto reason = implementation.unsupported(planned.the_case.problem))
      job.skip = {Cause::unsupported, *reason};
  }
  return run_plan({.devices = {list_devices().front()}, .cases = {planned}});
}

const CaseResult& result_of(const std::vector<CaseResult>& results, const std::string& impl) {
  for (const auto& result : results)
    if (result.impl == impl) return result;
  throw std::logic_error("no result of " + impl);
}

std::vector<Json> case_records(const std::string& lines) {
  std::vector<Json> records;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);)
    if (auto record = Json::parse(line); record.at("record") == "case") records.push_back(std::move(record));
  return records;
}

/// The example in `folder` builds with CMake by itself, and then passes all cases that it supports.
void check_example(const std::string& library, const std::string& impl, const std::string& device) {
  const CommandResult result =
      run_ssmbench("run configs/small.json configs/layouts.json --quick --runs 2 --device " + device +
                   " --plugin " + library + " --impl " + impl + " --json -");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  std::size_t passed = 0;
  for (const auto& record : case_records(result.out)) {
    INFO(record.dump());
    CHECK(record.at("impl") == impl);
    CHECK((record.at("status") == "pass" || record.at("status") == "skip"));
    if (record.at("status") != "pass") continue;
    ++passed;
    if (record.at("id").get<std::string>().find("-trained-") != std::string::npos)
      continue;  // not always timed
    CHECK(record.at("timing").at("hot").at("median_ms") > 0);
    CHECK(record.at("throughput").at("gb_per_s") > 0);
    CHECK(record.at("repro").get<std::string>().find(" --plugin " + library) != std::string::npos);
  }
  CHECK(passed > 3);
}

}  // namespace

TEST_CASE("the example in C runs, verifies and is timed like what is built in") {
  check_example(kExample, "cpu-example-c", "cpu");
}

#ifdef SSMBENCH_EXAMPLE_CUDA
TEST_CASE("the example in CUDA runs, verifies and is timed like what is built in", "[gpu]") {
  if (!gpu_or_skip()) return;
  check_example(SSMBENCH_EXAMPLE_CUDA, "cuda-example", "cuda");
}

TEST_CASE("a launch that takes the host long is timed without the host, or the record says so", "[gpu]") {
  if (!gpu_or_skip()) return;
  const CommandResult result = run_ssmbench(
      "run tests/mutants/steps.json --op linear_scan --dtype f32 --device cuda --runs 10 --json - "
      "--impl 'cuda-slow*-launch' --plugin " SSMBENCH_SLOW_LAUNCH);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  std::set<std::string> seen;
  for (const auto& record : case_records(result.out)) {
    if (record.at("status") == "skip") continue;
    CHECK(record.at("status") == "pass");
    seen.insert(record.at("impl").get<std::string>());
    const bool within = record.at("impl") == "cuda-slow-launch";
    const Json& hot = record.at("timing").at("hot");
    CHECK((hot.at("median_ms") < 0.2) == within);
    CHECK((hot.at("queue_ran_dry") < 5) == within);  // on a busy machine one may be late
    if (!within) CHECK(record.at("reason").get<std::string>().find("the queue ran dry") != std::string::npos);
  }
  CHECK(seen.size() == 2);
}

TEST_CASE("the example in CUDA is listed without a GPU too") {
  const CommandResult result = run_ssmbench("list impls --plugin " SSMBENCH_EXAMPLE_CUDA);
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("cuda-example") != std::string::npos);
}
#endif

TEST_CASE("the example in C builds on its own") {
  const TemporaryFolder folder;
  const std::string build = folder.path().string();
  const CommandResult result =
      run_shell("cmake -S plugins/example_c -B " + build +
                    " -DCMAKE_C_FLAGS='-Wall -Wextra -Werror' && cmake --build " + build,
                SSMBENCH_SOURCE_DIR);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(std::filesystem::exists(folder.path() / "ssmbench_example_c.so"));
}

TEST_CASE("plugins are listed, several at a time, with the reason why not") {
  const CommandResult impls = run_ssmbench("list impls --json --plugin " + kExample + " --plugin " + kOdd);
  REQUIRE(impls.exit_code == 0);
  const Json listed = Json::parse(impls.out);
  const auto found =
      std::ranges::find(listed, "cpu-example-c", [](const Json& entry) { return entry.at("name"); });
  REQUIRE(found != listed.end());
  CHECK(found->at("op") == "selective_scan_fwd");
  CHECK(found->at("device") == "cpu");
  CHECK(found->at("math") == "f32");
  CHECK(found->at("deterministic") == true);
  CHECK(std::ranges::any_of(listed, [](const Json& entry) { return entry.at("name") == "odd-good"; }));

  const CommandResult cases = run_ssmbench("list cases configs/discretization.json --plugin " + kExample);
  CHECK(cases.out.find("has method zoh only") != std::string::npos);
}

TEST_CASE("the repro command of a plugin's record runs that case again") {
  const CommandResult first =
      run_ssmbench("run configs/small.json --device cpu --dtype f32 --no-timing --plugin " + kExample +
                   " --impl cpu-example-c --json -");
  REQUIRE(first.exit_code == 0);
  const Json record = case_records(first.out).at(0);
  const CommandResult again =
      run_ssmbench(record.at("repro").get<std::string>().substr(9) + " --no-timing --json -");
  REQUIRE(again.exit_code == 0);
  const auto repeated = case_records(again.out);
  REQUIRE(repeated.size() == 1);
  CHECK(repeated[0].at("id") == record.at("id"));
  CHECK(repeated[0].at("verify") == record.at("verify"));
}

TEST_CASE("what is no plugin is refused in a line") {
  const TemporaryFolder folder;
  CHECK(refusal("nowhere/libmine.so") == "--plugin nowhere/libmine.so: no such file");
  const std::string start = "is not a shared library that loads here: ";
  for (const std::string& file : {folder.write("text.so", "int main() { return 0; }\n").string(),
                                  folder.write("empty.so", "").string(), folder.path().string()}) {
    INFO(file);
    CHECK(refusal(file).starts_with("--plugin " + file + ": " + start));
  }
  const std::string bare = SSMBENCH_NO_PLUGIN;
  CHECK(refusal(bare) ==
        "--plugin " + bare + ": has no function ssmbench_plugin_describe; see plugins/README.md");

  const CommandResult result = run_ssmbench("list impls --plugin " + bare);
  CHECK(result.exit_code == 2);
  CHECK(result.out == "");
  CHECK(result.err == "ssmbench: " + refusal(bare) + "\n");
}

TEST_CASE("descriptions that make no sense are refused in a line") {
  CHECK(refusal(kOdd) == "");
  CHECK(
      refusal_with("abi") ==
      "was built for ABI version 999, this ssmbench has 2; build it with the ssmbench_plugin.h of this one");
  CHECK(refusal_with("nothing") == "ssmbench_plugin_describe returned nothing");
  CHECK(refusal_with("count") == "describes no implementation");
  CHECK(refusal_with("table") == "describes no implementation");
  CHECK(refusal_with("no-name") ==
        "implementation 1 has the name ''; expected letters, digits, '-', '_' and '.'");
  CHECK(refusal_with("name") ==
        "implementation 1 has the name 'odd; rm -rf'; expected letters, digits, '-', '_' and '.'");
  CHECK(refusal_with("op") ==
        "odd-fails computes 'transformer', which is no operation (see ssmbench list ops)");
  CHECK(refusal_with("device") == "odd-fails: device is 7, expected 0 to 1 (see plugins/ssmbench_plugin.h)");
  CHECK(refusal_with("math") == "odd-fails: math[2] is -1, expected 0 to 4 (see plugins/ssmbench_plugin.h)");
  CHECK(refusal_with("state") ==
        "odd-fails: state_dtype[0] is 5, expected 0 to 3 (see plugins/ssmbench_plugin.h)");
}

TEST_CASE("a name that the operation has already is refused") {
  for (const auto& [oddity, name] : {std::pair("taken", "cpu-scalar"), std::pair("twice", "odd-good")}) {
    const CommandResult result = run_shell(std::string("SSMBENCH_ODD_PLUGIN=") + oddity +
                                               " '" SSMBENCH_EXECUTABLE "' list impls --plugin " + kOdd,
                                           SSMBENCH_SOURCE_DIR);
    CHECK(result.exit_code == 2);
    CHECK(result.out == "");
    CHECK(result.err ==
          "ssmbench: --plugin " + kOdd + ": linear_scan has an implementation " + name + " already\n");
  }
}

TEST_CASE("a plugin that goes wrong fails its own cases, with its name and what it said") {
  const auto results = run_odd("f32");
  REQUIRE(results.size() == 7);
  const std::string of = " of " + std::filesystem::path(kOdd).filename().string() + ": ";
  CHECK(result_of(results, "odd-good").status == Status::pass);
  CHECK(result_of(results, "odd-fails").status == Status::error);
  CHECK(result_of(results, "odd-fails").reason == "odd-fails" + of + "the moon is in the wrong phase");
  CHECK(result_of(results, "odd-negative-workspace").status == Status::error);
  CHECK(result_of(results, "odd-negative-workspace").reason ==
        "odd-negative-workspace" + of + "ssmbench_plugin_workspace_bytes returned -5");
  CHECK(result_of(results, "odd-huge-workspace").status == Status::error);
  CHECK(
      result_of(results, "odd-huge-workspace")
          .reason.starts_with("odd-huge-workspace" + of + "asks for 9223372036854775807 bytes of workspace"));
  CHECK(result_of(results, "odd-no-reason").status == Status::skip);
  CHECK(result_of(results, "odd-no-reason").reason == "unsupported, without a reason");
  CHECK(result_of(results, "odd-bind-fails").status == Status::error);
  CHECK(result_of(results, "odd-bind-fails").reason == "odd-bind-fails" + of + "the sun is, too");
  CHECK(result_of(run_odd("f32"), "odd-bind-fails").reason == "odd-bind-fails" + of + "the sun is, too");
  CHECK(result_of(run_odd("bf16"), "odd-good").reason == "has f32 only");
}

TEST_CASE("what was computed while a plugin was bound is no result") {
  const auto result = result_of(run_odd("f32"), "odd-bind-computes");
  CHECK(result.status == Status::fail);
  CHECK(result.cause == Cause::nonfinite);  // no launch wrote anything
}

TEST_CASE("a plugin is opened with the argument after =, as often as it is named") {
  const auto all = load_plugin(kOdd);
  const auto last = load_plugin(kOdd + "=6");
  REQUIRE(last.size() == 1);
  CHECK(last.at(0).name == all.back().name);
  const Problem problem(linear_scan(),
                        {{"dtype", "f32"}, {"batch", size(1)}, {"seqlen", size(1)}, {"dim", size(1)}});
  CHECK(load_plugin(kOdd + "=4").at(0).unsupported(problem) == "unsupported, without a reason");
  CHECK(refusal(kOdd + "=7") == "--plugin " + kOdd + "=7: there are\\nnot so many");
  CHECK(refusal(kExample + "=x") == "--plugin " + kExample + "=x: takes no argument");
  CHECK(refusal("no=where") == "--plugin no=where: no such file");

  const TemporaryFolder folder;
  const std::string name = folder / "lib=odd.so";
  std::filesystem::copy_file(kOdd, name);
  CHECK(load_plugin(name).size() == all.size());
}

TEST_CASE("plugins of an older interface are refused in a line") {
  const CommandResult result = run_ssmbench("list impls --plugin " SSMBENCH_OLD_PLUGIN);
  CHECK(result.exit_code == 2);
  CHECK(result.err == "ssmbench: --plugin " SSMBENCH_OLD_PLUGIN
                      ": was built for ABI version 1, this ssmbench has 2; build it with the "
                      "ssmbench_plugin.h of this one\n");
}

TEST_CASE("a plugin changes nobody's floating-point environment, when it is loaded or when it is called") {
  const auto is_untouched = [] {
    volatile float subnormal = 1e-40F;  // flushed where it is read, or where it is written
    volatile float smallest = 1.2e-38F;
    return std::fegetround() == FE_TONEAREST && subnormal * 1e10F > 0 && smallest * 0.5F > 0;
  };
  REQUIRE(is_untouched());
  const auto implementations = load_plugin(kRude);
  CHECK(is_untouched());
  PlannedCase planned{
      .the_case = make_case(Problem(
          linear_scan(), {{"dtype", "f32"}, {"batch", size(1)}, {"seqlen", size(4)}, {"dim", size(2)}})),
      .jobs = {{.implementation = &implementations.at(0)}}};
  CHECK_FALSE(implementations.at(0).unsupported(planned.the_case.problem));
  CHECK(is_untouched());
  const auto results = run_plan({.devices = {list_devices().front()}, .cases = {planned}});
  CHECK(results.at(0).reason.ends_with("changed the floating-point environment"));
  CHECK(is_untouched());
}

TEST_CASE("what a plugin does at exit neither changes the exit code nor holds anything up") {
  const std::string run =
      " run tests/mutants/steps.json --device cpu --op linear_scan --dtype f32 --no-timing --json - "
      "--plugin " +
      kRude;
  for (const char* asked : {"exit", "hang"}) {
    const auto ssmbench = [&](const std::string& arguments) {
      return run_shell(std::string("SSMBENCH_RUDE_PLUGIN=") + asked +
                           " timeout 60 '" SSMBENCH_EXECUTABLE "'" + arguments,
                       SSMBENCH_SOURCE_DIR)
          .exit_code;
    };
    INFO(asked);
    CHECK(ssmbench(run + " --impl rude-fails") == 4);
    CHECK(ssmbench(run + " --impl rude-fails --no-supervision") == 4);
    CHECK(ssmbench(run + " --impl no-such") == 5);
    CHECK(ssmbench(" list impls --plugin " + kRude) == 0);
    CHECK(ssmbench(" list impls --plugin " + kRude + " --plugin " SSMBENCH_NO_PLUGIN) == 2);
  }
}

TEST_CASE("arithmetic below the case's dtype shows in the status, and in every format") {
  const TemporaryFolder folder;
  const std::string csv = folder / "x.csv";
  const std::string junit = folder / "x.xml";
  const std::string jsonl = folder / "x.jsonl";
  const std::string markdown = folder / "x.md";
  const std::string page = folder / "x.html";
  const CommandResult result = run_ssmbench(
      "run tests/mutants/steps.json --device cpu --op linear_scan --dtype f32 --no-timing "
      "--impl cpu-scalar,rude-loose --plugin " +
      kRude + " --csv " + csv + " --junit " + junit + " --markdown " + markdown + " --json " + jsonl);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out.find("pass (bf16)      rude-loose") != std::string::npos);
  CHECK(result.out.find("pass             cpu-scalar") != std::string::npos);
  CHECK(read_file(markdown).find("| pass (bf16) | rude-loose |") != std::string::npos);
  CHECK(read_file(csv).find(",math,state_dtype,status,") != std::string::npos);
  CHECK(read_file(csv).find(",bf16,f32,pass,") != std::string::npos);
  CHECK(read_file(junit).find("<system-out>math bf16, state_dtype f32&#10;") != std::string::npos);
  for (const auto& record : case_records(read_file(jsonl))) {
    CHECK(record.at("math") == (record.at("impl") == "rude-loose" ? "bf16" : "f32"));
    CHECK(record.at("state_dtype") == "f32");
  }
  REQUIRE(run_ssmbench("report " + jsonl + " -o " + page).exit_code == 0);
  CHECK(read_file(page).find(R"("math":"bf16","state_dtype":"f32","lowered":"bf16")") != std::string::npos);
}
