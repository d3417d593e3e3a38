// Every registered implementation of Mamba-3's operations against the fp64 reference: sizes, options, dtypes,
// packed sequences, and inputs of every distribution.

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "support/gpu.h"
#include "support/mamba3_problem.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const char* const kDtypes[] = {"f32", "f16", "bf16"};

/// Sizes around vectors, warps and tiles, and the limits.
std::vector<Axes> sizes() {
  std::vector<Axes> all;
  for (const std::int64_t dstate : {2, 16, 18, 64, 130, 256})
    all.push_back(
        {{"dstate", dstate}, {"headdim", size(5)}, {"rope_angles", std::max<std::int64_t>(1, dstate / 4)}});
  for (const std::int64_t headdim : {1, 3, 33, 64, 256})
    all.push_back({{"dstate", size(6)}, {"headdim", headdim}, {"rope_angles", size(3)}});
  return all;
}

/// Every combination of the optional parts, with one group, several, and one per head.
std::vector<Axes> options() {
  std::vector<Axes> all;
  for (int bits = 0; bits < 16; ++bits)
    all.push_back({{"nheads", size(6)},
                   {"groups", size(bits % 3 == 0   ? 1
                                   : bits % 3 == 1 ? 2
                                                   : 6)},
                   {"headdim", size(4)},
                   {"dstate", size(10)},
                   {"rope_angles", size(bits % 2 == 0 ? 5 : 2)},
                   {"rotary_pairing", bits % 4 < 2 ? "interleaved" : "halves"},
                   {"angle_dtype", bits % 5 == 4 ? "bf16" : "f32"},
                   {"z", (bits & 1) != 0},
                   {"D", (bits & 2) != 0},
                   {"initial_states", (bits & 4) != 0},
                   {"final_states", (bits & 8) != 0}});
  return all;
}

std::vector<Problem> scans(const OpSpec& op) {
  std::vector<Problem> all;
  std::size_t turn = 0;
  const auto add = [&](Axes axes) {
    axes.merge(Axes{{"dtype", kDtypes[turn % 3]}, {"nheads", size(2)}, {"final_states", true}});
    if (&op == &mamba3_mimo_fwd() || &op == &mamba3_mimo_bwd()) {
      const bool reduces = turn % 4 != 1;
      const bool gated = axes.contains("z") && axes.at("z") == AxisValue(true);
      axes.merge(Axes{{"mimo_rank", static_cast<std::int64_t>(1 + turn % 8)},
                      {"out_reduce", reduces},
                      {"outproj_norm", reduces && gated && turn % 2 == 1}});
    }
    all.push_back(mamba3_problem(std::move(axes), op));
    ++turn;
  };
  for (Axes axes : sizes()) {
    axes.merge(Axes{{"seqlen", size(11)}, {"batch", size(2)}, {"initial_states", true}});
    add(std::move(axes));
  }
  for (Axes axes : options()) {
    axes.merge(Axes{{"seqlen", size(21)}, {"batch", size(2)}});
    add(std::move(axes));
  }
  for (const std::int64_t seqlen : {1, 2, 63, 64, 65, 257, 1025})
    for (const bool packed : {false, true})
      add({{"seqlen", seqlen},
           {"headdim", size(3)},
           {"dstate", size(6)},
           {"rope_angles", size(2)},
           {"z", true},
           {"D", true},
           {"initial_states", true},
           {"cu_seqlens", packed},
           {"sequences", size(packed ? 6 : 1)}});
  return all;
}

/// Sizes around the tiles of products on tensor cores, chunks of 64 steps with and without a tail, in bf16.
std::vector<Problem> tiles(const OpSpec& op) {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t dstate : {2, 16, 18, 64, 66, 128})
    for (const std::int64_t seqlen : {1, 16, 63, 64, 65, 130, 257}) {
      constexpr std::int64_t kHeaddims[]{8, 64, 72, 128};
      const std::int64_t pairs = dstate / 2;
      const bool packed = turn % 3 == 2;
      all.push_back(
          mamba3_problem({{"dtype", "bf16"},
                          {"batch", size(packed ? 1 : 2)},
                          {"seqlen", seqlen},
                          {"nheads", size(4)},
                          {"groups", size(turn % 2 == 0 ? 1 : 2)},
                          {"headdim", kHeaddims[turn % 4]},
                          {"dstate", dstate},
                          {"rope_angles", turn % 2 == 0 ? pairs : std::max<std::int64_t>(1, pairs / 2)},
                          {"rotary_pairing", turn % 5 < 3 ? "interleaved" : "halves"},
                          {"z", turn % 3 != 1},
                          {"D", turn % 4 != 3},
                          {"initial_states", turn % 2 == 1},
                          {"final_states", turn % 5 != 4},
                          {"cu_seqlens", packed},
                          {"sequences", size(packed ? 5 : 1)}},
                         op));
      ++turn;
    }
  return all;
}

std::vector<Problem> steps() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  const auto add = [&](Axes axes) {
    for (const char* state : {"initial_states", "final_states"}) axes.erase(state);
    axes.merge(Axes{{"dtype", kDtypes[turn % 3]}, {"nheads", size(3)}, {"batch", size(2)}});
    const bool gated = axes.contains("z") && axes.at("z") == AxisValue(true);
    axes["form"] = turn % 2 == 0 ? "siso" : "mimo";
    if (turn % 2 == 1)
      axes.merge(Axes{{"mimo_rank", static_cast<std::int64_t>(1 + turn % 8)},
                      {"out_reduce", turn % 3 != 0},
                      {"outproj_norm", turn % 3 != 0 && gated}});
    all.push_back(mamba3_problem(std::move(axes), mamba3_step()));
    ++turn;
  };
  for (const Axes& axes : sizes())
    for (int form = 0; form < 2; ++form) add(axes);
  for (const Axes& axes : options())
    for (int form = 0; form < 3; ++form) add(axes);
  // Heads of models, for which cuda-step has a kernel.
  for (const char* dtype : kDtypes)
    for (const bool all_of_it : {true, false})
      all.push_back(mamba3_problem({{"dtype", dtype},
                                    {"form", "siso"},
                                    {"batch", size(2)},
                                    {"nheads", size(6)},
                                    {"groups", size(all_of_it ? 1 : 3)},
                                    {"headdim", size(64)},
                                    {"dstate", size(128)},
                                    {"rope_angles", size(all_of_it ? 64 : 6)},
                                    {"rotary_pairing", all_of_it ? "interleaved" : "halves"},
                                    {"z", all_of_it},
                                    {"D", all_of_it}},
                                   mamba3_step()));
  return all;
}

/// Chunks of 64 steps with one and two tiles of states, none of them packed, and every option besides: what
/// cuda-chunked has gradients of.
std::vector<Problem> gradient_tiles(const char* dtype = "bf16") {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t dstate : {8, 16, 64, 72, 128})
    for (const std::int64_t seqlen : {1, 63, 64, 65, 130, 257}) {
      constexpr std::int64_t kHeaddims[]{8, 64, 16, 40};
      const std::int64_t pairs = dstate / 2;
      all.push_back(
          mamba3_problem({{"dtype", dtype},
                          {"batch", size(2)},
                          {"seqlen", seqlen},
                          {"nheads", size(4)},
                          {"groups", size(turn % 2 == 0 ? 1 : 2)},
                          {"headdim", kHeaddims[turn % 4]},
                          {"dstate", dstate},
                          {"rope_angles", turn % 5 < 3 ? pairs : std::max<std::int64_t>(1, pairs / 2)},
                          {"z", turn % 3 != 1},
                          {"D", turn % 4 != 3},
                          {"initial_states", turn % 2 == 1},
                          {"final_states", turn % 5 != 4}},
                         mamba3_siso_bwd()));
      ++turn;
    }
  return all;
}

/// The same of packed sequences: one chunk and less, borders in most chunks, sequences without steps, walks
/// in parts, more sequences than steps.
std::vector<Problem> packed_gradient_tiles(const char* dtype = "bf16") {
  std::vector<Problem> all;
  std::int64_t turn = 0;
  for (const auto& [seqlen, sequences] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {64, 1}, {65, 2}, {130, 5}, {200, 40}, {40, 70}, {1000, 3}, {2500, 30}})
    for (const std::int64_t dstate : {64, 128}) {
      all.push_back(mamba3_problem({{"dtype", dtype},
                                    {"seqlen", seqlen},
                                    {"cu_seqlens", true},
                                    {"sequences", sequences},
                                    {"nheads", size(4)},
                                    {"groups", size(turn % 3 == 0 ? 2 : 1)},
                                    {"headdim", size(turn % 5 == 4 ? 24 : 64)},
                                    {"dstate", dstate - turn % 4 * 8},
                                    {"rope_angles", turn % 3 == 1 ? dstate / 8 : dstate / 4},
                                    {"z", turn % 4 < 2},
                                    {"D", turn % 3 != 2},
                                    {"initial_states", turn % 3 != 1},
                                    {"final_states", turn % 5 != 2}},
                                   mamba3_siso_bwd()));
      ++turn;
    }
  return all;
}

/// The same with ranks, around chunks of 64 rows and spans of 64 steps, and both pairings; with one rank too,
/// which is SISO's scan with factors.
std::vector<Problem> ranked_gradient_tiles(const char* dtype = "bf16") {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t rank : {1, 2, 4, 8})
    for (const std::int64_t steps : {-63, -1, 0, 1, 66, 193}) {  // of a chunk and so many
      constexpr std::int64_t kHeaddims[]{8, 64, 16, 40, 56};
      constexpr std::int64_t kStates[]{128, 8, 72, 64, 16, 120, 40};
      const std::int64_t pairs = kStates[turn % 7] / 2;
      all.push_back(
          mamba3_problem({{"dtype", dtype},
                          {"batch", size(2)},
                          {"seqlen", std::max<std::int64_t>(1, 64 / rank + steps)},
                          {"nheads", size(4)},
                          {"groups", size(turn % 2 == 0 ? 1 : 2)},
                          {"headdim", kHeaddims[turn % 5]},
                          {"dstate", 2 * pairs},
                          {"rope_angles", turn % 5 < 3 ? pairs : std::max<std::int64_t>(1, pairs / 2)},
                          {"rotary_pairing", turn % 7 < 5 ? "halves" : "interleaved"},
                          {"mimo_rank", rank},
                          {"out_reduce", turn % 4 != 2},
                          {"z", turn % 3 != 1},
                          {"D", turn % 5 != 3},
                          {"initial_states", turn % 2 == 1},
                          {"final_states", turn % 5 != 4}},
                         mamba3_mimo_bwd()));
      ++turn;
    }
  return all;
}

/// The same of packed sequences, whose last spans lack chunks.
std::vector<Problem> packed_ranked_gradient_tiles(const char* dtype = "bf16") {
  std::vector<Problem> all;
  std::int64_t turn = 0;
  for (const auto& [seqlen, sequences] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {65, 2}, {130, 5}, {200, 40}, {40, 70}, {900, 3}})
    for (const std::int64_t rank : {1, 2, 4, 8}) {
      const std::int64_t dstate = turn % 3 == 1 ? 64 : 128 - turn % 4 * 8;
      all.push_back(mamba3_problem({{"dtype", dtype},
                                    {"seqlen", seqlen},
                                    {"cu_seqlens", true},
                                    {"sequences", sequences},
                                    {"nheads", size(4)},
                                    {"groups", size(turn % 3 == 0 ? 2 : 1)},
                                    {"headdim", size(turn % 5 == 4 ? 24 : 64)},
                                    {"dstate", dstate},
                                    {"rope_angles", turn % 3 == 1 ? dstate / 2 : dstate / 4},
                                    {"rotary_pairing", turn % 7 < 5 ? "halves" : "interleaved"},
                                    {"mimo_rank", rank},
                                    {"out_reduce", turn % 4 != 2},
                                    {"z", turn % 5 < 3},
                                    {"D", turn % 3 != 2},
                                    {"initial_states", turn % 3 != 1},
                                    {"final_states", turn % 5 != 2}},
                                   mamba3_mimo_bwd()));
      ++turn;
    }
  return all;
}

/// All of them on the default distribution, every fourth on each of the others.
std::vector<Problem> chosen_for(std::size_t distribution, const std::vector<Problem>& problems) {
  std::vector<Problem> chosen;
  for (std::size_t i = 0; i < problems.size(); ++i)
    if (distribution == 0 || i % 4 == distribution % 4) chosen.push_back(problems[i]);
  return chosen;
}

/// By cuda-chunked in f16 and f32, where shared memory has room for it.
void check_in_tf32(const std::vector<Problem>& problems, const DeviceInfo& gpu) {
  for (std::size_t turn = 0; turn < distributions().size(); ++turn) {
    const std::string& distribution = distributions()[turn].name;
    INFO(distribution);
    const std::vector<Problem> chosen = chosen_for(turn, problems);
    const Verdicts verdicts = verdicts_of(chosen, gpu, distribution);
    CHECK(verdicts.failures == "");
    if (!verdicts.skipped.contains("cuda-chunked"))
      CHECK(verdicts.passed.at("cuda-chunked") == chosen.size());
  }
}

/// By cuda-chunked and, where the GPU has it, cuda-hopper.
void check_on_tensor_cores(const std::vector<Problem>& problems, const DeviceInfo& gpu,
                           const std::string& distribution) {
  const Verdicts verdicts = verdicts_of(problems, gpu, distribution);
  CHECK(verdicts.failures == "");
  REQUIRE(verdicts.passed.contains("cuda-chunked"));
  CHECK(verdicts.passed.at("cuda-chunked") == problems.size());
  const auto skipped = verdicts.skipped.find("cuda-hopper");  // all or nothing, by the GPU
  if (skipped == verdicts.skipped.end())
    CHECK(verdicts.passed.at("cuda-hopper") == problems.size());
  else
    CHECK(skipped->second == problems.size());
}

void check_all(const std::vector<Problem>& problems, const DeviceInfo& device) {
  for (std::size_t turn = 0; turn < distributions().size(); ++turn) {
    const std::string& distribution = distributions()[turn].name;
    INFO(distribution);
    const std::vector<Problem> chosen = chosen_for(turn, problems);
    const auto [passed, skipped, failures] = verdicts_of(chosen, device, distribution);
    CHECK(failures == "");
    const auto most = std::ranges::max_element(passed, {}, [](const auto& entry) { return entry.second; });
    REQUIRE(most != passed.end());
    CHECK(most->second == chosen.size());
  }
}

}  // namespace

TEST_CASE("CPU implementations of Mamba-3's SISO scan agree with the reference", "[mamba3]") {
  check_all(scans(mamba3_siso_fwd()), list_devices().front());
}

TEST_CASE("CPU implementations of Mamba-3's MIMO scan agree with the reference", "[mamba3]") {
  check_all(scans(mamba3_mimo_fwd()), list_devices().front());
}

TEST_CASE("CPU implementations of the SISO scan's gradients agree with the reference", "[mamba3]") {
  check_all(scans(mamba3_siso_bwd()), list_devices().front());
}

TEST_CASE("CPU implementations of the MIMO scan's gradients agree with the reference", "[mamba3]") {
  check_all(scans(mamba3_mimo_bwd()), list_devices().front());
}

TEST_CASE("CPU implementations of Mamba-3's step agree with the reference", "[mamba3]") {
  check_all(steps(), list_devices().front());
}

TEST_CASE("gradients of a norm over one head dim can be judged, although they cancel", "[mamba3]") {
  std::vector<Problem> all;
  for (const std::int64_t rank : {1, 3, 8})
    for (const std::int64_t seqlen : {2, 8, 20})
      all.push_back(mamba3_problem({{"seqlen", seqlen},
                                    {"nheads", size(9)},
                                    {"groups", size(3)},
                                    {"dstate", size(34)},
                                    {"rope_angles", size(4)},
                                    {"mimo_rank", rank},
                                    {"z", true},
                                    {"D", true},
                                    {"outproj_norm", true},
                                    {"initial_states", true}},
                                   mamba3_mimo_bwd()));
  const Verdicts verdicts = verdicts_of(all, list_devices().front(), "tiny_delta");
  CHECK(verdicts.failures == "");
  CHECK(verdicts.passed.at("cpu-scalar") == all.size());
}

TEST_CASE("CUDA implementations of Mamba-3's scans agree with the reference", "[mamba3][gpu]") {
  for (const auto& gpu : gpus()) {
    check_all(scans(mamba3_siso_fwd()), gpu);
    check_all(tiles(mamba3_siso_fwd()), gpu);
    check_all(scans(mamba3_mimo_fwd()), gpu);
  }
}

TEST_CASE("CUDA implementations of the gradients of Mamba-3's scans agree with the reference",
          "[mamba3][gpu]") {
  for (const auto& gpu : gpus()) {
    check_all(scans(mamba3_siso_bwd()), gpu);
    check_all(tiles(mamba3_siso_bwd()), gpu);
    check_all(scans(mamba3_mimo_bwd()), gpu);
  }
}

TEST_CASE("the gradients of Mamba-3's SISO scan on tensor cores agree with the reference", "[mamba3][gpu]") {
  for (const auto& gpu : gpus())
    for (const auto& distribution : distributions()) {
      INFO(distribution.name);
      check_on_tensor_cores(gradient_tiles(), gpu, distribution.name);
    }
}

TEST_CASE("the gradients of packed sequences of Mamba-3's SISO scan on tensor cores agree with the reference",
          "[mamba3][gpu]") {
  for (const auto& gpu : gpus())
    for (const auto& distribution : distributions()) {
      INFO(distribution.name);
      check_on_tensor_cores(packed_gradient_tiles(), gpu, distribution.name);
    }
}

TEST_CASE("the gradients of Mamba-3's SISO scan in f16 and f32 on tensor cores agree with the reference",
          "[mamba3][gpu]") {
  for (const auto& gpu : gpus())
    for (const char* dtype : {"f16", "f32"}) {
      INFO(dtype);
      std::vector<Problem> problems = gradient_tiles(dtype);
      std::ranges::copy(packed_gradient_tiles(dtype), std::back_inserter(problems));
      check_in_tf32(problems, gpu);
    }
}

TEST_CASE("the gradients of Mamba-3's MIMO scan on tensor cores agree with the reference", "[mamba3][gpu]") {
  for (const auto& gpu : gpus())
    for (const auto& distribution : distributions()) {
      INFO(distribution.name);
      check_on_tensor_cores(ranked_gradient_tiles(), gpu, distribution.name);
    }
}

TEST_CASE("the gradients of packed sequences of Mamba-3's MIMO scan on tensor cores agree with the reference",
          "[mamba3][gpu]") {
  for (const auto& gpu : gpus())
    for (std::size_t turn = 0; turn < distributions().size(); ++turn) {
      INFO(distributions()[turn].name);
      check_on_tensor_cores(chosen_for(turn, packed_ranked_gradient_tiles()), gpu,
                            distributions()[turn].name);
    }
}

TEST_CASE("the gradients of Mamba-3's MIMO scan in f16 and f32 on tensor cores agree with the reference",
          "[mamba3][gpu]") {
  for (const auto& gpu : gpus())
    for (const char* dtype : {"f16", "f32"}) {
      INFO(dtype);
      std::vector<Problem> problems = ranked_gradient_tiles(dtype);
      std::ranges::copy(packed_ranked_gradient_tiles(dtype), std::back_inserter(problems));
      check_in_tf32(problems, gpu);
    }
}

TEST_CASE("the gradients of Mamba-3's MIMO scan in blocks of many heads agree with the reference",
          "[mamba3][gpu]") {
  // So many that each slot of a ring is used again and again.
  std::vector<Problem> problems;
  for (const std::int64_t rank : {1, 2, 4, 8})
    problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                       {"batch", size(2)},
                                       {"seqlen", size(512)},
                                       {"nheads", size(32)},
                                       {"headdim", size(64)},
                                       {"dstate", size(128)},
                                       {"rope_angles", size(rank == 2 ? 64 : 32)},
                                       {"mimo_rank", rank},
                                       {"z", true},
                                       {"D", true}},
                                      mamba3_mimo_bwd()));
  for (const auto& gpu : gpus()) check_on_tensor_cores(problems, gpu, distributions().front().name);
}

TEST_CASE("the gradients of Mamba-3's SISO scan of halves on tensor cores agree with the reference",
          "[mamba3][gpu]") {
  std::vector<Problem> problems;
  for (const std::int64_t dstate : {8, 24, 72, 128})
    for (const bool states : {false, true})
      problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                         {"seqlen", size(130)},
                                         {"cu_seqlens", dstate != 72},
                                         {"sequences", size(dstate == 72 ? 1 : 4)},
                                         {"nheads", size(4)},
                                         {"headdim", size(24)},
                                         {"dstate", dstate},
                                         {"rope_angles", states ? dstate / 2 : dstate / 4},
                                         {"rotary_pairing", "halves"},
                                         {"z", true},
                                         {"D", true},
                                         {"initial_states", states},
                                         {"final_states", states}},
                                        mamba3_siso_bwd()));
  for (const auto& gpu : gpus()) {
    const Verdicts verdicts = verdicts_of(problems, gpu, distributions().front().name);
    CHECK(verdicts.failures == "");
    REQUIRE(verdicts.passed.contains("cuda-chunked"));
    CHECK(verdicts.passed.at("cuda-chunked") == problems.size());
  }
}

TEST_CASE("CUDA implementations of Mamba-3's step agree with the reference", "[mamba3][gpu]") {
  for (const auto& gpu : gpus()) check_all(steps(), gpu);
}
