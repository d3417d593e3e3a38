// What the links of a team give, by the command.

#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "support/gpu.h"
#include "support/own_cache.h"
#include "support/run_command.h"
#include "team/nccl_team.h"

using namespace ssmbench;
using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

/// The last device that is listed, a team.
Json listed_team(const std::string& option) {
  const OwnCache cache;
  const CommandResult result = run_ssmbench("list devices --calibrate --json " + option);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return Json::parse(result.out).back();
}

}  // namespace

TEST_CASE("links of ranks on the CPU are measured, in latency and bandwidth") {
  const Json team = listed_team("--cpus 2");
  CHECK(team.at("name") == "cpu*2");
  const Json& links = team.at("links");
  CHECK(links.at("latency_ms") > 0);
  CHECK(links.at("latency_ms") < 100);
  for (const char* rate : {"all_gather_bytes_per_s", "all_to_all_bytes_per_s"}) {
    CHECK(links.at(rate) > 1e6);
    CHECK(links.at(rate) < 1e12);
  }
}

TEST_CASE("links of GPUs need one for each rank, and NCCL", "[gpu]") {
  if (!gpu_or_skip()) return;
  const int count = static_cast<int>(gpus().size());
  const CommandResult shared = run_ssmbench("list devices --calibrate --gpus " + std::to_string(count + 1));
  CHECK(shared.exit_code == 4);
  CHECK(shared.err.find("ranks on GPUs that exchange data through host memory are not timed") !=
        std::string::npos);
  if (count < 2 || nccl_version().empty()) {
    WARN("there are no two GPUs here, or there is no NCCL");
    return;
  }
  const Json team = listed_team("--gpus 2");
  CHECK(team.at("name") == "cuda*2");
  CHECK(team.at("links").at("latency_ms") < 1);
  CHECK(team.at("links").at("all_gather_bytes_per_s") > 1e9);
}

TEST_CASE("links are measured where --calibrate says so") {
  const CommandResult result = run_ssmbench("list devices --cpus 2");
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("--cpus and --gpus are for --calibrate") != std::string::npos);
}
