#include "kernels/selective_scan/fused_bwd_general/map.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "catch.h"
#include "model/implementation.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::fused_bwd_general;
using namespace ssmbench::fused_general;
using namespace ssmbench::test;

namespace {

// As in fused/map_test.cpp: around the numbers of lanes, and of warps.
constexpr std::int64_t kStates[] = {1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256};
constexpr std::int64_t kChannels[] = {1, 3, 31, 33, 128, 300};

Problem problem(std::int64_t dim, std::int64_t dstate, std::int64_t seqlen, const char* A = "real",
                const char* dtype = "f32", const char* projections = "variable", bool options = true) {
  return scan_problem({{"dim", size(dim)},
                       {"dstate", size(dstate)},
                       {"seqlen", size(seqlen)},
                       {"A", A},
                       {"dtype", dtype},
                       {"B", projections},
                       {"C", projections},
                       {"z", options},
                       {"D", options},
                       {"delta_bias", options}},
                      selective_scan_bwd());
}

GeneralBackwardPlan plan_of(const Problem& of, bool two_samples = false) {
  return plan_general_backward(SelectiveScan(of), two_samples, tensor_bytes(of));
}

/// Of methods of two samples, which have no segments side by side.
GeneralBackwardPlan plan_in_turn(const Problem& of) {
  return plan_of(of, true);
}

}  // namespace

TEST_CASE("general backward: four blocks fit an SM, with tiles of at least 2 steps") {
  for (const char* A : {"real", "complex"})
    for (const char* projections : {"variable", "constant"})
      for (const std::int64_t dstate : kStates)
        for (const std::int64_t dim : kChannels) {
          const GeneralBackwardPlan plan = plan_in_turn(problem(dim, dstate, 3000, A, "f32", projections));
          INFO(A << " dstate " << dstate << ", dim " << dim);
          CHECK(plan.shared_bytes() <= kGeneralBackwardMaxSharedBytes);
          CHECK(plan.forward_shared_bytes() <= kDefaultSharedBytes);
          CHECK(plan.tile.steps() >= 2);
          CHECK(plan.forward_steps_log2 >= plan.tile.steps_log2);
          CHECK(plan.segment() % (1 << plan.forward_steps_log2) == 0);
        }
  CHECK(plan_of(problem(2048, 16, 2048)).tile.steps() == 16);
}

TEST_CASE("general backward: vectors in shared memory are aligned to 16 bytes") {
  for (const char* A : {"real", "complex"})
    for (const std::int64_t dstate : kStates) {
      const GeneralBackwardPlan plan = plan_of(problem(300, dstate, 100, A));
      CHECK(plan.tile.projection_values() * plan.tile.value_floats % 4 == 0);
      CHECK(plan.exchange_values() * plan.tile.value_floats % 4 == 0);
      CHECK(plan.warp_values() * plan.tile.value_floats % 4 == 0);
    }
}

TEST_CASE("general backward: the warps of a state hold all channels of the block, each once") {
  for (const char* A : {"real", "complex"})
    for (const std::int64_t dstate : kStates)
      for (const std::int64_t dim : kChannels) {
        INFO(A << ", dstate " << dstate << ", dim " << dim);
        const GeneralBackwardPlan plan = plan_of(problem(dim, dstate, 100, A));
        for (int state = 0; state < plan.tile.states(); ++state) {
          std::set<int> channels;
          for (int warp = plan.first_warp_of(state); warp < plan.warps(); warp += plan.warp_stride()) {
            const std::size_t before = channels.size();
            for (int thread = 32 * warp; thread < 32 * (warp + 1); ++thread) {
              const int offset = state - plan.tile.first_state_of(thread);
              if (offset < 0 || offset >= plan.tile.thread_states) continue;
              // Where the warp keeps the state's sum is where this lane's states lie.
              const int lane = thread & (plan.tile.lanes_in_warp() - 1);
              CHECK((state & (plan.states_in_warp() - 1)) == lane * plan.tile.thread_states + offset);
              CHECK(channels.insert(plan.tile.channel_of(thread)).second);
            }
            CHECK(channels.size() > before);
          }
          CHECK(static_cast<int>(channels.size()) == plan.tile.channels());
        }
      }
}

TEST_CASE("general backward: a warp's sums of dB and dC do not overlap and stay inside its part") {
  for (const char* A : {"real", "complex"})
    for (const std::int64_t dstate : kStates) {
      const GeneralBackwardPlan plan = plan_of(problem(300, dstate, 100, A));
      std::set<int> indices;
      for (const int which : {0, 1})
        for (int n = 0; n < plan.states_in_warp(); ++n) CHECK(indices.insert(plan.sum_at(which, n)).second);
      CHECK(*indices.rbegin() < plan.warp_values());
      CHECK(32 * plan.tile.thread_states <= plan.warp_values());  // the states that lie there before
    }
}

TEST_CASE("general backward: the parts of the workspace do not overlap") {
  for (const char* projections : {"variable", "constant"})
    for (const bool two : {false, true})
      for (const std::int64_t seqlen : {1, 33, 2048, 2049, 5000, 65536}) {
        const GeneralBackwardPlan plan = plan_of(problem(33, 17, seqlen, "complex", "f32", projections), two);
        const GeneralBackwardWorkspace at = general_backward_workspace(plan);
        const bool constant = std::string(projections) == "constant";
        const std::int64_t threads = plan.blocks * plan.tile.threads() * 4 * 2;
        const std::int64_t states = plan.batch * plan.dim * plan.dstate * 2;
        const std::int64_t tiles = ceil_div(std::min(plan.segment(), seqlen), plan.tile.steps());
        const std::int64_t shares = plan.blocks * plan.span() * plan.tile.states() * 2;
        const bool cut = seqlen >= 2048 && !two;
        CHECK(plan.cut() == cut);
        const std::int64_t sums = cut ? ceil_div(seqlen, plan.segment()) : 1;
        const std::int64_t borders = cut ? sums - 1 : 0;
        std::vector<std::pair<std::int64_t, std::int64_t>> partials;
        for (int level = 0; level < plan.levels; ++level)
          partials.emplace_back(at.range_states[level],
                                !cut && plan.ranges(level) > 1 ? plan.ranges(level) * threads : 0);
        const std::vector<std::pair<std::int64_t, std::int64_t>> others{
            {at.tile_states, plan.side_by_side * tiles * threads},
            {at.carry, (cut ? borders : 1) * states},
            {at.previous_carry, two ? states : 0},
            {at.carry_decays, borders * states},
            {at.starts, borders * states},
            {at.start_decays, borders * states},
            {at.dA, sums * states},
            {at.dB, constant ? sums * states : 0},
            {at.dC, constant ? sums * states : 0},
            {at.dD, sums * plan.batch * plan.dim},
            {at.ddelta_bias, sums * plan.batch * plan.dim * plan.tile.partials()},
            {at.shares_B, constant ? 0 : shares},
            {at.shares_C, constant ? 0 : shares},
            {at.floats, 0}};
        partials.insert(partials.end(), others.begin(), others.end());
        for (std::size_t i = 0; i + 1 < partials.size(); ++i) {
          CHECK(partials[i].first % 64 == 0);
          CHECK(partials[i].first + partials[i].second <= partials[i + 1].first);
        }
      }
}

TEST_CASE("general backward: up to 2048 steps are one segment") {
  for (const std::int64_t seqlen : {1, 31, 33, 1000, 2048}) {
    CHECK(plan_in_turn(problem(5, 16, seqlen)).levels == 1);
    CHECK(plan_in_turn(problem(5, 16, seqlen)).ranges(0) == 1);
  }
  CHECK(plan_in_turn(problem(5, 16, 2049)).ranges(0) > 1);
  CHECK(plan_in_turn(problem(2048, 16, 65536)).segment() == 2048);
}

TEST_CASE("general backward: more states than fit are kept for a range of segments at a time") {
  CHECK(plan_in_turn(problem(2048, 64, 65536, "real", "bf16")).levels == 1);
  CHECK(plan_in_turn(problem(2048, 256, 65536, "real", "bf16")).levels == 2);
  CHECK(plan_of(problem(2048, 256, 65536, "complex", "bf16"), true).levels > 2);
}

TEST_CASE("general backward: each segment is done once, last first, from the states before it") {
  std::set<int> levels;
  for (const char* A : {"real", "complex"})
    for (const std::int64_t dstate : {16, 129, 256})
      for (const std::int64_t seqlen : {1, 2048, 2049, 5000, 65535, 65536, 70001}) {
        const Problem of = problem(512, dstate, seqlen, A, "bf16");
        const GeneralBackwardPlan plan = plan_in_turn(of);
        const GeneralBackwardWorkspace at = general_backward_workspace(plan);
        INFO(of.id() << ", levels: " << plan.levels);
        levels.insert(plan.levels);
        // Nothing is read or written: addresses stand for the states that would be there.
        const auto workspace = std::make_unique_for_overwrite<float[]>(at.floats);
        std::map<const float*, std::int64_t> time_of{{nullptr, 0}};
        std::int64_t end = seqlen, runs = 0;
        bool right = true;
        walk_segments(
            plan, at, workspace.get(), plan.levels - 1, {0, seqlen}, nullptr,
            [&](const StateRun& run) {
              ++runs;
              right &= time_of.at(run.from) == run.begin && (run.last - run.begin) % run.every == 0;
              float* to = run.to;
              for (std::int64_t t = run.begin; t <= run.last; t += run.every, to += plan.thread_floats())
                time_of[to] = t;
              right &= to <= workspace.get() + at.tile_states;
            },
            [&](const SegmentRange& segment, const float* from) {
              right &= segment.end == end && segment.end - segment.begin <= plan.segment() &&
                       segment.begin < segment.end && time_of.at(from) == segment.begin &&
                       segment.begin % plan.segment() == 0;
              end = segment.begin;
            });
        CHECK(right);
        CHECK(end == 0);
        CHECK((runs > 0) == (seqlen > plan.segment()));
      }
  CHECK(levels == std::set<int>{1, 2, 3, 4});
}

TEST_CASE("general backward: the workspace is under a quarter of the tensors at 65536 steps") {
  std::size_t problems = 0;
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const char* A : {"real", "complex"})
      for (const char* projections : {"variable", "constant"})
        for (const bool options : {false, true})
          for (const std::int64_t dim : {4, 33, 64, 768, 2048, 5120})
            for (std::int64_t dstate = 1; dstate <= 256; ++dstate) {
              const Problem of = problem(dim, dstate, 65536, A, dtype, projections, options);
              const auto bytes =
                  4 * static_cast<double>(general_backward_workspace(plan_of(of, true)).floats);
              const double share = bytes / tensor_bytes(of);
              if (!(share <= 0.25)) FAIL(of.id() << ": " << share);
              ++problems;
            }
  CHECK(problems == 3 * 2 * 2 * 2 * 6 * 256);
}

TEST_CASE("general backward: segments side by side cover time, and what belongs to each is its own") {
  for (const char* A : {"real", "complex"})
    for (const std::int64_t dstate : {1, 16, 33, 256})
      for (const std::int64_t dim : {1, 64, 1000})
        for (const std::int64_t seqlen : {2048, 4097, 65536, 200001}) {
          const Problem of = problem(dim, dstate, seqlen, A, "bf16");
          const GeneralBackwardPlan plan = plan_of(of);
          if (!plan.cut()) continue;
          INFO(of.id() << ": " << plan.segments() << " segments of " << plan.segment() << ", "
                       << plan.side_by_side << " at once");
          CHECK(plan.segment() % plan.tile.steps() == 0);
          CHECK(plan.segment() % (1 << plan.forward_steps_log2) == 0);
          CHECK(plan.segments() >= 2);
          CHECK(plan.side_by_side <= plan.segments());
          std::set<std::int64_t> carries;
          std::int64_t end = 0;
          for (std::int64_t begin = 0; begin < seqlen; begin += plan.span()) {
            const SegmentRange span{begin, std::min(begin + plan.span(), seqlen)};
            for (std::int64_t i = 0; i < ceil_div(span.end - span.begin, plan.segment()); ++i) {
              const SegmentRange segment = plan.segment_of(span, i);
              CHECK(segment.begin == end);
              CHECK(segment.end > segment.begin);
              CHECK(plan.sums_at(segment.begin) == segment.begin / plan.segment());
              end = segment.end;
              // The carry of the last border comes first, and each follows from the one before.
              if (end < seqlen) {
                CHECK(carries.insert(plan.carry_at(end)).second);
                CHECK(plan.carry_at(end) == plan.segments() - 1 - end / plan.segment());
              }
              const StateRun run =
                  segment_run(plan, {nullptr, nullptr, span.begin, span.end, plan.tile.steps()}, i);
              CHECK(run.begin == segment.begin);
              CHECK(run.last < segment.end);
              CHECK(run.last + plan.tile.steps() >= segment.end);
              CHECK((run.last - run.begin) % run.every == 0);
            }
          }
          CHECK(end == seqlen);
          CHECK(static_cast<std::int64_t>(carries.size()) == plan.segments() - 1);
          CHECK(*carries.begin() == 0);
        }
}

TEST_CASE("general backward: time is cut where channels are few") {
  CHECK(plan_of(problem(1, 24, 65536)).segments() > 100);
  CHECK(plan_of(problem(64, 32, 4096)).cut());
  CHECK_FALSE(plan_of(problem(64, 32, 64)).cut());
  CHECK_FALSE(plan_of(problem(5 * 2048, 16, 2048)).cut());
  CHECK_FALSE(plan_in_turn(problem(1, 24, 65536)).cut());
  CHECK_FALSE(plan_of(problem(1, 24, 65536).with({{"method", "bilinear_flipped"}})).cut());  // it grows
}

TEST_CASE("general backward: the workspace of segments side by side is a quarter of the tensors, or 128 MB") {
  for (const char* A : {"real", "complex"})
    for (const char* projections : {"variable", "constant"})
      for (const std::int64_t dim : {1, 33, 768, 2048, 5120})
        for (const std::int64_t dstate : {1, 8, 16, 17, 64, 256}) {
          const Problem of = problem(dim, dstate, 65536, A, "bf16", projections);
          INFO(of.id());
          const auto bytes = 4 * static_cast<double>(general_backward_workspace(plan_of(of)).floats);
          CHECK(bytes <= std::max(0.25 * tensor_bytes(of), 128.0 * (1 << 20)));
        }
}
