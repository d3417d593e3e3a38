// Kernels with one mistake each fail, and by the check that README.md says finds them; without it they pass.

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "support/gpu.h"
#include "support/run_command.h"

using namespace ssmbench;
using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

/// A row of the table.
struct Mutant {
  std::string name, op, mistake, sweep, check;
};

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream stream(row);
  for (std::string cell; std::getline(stream, cell, '|');) {
    const auto first = cell.find_first_not_of(' ');
    if (first != std::string::npos)
      cells.push_back(cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return cells;
}

std::vector<Mutant> table() {
  std::ifstream readme(SSMBENCH_SOURCE_DIR "/tests/mutants/README.md");
  std::vector<Mutant> rows;
  for (std::string line; std::getline(readme, line);) {
    const auto cells = cells_of(line);
    if (line.starts_with("| ") && cells.size() == 5 && cells[0] != "mutant" && cells[0] != "---")
      rows.push_back({"mutant-" + cells[0], cells[1], cells[2], cells[3], cells[4]});
  }
  return rows;
}

/// The checks that found something: by the cause, and by the reason where it says at which launch.
std::set<std::string> checks_in(const Json& record) {
  if (record.at("cause").is_null() || record.at("status") == "skip") return {};
  const std::string cause = record.at("cause");
  const std::string reason = record.at("reason");
  const auto says = [&](const char* words) { return reason.find(words) != std::string::npos; };
  if (record.at("status") == "fail" && cause != "nondeterministic") {
    if (says(" launches: ")) return {"verification after timing"};
    if (reason.starts_with("in timed launch ")) return {"timed launch"};
    if (says(" on a second stream: ")) return {"rerun", "second stream"};
    if (reason.starts_with("in rerun ")) return {"rerun"};
  }
  if (cause == "nonfinite") return {says(" never written") ? "NaN fill" : "not finite"};
  static const std::map<std::string, std::string> check_of{{"guard_band", "guard band"},
                                                           {"inputs_changed", "inputs unmodified"},
                                                           {"crash", "crash"},
                                                           {"late_work", "late work"},
                                                           {"nondeterministic", "determinism"},
                                                           {"distribution", "distribution"},
                                                           {"tolerance", "element tolerance"}};
  const auto found = check_of.find(cause);
  return found == check_of.end() ? std::set<std::string>{} : std::set<std::string>{found->second};
}

/// "element tolerance or rerun" names both.
bool names(const std::string& cell, const std::set<std::string>& checks) {
  return std::ranges::any_of(checks, [&](const std::string& check) {
    return (" or " + cell + " or ").find(" or " + check + " or ") != std::string::npos;
  });
}

using Records = std::map<std::pair<std::string, std::string>, std::vector<Json>>;  // by op and name

/// What the mutants in the plugin did on a sweep.
Records run_sweep(const std::string& sweep, const std::string& options, const std::string& impls) {
  const CommandResult result =
      run_ssmbench("run tests/mutants/" + sweep + ".json --impl '" + impls + "' --json - " + options);
  Records records;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);)
    if (const Json record = Json::parse(line); record.at("record") == "case")
      records[{record.at("op"), record.at("impl")}].push_back(record);
  return records;
}

/// The checks that caught a mutant in any of its records.
std::set<std::string> checks_in(const std::vector<Json>& records) {
  std::set<std::string> checks;
  for (const auto& record : records) checks.merge(checks_in(record));
  return checks;
}

/// Of a sweep that is run again, `runs` times at most, until all of its mutants have been caught.
Records run_sweep_until_caught(const std::string& sweep, const std::string& options, const std::string& impls,
                               int runs) {
  Records records = run_sweep(sweep, options, impls);
  const auto are_caught = [&] {
    return std::ranges::all_of(table(), [&](const Mutant& mutant) {
      return mutant.sweep != sweep || names(mutant.check, checks_in(records[{mutant.op, mutant.name}]));
    });
  };
  for (int run = 1; run < runs && !are_caught(); ++run)
    for (auto& [who, more] : run_sweep(sweep, options, impls))
      records[who].insert(records[who].end(), more.begin(), more.end());
  return records;
}

/// Those of the sweep are caught, and those without a mistake pass. `impls`: globs that match both.
void check_sweep(const std::string& sweep, const std::string& options, const std::string& impls = "mutant-*",
                 int runs = 1) {
  const Records records = run_sweep_until_caught(sweep, options, impls, runs);
  std::set<std::string> correct;  // operations that have been computed without a mistake
  for (const auto& [who, results] : records) {
    if (!who.second.ends_with("-none")) continue;
    correct.insert(who.first);
    for (const auto& record : results) {
      INFO(record.dump());
      CHECK(record.at("status") == "pass");
    }
  }
  int mutants = 0;
  for (const auto& mutant : table()) {
    if (mutant.sweep != sweep) continue;
    ++mutants;
    CHECK(correct.contains(mutant.op));
    INFO(mutant.op << " " << mutant.name << ": " << mutant.mistake);
    const auto found = records.find({mutant.op, mutant.name});
    REQUIRE(found != records.end());
    std::string said;
    for (const auto& record : found->second)
      said += record.at("status").get<std::string>() + ": " + record.value("reason", "") + "\n";
    INFO(said);
    CHECK(names(mutant.check, checks_in(found->second)));
  }
  CHECK(mutants > 0);
}

const std::string kPlugin = " --plugin " SSMBENCH_MUTANTS;

/// Names of the mutants in a plugin and of those in the table.
using Names = std::set<std::pair<std::string, std::string>>;

Names listed_in(const std::string& plugin) {
  Names names;
  for (const auto& entry : Json::parse(run_ssmbench("list impls --json" + plugin).out)) {
    const std::string name = entry.at("name");
    if (name.starts_with("mutant-") && !name.ends_with("-none")) names.insert({entry.at("op"), name});
  }
  return names;
}

Names in_table(bool cuda) {
  Names names;
  for (const auto& mutant : table())
    if (mutant.name.starts_with("mutant-cuda-") == cuda) names.insert({mutant.op, mutant.name});
  return names;
}

}  // namespace

TEST_CASE("every mutant is in the table, and the table holds at least 25") {
  const Names names = in_table(false);
  CHECK(listed_in(kPlugin) == names);
  CHECK(names.size() >= 25);
}

TEST_CASE("mutants are caught by the check meant for them") {
  for (const char* sweep : {"selective_scan_fwd", "selective_scan_bwd", "ssd", "steps", "mamba3", "conv"})
    check_sweep(sweep, "--device cpu --no-timing --no-supervision" + kPlugin);
}

TEST_CASE("mutants that are right at first are caught by launching them again") {
  check_sweep("repeated", "--device cpu --runs 10" + kPlugin);
}

TEST_CASE("mutants that compute only where they believe that somebody looks are wrong while they are timed") {
  // More bursts than the two rows of a launch with shuffled inputs can be of the eighth that is computed.
  check_sweep("watched", "--device cpu --runs 1000 --warmup 2 --reruns 0" + kPlugin,
              "mutant-none,mutant-result-*,mutant-rows-*,mutant-eighth-unless-*,mutant-eighth-when-*,"
              "mutant-eighth-by-*,mutant-late-*,mutant-work-*,mutant-lazy-*");
}

TEST_CASE("mutants that compute most of the time are wrong in some launch that is looked at") {
  // A number of launches, not a time, so that a busy machine has as many bursts: a hundred or so. Which are
  // looked at is drawn, few of them where judging takes long: what is right but for a pause may come through once.
  check_sweep("patient", "--device cpu --runs 1500 --timeout 600 --reruns 0" + kPlugin,
              "mutant-none,mutant-eighth-after-pause,mutant-lottery", 5);
}

TEST_CASE(
    "mutants that are wrong outside of what freshly initialised layers give are caught by trained inputs") {
  check_sweep("trained", "--device cpu --no-timing" + kPlugin,
              "mutant-none,mutant-softplus-overflows,mutant-large-*-lost");
}

TEST_CASE("mutants that are wrong by less than a rounding at each step are caught by all steps together") {
  check_sweep("long", "--device cpu --no-timing" + kPlugin, "mutant-none,mutant-exp-biased");
}

#ifdef SSMBENCH_CUDA_MUTANTS

namespace {
const std::string kCudaPlugin = " --plugin " SSMBENCH_CUDA_MUTANTS;
}  // namespace

TEST_CASE("every mutant on a GPU is in the table") {
  CHECK(listed_in(kCudaPlugin) == in_table(true));
}

TEST_CASE("mutants on a GPU are caught by the check meant for them", "[gpu]") {
  if (gpu_or_skip()) check_sweep("cuda", "--device cuda --no-timing" + kCudaPlugin);
}

TEST_CASE("mutants on a GPU that compute only where they believe that somebody looks are wrong while timed",
          "[gpu]") {
  if (!gpu_or_skip()) return;
  check_sweep("cuda-kept", "--device cuda --runs 20 --reruns 0" + kCudaPlugin,
              "mutant-cuda-none,mutant-cuda-result-*,mutant-cuda-eighth-*,mutant-cuda-late-*");
}

// Half a minute and 25 GB of memory: only when it is asked for.
TEST_CASE("offsets of 32 bits are caught", "[.huge]") {
  if (gpu_or_skip())
    check_sweep("huge", "--device cuda --no-timing --reruns 0" + kCudaPlugin,
                "mutant-cuda-none,mutant-cuda-32-bit-offset");
}

#endif
