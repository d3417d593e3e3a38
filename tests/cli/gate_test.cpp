// `gate` from end to end, on results files that are made up from one that was measured.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

/// Results of two cases of one implementation, with times that a test can rely on.
std::vector<Json> measured() {
  static const auto records = [] {
    auto result = records_of(run_ssmbench("run configs/small.json --device cpu --dtype f32 --impl cpu-simd "
                                          "--case '*-bld-*' --set seqlen=8,9 --runs 1 --json -")
                                 .out);
    std::erase_if(result, [](const Json& record) { return record.at("record") == "summary"; });
    result.resize(3);
    return result;
  }();
  return records;
}

void set_times(Json& record, double median) {
  Json& hot = record.at("timing").at("hot");
  hot["samples_ms"] = Json::array();
  for (int i = 0; i < 30; ++i) hot["samples_ms"].push_back(median * (1 + 0.0005 * (i % 7 - 3)));
  hot["median_ms"] = median;
}

std::string write(const TemporaryFolder& folder, const std::string& name, const std::vector<Json>& records) {
  std::string text;
  for (const auto& record : records) text += record.dump() + "\n";
  return folder.write(name, text).string();
}

struct Files {
  Files() {
    for (std::size_t i : {1U, 2U}) set_times(before.at(i), 0.5);
    after = before;
  }
  CommandResult gate(const std::string& options = "") const {
    return run_shell("'" SSMBENCH_EXECUTABLE "' gate " + write(folder, "before", before) + " " +
                         write(folder, "after", after) + " " + options,
                     folder.path().string());
  }
  TemporaryFolder folder;
  std::vector<Json> before = measured(), after;
};

}  // namespace

TEST_CASE("gate: the same results pass, slower ones are a regression") {
  Files files;
  const CommandResult same = files.gate();
  CHECK(same.exit_code == 0);
  CHECK(same.err.empty());
  CHECK(same.out.find("2 SAME\n") != std::string::npos);
  set_times(files.after[2], 0.525);
  const CommandResult slower = files.gate();
  CHECK(slower.exit_code == 3);
  CHECK(slower.out.find("1 SAME, 1 SLOWER\n") != std::string::npos);
  CHECK(slower.out.find("   +5.0%  ") != std::string::npos);
  CHECK(files.gate("--max-regression 6%").exit_code == 0);
  CHECK(files.gate("--max-regression 4.5% --quiet").out.empty());
  CHECK(files.gate("--case nothing").exit_code == 5);
  CHECK(files.gate("--impl nothing,cpu-s*").exit_code == 3);
  CHECK(files.gate("--impl nothing,cuda-*").exit_code == 5);
  set_times(files.after[2], 0.475);
  CHECK(files.gate().out.find("1 SAME, 1 FASTER\n") != std::string::npos);
}

TEST_CASE("gate: the worst wins: crash, then wrong, then slower, then inconclusive") {
  Files files;
  files.after[1].erase("timing");
  CHECK(files.gate().exit_code == 0);
  CHECK(files.gate("--fail-on-inconclusive").exit_code == 6);
  set_times(files.after[2], 0.6);
  CHECK(files.gate("--fail-on-inconclusive").exit_code == 3);
  files.after[1] = files.before[1];
  files.after[1]["verify"]["outputs"]["out"]["tolerance_ratio"] = 0.99;
  const CommandResult grown = files.gate();
  CHECK(grown.exit_code == 1);
  CHECK(grown.out.find("-- out: error over tolerance ") != std::string::npos);
  CHECK(files.gate("--max-error-growth 100000%").exit_code == 3);
  files.after[2]["status"] = "error";
  files.after[2]["cause"] = "timeout";
  files.after[2].erase("timing");
  CHECK(files.gate().exit_code == 4);
  CHECK(records_of(files.gate("--json -").out).at(1).at("cause") ==
        Json{{"before", nullptr}, {"after", "timeout"}});
  CHECK(files.gate("--junit -").out.find("<error type=\"timeout\"") != std::string::npos);
  files.after.resize(2);
  CHECK(files.gate("--max-error-growth 100000%").exit_code == 1);  // missing
  CHECK(files.gate("--max-error-growth 100000% --allow-missing").exit_code == 0);
}

TEST_CASE("gate: a folder holds processes of one program") {
  const TemporaryFolder folder;
  const auto write_side = [&](const std::string& name, const std::vector<double>& medians) {
    std::filesystem::create_directory(folder.path() / name);
    int file = 0;
    for (const double median : medians) {
      std::vector<Json> records = measured();
      for (std::size_t i : {1U, 2U}) set_times(records.at(i), median);
      write(folder, name + "/" + std::to_string(file++) + ".jsonl", records);
    }
    folder.write(name + "/notes.txt", "no results");
  };
  const auto gate = [&](const std::string& sides) {
    return run_shell("'" SSMBENCH_EXECUTABLE "' gate " + sides, folder.path().string());
  };
  write_side("old", {0.5, 0.503, 0.501, 0.502});
  write_side("new", {0.526, 0.527, 0.528, 0.525});
  const CommandResult slower = gate("old new --json -");
  CHECK(slower.exit_code == 3);
  CHECK(records_of(slower.out).at(0).at("timing").at("processes") == Json{4, 4});
  CHECK(gate("old old").out.find(", 4 processes\n") != std::string::npos);
  CHECK(gate("old old").exit_code == 0);
  CHECK(gate("old/0.jsonl new/0.jsonl").exit_code == 3);
  write_side("copies", {0.526});
  for (const char* copy : {"1.jsonl", "2.jsonl", "3.jsonl"})
    std::filesystem::copy(folder.path() / "copies/0.jsonl", folder.path() / "copies" / copy);
  const CommandResult copies = gate("old copies --json -");
  CHECK(records_of(copies.out).at(0).at("timing").at("processes") == Json{4, 1});
  CHECK(copies.err.find("copies/1.jsonl is a copy of copies/0.jsonl") != std::string::npos);
  write_side("scattered", {0.526, 0.49, 0.56, 0.525});
  CHECK(gate("old scattered").out.find("2 INCONCLUSIVE") != std::string::npos);

  std::vector<Json> other = measured();
  other[0]["build"]["build_id"] = "another";
  write(folder, "new/other.jsonl", other);
  const CommandResult refused = gate("old new");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("new/other.jsonl are from different builds") != std::string::npos);
  std::filesystem::create_directory(folder.path() / "empty");
  CHECK(gate("old empty").exit_code == 2);
}

TEST_CASE("gate: usage errors are one line") {
  Files files;
  for (const char* options :
       {"--max-regression 3", "--max-regression %", "--max-regression -1%", "--max-regression x%",
        "--confidence 100%", "--timing graph", "--json - --markdown -", "--junit before"}) {
    const CommandResult result = files.gate(options);
    INFO(options << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CHECK(run_ssmbench("gate /nothing " + (files.folder / "before")).exit_code == 2);

  files.after[0]["devices"]["cpu"]["name"] = "another";
  const CommandResult refused = files.gate();
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("another") != std::string::npos);
  CHECK(files.gate("--allow-different-device").exit_code == 0);
}

TEST_CASE("gate: JSON, Markdown, JUnit and GitHub say what the table says") {
  Files files;
  set_times(files.after[2], 0.6);
  const auto records = records_of(files.gate("--json -").out);
  REQUIRE(records.size() == 2);
  CHECK(records[0].at("verdict") == "SAME");
  CHECK(records[1].at("verdict") == "SLOWER");
  CHECK(records[1].at("status") == Json{{"before", "pass"}, {"after", "pass"}});
  const Json& timing = records[1].at("timing");
  CHECK(std::abs(timing.at("ratio").get<double>() - 1.2) < 1e-3);
  CHECK(timing.at("interval").at(0) <= timing.at("ratio"));
  CHECK(timing.at("interval").at(1) >= timing.at("ratio"));
  CHECK(timing.at("confidence") == 0.99);

  const std::string id = files.after[2].at("id");
  const std::string markdown = files.gate("--markdown -").out;
  CHECK(markdown.starts_with("1 SAME, 1 SLOWER\n"));
  CHECK(markdown.find("| SLOWER | cpu-simd | " + id + " | cpu | 0.5000 | 0.6000 | +20.0% |") !=
        std::string::npos);
  const std::string junit = files.gate("--junit -").out;
  CHECK(junit.find("tests=\"2\" failures=\"1\" errors=\"0\"") != std::string::npos);
  CHECK(junit.find("<failure type=\"slower\" message=\"SLOWER +20.0% (") != std::string::npos);

  const CommandResult github = run_shell(
      "GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=summary '" SSMBENCH_EXECUTABLE "' gate before after --quiet",
      files.folder.path().string());
  CHECK(github.exit_code == 3);
  CHECK(github.err.starts_with("::error title=cpu-simd%3A SLOWER::" + id + ": SLOWER +20.0%25 ("));
  CHECK(github.err.ends_with("%0A" + files.after[2].at("repro").get<std::string>() + "\n"));
  CHECK(read_file(files.folder / "summary").starts_with("1 SAME, 1 SLOWER\n"));
}
