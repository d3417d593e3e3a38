// Every registered implementation of ssd_chunk_scan_bwd against the fp64 reference, at the sizes where code
// changes path.

#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/axes.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem problem_of(Axes axes) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", size(2)},
                  {"seqlen", size(70)},
                  {"nheads", size(2)},
                  {"headdim", size(5)},
                  {"dstate", size(6)},
                  {"initial_states", true},
                  {"final_states", true}});
  return {ssd_chunk_scan_bwd(), axes};
}

const char* const kDTypes[] = {"f32", "f16", "bf16"};
/// Sizes of P and N: one; the 16 and 32 that products and threads are cut into, and one more; a tile; two and
/// one more; the limit.
constexpr std::int64_t kSizes[] = {1, 16, 33, 64, 129, 256};
/// One step; around the 64 of a chunk; several chunks and a tail of one.
constexpr std::int64_t kLengths[] = {1, 63, 64, 65, 257};

std::vector<Problem> size_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const auto headdim : kSizes)
    for (const auto dstate : kSizes)
      all.push_back(problem_of({{"dtype", kDTypes[turn++ % 3]},
                                {"batch", size(1)},
                                {"D", turn % 2 == 0 ? "head" : "headdim"},
                                {"headdim", size(headdim)},
                                {"dstate", size(dstate)}}));
  for (const char* dtype : kDTypes) {
    for (const auto length : kLengths)
      all.push_back(problem_of({{"dtype", dtype}, {"seqlen", size(length)}}));
    // A model's head; more heads than blocks are cut for, so that a block takes several and there are slices.
    all.push_back(problem_of({{"dtype", dtype}, {"headdim", size(64)}, {"dstate", size(128)}}));
    all.push_back(problem_of({{"dtype", dtype},
                              {"batch", size(5)},
                              {"nheads", size(150)},
                              {"groups", size(2)},
                              {"headdim", size(8)}}));
    all.push_back(
        problem_of({{"dtype", dtype}, {"batch", size(260)}, {"nheads", size(3)}, {"seqlen", size(65)}}));
  }
  return all;
}

/// Every combination of the optional parts, groups from one to a head each, and packed sequences.
std::vector<Problem> option_problems() {
  std::vector<Problem> all;
  const char* skips[] = {"none", "head", "headdim"};
  for (int bits = 0; bits < 128; ++bits)
    all.push_back(problem_of({{"dtype", kDTypes[bits % 3]},
                              {"D", skips[bits / 3 % 3]},
                              {"z", (bits & 1) != 0},
                              {"dt_bias", (bits & 2) != 0},
                              {"dt_softplus", (bits & 4) != 0},
                              {"initial_states", (bits & 8) != 0},
                              {"seq_idx", (bits & 16) != 0},
                              {"final_states", (bits & 32) != 0},
                              {"dt_limit", (bits & 64) != 0 ? "0.01..0.05" : "0..inf"}}));
  for (const char* dtype : kDTypes)
    for (const std::int64_t groups : {1, 2, 4})
      all.push_back(problem_of({{"dtype", dtype},
                                {"nheads", size(4)},
                                {"groups", size(groups)},
                                {"seqlen", size(300)},
                                {"headdim", size(16)},
                                {"dstate", size(32)},
                                {"seq_idx", true}}));
  return all;
}

void check_cpu(const std::vector<Problem>& problems) {
  const auto [passed, skipped, failures] = verdicts_of(problems, list_devices().front());
  CHECK(failures == "");
  for (const char* name : {"cpu-scalar", "cpu-simd"}) CHECK(passed.at(name) == problems.size());
}

void check_cuda(const std::vector<Problem>& problems, const DeviceInfo& device,
                const std::string& distribution) {
  const auto [passed, skipped, failures] = verdicts_of(problems, device, distribution);
  CHECK(failures == "");
  for (const char* name : {"cuda-chunked", "cuda-chunked-f32"}) CHECK(passed.at(name) == problems.size());
}

}  // namespace

TEST_CASE("CPU implementations of ssd_chunk_scan_bwd agree with the reference at every boundary size") {
  check_cpu(size_problems());
}

TEST_CASE("CPU implementations of ssd_chunk_scan_bwd agree with the reference for every option") {
  check_cpu(option_problems());
}

TEST_CASE("CUDA implementations of ssd_chunk_scan_bwd agree with the reference at every boundary size",
          "[gpu][ssd_bwd]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
      check_cuda(size_problems(), gpu, distribution);
}

TEST_CASE("CUDA implementations of ssd_chunk_scan_bwd agree with the reference for every option",
          "[gpu][ssd_bwd]") {
  for (const auto& gpu : gpus()) check_cuda(option_problems(), gpu, "mamba");
}

TEST_CASE("cuda-chunked-f32 keeps a small ddt of the first step", "[gpu][ssd_bwd]") {
  // No state enters, so that ddt at step 0 takes nothing from the decay's gradient: that is a sum over the
  // chunk that cancels to 0 but for its rounding. With this seed the rounding alone is over the tolerance.
  const Problem problem(ssd_chunk_scan_bwd(), {{"dtype", "f32"},
                                               {"batch", size(3)},
                                               {"seqlen", size(777)},
                                               {"nheads", size(1)},
                                               {"headdim", size(1)},
                                               {"dstate", size(1)},
                                               {"chunk_size", size(64)},
                                               {"D", "headdim"},
                                               {"z", true},
                                               {"dt_bias", true},
                                               {"dt_softplus", true},
                                               {"final_states", true},
                                               {"seq_idx", true}});
  Case one = make_case(problem);
  one.inputs.seed = 912;
  Selection selection;
  selection.impl = "cuda-chunked-f32";
  for (const auto& gpu : gpus()) {
    const auto results = run_cases({one}, selection, gpu);
    REQUIRE(results.size() == 1);
    INFO(results[0].reason);
    CHECK(results[0].status == Status::pass);
  }
}
