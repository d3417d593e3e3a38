// Bad input: one clear line on stderr, nothing on stdout, the right exit code.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "device/device.h"
#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void check_error(const std::string& arguments, int exit_code, const std::string& message) {
  INFO("ssmbench " << arguments);
  const CommandResult result = run_ssmbench(arguments);
  CHECK(result.exit_code == exit_code);
  CHECK(result.err == message + "\n");
  CHECK(result.out == "");
}

}  // namespace

TEST_CASE("usage errors name what was wrong") {
  check_error("", 2, "ssmbench: A subcommand is required (see --help)");
  check_error("bogus", 2,
              "ssmbench: unknown subcommand bogus; expected one of run, report, list, dump, check, "
              "compare, gate, validate-config, schema, completion");
  check_error("run", 2, "ssmbench: CONFIG is required (see --help)");
  check_error("run configs/small.json --device gpu", 2,
              "ssmbench: --device gpu: expected auto, cpu, cpu*RANKS, cuda, cuda*RANKS, cuda:N or all");
  check_error("run configs/small.json --device cuda:x", 2,
              "ssmbench: --device cuda:x: expected auto, cpu, cpu*RANKS, cuda, cuda*RANKS, cuda:N or all");
  check_error("run configs/small.json --no-timing --no-verify", 2,
              "ssmbench: --no-timing and --no-verify leave nothing to do");
  check_error("run configs/small.json --runs 0", 2,
              "ssmbench: --runs: got 0; expected a number above 0 (see --help)");
  check_error("run configs/small.json --timeout nan", 2,
              "ssmbench: --timeout: got nan; expected a number above 0 (see --help)");
  check_error("run configs/small.json --warmup -1", 2,
              "ssmbench: --warmup: got -1; expected a number of at least 0 (see --help)");
  check_error("list cases", 2, "ssmbench: list cases: name at least one config");
  check_error("list ops configs/small.json", 2, "ssmbench: list ops: takes no config");
}

TEST_CASE("configs that are missing, truncated or foreign") {
  check_error("run no-such.json", 2,
              "ssmbench: no-such.json: cannot be read (No such file or directory); expected a config file");
  const TemporaryFolder folder;
  const std::string truncated =
      folder.write("truncated.json", R"({"format": "ssmbench-config/1", "sweeps": [)");
  const std::string foreign = folder.write("foreign.json", R"({"name": "x", "version": 1})");
  for (const auto& file : {truncated, foreign}) {
    for (const char* command : {"run ", "validate-config "}) {
      const CommandResult result = run_ssmbench(command + file);
      CHECK(result.exit_code == 2);
      CHECK(result.out == "");
      CHECK(result.err.starts_with("ssmbench: " + file + ": "));
      CHECK(std::ranges::count(result.err, '\n') == 1);
    }
  }
}

TEST_CASE("a case that no memory holds is refused before anything is generated") {
  const CommandResult result = run_ssmbench(
      "run configs/small.json --device cpu --set batch=512 --set dim=4096 --set seqlen=65536 --out "
      "/nonexistent");
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("GiB of host memory; expected at most the") != std::string::npos);
  CHECK(result.err.find("configs/small.json: /sweeps/0") != std::string::npos);
}

TEST_CASE("an output that exists or cannot be written is refused before anything runs") {
  const TemporaryFolder folder;
  const std::string existing = folder.write("results.jsonl", "precious\n");
  const std::string small = "run configs/small.json --device cpu --quick ";
  check_error(small + "--quiet --json " + existing, 2,
              "ssmbench: " + existing + ": exists already; remove it or name another file");
  check_error(small + "--quiet --markdown " + existing + " --json /dev/null", 2,
              "ssmbench: " + existing + ": exists already; remove it or name another file");
  check_error(small + "--quiet --impl cpu-scalar --json /dev/null --dump " + existing, 2,
              "ssmbench: " + existing + " exists already; it is not overwritten");
  CHECK(read_file(existing) == "precious\n");
  check_error(small + "--quiet --out " + existing, 2, "ssmbench: --out " + existing + ": is not a directory");
  check_error(small + "--quiet --json " + folder.path().string() + "/no/such/folder.jsonl", 2,
              "ssmbench: " + folder.path().string() +
                  "/no/such/folder.jsonl: cannot be written: No such file or directory");
}

TEST_CASE("a run that is refused leaves no results file, whose name would be refused the next time") {
  const TemporaryFolder folder;
  const std::string small = "run configs/small.json --device cpu --quiet --json " + (folder / "r.jsonl");
  check_error(small + " --junit /no/such/x.xml", 2,
              "ssmbench: /no/such/x.xml: cannot be written: No such file or directory");
  CHECK(run_ssmbench(small + " --dump " + (folder / "x.h5")).exit_code == 2);  // two implementations
  CHECK(folder.entries().empty());
}

TEST_CASE("what is printed and cannot be written is exit code 4") {
  const auto onto_a_full_disk = [](const std::string& arguments) {
    return run_shell("'" SSMBENCH_EXECUTABLE "' " + arguments + " >/dev/full", SSMBENCH_SOURCE_DIR);
  };
  for (const char* arguments : {"list ops", "--help", "validate-config configs/small.json"}) {
    const CommandResult result = onto_a_full_disk(arguments);
    CHECK(result.exit_code == 4);
    CHECK(result.err == "ssmbench: standard output: cannot be written: No space left on device\n");
  }
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  CHECK(onto_a_full_disk("run configs/small.json --device cpu --no-timing --json " + file).exit_code == 4);
  CHECK(read_file(file).find(R"("status":"pass")") != std::string::npos);
}

TEST_CASE("a standard stream that is closed is no results file") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const CommandResult result =
      run_shell("'" SSMBENCH_EXECUTABLE "' run configs/small.json --device cpu --no-timing --json " + file +
                    " <&- >&- 2>&-",
                SSMBENCH_SOURCE_DIR);
  CHECK(result.exit_code == 0);
  for (const auto& record : records_of(read_file(file))) CHECK(record.contains("record"));
}

TEST_CASE("names of files may hold what is not UTF-8") {
  const TemporaryFolder folder;
  const auto named = [&](const char* name) { return "'" + (folder / name) + "'"; };
  folder.write("caf\xE9.json", read_file(SSMBENCH_SOURCE_DIR "/configs/small.json"));
  CHECK(run_ssmbench("run " + named("caf\xE9.json") + " --device cpu --impl cpu-scalar --no-timing --json " +
                     named("r\xE9.jsonl") + " --dump " + named("d\xE9.h5"))
            .exit_code == 0);
  CHECK(run_ssmbench("check --quiet " + named("d\xE9.h5")).exit_code == 0);
  CHECK(run_ssmbench("list cases --json " + named("caf\xE9.json")).exit_code == 0);
  for (const auto& record : records_of(read_file(folder / "r\xE9.jsonl"))) CHECK(record.contains("record"));
}

TEST_CASE("a dump holds one implementation") {
  const TemporaryFolder folder;
  check_error("run configs/small.json --device cpu --quiet --json /dev/null --dump " + folder / "x.h5", 2,
              "ssmbench: --dump: a file holds the outputs of one implementation on one device, this run has "
              "cpu-scalar, cpu-simd; choose with --impl and --device");
}

TEST_CASE("a full disk keeps the records before it whole and exits with 4") {
  check_error("run configs/small.json --device cpu --quiet --json /dev/full", 4,
              "ssmbench: /dev/full: cannot be written: No space left on device");
  // A file that may not grow past 8 KiB: a few records fit.
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  const CommandResult result = run_shell("ulimit -f 8; '" SSMBENCH_EXECUTABLE
                                         "' run configs/small.json --device cpu --no-timing --quiet --json " +
                                             file,
                                         SSMBENCH_SOURCE_DIR);
  CHECK(result.exit_code == 4);
  CHECK(result.err ==
        "ssmbench: " + file + ": cannot be written: File too large; the records before are complete\n");
  const std::string records = read_file(file);
  CHECK(records.size() > 1000);
  CHECK(records.back() == '\n');
  CHECK(records.starts_with(R"({"record":"run")"));
}

TEST_CASE("nothing that matches is exit code 5") {
  check_error("run configs/small.json --device cpu --impl no-such-*", 5,
              "ssmbench: no case with an implementation on cpu matches the selection");
  check_error("run configs/small.json --device cpu --dtype f64", 5,
              "ssmbench: no case with an implementation on cpu matches the selection");
  check_error("check tests/golden/m1_fwd_f32.h5 --quiet --case no-such-*", 5,
              "ssmbench: no case to check in tests/golden/m1_fwd_f32.h5");
}

TEST_CASE("a file that holds no results is named, with what is there") {
  check_error("gate no-such.jsonl no-such.jsonl", 2,
              "ssmbench: no-such.jsonl: cannot be read (No such file or directory); expected a results file");
  check_error("report configs -o -", 2,
              "ssmbench: configs: cannot be read (it is a directory); expected a results file");
  for (const char* command : {"gate configs/small.json configs/small.json", "report configs/small.json -o -"})
    check_error(command, 2,
                "ssmbench: configs/small.json:1: not a results record (parse error at line 1, column 2: "
                "syntax error while parsing object key - unexpected end of input; expected string literal)");
}

TEST_CASE("an explicit CUDA device that is missing is an error, never a fallback") {
  if (list_devices().size() > 1) {
    check_error("run configs/small.json --device cuda:97", 4,
                "ssmbench: --device cuda:97: this machine has " + std::to_string(list_devices().size() - 1) +
                    " CUDA device(s)");
    return;
  }
  const CommandResult result = run_ssmbench("run configs/small.json --device cuda");
  CHECK(result.exit_code == 4);
  CHECK(result.err.starts_with("ssmbench: --device cuda: no CUDA device: "));
  CHECK(result.out == "");
}
