#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "kernels/common/hardware.h"
#include "kernels/common/workspace.h"
#include "kernels/selective_scan/fused_general/map.h"
#include "kernels/selective_scan/segment_range.h"
#include "kernels/selective_scan/segments.h"
#include "ops/selective_scan/selective_scan.h"

// How the general kernels of selective_scan_bwd cut a problem up, and where everything lies in shared memory
// and in the workspace. Host and device, so that the CPU tests cover it. Threads are those of
// fused_general/map.h.

namespace ssmbench::fused_bwd_general {

using fused_general::GeneralPlan;
using fused_general::kGeneralMaxThreads;
using fused_general::kThreadStates;
using fused_general::kWarpLanesLog2;

/// Four blocks of this size fill a multiprocessor.
inline constexpr int kGeneralBackwardMaxSharedBytes = h200::shared_bytes_of_each(4);
static_assert(kGeneralBackwardMaxSharedBytes == 56 * 1024);

/// Sums over the states of a channel that a step has: du, ∂loss/∂Δ and y.
inline constexpr int kBackwardSums = 3;

/// Advances the states from step `begin` to step `last` and stores them at begin, begin + every, …, last.
/// `every` divides last − begin and is a power of two. Stored states are [stored step][block][thread][4].
struct StateRun {
  const float* from;  ///< states at begin, [block][thread][4]; null: the scan's initial states
  float* to;
  std::int64_t begin, last, every;
};

/// Levels of ranges of time, one within the other. With four, the states of 256 complex states and 65536
/// steps take less than a quarter of the bytes of all tensors in f16.
inline constexpr int kMaxLevels = 4;

struct GeneralBackwardPlan {
  GeneralPlan tile;        ///< threads, and the tile of the gradient kernel: 2 to 16 steps
  int forward_steps_log2;  ///< tile of the forward kernel: at least as long
  bool two_samples, constant_b, constant_c;
  std::int64_t batch, dim, dstate, seqlen;
  std::int64_t blocks;
  int levels;
  /// Steps of the ranges of each level: powers of two, each whole ranges of the level before. Those of level
  /// 0 are segments, which are done together; they have whole tiles of both kinds. The states before the
  /// ranges of a level are kept for one range of the next level at a time. Where segments are done side by
  /// side, there is only that level, and its steps are any number of whole tiles.
  std::int64_t lengths[kMaxLevels];
  std::int64_t side_by_side;  ///< neighbouring segments that are done at once, a span; 1: one after the other

  SSMBENCH_HD constexpr std::int64_t segment() const { return lengths[0]; }
  SSMBENCH_HD constexpr std::int64_t segments() const { return ceil_div(seqlen, segment()); }
  SSMBENCH_HD constexpr std::int64_t span() const { return side_by_side * segment(); }
  SSMBENCH_HD constexpr bool cut() const { return side_by_side > 1; }
  /// Values of all states.
  SSMBENCH_HD constexpr std::int64_t states() const { return batch * dim * dstate; }
  /// Segment `i` of a span of time, or all of what is no longer than a segment.
  SSMBENCH_HD constexpr SegmentRange segment_of(const SegmentRange& span, std::int64_t i) const {
    const std::int64_t begin = span.begin + i * segment();
    return {begin, begin + segment() < span.end ? begin + segment() : span.end};
  }
  /// Which of the carries, [index](B, D, N), enters the segment that ends at step `end`, not the last one.
  /// Those of segments done side by side lie in the order in which they follow from one another.
  SSMBENCH_HD constexpr std::int64_t carry_at(std::int64_t end) const {
    return cut() ? segments() - 1 - end / segment() : 0;
  }
  /// Which of the sums over time are those of the segment that begins at step `begin`.
  SSMBENCH_HD constexpr std::int64_t sums_at(std::int64_t begin) const {
    return cut() ? begin / segment() : 0;
  }
  /// Sums over time of each batch.
  SSMBENCH_HD constexpr std::int64_t sums() const { return cut() ? segments() : 1; }
  /// Tiles of the gradient kernel in a segment.
  SSMBENCH_HD constexpr std::int64_t tiles() const {
    return ceil_div(segment() < seqlen ? segment() : seqlen, tile.steps());
  }
  /// Ranges of a level in the longest range of the next one.
  SSMBENCH_HD constexpr std::int64_t ranges(int level) const {
    const bool in_another = level + 1 < levels && lengths[level + 1] < seqlen;
    return ceil_div(in_another ? lengths[level + 1] : seqlen, lengths[level]);
  }

  // Shared memory of the forward kernel: B as [step][state], in values; u and Δ as [channel][step], in
  // floats.
  SSMBENCH_HD constexpr GeneralPlan forward_tile() const {
    GeneralPlan forward = tile;
    forward.steps_log2 = forward_steps_log2;
    return forward;
  }
  SSMBENCH_HD constexpr int forward_shared_bytes() const {
    const GeneralPlan forward = forward_tile();
    return (forward.projection_values() * forward.value_floats + 2 * forward.sequence_floats()) *
           static_cast<int>(sizeof(float));
  }

  // Shared memory of the gradient kernel, in this order, values first:
  //   B, C      [step][state]
  //   exchange  [step][warp][…]: the states before the step, 4 per thread; once these are used, the sums over
  //             the warp's channels of the step's dB and dC: the same number of values where a warp has
  //             two channels or more, twice the number where it has one
  //   totals    [dA, dB if constant, dC if constant][thread][4]
  //   sequences [channel][step], floats: five that are staged, and the partial sums over the states
  SSMBENCH_HD constexpr int warps() const { return tile.threads() >> kWarpLanesLog2; }
  SSMBENCH_HD constexpr int states_in_warp() const { return tile.lanes_in_warp() * kThreadStates; }
  SSMBENCH_HD constexpr int warp_values() const {
    constexpr int kOfThreads = kThreadStates << kWarpLanesLog2;
    return 2 * states_in_warp() > kOfThreads ? 2 * states_in_warp() : kOfThreads;
  }
  SSMBENCH_HD constexpr int exchange_pitch() const { return warps() * warp_values(); }
  SSMBENCH_HD constexpr int exchange_values() const { return tile.steps() * exchange_pitch(); }
  SSMBENCH_HD constexpr int totals() const { return 1 + (constant_b ? 1 : 0) + (constant_c ? 1 : 0); }
  SSMBENCH_HD constexpr int total_values() const { return totals() * tile.threads() * kThreadStates; }
  SSMBENCH_HD constexpr int sequences() const { return 5 + kBackwardSums * tile.partials(); }
  SSMBENCH_HD constexpr int shared_bytes() const {
    return ((2 * tile.projection_values() + exchange_values() + total_values()) * tile.value_floats +
            sequences() * tile.sequence_floats()) *
           static_cast<int>(sizeof(float));
  }

  /// Where the warp's sum of dB (which 0) or dC (1) of its n-th state lies among its exchange values.
  SSMBENCH_HD constexpr int sum_at(int which, int n) const { return which * states_in_warp() + n; }
  /// The first warp of those that hold the state, and how far apart they are: two partial sums of a channel
  /// are of two warps.
  SSMBENCH_HD constexpr int first_warp_of(int state) const { return state >= states_in_warp() ? 1 : 0; }
  SSMBENCH_HD constexpr int warp_stride() const { return tile.partials(); }

  /// Floats of what all threads of the grid hold: 4 values each.
  SSMBENCH_HD constexpr std::int64_t thread_floats() const {
    return blocks * tile.threads() * kThreadStates * tile.value_floats;
  }
  /// Floats of a block's sums of dB or dC over its channels, of one span: [step][state].
  SSMBENCH_HD constexpr std::int64_t share_floats() const {
    return span() * tile.states() * tile.value_floats;
  }
};

/// What the forward kernel does for the tiles of segment `i` of those done side by side, given the same for
/// all of them: the steps of the span, and where its states go. It begins at states of their own, from
/// `starts`.
SSMBENCH_HD constexpr StateRun segment_run(const GeneralBackwardPlan& plan, const StateRun& span,
                                           std::int64_t i) {
  const SegmentRange own = plan.segment_of({span.begin, span.last}, i);
  const std::int64_t whole_tiles = (own.end - own.begin - 1) >> plan.tile.steps_log2;
  return {nullptr, span.to + i * plan.tiles() * plan.thread_floats(), own.begin,
          own.begin + (whole_tiles << plan.tile.steps_log2), plan.tile.steps()};
}

/// Where the parts of the workspace begin, in floats. Those that are not needed are empty.
struct GeneralBackwardWorkspace {
  /// [level][range][block][thread][4]: the states before each range, if there are several in one of the next
  /// level
  std::int64_t range_states[kMaxLevels];
  std::int64_t tile_states;     ///< [segment of a span][tile][block][thread][4]: before each tile
  std::int64_t carry;           ///< (B, D, N): conj(Ā)·g of the segment after; [carry_at] if side by side
  std::int64_t previous_carry;  ///< the same of conj(c')·g, two samples only
  std::int64_t carry_decays;    ///< segments side by side only, as SegmentStates, from the last one on
  std::int64_t starts;          ///< the same of the states before all segments but the first
  std::int64_t start_decays;
  std::int64_t dA, dB, dC;   ///< [sums_at](B, D, N) sums over time; dB and dC if constant
  std::int64_t dD;           ///< [sums_at](B, D)
  std::int64_t ddelta_bias;  ///< [sums_at](B, parts, D)
  std::int64_t shares_B;     ///< [block][step][state] of one span, if variable
  std::int64_t shares_C;
  std::int64_t floats;
};

inline GeneralBackwardWorkspace general_backward_workspace(const GeneralBackwardPlan& plan) {
  WorkspaceLayout layout;
  const std::int64_t rows = plan.batch * plan.dim;
  const std::int64_t states = plan.states() * plan.tile.value_floats;
  const std::int64_t borders = plan.cut() ? plan.segments() - 1 : 0;
  GeneralBackwardWorkspace at{};
  for (int level = 0; level < plan.levels; ++level)
    at.range_states[level] = layout.take_floats(
        !plan.cut() && plan.ranges(level) > 1 ? plan.ranges(level) * plan.thread_floats() : 0);
  at.tile_states = layout.take_floats(plan.side_by_side * plan.tiles() * plan.thread_floats());
  at.carry = layout.take_floats(std::max<std::int64_t>(borders, 1) * states);
  at.previous_carry = layout.take_floats(plan.two_samples ? states : 0);
  at.carry_decays = layout.take_floats(borders * states);
  at.starts = layout.take_floats(borders * states);
  at.start_decays = layout.take_floats(borders * states);
  at.dA = layout.take_floats(plan.sums() * states);
  at.dB = layout.take_floats(plan.constant_b ? plan.sums() * states : 0);
  at.dC = layout.take_floats(plan.constant_c ? plan.sums() * states : 0);
  at.dD = layout.take_floats(plan.sums() * rows);
  at.ddelta_bias = layout.take_floats(plan.sums() * rows * plan.tile.partials());
  at.shares_B = layout.take_floats(plan.constant_b ? 0 : plan.blocks * plan.share_floats());
  at.shares_C = layout.take_floats(plan.constant_c ? 0 : plan.blocks * plan.share_floats());
  at.floats = layout.floats();
  return at;
}

/// Calls do_segment(range, from) for the segments of a range of time, last first; `from` has the states
/// before the segment, null where it begins the scan, as it does for the range itself. For that it calls
/// keep(run) to have states computed, those before the ranges of `level` first.
template <class Keep, class DoSegment>
void walk_segments(const GeneralBackwardPlan& plan, const GeneralBackwardWorkspace& at, float* workspace,
                   int level, const SegmentRange& range, const float* from, const Keep& keep,
                   const DoSegment& do_segment) {
  if (level < 0) return do_segment(range, from);
  const std::int64_t length = plan.lengths[level];
  const std::int64_t last = (range.end - range.begin - 1) / length;
  float* const states = workspace + at.range_states[level];
  if (last > 0) keep(StateRun{from, states, range.begin, range.begin + last * length, length});
  for (std::int64_t i = last; i >= 0; --i) {
    const std::int64_t begin = range.begin + i * length;
    walk_segments(plan, at, workspace, level - 1, {begin, std::min(begin + length, range.end)},
                  i > 0 ? states + i * plan.thread_floats() : from, keep, do_segment);
  }
}

/// The plan with `levels` levels of ranges, the lowest of them segments of `segment` steps. Ranges of one
/// level hold about the same number of ranges of the level below.
constexpr GeneralBackwardPlan with_levels(GeneralBackwardPlan plan, std::int64_t segment, int levels) {
  const int segments_log2 = ceil_log2(static_cast<std::uint64_t>(ceil_div(plan.seqlen, segment)));
  plan.levels = levels;
  plan.side_by_side = 1;
  for (int level = 0; level < levels; ++level)
    plan.lengths[level] = segment << (segments_log2 * level / levels);
  return plan;
}

/// The plan with segments side by side, in spans whose workspace has at most `bytes` bytes; nothing where time
/// is better not cut, or no two segments have room.
inline std::optional<GeneralBackwardPlan> with_segments_side_by_side(GeneralBackwardPlan plan, double bytes) {
  const SegmentCosts costs =
      plan.tile.value_floats == 1 ? SegmentCosts{1800, 900, 4} : SegmentCosts{3500, 1700, 3};
  const TimeSegments segments = cut_time(plan.blocks, plan.seqlen, 1 << plan.forward_steps_log2, costs);
  if (segments.count == 1) return {};
  plan.levels = 1;
  plan.lengths[0] = segments.steps;
  plan.side_by_side = segments.count;
  const auto too_large = [&] {
    return static_cast<double>(general_backward_workspace(plan).floats) * sizeof(float) > bytes;
  };
  while (plan.cut() && too_large()) plan.side_by_side = ceil_div(plan.side_by_side, std::int64_t{2});
  if (!plan.cut()) return {};
  return plan;
}

/// The longest tiles that fit. Where channels are few, time is cut into segments that are done side by side,
/// but not for methods of two samples, nor for decays that grow. Else a sequence of up to 2048 steps is one
/// segment, so that no state is computed more than twice; a longer one has segments of 2048 steps, or of fewer
/// where the workspace would be over 24% of the bytes of all tensors. Where that is not enough, as with more
/// than 64 states in f16 and bf16, there are more levels, and states are computed once more for each.
inline GeneralBackwardPlan plan_general_backward(const SelectiveScan& scan, bool two_samples,
                                                 double tensor_bytes) {
  constexpr std::int64_t kLongestSegment = 2048;
  constexpr std::int64_t kShortestSegment = 32;
  constexpr double kWorkspaceShare = 0.24;
  GeneralBackwardPlan plan{};
  plan.tile = fused_general::plan_general(scan.channels_per_group(), scan.dstate, scan.complex);
  plan.two_samples = two_samples;
  plan.constant_b = !scan.variable_b;
  plan.constant_c = !scan.variable_c;
  plan.batch = scan.batch;
  plan.dim = scan.dim;
  plan.dstate = scan.dstate;
  plan.seqlen = scan.seqlen;
  plan.blocks = scan.batch * scan.groups * plan.tile.blocks_per_group;
  plan.tile.steps_log2 = 4;
  while (plan.shared_bytes() > kGeneralBackwardMaxSharedBytes) --plan.tile.steps_log2;
  plan.forward_steps_log2 = 5;
  while (plan.forward_shared_bytes() > kDefaultSharedBytes) --plan.forward_steps_log2;
  if (!two_samples && scan.method != MethodId::bilinear_flipped) {
    constexpr std::int64_t kShortestLimited = 16384;
    constexpr double kSmallWorkspace = 128 << 20;
    const double share = plan.seqlen <= kShortestLimited ? 1.0 : kWorkspaceShare;
    if (auto cut = with_segments_side_by_side(plan, std::max(share * tensor_bytes, kSmallWorkspace)))
      return *cut;
  }

  const auto bytes = [](const GeneralBackwardPlan& other) {
    return static_cast<double>(general_backward_workspace(other).floats) * sizeof(float);
  };
  const auto too_large = [&] { return bytes(plan) > kWorkspaceShare * tensor_bytes; };
  plan = with_levels(plan, kLongestSegment, 1);
  const auto halve = [&] { return with_levels(plan, plan.segment() / 2, 1); };
  if (plan.seqlen <= kLongestSegment) {
    while (plan.segment() / 2 >= std::max(plan.seqlen, kShortestSegment)) plan = halve();
    return plan;
  }
  while (plan.segment() > kShortestSegment && too_large() && bytes(halve()) < bytes(plan)) plan = halve();
  for (int levels = 2; levels <= kMaxLevels && too_large(); ++levels)
    for (std::int64_t segment = kShortestSegment; segment < kLongestSegment; segment *= 2)
      if (const auto other = with_levels(plan, segment, levels); bytes(other) < bytes(plan)) plan = other;
  return plan;
}

}  // namespace ssmbench::fused_bwd_general
