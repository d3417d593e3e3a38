#include "kernels/selective_scan/fused_bwd/map.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "catch.h"
#include "model/implementation.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::fused_bwd;
using namespace ssmbench::test;

namespace {

Problem problem(std::int64_t batch, std::int64_t dim, std::int64_t seqlen, const char* dtype = "f32",
                std::int64_t dstate = 16, std::int64_t groups = 1, bool options = true) {
  return scan_problem({{"batch", size(batch)},
                       {"dim", size(dim)},
                       {"dstate", size(dstate)},
                       {"seqlen", size(seqlen)},
                       {"groups", size(groups)},
                       {"dtype", dtype},
                       {"z", options},
                       {"D", options},
                       {"delta_bias", options}},
                      selective_scan_bwd());
}

BackwardPlan plan_of(const Problem& of) {
  return plan_backward(SelectiveScan(of), tensor_bytes(of), of.dtype() != DType::f32);
}

}  // namespace

TEST_CASE("fast backward: the lanes of a warp hold each state of each channel once") {
  std::set<std::pair<int, int>> held;
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < kLaneChannels; ++r)
      for (int s = 0; s < kLaneStates; ++s)
        CHECK(held.insert({LaneMap{lane}.channel(r), LaneMap{lane}.state(s)}).second);
  CHECK(held.size() == std::size_t{kWarpChannels * kPaddedStates});
  CHECK(held.rbegin()->first == kWarpChannels - 1);
}

TEST_CASE("fast backward: what one lane gives away its partner has in the register that it keeps") {
  for (int lane = 0; lane < 32; ++lane) {
    const LaneMap own{lane};
    CHECK(LaneMap{lane ^ 4}.channel(1) == own.channel(0));
    CHECK(LaneMap{lane ^ 2}.channel(0) == own.channel(0));
    for (const int s : {0, 1}) CHECK(LaneMap{lane ^ 16}.state(s + 2) == own.state(s));
    CHECK(LaneMap{lane ^ 8}.state(1) == own.state(0));
    CHECK(LaneMap{lane ^ 1}.state(0) == own.state(0));
  }
}

TEST_CASE("fast backward: the vectors of a warp's lanes cover a tile once, along either axis") {
  for (const bool along_time : {true, false})
    for (const int size : {4, 8}) {
      std::set<std::pair<int, int>> covered;
      for (int lane = 0; lane < 32; ++lane) {
        const VectorMap vector{lane, along_time, size};
        for (int k = 0; k < VectorMap::kElements; ++k) {
          CHECK(covered.insert({vector.step(k), vector.channel(k)}).second);
          const int first = k / size * size;
          CHECK(vector.step(k) == vector.step(first) + (along_time ? k - first : 0));
          CHECK(vector.channel(k) == vector.channel(first) + (along_time ? 0 : k - first));
        }
      }
      CHECK(covered.size() == std::size_t{kTileSteps * kWarpChannels});
      CHECK(covered.rbegin()->first == kTileSteps - 1);
    }
}

TEST_CASE("fast backward: lanes that shared memory serves together have different banks") {
  // Eight lanes with 16 bytes each.
  const auto distinct = [](auto index) {
    for (int first = 0; first < 32; first += 8) {
      std::set<int> banks;
      for (int lane = first; lane < first + 8; ++lane) banks.insert(index(lane) % 8);
      CHECK(banks.size() == 8);
    }
  };
  for (const bool along_time : {true, false})
    for (const int size : {4, 8})
      for (int k = 0; k < VectorMap::kElements; ++k)
        distinct([&](int lane) {
          const VectorMap vector{lane, along_time, size};
          return row_index(vector.step(k), vector.channel(k));
        });
  distinct([](int lane) { return row_index((lane & 2) != 0 ? 1 : 0, LaneMap{lane}.channel(0)); });
}

TEST_CASE("fast backward: segments are whole tiles, spans whole segments, and cover the sequence") {
  for (const std::int64_t batch : {1, 8, 64})
    for (const std::int64_t dim : {16, 100, 2048})
      for (const std::int64_t seqlen : {1, 16, 65, 257, 2048, 2049, 16384, 65536}) {
        INFO(batch << " x " << dim << " x " << seqlen);
        const BackwardPlan plan = plan_of(problem(batch, dim, seqlen, "bf16"));
        CHECK(plan.segment % kTileSteps == 0);
        CHECK(plan.span % plan.segment == 0);
        CHECK(plan.segments() * plan.segment >= seqlen);
        CHECK((plan.segments() - 1) * plan.segment < seqlen);
        CHECK(plan.spans() * plan.span >= seqlen);
        if (seqlen <= 16384) CHECK(plan.spans() == 1);
      }
  CHECK(plan_of(problem(1, 2048, 65536, "bf16")).spans() > 1);
}

TEST_CASE("fast backward: blocks go through all segments in turn where they fill whole waves of an H200") {
  const auto in_turn = [](std::int64_t batch, std::int64_t dim, std::int64_t seqlen) {
    return plan_of(problem(batch, dim, seqlen, "bf16")).in_turn;
  };
  CHECK(in_turn(8, 2048, 2048));  // 128 of 132
  CHECK(in_turn(8, 2048, 65536));
  CHECK_FALSE(in_turn(9, 2048, 2048));  // 144 of 264
  CHECK(in_turn(64, 2048, 2048));       // 1024 of 1056
  CHECK_FALSE(in_turn(1, 2048, 2048));
  CHECK(in_turn(1, 64, 64));  // one segment
  CHECK_FALSE(in_turn(1, 64, 65));
  for (const std::int64_t seqlen : {135, 200}) {  // tests/kernels/implementations_test.cpp relies on it
    CHECK(in_turn(120, 16, seqlen));
    CHECK(plan_of(problem(120, 16, seqlen, "bf16")).segments() >= 3);
  }
  for (const std::int64_t batch : {1, 8})
    for (const std::int64_t seqlen : {1, 100, 2048, 65536}) {
      const BackwardPlan plan = plan_of(problem(batch, 2048, seqlen, "bf16"));
      CHECK(plan.runs() * plan.run() >= plan.segments());
      CHECK((plan.runs() - 1) * plan.run() < plan.segments());
      CHECK(plan.span_segments() % plan.run() == 0);
    }
}

TEST_CASE("fast backward: blocks of few channels are small, two of them on a multiprocessor") {
  const auto plan = [](std::int64_t dim, std::int64_t groups, std::int64_t dstate) {
    return plan_of(problem(1, dim, 65536, "bf16", dstate, groups));
  };
  for (const std::int64_t groups : {1, 3}) {
    CHECK(plan(64 * groups, groups, 16).small_blocks());
    CHECK_FALSE(plan(65 * groups, groups, 16).small_blocks());
  }
  CHECK_FALSE(plan(64, 1, 17).small_blocks());
  CHECK(plan(64, 1, 16).segment_blocks() == 1);
  CHECK(plan(65, 1, 16).segment_blocks() == kSegmentBlocks);
  const BackwardPlan one_wave = plan(64, 1, 16);
  CHECK(one_wave.blocks() * one_wave.segments() == 256);
}

TEST_CASE("fast backward: the parts of the workspace do not overlap") {
  for (const std::int64_t seqlen : {1, 300, 2048, 9000})
    for (const std::int64_t dstate : {9, 40}) {
      const BackwardPlan plan = plan_of(problem(3, 100, seqlen, "bf16", dstate, 2));
      const BackwardWorkspace at = backward_workspace(plan);
      const std::int64_t blocks = 3 * 2;  // 50 channels a group
      CHECK(plan.blocks() == blocks);
      const std::int64_t kept = plan.span / kKeptSteps;
      std::vector<std::pair<std::int64_t, std::int64_t>> partials;
      for (std::int64_t round = 0; round < plan.rounds(); ++round) {
        const BackwardWorkspace of_round = at.of_round(round);
        partials.emplace_back(of_round.states, plan.segments() * blocks * 2048);
        partials.emplace_back(of_round.carries, plan.runs() * blocks * 2048);
        partials.emplace_back(of_round.delta_sums, plan.segments() * blocks * 128);
        partials.emplace_back(of_round.dD, plan.runs() * blocks * 128);
        partials.emplace_back(of_round.ddelta_bias, plan.runs() * blocks * 128);
      }
      partials.emplace_back(at.kept_states, kept * blocks * 2048);
      partials.emplace_back(at.kept_sums, kept * blocks * 128);
      partials.emplace_back(at.shares_B, blocks * plan.span * 16);
      partials.emplace_back(at.shares_C, blocks * plan.span * 16);
      partials.emplace_back(at.gradients, dstate > 16 ? blocks * plan.span * 128 * 3 : 0);
      partials.emplace_back(at.floats, 0);
      for (std::size_t i = 0; i + 1 < partials.size(); ++i) {
        CHECK(partials[i].first % 64 == 0);
        CHECK(partials[i].first + partials[i].second <= partials[i + 1].first);
      }
    }
}

TEST_CASE("fast backward: few channels, unless there are many groups of these") {
  const auto takes = [](std::int64_t batch, std::int64_t dim, std::int64_t groups) {
    const Problem of = problem(batch, dim, 4096, "bf16", 16, groups);
    return applies(SelectiveScan(of), tensor_bytes(of));
  };
  CHECK(takes(1, 1, 1));
  CHECK(takes(8, 8, 1));
  CHECK(takes(4, 33 * 15, 33));
  CHECK_FALSE(takes(4, 34 * 15, 34));
  CHECK(takes(4, 34 * 16, 34));
}

TEST_CASE("fast backward: rounds, but for four of few channels") {
  const auto takes = [](std::int64_t batch, std::int64_t dim, std::int64_t seqlen, std::int64_t dstate) {
    const Problem of = problem(batch, dim, seqlen, "bf16", dstate);
    return applies(SelectiveScan(of), tensor_bytes(of));
  };
  for (const std::int64_t dstate : {17, 48, 65, 256}) CHECK(takes(1, 64, 4096, dstate));
  for (const std::int64_t dstate : {49, 64}) {
    CHECK_FALSE(takes(1, 64, 4096, dstate));
    CHECK_FALSE(takes(4, 64, 1024, dstate));
    CHECK(takes(1, 64, 65536, dstate));
    CHECK(takes(1, 256, 2048, dstate));
  }
}

TEST_CASE("fast backward: 16 states a round") {
  const auto rounds = [](std::int64_t dstate) {
    return plan_of(problem(1, 64, 4096, "bf16", dstate)).rounds();
  };
  for (const std::int64_t dstate : {1, 8, 9, 16}) CHECK(rounds(dstate) == 1);
  for (const std::int64_t dstate : {17, 32}) CHECK(rounds(dstate) == 2);
  CHECK(rounds(256) == 16);
}

TEST_CASE("fast backward: spans of a sequence with few channels fill an H200") {
  for (const std::int64_t dim : {1, 64, 128, 129, 300})
    for (const std::int64_t seqlen : {65536, 262144, 1 << 20}) {
      const Problem of = problem(1, dim, seqlen, "bf16");
      const BackwardPlan plan = plan_of(of);
      INFO(dim << " x " << seqlen << ": spans of " << plan.span << ", segments of " << plan.segment);
      CHECK(2 * plan.blocks() * plan.span_segments() > kWave);
      if (seqlen == 65536 && dim <= 128) CHECK(plan.spans() == 1);
      CHECK(plan.span % plan.segment == 0);
      CHECK(4 * static_cast<double>(backward_workspace(plan).floats) <=
            std::max(0.25 * tensor_bytes(of), 128.0 * (1 << 20)));
    }
}

TEST_CASE("fast backward: the workspace is under a quarter of the tensors at 65536 steps, or 128 MB") {
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const bool options : {false, true})
      for (const std::int64_t batch : {1, 8})
        for (const std::int64_t dim : {16, 17, 65, 768, 2048, 5120})
          for (std::int64_t dstate = 1; dstate <= 256; dstate += dstate < 9 ? 4 : dstate < 17 ? 1 : 40) {
            const Problem of = problem(batch, dim, 65536, dtype, dstate, 1, options);
            INFO(of.id());
            const bool takes = applies(SelectiveScan(of), tensor_bytes(of));
            if (dstate <= 16 || (dstate <= 64 && dim >= 2048)) CHECK(takes);
            if (!takes) continue;
            const auto bytes = 4 * static_cast<double>(backward_workspace(plan_of(of)).floats);
            CHECK(bytes <= std::max(0.25 * tensor_bytes(of), 128.0 * (1 << 20)));
          }
}
