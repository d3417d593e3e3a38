#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"
#include "kernels/selective_scan/block_channels.h"
#include "kernels/selective_scan/segment_range.h"
#include "kernels/selective_scan/segments.h"

// Which thread of cuda-fused's general kernel does what, and where its tiles lie. Host and device, so that
// the CPU tests cover it.

namespace ssmbench::fused_general {

inline constexpr int kThreadStates = 4;         ///< of a thread
inline constexpr int kThreadComplexStates = 2;  ///< of a thread of the forward kernels where they are complex
inline constexpr int kGeneralMaxThreads = 128;
/// Blocks of the forward kernels on a multiprocessor, with real and with complex states.
inline constexpr int kResidentBlocks = 6;
inline constexpr int kResidentComplexBlocks = 4;
inline constexpr int kShortestTile = 8;
inline constexpr int kWarpLanesLog2 = 5;

/// Where the steps of sequences begin and end: in a batch each, or those that are packed into one.
struct SequenceBorders {
  const std::int32_t* cu_seqlens;  ///< (M + 1,) in the device's memory, or null

  SSMBENCH_HD SegmentRange at(std::int64_t sequence, std::int64_t seqlen) const {
    if (cu_seqlens == nullptr) return {0, seqlen};
    return {cu_seqlens[sequence], cu_seqlens[sequence + 1]};
  }
};

/// How a problem is cut up. The powers of two are kept as logarithms: index maps are then shifts.
struct GeneralPlan {
  int lanes_log2;     ///< threads that share a channel: 1 to 128, four warps then
  int channels_log2;  ///< channels of a block; lanes × channels is 32, 64 or 128
  int steps_log2;     ///< time steps of a tile: 8 to 64
  int value_floats;   ///< floats of a state: 1, or 2 when complex
  int thread_states;  ///< a power of two
  std::int64_t blocks_per_group;
  TimeSegments segments;  ///< how time is cut; segments are whole tiles

  SSMBENCH_HD constexpr int lanes() const { return 1 << lanes_log2; }
  SSMBENCH_HD constexpr int channels() const { return 1 << channels_log2; }
  SSMBENCH_HD constexpr int steps() const { return 1 << steps_log2; }
  SSMBENCH_HD constexpr int threads() const { return lanes() * channels(); }
  SSMBENCH_HD constexpr int states_log2() const { return lanes_log2 + thread_states / 2; }  // 2: 1, 4: 2
  SSMBENCH_HD constexpr int states() const { return 1 << states_log2(); }  // dstate rounded up

  // Thread → channel of the block and first state. Lanes of a channel are neighbours. They add their sums
  // within a warp; y is the sum of these partial sums, four at most.
  SSMBENCH_HD constexpr int channel_of(int thread) const { return thread >> lanes_log2; }
  SSMBENCH_HD constexpr int lane_of(int thread) const { return thread & (lanes() - 1); }
  SSMBENCH_HD constexpr int first_state_of(int thread) const { return lane_of(thread) * thread_states; }
  SSMBENCH_HD constexpr int lanes_in_warp() const {
    return lanes_log2 < kWarpLanesLog2 ? lanes() : 1 << kWarpLanesLog2;
  }
  SSMBENCH_HD constexpr int partials() const {
    return lanes_log2 < kWarpLanesLog2 ? 1 : 1 << (lanes_log2 - kWarpLanesLog2);
  }
  SSMBENCH_HD constexpr int partial_of(int thread) const { return lane_of(thread) >> kWarpLanesLog2; }

  /// Steps of a segment of a sequence: whole tiles but for its last one, none in some segments of short
  /// sequences.
  SSMBENCH_HD constexpr SegmentRange steps_of(int segment, const SegmentRange& sequence) const {
    const std::int64_t all = sequence.end - sequence.begin;
    const std::int64_t each = ceil_div(ceil_div(all, segments.count), steps()) * steps();
    const std::int64_t begin = segment * each < all ? segment * each : all;
    return {sequence.begin + begin, sequence.begin + (begin + each < all ? begin + each : all)};
  }

  // Shared memory: B and C as [step][state], in values, or as [thread][state] where they are constant; then
  // u, Δ and the partial sums of y as [channel][step], in floats. The pads spread the stores over the banks;
  // 4 floats keep a thread's states aligned to 16 bytes.
  SSMBENCH_HD constexpr int projection_pitch() const { return states() + 4 / value_floats; }
  SSMBENCH_HD constexpr int sequence_pitch() const { return steps() + 1; }
  SSMBENCH_HD constexpr int projection_values() const { return steps() * projection_pitch(); }
  /// Values of B, or of C: of a tile's steps or, where it is constant, the own ones of each thread.
  SSMBENCH_HD constexpr int operand_values() const {
    const int constant = threads() * thread_states;
    return projection_values() > constant ? projection_values() : constant;
  }
  SSMBENCH_HD constexpr int sequence_floats() const { return channels() * sequence_pitch(); }
  SSMBENCH_HD constexpr int shared_bytes() const {
    return (2 * operand_values() * value_floats + (2 + partials()) * sequence_floats()) *
           static_cast<int>(sizeof(float));
  }
};

/// Longer tiles have fewer barriers and longer runs in memory: the longest is taken with which as many blocks
/// are resident as registers allow.
constexpr GeneralPlan plan_general(std::int64_t channels_per_group, std::int64_t dstate, bool complex,
                                   int thread_states = kThreadStates) {
  constexpr int kMaxThreadsLog2 = 7;
  static_assert(kGeneralMaxThreads == 1 << kMaxThreadsLog2);
  GeneralPlan plan{};
  plan.thread_states = thread_states;
  plan.lanes_log2 = ceil_log2(static_cast<std::uint64_t>(ceil_div(dstate, thread_states)));
  // A group with few channels gets small blocks, but whole warps, since its lanes exchange sums by shuffles.
  const std::int64_t useful = std::min<std::int64_t>(channels_per_group, kGeneralMaxThreads);
  plan.channels_log2 =
      std::clamp(ceil_log2(static_cast<std::uint64_t>(useful)), std::max(kWarpLanesLog2 - plan.lanes_log2, 0),
                 kMaxThreadsLog2 - plan.lanes_log2);
  plan.value_floats = complex ? 2 : 1;
  const int resident = complex ? kResidentComplexBlocks : kResidentBlocks;
  const int most = std::min(kDefaultSharedBytes, h200::shared_bytes_of_each(resident));
  plan.steps_log2 = 6;
  while (plan.shared_bytes() > most && plan.steps() > kShortestTile) --plan.steps_log2;
  plan.blocks_per_group = ceil_div(channels_per_group, plan.channels());
  return plan;
}

/// The plan with time cut where `groups` groups of all batches have too few channels. Costs are those of a
/// block of 128 threads; smaller ones take as long.
constexpr GeneralPlan with_segments(GeneralPlan plan, std::int64_t groups, std::int64_t seqlen,
                                    bool cuts_time = true) {
  const SegmentCosts costs = plan.value_floats == 1 ? SegmentCosts{200, 150, 6} : SegmentCosts{400, 230, 4};
  plan.segments = {seqlen, 1};
  if (cuts_time) plan.segments = cut_time(groups * plan.blocks_per_group, seqlen, plan.steps(), costs);
  return plan;
}

}  // namespace ssmbench::fused_general
