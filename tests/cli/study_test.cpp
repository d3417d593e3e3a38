// `run` and its neighbours on a config of studies, as a user calls them.

#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.h"
#include "support/run_command.h"

using namespace ssmbench::test;
using Json = nlohmann::json;

TEST_CASE("run on a study writes a run record, a record per method and A, and a summary") {
  const CommandResult result = run_ssmbench("run configs/convergence.json --json -");
  REQUIRE(result.exit_code == 0);
  std::vector<Json> records;
  std::istringstream lines(result.out);  // stdout is pure JSON Lines
  for (std::string line; std::getline(lines, line);) records.push_back(Json::parse(line));
  REQUIRE(records.size() == 1 + 3 * 12 + 1);
  CHECK(records.front().at("record") == "run");
  CHECK(records.back().at("record") == "summary");
  for (std::size_t i = 1; i + 1 < records.size(); ++i) {
    INFO(records[i].dump());
    CHECK(records[i].at("record") == "study");
    CHECK(records[i].at("kind") == "convergence");
    const double theoretical = records[i].at("order").at("theoretical");
    const double measured = records[i].at("order").at("measured");
    CHECK(std::abs(measured - theoretical) < 0.05);
    CHECK(records[i].at("stability_limit").at("measured") ==
          records[i].at("stability_limit").at("theoretical"));
    CHECK(records[i].at("runs").size() == 9);
    // The unstable rule overflows.
    if (records[i].at("method") != "bilinear_flipped")
      CHECK(records[i].at("runs")[8].at("f32_rounding_error") > 0);
  }
  CHECK(records[1].at("method") == "zoh");
  CHECK(records[1].at("A") == Json{-1, 0});
  CHECK(records[1].at("stability_limit").at("measured").is_null());
  CHECK(records[1].at("runs")[0].at("delta") == 0.125);
}

TEST_CASE("options of sweeps and commands that list cases say that a study has none") {
  for (const std::string option : {"--quick", "--set batch=1", "--resume", "--profile", "--no-verify"}) {
    INFO(option);
    const CommandResult refused = run_ssmbench("run configs/convergence.json --json /dev/null " + option);
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("configs/convergence.json holds studies; ") != std::string::npos);
  }
  const CommandResult list = run_ssmbench("list cases configs/convergence.json");
  CHECK(list.exit_code == 2);
  CHECK(
      list.err.find("configs/convergence.json: /: there are studies, which have no cases; expected sweeps") !=
      std::string::npos);
  CHECK(run_ssmbench("validate-config configs/convergence.json").out ==
        "configs/convergence.json: 1 studies\n");
}

TEST_CASE("convergence, which runs on the CPU, refuses a CUDA device") {
  const CommandResult cuda = run_ssmbench("run configs/convergence.json --device cuda --json -");
  CHECK((cuda.exit_code == 2 || cuda.exit_code == 4));  // with a device, and without one
  CHECK(cuda.out.empty());
  CHECK(run_ssmbench("run configs/convergence.json --device gpu --json -").exit_code == 2);
}

TEST_CASE("run on consistency studies writes a record per check, case and pair, and passes") {
  const CommandResult result = run_ssmbench("run configs/consistency.json --device cpu --json -");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  std::istringstream lines(result.out);
  int passed = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record.at("record") != "study") continue;
    INFO(line);
    CHECK(record.at("kind") == "consistency");
    CHECK((record.at("status") == "pass" || record.at("status") == "skip"));
    if (record.at("status") != "pass") continue;
    ++passed;
    for (const auto& [_, output] : record.at("verify").at("outputs").items())
      CHECK(output.at("tolerance_ratio") <= 1);
  }
  CHECK(passed > 20);
}

TEST_CASE("consistency studies run the implementations and cases that are chosen") {
  const CommandResult one =
      run_ssmbench("run configs/consistency.json --device cpu --impl cpu-simd --dtype bf16 --json -");
  CHECK(one.exit_code == 0);
  CHECK(one.out.find("\"impl\":\"cpu-simd\"") != std::string::npos);
  CHECK(one.out.find("\"impl\":\"cpu-scalar\"") == std::string::npos);
  CHECK(one.out.find("\"dtype\":\"f32\"") == std::string::npos);
  CHECK(run_ssmbench("run configs/consistency.json --device cpu --impl nothing --json -").exit_code == 5);
}
