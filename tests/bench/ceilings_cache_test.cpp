#include "bench/ceilings_cache.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/errors.h"
#include "catch.h"
#include "support/own_cache.h"
#include "support/run_command.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const Ceilings kSome{.dram_bytes = 4.25e12, .exponentials = 1.0 / 3, .fmas = 5e-324, .cache_size = 1};

CeilingsByKey read(const std::filesystem::path& file, bool warned) {
  std::string warning;
  CeilingsByKey all = read_ceilings(file, warning);
  INFO(warning);
  CHECK(warning.empty() == !warned);
  CHECK(warning.find('\n') == std::string::npos);
  return all;
}

}  // namespace

TEST_CASE("ceilings are read as they were written") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "a/b/ceilings.json";
  CHECK(read(file, false).empty());
  write_ceilings(file, {{"NVIDIA H200 \"x\", cuda_driver 13.0", kSome}, {"CPU", {}}});
  const CeilingsByKey all = read(file, false);
  REQUIRE(all.size() == 2);
  for (const auto& field : kCeilingFields)
    CHECK(all.at("NVIDIA H200 \"x\", cuda_driver 13.0").*field.member == kSome.*field.member);
  write_ceilings(file, {{"CPU", kSome}});
  CHECK(read(file, false).size() == 1);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(file.parent_path())) files += entry.exists();
  CHECK(files == 1);
}

TEST_CASE("of two measurements the larger rates are kept") {
  const Ceilings both = larger({.dram_bytes = 1, .fmas = 5}, {.dram_bytes = 2, .fmas = 4, .cache_size = 3});
  CHECK(both.dram_bytes == 2);
  CHECK(both.fmas == 5);
  CHECK(both.cache_size == 3);
  CHECK(both.exponentials == 0);
}

TEST_CASE("a run whose ceilings cannot be kept has a roofline all the same") {
  const OwnCache cache;
  cache.folder().write("ssmbench", "a file where a folder has to be");
  const CommandResult result = run_ssmbench(
      "run configs/small.json --quick --device cpu --impl cpu-simd --op selective_scan_fwd --dtype f32 "
      "--runs "
      "1 --reruns 0 --json -");
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("\"roofline\":{") != std::string::npos);
  CHECK(result.err.find("ceilings.json: cannot be written\n") != std::string::npos);
}

TEST_CASE("a damaged file of ceilings is ignored, with a warning") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "ceilings.json";
  write_ceilings(file, {{"CPU", kSome}});
  const std::string whole = read_file(file);
  for (std::size_t length = 0; length + 2 < whole.size(); length += 11) {
    folder.write("ceilings.json", whole.substr(0, length));
    CHECK(read(file, true).empty());
  }
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string changed = whole;
    changed.replace(changed.find(what), what.size(), by);
    folder.write("ceilings.json", changed);
    return read(file, true).empty();
  };
  CHECK(replaced("ssmbench-ceilings/2", "ssmbench-ceilings/0"));
  CHECK(replaced("4250000000000.0", "-1"));
  CHECK(replaced("4250000000000.0", "\"fast\""));
  CHECK(replaced("4250000000000.0", "1e999"));
  CHECK(replaced("dram_bytes_per_s", "dram"));
  CHECK(replaced("\"devices\"", "\"device\""));
}

TEST_CASE("the file of ceilings is where caches belong") {
  const OwnCache cache;
  CHECK(ceilings_file() == cache.ceilings_file());
  setenv("XDG_CACHE_HOME", "relative", 1);  // which the specification says to ignore
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  setenv("HOME", "/somewhere", 1);
  CHECK(ceilings_file() == "/somewhere/.cache/ssmbench/ceilings.json");
  unsetenv("HOME");
  CHECK(ceilings_file().empty());
  CHECK_THROWS_AS(write_ceilings(ceilings_file(), {}), OutputError);
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

TEST_CASE(
    "a machine is calibrated once, by its first run or when asked to, which gives runs their speed of "
    "light") {
  const OwnCache cache;
  const std::string table =
      "run configs/small.json --quick --device cpu --impl cpu-simd --op selective_scan_fwd --dtype f32 "
      "--runs 1 --reruns 0 ";
  const std::string run = table + "--json - ";
  const auto records_of = [](const CommandResult& result) {
    INFO(result.err);
    CHECK(result.exit_code == 0);
    std::vector<nlohmann::json> records;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) records.push_back(nlohmann::json::parse(line));
    return records;
  };
  const std::string measuring = "measuring the ceilings of cpu once, for about a second\n";
  const CommandResult before = run_ssmbench(run);
  CHECK(before.err.find(measuring) != std::string::npos);
  CHECK(records_of(before).at(1).contains("roofline"));
  CHECK(std::filesystem::exists(cache.ceilings_file()));

  const CommandResult listed = run_ssmbench("list devices --calibrate --json");
  CHECK(listed.exit_code == 0);
  const auto cpu = nlohmann::json::parse(listed.out).at(0);
  CHECK(cpu.at("ceilings").at("dram_bytes_per_s").get<double>() > 1e9);
  CHECK(cpu.at("ceilings").at("fmas_per_s").get<double>() > 1e9);
  CHECK(nlohmann::json::parse(run_ssmbench("list devices --json").out).at(0).at("ceilings") ==
        cpu.at("ceilings"));

  const CommandResult printed = run_ssmbench(table + "--json /dev/null");
  CHECK(printed.out.find("% of peak") != std::string::npos);
  CHECK(printed.out.find("% fma ") != std::string::npos);

  const CommandResult markdown = run_ssmbench(table + "--quiet --json /dev/null --markdown -");
  CHECK(markdown.out.find(" | GB/s | % of peak | rel. L2 | ") != std::string::npos);
  CHECK(markdown.out.find("% fma | ") != std::string::npos);

  const CommandResult after = run_ssmbench(run);
  CHECK(after.err.find(measuring) == std::string::npos);
  const auto records = records_of(after);
  REQUIRE(records.size() > 2);
  CHECK(records.front().at("devices").at("cpu").contains("ceiling_fmas_per_s"));
  for (std::size_t i = 1; i + 1 < records.size(); ++i) {
    INFO(records[i].dump());
    CHECK(records[i].at("roofline").at("bound") == "fma");
    CHECK(records[i].at("roofline").at("fraction").get<double>() > 0);
    CHECK(records[i].at("roofline").at("fraction").get<double>() < 2);
  }
}

TEST_CASE("ceilings that cannot be kept are an error, after they were printed") {
  const OwnCache cache;
  cache.folder().write("ssmbench", "a file where a folder has to be");
  const CommandResult result = run_ssmbench("list devices --calibrate");
  CHECK(result.exit_code == 4);
  CHECK(result.out.find("multiply-adds") != std::string::npos);
  CHECK(result.err.find("ceilings.json: cannot be written\n") != std::string::npos);
  CHECK(run_ssmbench("list impls --calibrate").exit_code == 2);
}
