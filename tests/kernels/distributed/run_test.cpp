// Distributed implementations through the command: every one of every operation, by the same verification as
// those of one device.

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "catch.h"
#include "model/distributed.h"
#include "support/gpu.h"
#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"
#include "team/nccl_team.h"

using namespace ssmbench;
using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

/// Forward and gradients; shards of other lengths, the last with a step more than a block. Sizes of cuda-hopper
/// and others.
constexpr const char* kConfig = R"({"format": "ssmbench-config/1", "sweeps": [
  {"op": "selective_scan_fwd", "axes": {"batch": 3, "dim": 6, "dstate": 3, "seqlen": 193, "dtype": ["f32", "bf16"],
   "layout": ["bdl", "bld"], "initial_state": true}},
  {"op": "selective_scan_bwd", "axes": {"batch": 3, "dim": 6, "dstate": 3, "seqlen": 193, "dtype": "f32"}},
  {"op": "ssd_chunk_scan_fwd", "axes": {"batch": 3, "nheads": 6, "headdim": 5, "dstate": 3, "seqlen": 193,
   "dtype": ["f32", "bf16"], "initial_states": true}},
  {"op": "ssd_chunk_scan_bwd", "axes": {"batch": 3, "nheads": 6, "headdim": 5, "dstate": 3, "seqlen": 193,
   "dtype": "f32"}},
  {"op": "ssd_chunk_scan_fwd", "axes": {"batch": 3, "nheads": 6, "groups": 6, "headdim": 8, "dstate": 8,
   "seqlen": 449, "dtype": ["f16", "bf16"], "seq_idx": true, "final_states": true, "inputs": "slow_decay"}},
  {"op": "ssd_chunk_scan_bwd", "axes": {"batch": 3, "nheads": 6, "groups": 6, "headdim": 8, "dstate": 8,
   "seqlen": 449, "dtype": ["f16", "bf16"], "seq_idx": [false, true], "final_states": true, "inputs": "slow_decay"}}
  ]})";

/// More walks than multiprocessors.
constexpr const char* kManyHeads = R"({"format": "ssmbench-config/1", "sweeps": [
  {"op": "ssd_chunk_scan_bwd", "axes": {"batch": 2, "nheads": 70, "headdim": 16, "dstate": 16, "seqlen": 449,
   "dtype": "bf16", "z": [false, true], "final_states": true}}]})";

/// A run of teams of two and three ranks, in which every distributed implementation of the device passes.
void check_that_all_pass(const std::string& config, DeviceKind kind) {
  const TemporaryFolder folder;
  const std::string device(name_of(kind));
  const CommandResult result =
      run_ssmbench("run " + folder.write("teams.json", config).string() + " --device " + device +
                   " --ranks 2,3 --no-timing --json - --quiet");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  std::set<std::string> passed;
  for (const auto& record : records_of(result.out)) {
    if (record.at("record") != "case") continue;
    INFO(record.dump());
    CHECK(record.at("status") == "pass");
    CHECK(record.at("determinism").at("bitwise_equal") == true);
    const bool is_rerun = record.at("impl").get<std::string>().ends_with("-rerun");
    CHECK(record.contains("rerun_steps") == is_rerun);
    if (is_rerun) CHECK(record.at("rerun_steps") >= 64);  // the least there is, and a shard at most
    if (is_rerun) CHECK(record.at("rerun_steps") <= 449 - 64);
    passed.insert(record.at("device").get<std::string>() + " " + record.at("op").get<std::string>() + " " +
                  record.at("impl").get<std::string>());
  }
  for (const char* team : {"*2", "*3"})
    for (const auto& implementation : distributed_implementations()) {
      if (implementation.device != kind) continue;
      INFO(team << " " << implementation.op << " " << implementation.name);
      CHECK(passed.contains(device + team + " " + implementation.op + " " + implementation.name));
    }
}

}  // namespace

TEST_CASE("every distributed implementation passes in a run with teams of two and three ranks") {
  check_that_all_pass(kConfig, DeviceKind::cpu);
}

TEST_CASE("every distributed implementation passes in a run with teams that share a GPU", "[gpu]") {
  if (!gpu_or_skip()) return;
  check_that_all_pass(kConfig, DeviceKind::cuda);
}

// But for what leaves a shard, which ranks ask for alone: a block walks one there.
TEST_CASE("gradients of ranks that share a GPU pass where a block walks two heads", "[gpu]") {
  if (!gpu_or_skip()) return;
  const TemporaryFolder folder;
  const CommandResult result =
      run_ssmbench("run " + folder.write("teams.json", kManyHeads).string() +
                   " --device cuda --ranks 2 --impl nccl-twopass --no-timing --json - --quiet");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  int passed = 0;
  for (const auto& record : records_of(result.out))
    if (record.at("record") == "case" && record.at("status") == "pass") ++passed;
  CHECK(passed == 2);
}

TEST_CASE("ranks that share a GPU are verified, and not timed", "[gpu]") {
  if (!gpu_or_skip()) return;
  const TemporaryFolder folder;
  const CommandResult result =
      run_ssmbench("run " + folder.write("teams.json", kConfig).string() + " --device 'cuda*" +
                   std::to_string(gpus().size() + 1) + "' --impl nccl-rerun --quick --json - --quiet");
  CHECK(result.exit_code == 0);
  for (const auto& record : records_of(result.out)) {
    if (record.at("record") != "case") continue;
    CHECK(record.at("status") == "pass");
    CHECK_FALSE(record.contains("timing"));
  }
}

TEST_CASE("ranks with GPUs of their own are timed, hot and cold, and so is what they exchange", "[gpu]") {
  if (gpus().size() < 2 || nccl_version().empty()) {
    WARN("there are no two GPUs here, or there is no NCCL");
    return;
  }
  const TemporaryFolder folder;
  const CommandResult result = run_ssmbench("run " + folder.write("teams.json", kConfig).string() +
                                            " --device 'cuda*2' --quick --runs 10 --json - --quiet");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  for (const auto& record : records_of(result.out)) {
    if (record.at("record") != "case") continue;
    INFO(record.dump());
    CHECK(record.at("status") == "pass");
    CHECK(record.at("team").size() == 2);
    for (const char* way : {"hot", "cold"}) CHECK(record.at("timing").at(way).at("median_ms") > 0);
    if (record.at("wire_bytes") > 0) CHECK(record.at("timing").contains("exchange"));
  }
}

TEST_CASE("list impls has the distributed implementations, as those of teams") {
  std::map<std::string, int> of_teams;
  for (const auto& listed : Json::parse(run_ssmbench("list impls --json").out))
    if (listed.at("device").get<std::string>().ends_with('*')) ++of_teams[listed.at("name")];
  std::map<std::string, int> registered;
  for (const auto& implementation : distributed_implementations()) ++registered[implementation.name];
  CHECK(of_teams == registered);
}
