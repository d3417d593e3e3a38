#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// Which thread of cuda-sequential does what, and where its tiles lie. Host and device, so that the CPU tests
// cover it.

namespace ssmbench {

inline constexpr int kStatesPerThreadLog2 = 3;
inline constexpr int kStatesPerThread = 1 << kStatesPerThreadLog2;  // 32 lanes hold the largest dstate, 256
inline constexpr int kSequentialMaxThreads = 128;
/// What a block may use on every GPU without opting in to more.
inline constexpr int kSequentialMaxSharedBytes = 48 * 1024;

/// How cuda-sequential cuts a problem up. The powers of two are kept as logarithms: index maps are then
/// shifts.
struct SequentialPlan {
  int lanes_log2;     ///< threads that share a channel: 1 to 32
  int channels_log2;  ///< channels of a block; lanes × channels is 32, 64 or 128
  int steps_log2;     ///< time steps of a tile: 16 or 32
  std::int64_t blocks_per_group;

  SSMBENCH_HD constexpr int lanes() const { return 1 << lanes_log2; }
  SSMBENCH_HD constexpr int channels() const { return 1 << channels_log2; }
  SSMBENCH_HD constexpr int steps() const { return 1 << steps_log2; }
  SSMBENCH_HD constexpr int threads() const { return lanes() * channels(); }
  SSMBENCH_HD constexpr int states() const { return 1 << states_log2(); }  // dstate rounded up
  SSMBENCH_HD constexpr int states_log2() const { return lanes_log2 + kStatesPerThreadLog2; }

  // Thread → channel of the block and first state. Lanes of a channel are neighbours in one warp.
  SSMBENCH_HD constexpr int channel_of(int thread) const { return thread >> lanes_log2; }
  SSMBENCH_HD constexpr int lane_of(int thread) const { return thread & (lanes() - 1); }
  SSMBENCH_HD constexpr int first_state_of(int thread) const { return lane_of(thread) * kStatesPerThread; }

  SSMBENCH_HD static constexpr int parts() { return 1; }  // lanes of one warp make all of y

  // Shared memory, in floats: B and C as [step][state], then u, Δ and y as [channel][step]. The pads spread
  // the stores over the banks; 4 keeps a thread's states aligned to 16 bytes.
  SSMBENCH_HD constexpr int projection_pitch() const { return states() + 4; }
  SSMBENCH_HD constexpr int sequence_pitch() const { return steps() + 1; }
  SSMBENCH_HD constexpr int projection_values() const { return steps() * projection_pitch(); }
  SSMBENCH_HD constexpr int sequence_floats() const { return channels() * sequence_pitch(); }
  SSMBENCH_HD constexpr int shared_bytes() const {
    return (2 * projection_values() + 3 * sequence_floats()) * static_cast<int>(sizeof(float));
  }
};

/// log2 of the next power of two, for n ≥ 1.
constexpr int ceil_log2(std::uint64_t n) {
  return std::countr_zero(std::bit_ceil(n));
}

/// Longer tiles have fewer barriers and longer runs in memory; the shorter is taken where the longer does not
/// fit.
constexpr SequentialPlan plan_sequential(std::int64_t channels_per_group, std::int64_t dstate) {
  constexpr int kWarpLog2 = 5;
  constexpr int kMaxThreadsLog2 = 7;
  static_assert(kSequentialMaxThreads == 1 << kMaxThreadsLog2);
  SequentialPlan plan{};
  plan.lanes_log2 = ceil_log2(static_cast<std::uint64_t>(ceil_div(dstate, kStatesPerThread)));
  // A group with few channels gets small blocks, but whole warps, since its lanes exchange sums by shuffles.
  const std::int64_t useful = std::min<std::int64_t>(channels_per_group, kSequentialMaxThreads);
  plan.channels_log2 = std::clamp(ceil_log2(static_cast<std::uint64_t>(useful)), kWarpLog2 - plan.lanes_log2,
                                  kMaxThreadsLog2 - plan.lanes_log2);
  plan.steps_log2 = 5;
  if (plan.shared_bytes() > kSequentialMaxSharedBytes) plan.steps_log2 = 4;
  plan.blocks_per_group = ceil_div(channels_per_group, plan.channels());
  return plan;
}

/// The channels of a block: `count` ≥ 1 of them from `first` on, in batch b and group g.
struct BlockChannels {
  std::int64_t b, g, first;
  int count;
};

/// Block → channels, by any plan with blocks_per_group and channels(). Blocks of one group are neighbours, so
/// that its B and C come from the cache.
template <class Plan>
SSMBENCH_HD constexpr BlockChannels block_channels(const Plan& plan, std::int64_t block, std::int64_t groups,
                                                   std::int64_t channels_per_group) {
  const std::int64_t group = block / plan.blocks_per_group;  // over all batches
  const std::int64_t b = group / groups;
  const std::int64_t g = group % groups;
  const std::int64_t start = block % plan.blocks_per_group * plan.channels();
  return {b, g, g * channels_per_group + start, steps_within(start, plan.channels(), channels_per_group)};
}

}  // namespace ssmbench
