#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/index_math.h"
#include "kernels/common/workspace.h"
#include "ops/selective_scan/selective_scan.h"

// How the fast kernels of selective_scan_bwd cut a problem up (real A, zoh, variable B and C), and where
// everything lies in the workspace. Host and device, so that the CPU tests cover it. The picture is in
// kernel.cuh.

namespace ssmbench::fused_bwd {

inline constexpr int kBlockChannels = 128;    ///< channels of a block of gradient_kernel
inline constexpr int kConsumerThreads = 256;  ///< hold the states of these channels
inline constexpr int kProducerThreads = 256;  ///< stage tiles for them
inline constexpr int kSegmentBlocks = 2;      ///< blocks of segment_kernel for these channels
inline constexpr int kSegmentThreads = kConsumerThreads / kSegmentBlocks;
inline constexpr int kPaddedStates = 16;  ///< states of a round, rounded up
inline constexpr int kTileSteps = 16;
inline constexpr int kWarpChannels = 16;
inline constexpr int kLaneChannels = 2;  ///< channels of a thread
inline constexpr int kLaneStates = 4;    ///< states of a thread in each of its channels
inline constexpr int kKeptSteps = 8;     ///< steps whose states and decays are in registers at a time
inline constexpr int kBlockStates = kBlockChannels * kPaddedStates;
inline constexpr int kBlockWarps = kConsumerThreads / 32;
inline constexpr int kSmallBlockWarps = 4;  ///< consumer warps of a small block; a warpgroup

/// Which of a warp's channels and states a lane has. Register r of a lane is not channel r of its two, nor
/// register s state s of its four: they are exchanged by bits of the lane, so that lanes that add up their
/// sums find, in the same register, what the one keeps and the other gives away.
///
///   lane bits   4 | 3 | 2 1 | 0      channels  8·(bit 4) + 4·(bit 0) + 2·(r xor bit 2) + (bit 3)
///                                    states    4·(bits 2..1) + (s xor bits 4..3)
///
/// Neighbours read the same vectors of B and C, and 16 lanes all vectors of eight neighbouring channels:
/// shared memory then serves 16 lanes at a time with 16 bytes each, else 8.
struct LaneMap {
  int lane;

  SSMBENCH_HD constexpr int channel(int r) const {
    return (lane >> 4) * 8 + (lane & 1) * 4 + (r ^ (lane >> 2 & 1)) * 2 + (lane >> 3 & 1);
  }
  SSMBENCH_HD constexpr int order() const { return lane >> 3; }  // of its states
  SSMBENCH_HD constexpr int first_state() const { return (lane >> 1 & 3) * kLaneStates; }
  SSMBENCH_HD constexpr int state(int s) const { return first_state() + (s ^ order()); }
};

/// The elements of a warp's tile that a thread loads and stores: eight, in vectors of neighbours along the
/// axis that is contiguous in memory. Lanes then stage elements of different banks at the same time.
struct VectorMap {
  static constexpr int kElements = kWarpChannels * kTileSteps / 32;

  int lane;
  bool along_time;
  int size;  ///< elements of a vector; a divisor of kElements

  SSMBENCH_HD constexpr int step(int k) const { return along_time ? along(k) : lane & 15; }
  SSMBENCH_HD constexpr int channel(int k) const { return along_time ? lane & 15 : along(k); }

 private:
  SSMBENCH_HD constexpr int along(int k) const { return k / size * 2 * size + (lane >> 4) * size + k % size; }
};

/// Index in shared memory of a step of a warp's channel, in elements. The pitch is odd, so that neighbours
/// along either axis are in different banks.
inline constexpr int kRowPitch = kWarpChannels + 1;

SSMBENCH_HD constexpr int row_index(int step, int channel) {
  return step * kRowPitch + channel;
}

inline constexpr std::int64_t kWave = h200::kMultiprocessors;  ///< blocks, one a multiprocessor

struct BackwardPlan {
  std::int64_t batch, dim, dstate, seqlen, groups, channels_per_group;
  std::int64_t blocks_per_group;  ///< of kBlockChannels channels
  std::int64_t segment;           ///< steps that a block does; whole tiles
  std::int64_t span;              ///< steps whose kept states are in the workspace together; whole segments
  bool in_turn;                   ///< a block goes back through all segments of a span, and not through one
  bool given_states;              ///< x is given: no states are kept
  bool sixteen_bits;              ///< elements of the (B, D, L) tensors

  SSMBENCH_HD constexpr int channels() const { return kBlockChannels; }
  /// The kernels do up to kPaddedStates states at a time, one round after the other.
  SSMBENCH_HD constexpr std::int64_t rounds() const { return ceil_div(dstate, kPaddedStates); }
  /// Blocks that one segment takes.
  SSMBENCH_HD constexpr std::int64_t blocks() const { return batch * groups * blocks_per_group; }
  SSMBENCH_HD constexpr std::int64_t rows() const { return blocks() * kBlockChannels; }
  /// Floats of a state of each channel of the grid: [block][r][thread][s].
  SSMBENCH_HD constexpr std::int64_t state_floats() const { return blocks() * kBlockStates; }
  SSMBENCH_HD constexpr std::int64_t segments() const { return ceil_div(seqlen, segment); }
  SSMBENCH_HD constexpr std::int64_t tiles() const { return segment / kTileSteps; }  // of a segment
  /// Steps of a segment before which states are kept, its first among them.
  SSMBENCH_HD constexpr std::int64_t kept() const { return segment / kKeptSteps; }
  SSMBENCH_HD constexpr std::int64_t span_segments() const { return span / segment; }
  SSMBENCH_HD constexpr std::int64_t spans() const { return ceil_div(seqlen, span); }
  /// Whether warps of a block have no channels in every block.
  SSMBENCH_HD constexpr bool idle_warps() const {
    return channels_per_group <= kBlockChannels - kWarpChannels;
  }
  /// Whether half of gradient_kernel's warps have channels at all, so that it may have blocks without the
  /// others, two on a multiprocessor. With tensors in f32 there is room for two only where states are given.
  SSMBENCH_HD constexpr bool small_blocks() const {
    return channels_per_group <= kSmallBlockWarps * kWarpChannels && rounds() == 1 &&
           (sixteen_bits || given_states);
  }
  /// Blocks of segment_kernel for a block's channels: none for a half of a block without any, since such
  /// blocks, every second one, would leave every second multiprocessor idle.
  SSMBENCH_HD constexpr int segment_blocks() const {
    return channels_per_group <= kBlockChannels / kSegmentBlocks ? 1 : kSegmentBlocks;
  }
  /// Blocks of gradient_kernel that run at once.
  SSMBENCH_HD constexpr std::int64_t wave() const { return small_blocks() ? 2 * kWave : kWave; }
  /// Segments that a block goes back through.
  SSMBENCH_HD constexpr std::int64_t run() const { return in_turn ? span_segments() : 1; }
  SSMBENCH_HD constexpr std::int64_t runs() const { return ceil_div(segments(), run()); }
};

/// Gradients of an element of the sequences that rounds add up in f32: du, ddelta, dz.
inline constexpr int kSummedGradients = 3;

/// Where the parts of the workspace begin, in floats. The first ones are there for each round.
struct BackwardWorkspace {
  std::int64_t states;       ///< [segment][state_floats]: at a segment's end from zero at its start; then the
                             ///< true ones at its start; then its share of dA
  std::int64_t carries;      ///< [run][state_floats]: the same for Ā·g, from its end to its start
  std::int64_t delta_sums;   ///< [segment][row]: ΣΔ
  std::int64_t dD;           ///< [run][row]
  std::int64_t ddelta_bias;  ///< [run][row]
  std::int64_t round_floats;  ///< of these; those of the rounds follow one another
  std::int64_t kept_states;   ///< [segment of the span][kept][state_floats]: from zero at its start
  std::int64_t kept_sums;     ///< [segment of the span][kept][row]: ΣΔ from there
  std::int64_t shares_B;      ///< [block][step of the span][kPaddedStates]
  std::int64_t shares_C;
  std::int64_t
      gradients;  ///< [block][tile of the span][…]: sums over the rounds before, if there are several
  std::int64_t floats;

  /// The workspace of a round.
  constexpr BackwardWorkspace of_round(std::int64_t round) const {
    BackwardWorkspace at = *this;
    for (std::int64_t* part : {&at.states, &at.carries, &at.delta_sums, &at.dD, &at.ddelta_bias})
      *part += round * round_floats;
    return at;
  }
};

inline BackwardWorkspace backward_workspace(const BackwardPlan& plan) {
  WorkspaceLayout layout;
  const std::int64_t kept = plan.given_states ? 0 : plan.span_segments() * plan.kept();
  BackwardWorkspace at{};
  at.states = layout.take_floats(plan.segments() * plan.state_floats());
  at.carries = layout.take_floats(plan.runs() * plan.state_floats());
  at.delta_sums = layout.take_floats(plan.segments() * plan.rows());
  at.dD = layout.take_floats(plan.runs() * plan.rows());
  at.ddelta_bias = layout.take_floats(plan.runs() * plan.rows());
  at.round_floats = layout.floats();
  layout.take_floats((plan.rounds() - 1) * at.round_floats);
  at.kept_states = layout.take_floats(kept * plan.state_floats());
  at.kept_sums = layout.take_floats(kept * plan.rows());
  at.shares_B = layout.take_floats(plan.blocks() * plan.span * kPaddedStates);
  at.shares_C = layout.take_floats(plan.blocks() * plan.span * kPaddedStates);
  at.gradients = layout.take_floats(plan.rounds() > 1 ? plan.rows() * plan.span * kSummedGradients : 0);
  at.floats = layout.floats();
  return at;
}

/// Whether blocks that go through all of the sequence keep nine tenths of the multiprocessors busy to the end
/// (tail effect).
constexpr bool fill_whole_waves(std::int64_t blocks) {
  return 10 * blocks >= 9 * kWave * ceil_div(blocks, kWave);
}

/// Time of all segments side by side, in half tiles of gradient_kernel: waves of its blocks, each as long as
/// its tiles and 1.5 more to begin and to end; and segment_kernel, of whose blocks a multiprocessor does four
/// in the time in which their tiles take as long as half a tile of the other.
constexpr std::int64_t segments_time(const BackwardPlan& plan) {
  const std::int64_t blocks = plan.blocks() * plan.segments();
  return ceil_div(blocks, plan.wave()) * (2 * plan.tiles() + 3) +
         ceil_div(plan.segment_blocks() * blocks, kWave) * (plan.tiles() + 2) / 4;
}

/// Whether the workspace is not too large: the whole of a sequence of up to 16384 steps has room.
inline bool has_room(const BackwardPlan& plan, double tensor_bytes) {
  constexpr std::int64_t kShortestLimited = 16384;
  constexpr double kWorkspaceShare = 0.24;
  constexpr double kSmallWorkspace = 128 << 20;
  const double bytes = static_cast<double>(backward_workspace(plan).floats) * sizeof(float);
  return plan.seqlen <= kShortestLimited ||
         bytes <= std::max(kWorkspaceShare * tensor_bytes, kSmallWorkspace);
}

/// Segments that are done in turn are as long as leaves segment_kernel blocks for a wave, five on each of 132
/// multiprocessors; side by side those of which gradient_kernel takes the least time. A sequence of up to
/// 16384 steps is one span; a longer one is cut into spans where the workspace would be over 128 MB and over
/// 24% of the bytes of all tensors, whose kept states are then computed once more. Spans have shorter
/// segments where these would leave multiprocessors idle, and longer ones where not even one segment has
/// room. `in_two_halves`: never in turn, so that segment_kernel leaves the carries too (ScanGradientHalves).
/// `given_states`: by x, so that no states are kept, and in turn no segment_kernel runs.
inline BackwardPlan plan_backward(const SelectiveScan& scan, double tensor_bytes, bool sixteen_bits,
                                  bool in_two_halves = false, bool given_states = false) {
  constexpr std::int64_t kLongestInTurn = 256;
  constexpr std::int64_t kShortestSegment = 64;
  constexpr std::int64_t kLongestSegment = 1024;
  BackwardPlan plan{};
  plan.batch = scan.batch;
  plan.dim = scan.dim;
  plan.dstate = scan.dstate;
  plan.seqlen = scan.seqlen;
  plan.groups = scan.groups;
  plan.channels_per_group = scan.channels_per_group();
  plan.blocks_per_group = ceil_div(plan.channels_per_group, kBlockChannels);
  plan.given_states = given_states;
  plan.sixteen_bits = sixteen_bits;
  plan.segment = kShortestSegment;
  plan.in_turn = !in_two_halves && (plan.segments() == 1 || fill_whole_waves(plan.blocks()));
  if (plan.in_turn) {
    while (plan.segment < kLongestInTurn &&
           plan.segment_blocks() * plan.blocks() * ceil_div(plan.seqlen, 2 * plan.segment) >= 5 * kWave)
      plan.segment *= 2;
  } else {
    BackwardPlan other = plan;
    while (other.segment < kLongestSegment && other.segments() > 1) {
      other.segment *= 2;
      if (segments_time(other) <= segments_time(plan)) plan.segment = other.segment;
    }
    plan.in_turn = !in_two_halves && plan.segments() == 1;
  }
  plan.span = plan.segments() * plan.segment;
  const auto too_large = [&] { return !has_room(plan, tensor_bytes); };
  while (plan.span > plan.segment && too_large())
    plan.span = ceil_div(plan.span / 2, plan.segment) * plan.segment;
  while (plan.spans() > 1 && !plan.in_turn && plan.segment > kShortestSegment &&
         2 * plan.blocks() * plan.span_segments() <= plan.wave()) {
    plan.segment /= 2;
    if (!too_large()) continue;
    plan.segment *= 2;
    break;
  }
  // With few channels the kept states of even one segment may be too large, beside what each segment has.
  while (plan.span == plan.segment && plan.segment < kLongestSegment && too_large())
    plan.span = plan.segment *= 2;
  return plan;
}

/// Whether the common case's kernels do it. Groups of fewer channels than a warp has leave most of a block
/// idle: the general kernels are better where there are many of them, and worse where multiprocessors would
/// be idle anyway. Rounds of states have no room where sequences are long and blocks have few channels. Of
/// few channels four rounds, one after the other, take longer than the general kernels with 64 states; three
/// rounds do not, nor do five, for which these take twice the time.
inline bool applies(const SelectiveScan& scan, double tensor_bytes) {
  if (scan.complex || scan.method != MethodId::zoh || !scan.variable_b || !scan.variable_c) return false;
  if (scan.channels_per_group() < kWarpChannels && scan.batch * scan.groups > kWave) return false;
  if (scan.dstate <= kPaddedStates) return true;
  const BackwardPlan plan =
      plan_backward(scan, tensor_bytes, true);  // of any dtype: small blocks have one round
  if (plan.rounds() == 4 && plan.idle_warps() && plan.blocks() * plan.segments() <= kWave) return false;
  return has_room(plan, tensor_bytes);
}

}  // namespace ssmbench::fused_bwd
