// Every registered implementation of selective_state_replay against the fp64 reference at the sizes where
// code changes path, and against decoding steps.

#include <string>
#include <vector>

#include "catch.h"
#include "study/consistency.h"
#include "support/host_tensors.h"
#include "support/replay_boundaries.h"
#include "support/replay_problem.h"
#include "support/run_plan.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const char* const kDtypes[] = {"f32", "f16", "bf16"};

/// So many rows that cuda-step's threads hold several, in each of its kinds of row; rings that are longer than
/// it stages at once, and more new tokens than that.
std::vector<Problem> many_row_replays() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t dstate : {16, 128, 256})
    for (const char* state_dtype : {"f32", "bf16", "f16"}) {
      ++turn;
      all.push_back(replay_problem({{"dtype", kDtypes[turn % 3]},
                                    {"state_dtype", state_dtype},
                                    {"dt_dtype", turn % 2 == 0 ? "io" : "f32"},
                                    {"batch", size(17)},
                                    {"nheads", size(16)},
                                    {"headdim", size(9)},
                                    {"dstate", dstate},
                                    {"groups", size(2)},
                                    {"tokens", turn == 3 ? size(18) : size(1)},
                                    {"window", turn < 4 ? size(37) : size(4)},
                                    {"slots", size(20)},
                                    {"pads", size(5)},
                                    {"z", true},
                                    {"D", true},
                                    {"dt_softplus", true}}));
    }
  return all;
}

/// What cuda-step takes by tensor cores: windows around eights of old tokens, and one new token more than it
/// takes; heads of a row, that end inside of a warp's 16 rows, and past a block's 32.
std::vector<Problem> product_replays() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const char* state_dtype : {"f32", "bf16", "f16"})
    for (const std::int64_t tokens : {1, 2, 8, 9})
      for (const std::int64_t window : {1, 8, 9, 16}) {
        ++turn;
        Axes axes{{"dtype", "bf16"},
                  {"state_dtype", state_dtype},
                  {"dt_dtype", turn % 4 < 2 ? "io" : "f32"},
                  {"batch", size(6)},
                  {"nheads", size(4)},
                  {"headdim", turn % 4 == 0   ? size(1)
                              : turn % 4 == 1 ? size(16)
                                              : size(37)},
                  {"dstate", turn % 2 == 0 ? size(64) : size(128)},
                  {"groups", size(2)},
                  {"tokens", tokens},
                  {"window", window},
                  {"flush", turn % 3 == 0 ? "all" : "mixed"},
                  {"D", turn % 3 != 1},
                  {"z", turn % 5 < 3},
                  {"dt_bias", turn % 4 != 3},
                  {"dt_softplus", true}};
        if (turn % 2 == 0) axes.merge(Axes{{"slots", size(11)}, {"pads", turn % 3 == 0 ? size(4) : size(0)}});
        all.push_back(replay_problem(axes));
      }
  return all;
}

void check_all(const std::vector<Problem>& problems, const DeviceInfo& device,
               const std::string& distribution) {
  auto [passed, skipped, failures] = verdicts_of(problems, device, distribution);
  CHECK(failures == "");
  if (device.kind == DeviceKind::cuda) {
    CHECK(passed["cuda-step"] == problems.size());
    return;
  }
  for (const char* name : {"cpu-scalar", "cpu-simd"}) CHECK(passed[name] == problems.size());
}

void check_device(const DeviceInfo& device) {
  for (const char* distribution : {"mamba", "trained"}) {
    check_all(replay_boundaries(), device, distribution);
    check_all(product_replays(), device, distribution);
  }
  if (device.kind == DeviceKind::cuda) check_all(many_row_replays(), device, "mamba");
}

}  // namespace

TEST_CASE("CPU implementations of selective_state_replay agree with the reference") {
  check_device(list_devices().front());
}

TEST_CASE("CUDA implementations of selective_state_replay agree with the reference", "[gpu]") {
  for (const auto& gpu : gpus()) check_device(gpu);
}

TEST_CASE("a replay agrees with decoding steps") {
  const Problem base = replay_problem({{"batch", size(5)},
                                       {"nheads", size(4)},
                                       {"headdim", size(3)},
                                       {"dstate", size(6)},
                                       {"groups", size(2)},
                                       {"D", true},
                                       {"z", true},
                                       {"dt_bias", true},
                                       {"dt_softplus", true}});
  for (const std::int64_t tokens : {1, 3})
    for (const char* dtype : kDtypes)
      for (const std::int64_t slots : {0, 8}) {
        Axes axes{
            {"tokens", tokens}, {"dtype", dtype}, {"state_dtype", dtype}, {"slots", slots}, {"flush", "all"}};
        if (slots > 0) axes["pads"] = size(3);
        const Problem problem = base.with(axes);
        INFO(problem.id());
        int results = 0;
        measure_consistency(
            {{problem.op().find_parts("steps")}, {make_case(problem)}}, {list_devices().front()}, {},
            never_stop, [&](const ConsistencyResult& result) {
              if (result.parts.starts_with("test-")) return;
              INFO(result.at_once.impl << " " << result.parts << " " << result.at_once.reason);
              CHECK(result.at_once.status == Status::pass);
              ++results;
            });
        CHECK(results == 2);
      }
}
