// `run` from end to end, as a user calls it.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "interchange/reader.h"
#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;
using Json = nlohmann::json;

TEST_CASE("run writes a run record, a record per case and a summary") {
  const CommandResult result = run_ssmbench("run configs/small.json --device cpu --dtype f32 --json -");
  REQUIRE(result.exit_code == 0);
  const auto records = records_of(result.out);  // stdout is pure JSON Lines
  REQUIRE(records.size() > 3);
  CHECK(records.front().at("record") == "run");
  CHECK(records.front().at("schema") == "ssmbench-results/1");
  CHECK(records.front().at("argv").at(0) == "ssmbench");
  CHECK_FALSE(records.front().at("devices").at("cpu").at("name").get<std::string>().empty());
  CHECK(records.back().at("record") == "summary");
  CHECK(records.back().at("counts").at("pass") == records.size() - 2);
  for (std::size_t i = 1; i + 1 < records.size(); ++i) {
    const Json& record = records[i];
    INFO(record.dump());
    CHECK(record.at("record") == "case");
    CHECK(record.at("status") == "pass");
    CHECK(record.at("dtype") == "f32");
    CHECK(record.at("shape").at("seqlen") == 16);
    for (const char* output : {"out", "last_state"}) {
      const Json& verify = record.at("verify").at("outputs").at(output);
      CHECK(verify.at("tolerance_ratio") <= 1);
      CHECK(verify.at("rel_l2") < 1e-6);
      CHECK(verify.at("nonfinite") == 0);
    }
    const Json& hot = record.at("timing").at("hot");
    CHECK(hot.at("n") == hot.at("samples_ms").size());
    CHECK(hot.at("min_ms") <= hot.at("median_ms"));
    CHECK(hot.at("median_ms") <= hot.at("p99_ms"));
    CHECK(record.at("throughput").at("gb_per_s") > 0);
  }
}

TEST_CASE("the repro command of a record runs exactly that case again") {
  const CommandResult first = run_ssmbench(
      "run configs/small.json --device cpu --set seqlen=40 --seed 3 --impl cpu-simd --dtype bf16 --json - "
      "--runs 2");
  REQUIRE(first.exit_code == 0);
  const auto records = records_of(first.out);
  const Json& record = records.at(5);
  std::string repro = record.at("repro");
  REQUIRE(repro.starts_with("ssmbench "));
  const CommandResult again = run_ssmbench(repro.substr(9) + " --json -");
  REQUIRE(again.exit_code == 0);
  const auto repeated = records_of(again.out);
  REQUIRE(repeated.size() == 3);
  CHECK(repeated[1].at("id") == record.at("id"));
  CHECK(repeated[1].at("impl") == record.at("impl"));
  CHECK(repeated[1].at("verify") == record.at("verify"));  // the same bits went in and came out
}

TEST_CASE("selection options narrow the run") {
  const auto ids = [](const std::string& options) {
    const CommandResult result =
        run_ssmbench("run configs/small.json --device cpu --no-timing --json - " + options);
    std::vector<std::string> found;
    for (const auto& record : records_of(result.out))
      if (record.at("record") == "case")
        found.push_back(record.at("impl").get<std::string>() + " " + record.at("id").get<std::string>());
    return found;
  };
  const auto all = ids("");
  CHECK(ids("--impl cpu-scalar").size() * 2 == all.size());
  CHECK(ids("--dtype f16").size() * 3 == all.size());
  CHECK(ids("--op selective_scan_fwd --method zoh").size() == all.size());
  const std::string one = all.front().substr(all.front().find(' ') + 1);
  CHECK(ids("--case " + one).size() == 2);
  CHECK(ids("--case '*-bld-*' --dtype bf16 --impl cpu-simd").size() == 2);
}

TEST_CASE("option --no-verify never says pass and --no-timing carries no timing") {
  const auto unverified =
      records_of(run_ssmbench("run configs/small.json --device cpu --no-verify --json -").out);
  const auto untimed =
      records_of(run_ssmbench("run configs/small.json --device cpu --no-timing --json -").out);
  for (std::size_t i = 1; i + 1 < unverified.size(); ++i) {
    CHECK(unverified[i].at("status") == "unverified");
    CHECK_FALSE(unverified[i].contains("verify"));
    CHECK(unverified[i].contains("timing"));
    CHECK(untimed[i].at("status") == "pass");
    CHECK_FALSE(untimed[i].contains("timing"));
  }
}

TEST_CASE("option --runs is exactly that many, --quick at most five") {
  for (const auto& [option, expected] : {std::pair{"--runs 7", 7}, {"--quick", 5}}) {
    const auto records = records_of(
        run_ssmbench(std::string("run configs/small.json --device cpu --dtype f32 --json - ") + option).out);
    REQUIRE(records.size() > 2);
    CHECK(records[1].at("timing").at("hot").at("n") == expected);
  }
}

TEST_CASE("option --reruns is exactly that many, and the repro command has it") {
  const auto records = records_of(
      run_ssmbench("run configs/small.json --device cpu --impl cpu-simd --no-timing --json - --reruns 5")
          .out);
  REQUIRE(records.size() > 2);
  CHECK(records[1].at("determinism") == Json{{"reruns", 5}, {"bitwise_equal", true}});
  CHECK(records[1].at("repro").get<std::string>().ends_with(" --reruns 5"));
}

TEST_CASE("a budget is met or missed") {
  const auto records = records_of(
      run_ssmbench("run configs/realtime-60fps.json --device cpu --impl cpu-simd --json - --runs 3").out);
  const Json& budget = records.at(1).at("budget");
  CHECK(budget.at("limit_ms") == 16.67);
  const double median = records.at(1).at("timing").at("hot").at("median_ms");
  CHECK(budget.at("met") == (median <= 16.67));
  CHECK(budget.at("margin_ms") == 16.67 - median);
}

TEST_CASE("option --out gets a results file that says where it came from, and the table goes to stdout") {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "made" / "here").string();
  const CommandResult result =
      run_ssmbench("run configs/small.json --device cpu --dtype f32 --runs 1 --out " + out);
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("implementation") != std::string::npos);
  CHECK(result.out.find("\x1b[") == std::string::npos);  // no colour where no terminal is
  CHECK(result.out.find("pass") != std::string::npos);
  REQUIRE(std::distance(std::filesystem::directory_iterator(out), {}) == 1);
  const auto file = std::filesystem::directory_iterator(out)->path();
  CHECK(file.filename().string().starts_with("small-cpu-"));
  CHECK(records_of(read_file(file)).back().at("record") == "summary");
}

TEST_CASE("runs that follow one another at once have results files of their own") {
  const TemporaryFolder folder;
  for (int i = 0; i < 4; ++i)
    CHECK(run_ssmbench(
              "run configs/small.json --device cpu --impl cpu-scalar --dtype f32 --no-timing --quiet --out " +
              folder.path().string())
              .exit_code == 0);
  CHECK(folder.entries().size() == 4);
}

TEST_CASE("one table goes to stdout: with --markdown - that one") {
  const CommandResult result = run_ssmbench(
      "run configs/small.json --device cpu --dtype f32 --no-timing --json /dev/null --markdown -");
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("| pass | cpu-simd |") != std::string::npos);
  CHECK(result.out.find("\npass ") == std::string::npos);
}

TEST_CASE("configs may come after a --") {
  CHECK(run_ssmbench("run --device cpu --dtype f32 --no-timing --json - -- configs/small.json").exit_code ==
        0);
}

TEST_CASE("option --dump holds inputs, outputs and the reference of each case") {
  const TemporaryFolder folder;
  const std::string file = folder / "small.h5";
  const CommandResult result = run_ssmbench(
      "run configs/small.json --device cpu --impl cpu-simd --dtype bf16 --no-timing --json /dev/null "
      "--dump " +
      file);
  REQUIRE(result.exit_code == 0);
  const InterchangeFile dump(file);
  CHECK(dump.info().producer.starts_with("ssmbench "));
  CHECK(dump.case_ids().size() == 17);
  const auto the_case = dump.read_case(dump.case_ids().front());
  CHECK(the_case.outputs.size() == 2);
  CHECK(the_case.problem.dtype() == DType::bf16);

  const std::string none = folder / "none.h5";
  REQUIRE(run_ssmbench("run configs/small.json --device cpu --impl cpu-simd --no-timing --json /dev/null "
                       "--dump-what failed --dump " +
                       none)
              .exit_code == 0);
  CHECK(InterchangeFile(none).case_ids().empty());  // nothing failed
}

TEST_CASE("an axis that has the name of a claim goes through a worker's record") {
  const CommandResult result = run_ssmbench(
      "run configs/decode.json --quick --device cpu --no-timing --quiet --case '*-statebf16-*' --json -");
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("\"status\":\"pass\"") != std::string::npos);
}

TEST_CASE("tensors are kept though results cannot be written") {
  const TemporaryFolder folder;
  const std::string file = folder / "small.h5";
  const CommandResult result = run_ssmbench(
      "run configs/small.json --device cpu --impl cpu-scalar --no-timing --quiet --json /dev/null "
      "--junit /dev/full --dump " +
      file);
  CHECK(result.exit_code == 4);
  CHECK(result.err == "ssmbench: /dev/full: cannot be written: No space left on device\n");
  REQUIRE(std::filesystem::exists(file));
  CHECK(InterchangeFile(file).case_ids().size() == 51);
}

TEST_CASE("Ctrl-C in the middle keeps every finished record and exits with 130") {
  const TemporaryFolder folder;
  const std::string file = folder / "results.jsonl";
  // A second signal comes at once, as from a terminal that sends it to the whole group; only a later one ends
  // the process on the spot. Each case is timed for 0.2 s: after the first there are 49 × 2 to go.
  const CommandResult result =
      run_shell("'" SSMBENCH_EXECUTABLE "' run configs/small.json --device cpu --min-time 0.2 --json " +
                    file + " & run=$!; until [ \"$(grep -cs . " + file +
                    ")\" -ge 3 ] || ! kill -0 $run; do sleep 0.01; done; "
                    "kill -INT $run; kill -INT $run; wait $run",
                SSMBENCH_SOURCE_DIR);
  CHECK(result.exit_code == 130);
  CHECK(result.err.find("interrupted") != std::string::npos);
  const auto records = records_of(read_file(file));
  REQUIRE(records.size() > 2);
  CHECK(records.back().at("record") == "summary");
  CHECK(records.back().at("interrupted") == true);
  CHECK(records[1].at("status") == "pass");
}

TEST_CASE("option --list prints what would run and runs nothing") {
  const CommandResult result = run_ssmbench("run configs/small.json --device cpu --dtype f32 --list");
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("cpu-simd           supported") != std::string::npos);
  CHECK(result.out.find("-f16-") == std::string::npos);
}

TEST_CASE("a tolerance of the config's own is used, recorded and said") {
  const TemporaryFolder folder;
  const auto config = [&](const std::string& allowed) {
    return folder
        .write("own.json", R"({"format": "ssmbench-config/1", "sweeps": [{"op": "selective_scan_fwd",
            "axes": {"batch": 1, "dim": 4, "seqlen": 40, "dstate": 4, "dtype": "bf16"},
            "tolerance": {"out": )" +
                               allowed + "}}]}")
        .string();
  };
  const std::string options = " --device cpu --impl cpu-scalar --no-timing -v --json ";
  const CommandResult loose =
      run_ssmbench("run " + config(R"({"abs": 0.1, "rel": 0.01})") + options + (folder / "r.jsonl"));
  CHECK(loose.exit_code == 0);
  CHECK(loose.out.find("own-tolerance(out)") != std::string::npos);
  CHECK(loose.out.find("1 pass, 1 of them by tolerances that the config sets") != std::string::npos);
  CHECK(loose.err.find("the config allows 0.1 + 0.01") != std::string::npos);
  CHECK(loose.err.find("of half an ulp") != std::string::npos);  // last_state has a derived one
  const auto records = records_of(read_file(folder / "r.jsonl"));
  const Json& outputs = records.at(1).at("verify").at("outputs");
  CHECK(outputs.at("out").at("user_tolerance").at("abs") == 0.1);
  CHECK_FALSE(outputs.at("last_state").contains("user_tolerance"));
  CHECK(records.back().at("passed_by_user_tolerance") == 1);

  const CommandResult strict = run_ssmbench("run " + config(R"({"abs": 1e-6})") + options + "/dev/null");
  CHECK(strict.exit_code == 1);
}
