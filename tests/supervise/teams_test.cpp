// Runs in teams of ranks: what is wrong is found as it is of one device, and a rank that ends, hangs or fails
// costs its case, with its number.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "support/faulty_run.h"
#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

std::string team_config(const TemporaryFolder& folder, const std::string& lengths) {
  return folder.write("teams.json",
                      R"({"format": "ssmbench-config/1", "sweeps": [{"op": "linear_scan", "axes": {"batch": 1,
                          "dim": 3, "dtype": "f32", "seqlen": [)" +
                          lengths + "]}}]}");
}

CommandResult run_team(const std::string& arguments, const std::string& before = "") {
  return run_shell(before + " '" SSMBENCH_FAULTY_EXECUTABLE "' run " + arguments, SSMBENCH_SOURCE_DIR);
}

/// Of this run, by implementation.
std::map<std::string, Json> cases_of(const CommandResult& result) {
  std::map<std::string, Json> found;
  for (const auto& record : records_of(result.out))
    if (record.at("record") == "case") found[record.at("impl")] = record;
  return found;
}

}  // namespace

TEST_CASE("a team passes, and every mistake of its algorithm is found") {
  const TemporaryFolder folder;
  const CommandResult result = run_team(team_config(folder, "50") +
                                        " --device 'cpu*3' --no-timing --json - --quiet --impl 'cpu-scan*'");
  INFO(result.err);
  CHECK(result.exit_code == 1);
  const auto found = outcomes(result.out);
  CHECK(found.at("cpu-scan 50") == "pass");
  for (const char* wrong : {"border", "decay", "early", "neighbour"}) {
    INFO(wrong);
    CHECK(found.at(std::string("cpu-scan-") + wrong + " 50").starts_with("fail (tolerance): out "));
  }
}

TEST_CASE("a rank that ends, hangs or fails costs its case, and a new team does what is left") {
  const TemporaryFolder folder;
  const CommandResult result = run_team(team_config(folder, "50") +
                                        " --ranks 2 --device cpu --no-timing --timeout 3 --json - --quiet "
                                        "--impl 'cpu-rank-*,cpu-scan'");
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  const auto of = [&](const std::string& name) { return found.at(name + " 50"); };
  CHECK(of("cpu-scan") == "pass");
  CHECK(of("cpu-rank-late") == "pass");  // fewer launches than that
  CHECK(of("cpu-rank-slow") == "pass");
  CHECK(of("cpu-rank-exit") == "error (crash): rank 1: exited with status 3");
  CHECK(of("cpu-rank-killed") == "error (crash): rank 1: killed");
  CHECK(of("cpu-rank-segfault") == "error (crash): rank 1: segmentation fault");
  CHECK(of("cpu-rank-throw") == "error (exception): rank 1: thrown");
  CHECK(of("cpu-rank-refuses") == "error (contract): rank 1: refused");
  CHECK(of("cpu-rank-hang") == "error (timeout): timed out after 3 s");
  CHECK(of("cpu-rank-0-segfault") == "error (crash): segmentation fault");
  CHECK(of("cpu-rank-0-throw") == "error (exception): thrown");
  CHECK(of("cpu-rank-disagrees").starts_with("error (device_error): rank 1 is at agree of 8 bytes"));
  CHECK(of("cpu-rank-changes-input").starts_with("invalid (inputs_changed): rank 1: input b was modified"));
  CHECK(of("cpu-rank-writes-outside")
            .starts_with("invalid (guard_band): rank 1: out was written past its end, first at byte +0"));
  CHECK(of("cpu-rank-late-work")
            .starts_with("invalid (late_work): out was still written after the launch had ended"));
  CHECK(of("cpu-rank-fickle").starts_with("fail (nondeterministic): "));
}

TEST_CASE("a rank that ends while several are timed in turns is the one that is blamed") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_team(team_config(folder, "50") +
               " --device 'cpu*2' --quick --json - --quiet --impl 'cpu-rank-late,cpu-rank-slow,cpu-scan'");
  CHECK(result.exit_code == 4);
  CHECK(outcomes(result.out) == Outcomes{{"cpu-rank-late 50", "error (crash): rank 1: segmentation fault"},
                                         {"cpu-rank-slow 50", "pass"},
                                         {"cpu-scan 50", "pass"}});
}

TEST_CASE("the time of a team is that of the rank that takes longest, and records say what is sent") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_team(team_config(folder, "50") +
               " --device cpu --ranks 1,3 --quick --json - --quiet --impl cpu-rank-slow,cpu-scan,cpu-scalar");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  const auto found = cases_of(result);
  const Json& slow = found.at("cpu-rank-slow");
  CHECK(slow.at("device") == "cpu*3");
  for (const double ms : slow.at("timing").at("hot").at("samples_ms")) CHECK(ms >= 20);
  REQUIRE(slow.at("team").size() == 3);
  CHECK(slow.at("team").at(1).at("median_ms") >= 20);
  CHECK(slow.at("team").at(0).at("median_ms") < 20);
  const Json& scan = found.at("cpu-scan");
  CHECK(scan.at("wire_bytes") == 2 * 2 * 3 * 4);  // to two others: three states and decays, f32
  CHECK(scan.at("timing").at("exchange").at("n") > 0);
  CHECK(scan.at("timing").at("exchange").at("median_ms") > 0);
  CHECK(slow.at("timing").at("exchange").at("median_ms") < 20);  // nothing is computed
  const Json& one = found.at("cpu-scalar");
  CHECK(one.at("device") == "cpu");
  CHECK_FALSE(one.contains("team"));
  CHECK_FALSE(one.contains("scaling"));
  const Json& scaling = slow.at("scaling");
  const double ms_one = one.at("timing").at("hot").at("median_ms");
  const double ms = slow.at("timing").at("hot").at("median_ms");
  CHECK(scaling.at("impl") == "cpu-scalar");
  CHECK(scaling.at("ms_one") == ms_one);
  CHECK(scaling.at("speedup").get<double>() == Approx(ms_one / ms));
  CHECK(scaling.at("efficiency").get<double>() == Approx(ms_one / ms / 3));
}

TEST_CASE("a split that does not fit is skipped with its reason, for each size of team") {
  const TemporaryFolder folder;
  const CommandResult result = run_team(
      team_config(folder, "20") + " --device cpu --ranks 2,4 --no-timing --json - --quiet --impl cpu-scan");
  CHECK(result.exit_code == 0);
  std::map<std::string, std::string> by_device;
  for (const auto& record : records_of(result.out))
    if (record.at("record") == "case")
      by_device[record.at("device")] =
          record.at("status").get<std::string>() + record.at("reason").get<std::string>();
  CHECK(by_device == std::map<std::string, std::string>{{"cpu*2", "pass"}, {"cpu*4", "skiptoo short"}});
}

TEST_CASE("a record's repro command runs the same team again, in one process too") {
  const TemporaryFolder folder;
  const CommandResult first = run_team(
      team_config(folder, "50") + " --device cpu --ranks 1,2 --no-timing --json - --quiet --impl cpu-scan");
  REQUIRE(first.exit_code == 0);
  const std::string repro = cases_of(first).at("cpu-scan").at("repro");
  CHECK(repro.find("--device 'cpu*2'") != std::string::npos);
  for (const char* how : {"", " --no-supervision"}) {
    const CommandResult again =
        run_team(repro.substr(repro.find("run ") + 4) + " --no-timing --json - --quiet" + how);
    CHECK(again.exit_code == 0);
    CHECK(cases_of(again).at("cpu-scan").at("device") == "cpu*2");
  }
}

TEST_CASE("without supervision a rank that ends is an error too, and a new team does the rest") {
  const TemporaryFolder folder;
  const CommandResult result = run_team(team_config(folder, "50") +
                                        " --device 'cpu*2' --no-timing --no-supervision --timeout 2 "
                                        "--json - --quiet --impl cpu-rank-segfault,cpu-rank-hang,cpu-scan");
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  CHECK(found.at("cpu-scan 50") == "pass");
  CHECK(found.at("cpu-rank-segfault 50") == "error (crash): rank 1: segmentation fault");
  CHECK(found.at("cpu-rank-hang 50").starts_with("error (device_error): rank 1 has not "));
}

TEST_CASE("a supervisor that is killed leaves no rank behind, and nothing in shared memory") {
  const TemporaryFolder folder;
  const CommandResult killed = run_shell(
      "'" SSMBENCH_FAULTY_EXECUTABLE "' run " + team_config(folder, "50") +
          " --device 'cpu*3' --no-timing --quiet --json results.jsonl --impl cpu-rank-hang & run=$!;"
          "worker=; ranks=; for i in $(seq 500); do worker=$(echo $(cat /proc/$run/task/*/children));"
          "ranks=$(cat /proc/$worker/task/*/children); [ $(echo $ranks | wc -w) = 2 ] && break; sleep 0.02; "
          "done 2>/dev/null; echo $ranks | wc -w; sleep 0.3; kill -9 $run;"
          "for i in $(seq 500); do left=; for w in $worker $ranks; do "
          "grep -s ^State: /proc/$w/status | grep -qv Z && left=$w; done; [ -z \"$left\" ] && break; "
          "sleep 0.02; done; echo \"left: $left\"; ls /dev/shm | grep \"^ssmbench-$worker-\"",
      folder.path());
  CHECK(killed.out == "2\nleft: \n");
}

TEST_CASE("teams under slots: each worker has a team of its own, and what is timed is alone") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_team(team_config(folder, "50, 60, 70") +
               " --cpus 2 --ranks 1,2 --runs 5 --json - --quiet --impl cpu-scan,cpu-scalar,cpu-rank-killed");
  CHECK(result.exit_code == 4);
  int passed = 0;
  for (const auto& record : records_of(result.out)) {
    if (record.at("record") != "case") continue;
    if (record.at("impl") == "cpu-rank-killed") {
      CHECK(record.at("reason") == "rank 1: killed");
      continue;
    }
    CHECK(record.at("status") == "pass");
    CHECK(record.at("beside") == 0);
    ++passed;
  }
  CHECK(passed == 6);
}

TEST_CASE("sizes of teams that make no sense are refused") {
  const TemporaryFolder folder;
  const std::string config = team_config(folder, "50");
  for (const char* sizes : {"0", "-1", "2x", "65", "two"}) {
    const CommandResult result = run_team(config + " --device cpu --ranks " + sizes);
    CHECK(result.exit_code == 2);
    CHECK(result.err ==
          std::string("ssmbench: --ranks ") + sizes + ": expected numbers of ranks from 1 to 64\n");
  }
  CHECK(run_team(config + " --device cpu --ranks 2,2").err ==
        "ssmbench: --ranks 2,2: a size is given twice\n");
  CHECK(run_team(config + " --device 'cpu*0'").err ==
        "ssmbench: --device cpu*0: expected numbers of ranks from 1 to 64\n");
  CHECK(run_team(config + " --device 'cpu*2' --ranks 2").err ==
        "ssmbench: --device cpu*2 and --ranks exclude each other\n");
  CHECK(
      run_team(config + " --device 'cuda*2' --gpus 2").err ==
      "ssmbench: --device cuda*2 computes a case on several GPUs, --gpus shares cases out: they exclude each "
      "other\n");
}
