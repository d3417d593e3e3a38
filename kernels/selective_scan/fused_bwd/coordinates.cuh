#pragma once

// The common case of cuda-fused for selective_scan_bwd: where a thread is, and where what it has lies. The
// picture is in fused_bwd_parallel.cu.

#include "kernels/selective_scan/fused_bwd/map.h"
#include "kernels/selective_scan/fused_bwd_general/stage.cuh"

namespace ssmbench {

/// Everything that kernels know of a problem.
struct ParallelProblem {
  ScanGradientArgs args;
  FusedBackwardParallelPlan plan;
  FusedBackwardParallelWorkspace at;
  float* workspace;
};

namespace parallel_bwd {

using fused_bwd::load_states;
using fused_bwd::store_states;

inline constexpr float kLn2 = 0.693147181F;

using LaneStates = float[kLaneChannels][kLaneStates];

/// B and C of a step: in each of the four orders that lanes have their states in. The pad spreads the stores
/// of neighbouring steps over the banks.
inline constexpr int kOrders = 4;
inline constexpr int kProjectionPitch = kOrders * kParallelStates + 4;

/// Where a thread is.
struct ParallelPlace {
  ParallelLane lane;
  int warp;                  ///< whose channels it has, of the block's
  std::int64_t block_index;  ///< among those of a segment
  BlockChannels block;
  int warp_count;             ///< channels of the warp that exist; may be negative
  std::int64_t segment;       ///< the block's first
  std::int64_t begin, end;    ///< steps of the block's segments
  std::int64_t row_of_block;  ///< among plan.rows()
  std::int64_t warp_row;      ///< of the warp's first channel in the (B, D, L) tensors
  std::int64_t lane_at;       ///< its states among plan.state_floats()

  /// Of the channels of `in_block`, one of the warps that have a block's. Block `block_of_all` does
  /// `segments` neighbouring segments, the first blocks those from first_segment on.
  __device__ ParallelPlace(const ScanArgs& args, const FusedBackwardParallelPlan& plan,
                           std::int64_t block_of_all, int in_block, std::int64_t first_segment,
                           std::int64_t segments)
      : lane{static_cast<int>(threadIdx.x & 31)},
        warp(in_block),
        block_index(block_of_all % plan.blocks()),
        block(block_channels(plan, block_index, args.groups, args.channels_per_group)),
        warp_count(block.count - warp * kWarpChannels),
        segment(first_segment + block_of_all / plan.blocks() * segments),
        begin(segment * plan.segment),
        end(min(begin + segments * plan.segment, args.seqlen)),
        row_of_block(block_index * kParallelChannels),
        warp_row(block.b * args.sequence.batch + (block.first + warp * kWarpChannels) * args.sequence.dim),
        lane_at(block_index * kBlockStates + (warp * 32 + lane.lane) * kLaneStates) {}

  __device__ std::int64_t tiles() const { return ceil_div(end - begin, kParallelSteps); }
  /// Of the warp's first channel among plan.rows().
  __device__ std::int64_t row() const { return row_of_block + warp * kWarpChannels; }
  /// Where the lane's states of B or C are in a staged tile.
  __device__ int projection_at(int step) const {
    return step * kProjectionPitch + lane.order() * kParallelStates + lane.first_state();
  }
  __device__ bool exists(int r, int s, std::int64_t dstate) const {
    return lane.channel(r) < warp_count && lane.state(s) < dstate;
  }
  /// Steps of the tile that begins at `start`; at least one.
  __device__ int valid(std::int64_t start) const { return steps_within(start, kParallelSteps, end); }
  /// In (D, N).
  __device__ std::int64_t state_at(int r, int s, std::int64_t dstate) const {
    return (block.first + warp * kWarpChannels + lane.channel(r)) * dstate + lane.state(s);
  }
};

/// A channel of the grid, by its place in the workspace.
struct StoredRow {
  std::int64_t index, d, b;
  bool exists;

  __device__ StoredRow(const FusedBackwardParallelPlan& plan, std::int64_t row) : index(row) {
    const BlockChannels block =
        block_channels(plan, row / kParallelChannels, plan.groups, plan.channels_per_group);
    const int channel = static_cast<int>(row % kParallelChannels);
    b = block.b;
    d = block.first + channel;
    exists = channel < block.count;
  }
};

/// A state of the grid, by its place in the workspace.
struct StoredState {
  std::int64_t index, row, in_channels, in_batches;
  bool exists;

  __device__ StoredState(const ScanArgs& args, const FusedBackwardParallelPlan& plan, std::int64_t i)
      : index(i) {
    const int of_block = static_cast<int>(i % kBlockStates);
    const int s = of_block % kLaneStates;
    const int thread = of_block / kLaneStates % kStateThreads;
    const int r = of_block / (kLaneStates * kStateThreads);
    const ParallelLane lane{thread & 31};
    const StoredRow at(
        plan, i / kBlockStates * kParallelChannels + (thread >> 5) * kWarpChannels + lane.channel(r));
    row = at.index;
    exists = at.exists && lane.state(s) < args.dstate;
    in_channels = at.d * args.dstate + lane.state(s);
    in_batches = at.b * args.dim * args.dstate + in_channels;
  }
};

/// delta_bias and D of `channels` of the block's channels, from `first` on; zeros where there are none. A
/// barrier has to follow.
__device__ inline void load_channels(float* bias, float* D, int first, int channels, const ScanArgs& args,
                                     const ParallelPlace& place) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= channels) return;
  const bool exists = first + thread < place.block.count;
  const std::int64_t d = place.block.first + first + thread;
  bias[thread] = exists && args.delta_bias != nullptr ? args.delta_bias[d] : 0.0F;
  D[thread] = exists && args.D != nullptr ? args.D[d] : 0.0F;
}

/// Of each channel of the warp one sum, which all lanes that share the channel have.
__device__ inline void store_row_sums(float* rows, const float (&sums)[kLaneChannels],
                                      const ParallelPlace& place) {
  if ((place.lane.lane & 2) != 0) return;
  rows[place.row() + place.lane.channel(0)] = sums[0];
}

/// A thread's states in the workspace.
__device__ inline void load_lane(LaneStates& to, const float* from) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) load_states(to[r], from + r * kStateThreads * kLaneStates);
}
__device__ inline void store_lane(float* to, const LaneStates& from) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) store_states(to + r * kStateThreads * kLaneStates, from[r]);
}

/// A·log2(e) of a thread's states; zero where there is none.
__device__ inline void load_exponents(LaneStates& to, const ScanArgs& args, const ParallelPlace& place) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s)
      to[r][s] = place.exists(r, s, args.dstate) ? kLog2E * args.A[place.state_at(r, s, args.dstate)] : 0.0F;
}

}  // namespace parallel_bwd
}  // namespace ssmbench
