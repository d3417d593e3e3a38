// Implementations that crash, hang, and lie; supervisors that are killed; disks that are full: every other
// case finishes, and each that did not says why.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "interchange/reader.h"
#include "support/gpu.h"
#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

/// A config of linear_scan cases that differ in their length alone.
std::string config(const TemporaryFolder& folder, const std::string& lengths) {
  return folder.write("scan.json",
                      R"({"format": "ssmbench-config/1", "sweeps": [{"op": "linear_scan", "axes": {"batch": 1,
                          "dim": 1, "dtype": "f32", "seqlen": [)" +
                          lengths + "]}}]}");
}

/// "5, 6, 7" from 5 to 7.
std::string lengths(int from, int to) {
  std::string all = std::to_string(from);
  for (int length = from + 1; length <= to; ++length) all += ", " + std::to_string(length);
  return all;
}

CommandResult run_faulty(const std::string& arguments, const std::string& before = "") {
  return run_shell(before + " '" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + arguments,
                   SSMBENCH_SOURCE_DIR);
}

/// "pass", or "error (cause): reason", by implementation and length.
std::map<std::string, std::string> outcomes(const std::string& text) {
  std::map<std::string, std::string> found;
  for (const auto& record : records_of(text)) {
    if (record.at("record") != "case") continue;
    std::string outcome = record.at("status");
    if (!record.at("cause").is_null()) outcome += " (" + record.at("cause").get<std::string>() + ")";
    if (const std::string reason = record.at("reason"); !reason.empty()) outcome += ": " + reason;
    found[record.at("impl").get<std::string>() + " " + record.at("shape").at("seqlen").dump()] = outcome;
  }
  return found;
}

using Outcomes = std::map<std::string, std::string>;

}  // namespace

TEST_CASE("implementations that end their process or hang are errors that say how, and all others run") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_faulty(config(folder, "5, 6") + " --no-timing --timeout 5 --json - --quiet");
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);  // which is pure JSON Lines, for all that cpu-noisy prints
  for (const char* length : {" 5", " 6"}) {
    const auto of = [&](const std::string& name) { return found.at(name + length); };
    CHECK(of("cpu-abort") == "error (crash): aborted");
    CHECK(of("cpu-exit") == "error (crash): exited with status 3");
    CHECK(of("cpu-exit-well") == "error (crash): exited with status 0");
    CHECK(of("cpu-fork") == "error (crash): exited with status 5");
    CHECK(of("cpu-hang") == "error (timeout): timed out after 5 s");
    CHECK(of("cpu-liar").starts_with("error (protocol): "));
    CHECK(of("cpu-segfault") == "error (crash): segmentation fault");
    CHECK(of("cpu-throw") == "error (exception): thrown");
    for (const char* honest :
         {"cpu-late-hang", "cpu-late-segfault", "cpu-noisy", "cpu-scalar", "cpu-slow", "cpu-spoiler"})
      CHECK(of(honest) == "pass");
  }
  CHECK(found.at("cpu-fickle 5") == "pass");
  CHECK(found.at("cpu-fickle 6") == "error (crash): segmentation fault");
  const Json summary = records_of(result.out).back();
  CHECK(summary.at("counts") == Json{{"pass", 13}, {"error", 17}, {"skip", 2}});
}

TEST_CASE("one that crashes or hangs while several are timed in turns is the one that is blamed") {
  const TemporaryFolder folder;
  // cpu-slow takes 40 ms times (3 + 2 + 25 + bursts) = 1.3 s at least: the timeout is of each, not of all.
  const CommandResult result = run_faulty(
      config(folder, "5") +
      " --runs 25 --timeout 8 --json - --quiet --impl cpu-late-hang,cpu-late-segfault,cpu-scalar,cpu-slow");
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  CHECK(found == Outcomes{{"cpu-late-hang 5", "error (timeout): timed out after 8 s"},
                          {"cpu-late-segfault 5", "error (crash): segmentation fault"},
                          {"cpu-scalar 5", "pass"},
                          {"cpu-slow 5", "pass"}});
  for (const auto& record : records_of(result.out))
    if (record.value("status", "") == "pass") CHECK(record.at("timing").at("hot").at("n") == 25);
}

TEST_CASE("want of memory is an error of the implementation that wants too much") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_faulty(config(folder, "5, 6") + " --no-timing --json - --quiet --impl cpu-hungry,cpu-scalar",
                 "ulimit -v 2000000; OMP_NUM_THREADS=2");
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  for (const char* length : {" 5", " 6"}) {
    CHECK(found.at(std::string("cpu-hungry") + length) == "error (out_of_memory): out of host memory");
    CHECK(found.at(std::string("cpu-scalar") + length) == "pass");
  }
}

TEST_CASE(
    "a case whose inputs or reference bring the process down is an error for all, and tried no further") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_faulty(config(folder, "5, 997, 6") + " --no-timing --json - --quiet --impl cpu-scalar");
  CHECK(result.exit_code == 4);
  CHECK(outcomes(result.out) ==
        Outcomes{{"cpu-scalar 5", "pass"},
                 {"cpu-scalar 997", "error (inputs): segmentation fault while generating the inputs"},
                 {"cpu-scalar 6", "pass"}});
}

TEST_CASE("inputs that cannot be made after something spoilt the process are made in a new one") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_faulty(config(folder, "5, 1100, 6") + " --no-timing --json - --impl cpu-spoiler");
  CHECK(result.exit_code == 0);
  CHECK(outcomes(result.out) ==
        Outcomes{{"cpu-spoiler 5", "pass"}, {"cpu-spoiler 1100", "pass"}, {"cpu-spoiler 6", "pass"}});
  CHECK(result.err.find("warning: segmentation fault while generating the inputs of linear_scan") !=
        std::string::npos);
}

TEST_CASE("a supervisor that is killed loses nothing that was finished, and --resume runs the rest") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const std::string run =
      config(folder, lengths(5, 28)) + " --no-timing --impl cpu-scalar,cpu-slow --json " + file;
  const CommandResult killed = run_shell(
      "'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + run + " & run=$!; until [ $(grep -c . " + file +
          " || true) -ge 6 ]; do sleep 0.01; done 2>/dev/null;"
          "worker=$(cat /proc/$run/task/$run/children); kill -9 $run;"
          "for w in $worker; do tries=0; while grep -s ^State: /proc/$w/status | grep -qv Z; do sleep 0.05; "
          "tries=$((tries + 1)); [ $tries -lt 600 ] || { echo alive; break; }; done; done",
      folder.path());
  CHECK(killed.out.find("alive") == std::string::npos);  // the worker dies with it
  const std::string before = read_file(file);
  const auto finished = records_of(before.substr(0, before.rfind('\n') + 1)).size() - 1;
  REQUIRE(finished >= 5);
  REQUIRE(finished < 48);  // the other 19 of cpu-slow take over 2 s

  std::ofstream(file, std::ios::app)
      << R"({"record":"case","id":"lin)";  // as if killed in the middle of a line
  const CommandResult resumed = run_faulty(run + " --resume");
  CHECK(resumed.exit_code == 0);
  const auto records = records_of(read_file(file));
  CHECK(outcomes(read_file(file)).size() == 48);
  CHECK(records.size() == 48 + 3);  // two run records and a summary: no case ran twice
  CHECK(records.back().at("kept") == finished);
  CHECK(records.back().at("counts").at("pass") == 48);
}

TEST_CASE("option --resume retries errors and what another binary or other options measured") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const std::string run = config(folder, "5, 6") + " --no-timing --impl cpu-fickle --quiet --json " + file;
  const auto kept = [&](const std::string& options) {
    const CommandResult result = run_faulty(run + " --resume " + options);
    CHECK(result.exit_code == 4);
    return records_of(read_file(file)).back().at("kept").get<int>();
  };
  CHECK(kept("") == 0);  // there was nothing: cpu-fickle passes once and fails once
  CHECK(kept("") == 1);
  CHECK(kept("--reruns 1") == 0);
  CHECK(kept("--reruns 1") == 1);
  CHECK(kept("") == 0);  // the last record of a case counts
}

TEST_CASE("option --resume refuses what is no results file, and leaves it alone") {
  const TemporaryFolder folder;
  const std::string text = "{\"some\": \"JSON\"}\n";
  const std::string file = folder.write("other.json", text);
  const CommandResult result = run_faulty(config(folder, "5") + " --no-timing --resume --json " + file);
  CHECK(result.exit_code == 2);
  CHECK(result.err.starts_with("ssmbench: " + file + ":1: "));
  CHECK(read_file(file) == text);
}

TEST_CASE("option --resume refuses a foreign file without a newline, and leaves it alone") {
  const TemporaryFolder folder;
  const auto resume = [&](const std::string& file) {
    return run_faulty(config(folder, "5") + " --no-timing --impl cpu-scalar --resume --json " + file);
  };
  for (const std::string text : {"notes", R"({"some": "JSON"})", "\xFF\xFE", R"({"record":"case")"}) {
    const std::string file = folder.write("other", text);
    const CommandResult result = resume(file);
    CHECK(result.exit_code == 2);
    CHECK(result.err.starts_with("ssmbench: " + file + ":1: "));
    CHECK(read_file(file) == text);
  }
  // All that a full disk took of the first record.
  CHECK(resume(folder.write("ours", R"({"record":"run","schema":"ssm)")).exit_code == 0);
}

TEST_CASE("option --resume without a file continues the newest of --out") {
  const TemporaryFolder folder;
  const std::string run = config(folder, "5, 6") + " --no-timing --impl cpu-scalar --out " + (folder / "out");
  CHECK(run_faulty(run + " --resume").exit_code == 0);
  const CommandResult again = run_faulty(run + " --resume");
  CHECK(again.exit_code == 0);
  CHECK(again.out.find("2 pass (2 from an earlier run)") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path() / "out"), {}) == 1);
}

TEST_CASE("Ctrl-C, SIGTERM and a terminal that is gone end the worker too") {
  const TemporaryFolder folder;
  for (const char* signal : {"INT", "TERM", "HUP"}) {
    const std::string file = folder / signal;
    const CommandResult result = run_shell(
        "'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + config(folder, "5") +
            " --impl cpu-hang --json " + file + " & run=$!; until test -s " + file +
            "; do sleep 0.01; done; sleep 0.2; worker=$(cat /proc/$run/task/$run/children); kill -" + signal +
            " $run; wait $run; code=$?; for w in $worker; do test -e /proc/$w && echo alive; done; (exit "
            "$code)",
        folder.path());
    CHECK(result.exit_code == 130);
    CHECK(result.out.find("alive") == std::string::npos);
    CHECK(records_of(read_file(file)).back().at("interrupted") == true);
  }
}

TEST_CASE("nohup keeps a run going") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const CommandResult result =
      run_shell("trap '' HUP; '" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + config(folder, "5") +
                    " --impl cpu-hang --timeout 1 --json " + file + " & run=$!; until test -s " + file +
                    "; do sleep 0.01; done; kill -HUP $run; wait $run",
                folder.path());
  CHECK(result.exit_code == 4);
  CHECK(records_of(read_file(file)).back().at("interrupted") == false);
}

TEST_CASE("a full disk ends the run with one line and keeps every whole record") {
  const TemporaryFolder folder;
  const std::string run =
      config(folder, "5, 6, 7, 8, 9, 10") + " --no-timing --impl cpu-scalar --quiet --json ";
  const CommandResult full = run_faulty(run + "/dev/full");
  CHECK(full.exit_code == 4);
  CHECK(full.err == "ssmbench: /dev/full: cannot be written: No space left on device\n");

  // A limit of 4 KiB per file fails like a full disk, after some records.
  const std::string file = folder / "results.jsonl";
  const CommandResult part =
      run_shell("bash -c \"trap '' XFSZ; ulimit -f 4; exec " SSMBENCH_FAULTY_EXECUTABLE " run --device cpu " +
                    run + file + "\"",
                folder.path());
  CHECK(part.exit_code == 4);
  CHECK(std::ranges::count(part.err, '\n') == 1);
  const auto records = records_of(read_file(file));
  CHECK(records.size() > 2);
  CHECK(records.back().at("record") == "case");
}

TEST_CASE("tensors of cases before a crash, and after it, are in the --dump") {
  const TemporaryFolder folder;
  const std::string file = folder / "fickle.h5";
  const CommandResult result = run_faulty(config(folder, "5, 6, 7") +
                                          " --no-timing --impl cpu-fickle --json /dev/null --dump " + file);
  CHECK(result.exit_code == 4);
  const InterchangeFile dump(file);
  REQUIRE(dump.case_ids().size() == 2);
  CHECK(dump.info().producer.ends_with("cpu-fickle"));
  const auto the_case = dump.read_case(dump.case_ids().front());
  CHECK(the_case.outputs.size() == 1);
  CHECK(folder.entries() == std::vector<std::string>{"fickle.h5", "scan.json"});  // no parts are left
}

TEST_CASE("a clock that jumps disturbs nothing") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_faulty(config(folder, "5") + " --impl cpu-scalar,cpu-slow --runs 3 --timeout 5 --json -",
                 "LD_PRELOAD='" CLOCK_JUMP_LIBRARY "'");
  CHECK(result.exit_code == 0);
  for (const auto& record : records_of(result.out)) {
    if (record.at("record") == "summary") CHECK(record.at("seconds") < 60);
    if (record.at("record") != "case") continue;
    CHECK(record.at("timing").at("hot").at("median_ms") < 1000);
    CHECK(record.at("timing").at("hot").at("min_ms") >= 0);
  }
}

TEST_CASE("the time for which a run is stopped, as by Ctrl-Z, is no case's") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  // cpu-slow takes 1 s, and where it ended earlier there was nothing to stop; in the middle of it all is
  // stopped for longer than the timeout.
  const CommandResult result =
      run_shell("'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + config(folder, "5") +
                    " --impl cpu-slow --runs 20 --timeout 5 --json " + file +
                    " & run=$!; until worker=$(cat /proc/$run/task/$run/children) && test -n \"$worker\" || "
                    "! kill -0 $run; do "
                    "sleep 0.01; "
                    "done; sleep 0.4; kill -STOP $run $worker; sleep 6; kill -CONT $worker $run; wait $run",
                folder.path());
  CHECK(result.exit_code == 0);
  CHECK(outcomes(read_file(file)) == Outcomes{{"cpu-slow 5", "pass"}});
}

TEST_CASE("results that are removed while they are written end the run") {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  const CommandResult result =
      run_shell("'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " +
                    config(folder, lengths(5, 84)) +  // ten seconds, were nothing removed
                    " --no-timing --quiet --impl cpu-slow --out " + out + " & run=$!; until test -s " + out +
                    "/*.jsonl; do sleep 0.01; done; rm -r " + out + "; wait $run",
                folder.path());
  CHECK(result.exit_code == 4);
  CHECK(std::ranges::count(result.err, '\n') == 1);
  CHECK(result.err.find("has been removed meanwhile") != std::string::npos);
}

TEST_CASE("with --no-supervision the records are the same") {
  const TemporaryFolder folder;
  const std::string run =
      config(folder, "5, 6") + " --no-timing --impl cpu-scalar,cpu-spoiler,cpu-throw --json - ";
  const auto supervised = records_of(run_faulty(run).out);
  const auto not_supervised = records_of(run_faulty(run + "--no-supervision").out);
  REQUIRE(supervised.size() == 8);
  REQUIRE(not_supervised.size() == 8);
  for (std::size_t i = 1; i < 7; ++i) CHECK(supervised[i] == not_supervised[i]);
}

TEST_CASE("plugins that crash or hang, when asked what they can do or when they run, are named") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& oddity) {
    return run_shell("SSMBENCH_ODD_PLUGIN=" + oddity + " '" SSMBENCH_EXECUTABLE "' run " +
                         config(folder, "5") +
                         " --device cpu --no-timing --timeout 5 --json - --plugin " SSMBENCH_ODD_PLUGIN,
                     SSMBENCH_SOURCE_DIR);
  };
  const std::string named = "ssmbench: --plugin " SSMBENCH_ODD_PLUGIN ": ";
  const CommandResult aborted = run("abort");
  CHECK(aborted.exit_code == 4);
  CHECK(aborted.err == named + "aborted while its implementations were queried\n");
  const CommandResult listed = run_shell("SSMBENCH_ODD_PLUGIN=abort '" SSMBENCH_EXECUTABLE "' list cases " +
                                             config(folder, "5") + " --plugin " SSMBENCH_ODD_PLUGIN,
                                         SSMBENCH_SOURCE_DIR);
  CHECK(listed.exit_code == 4);
  CHECK(listed.err == named + "aborted while its implementations were queried\n");
  const CommandResult hung = run("hang");
  CHECK(hung.exit_code == 4);
  CHECK(hung.err == named + "timed out after 5 s while its implementations were queried\n");
  const CommandResult segfault = run("segfault");
  CHECK(segfault.exit_code == 4);
  CHECK(outcomes(segfault.out).at("odd-fails 5") == "error (crash): segmentation fault");
  CHECK(outcomes(segfault.out).at("odd-good 5") == "pass");
  CHECK(outcomes(segfault.out).at("cpu-scalar 5") == "pass");
}

TEST_CASE("control characters of plugins are shown, not obeyed") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_shell("SSMBENCH_ODD_PLUGIN=escapes '" SSMBENCH_EXECUTABLE "' run " + config(folder, "5") +
                    " --device cpu --no-timing --out . --impl odd-fails --plugin " SSMBENCH_ODD_PLUGIN,
                folder.path());
  CHECK(result.out.find("\\x1b[2K\\x0dpass\\n") != std::string::npos);
  CHECK(std::ranges::none_of(result.out, [](char c) { return c == '\x1b' || c == '\r'; }));
}

TEST_CASE("a run whose table nobody reads any more goes on, and its file has a summary") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_shell("{ '" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + config(folder, "5, 6, 7, 8, 9, 10") +
                    " --impl cpu-slow --no-timing --json r; echo $? >code; } | head -n 1",
                folder.path());
  CHECK(std::ranges::count(result.out, '\n') == 1);
  CHECK(read_file(folder / "code") == "0\n");
  CHECK(records_of(read_file(folder / "r")).back().at("counts") == Json{{"pass", 6}});
}

TEST_CASE("workers are called by what they are") {
  const TemporaryFolder folder;
  const CommandResult result = run_shell(
      "'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + config(folder, "5") +
          " --impl cpu-hang --quiet --json r & run=$!; until grep -qs worker "
          "$(sed 's|[0-9]*|/proc/&/comm|' /proc/$run/task/$run/children) /dev/null || ! kill -0 $run; do "
          "sleep 0.01; done; cat $(sed 's|[0-9]*|/proc/&/comm|' /proc/$run/task/$run/children); "
          "kill $run; wait $run",
      folder.path());
  CHECK(result.out.starts_with("ssmbench-worker\n"));
}

TEST_CASE("device hangs and illegal addresses are errors, and the device works again", "[gpu]") {
  if (!gpu_or_skip()) return;
  const TemporaryFolder folder;
  const CommandResult result =
      run_shell("'" SSMBENCH_FAULTY_EXECUTABLE "' run --device cuda " + config(folder, "5, 6") +
                    " --no-timing --timeout 2 --json - --quiet",
                folder.path());
  CHECK(result.exit_code == 4);
  const auto found = outcomes(result.out);
  for (const char* length : {" 5", " 6"}) {
    CHECK(found.at(std::string("cuda-hang") + length) == "error (timeout): timed out after 2 s");
    CHECK(found.at(std::string("cuda-illegal-address") + length).find("cudaErrorIllegalAddress") !=
          std::string::npos);
    CHECK(found.at(std::string("cuda-one-thread") + length) == "pass");
  }
}
