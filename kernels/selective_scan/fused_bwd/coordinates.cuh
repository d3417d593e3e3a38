#pragma once

// The fast kernels of selective_scan_bwd: the coordinates of a thread, and the records in shared memory. The
// picture is in kernel.cuh.

#include "kernels/common/scalar_math.h"
#include "kernels/common/vector.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/block_channels.h"
#include "kernels/selective_scan/fused_bwd/map.h"
#include "kernels/selective_scan/states.cuh"
#include "ops/selective_scan/x.h"

namespace ssmbench::fused_bwd {

/// Up to kPaddedStates states of every channel, which are done together.
struct Round {
  int states;
  bool first, last;
};

/// The arguments of all kernels. Tensors of states begin with the round's first one, and dstate is how far
/// apart channels are there. What a step has but once, as D·u, belongs to the first round.
struct KernelArgs {
  ScanGradientArgs args;
  BackwardPlan plan;
  BackwardWorkspace at;  ///< of the round
  float* workspace;
  Round round;
};

inline constexpr float kLn2 = 0.693147181F;

using LaneStates = float[kLaneChannels][kLaneStates];

/// What is staged of a step of one channel.
struct alignas(8) StepInput {
  float delta, delta_u;
};
struct alignas(16) StepInputs : StepInput {
  float dy, u;
};
/// What takes its place once the step is done.
struct alignas(16) StepGradients {
  float du, ddelta, dz, unused;
};
union alignas(16) StepRecord {
  StepInputs in;
  StepGradients out;
};
/// The derivative of Δ by delta, and dz/y.
struct alignas(8) StepFactors {
  float slope, dz_by_y;
};

/// B and C of a step: in each of the four orders that lanes have their states in. The pad spreads the stores
/// of neighbouring steps over the banks.
inline constexpr int kOrders = 4;
inline constexpr int kProjectionPitch = kOrders * kPaddedStates + 4;

/// Index of a lane's states of B or C in a staged tile.
__device__ inline int projection_at(const LaneMap& lane, int step) {
  return step * kProjectionPitch + lane.order() * kPaddedStates + lane.first_state();
}

/// The coordinates of a thread: its warp's channels and segments, and its lane.
struct WarpCoordinates {
  LaneMap lane;
  int warp;                  ///< of those that share the block's channels
  std::int64_t block_index;  ///< among those of a segment
  BlockChannels block;
  int warp_count;             ///< channels of the warp that exist; may be negative
  std::int64_t segment;       ///< the block's first
  std::int64_t begin, end;    ///< steps of the block's segments
  std::int64_t row_of_block;  ///< among plan.rows()
  std::int64_t warp_row;      ///< index of the warp's first channel in the (B, D, L) tensors
  std::int64_t lane_at;       ///< index of its states among plan.state_floats()

  /// For warp `in_block` of block `block_of_all`, which does `segments` neighbouring segments, the first
  /// blocks those from first_segment on.
  __device__ WarpCoordinates(const ScanArgs& args, const BackwardPlan& plan, std::int64_t block_of_all,
                             int in_block, std::int64_t first_segment, std::int64_t segments)
      : lane{static_cast<int>(threadIdx.x & 31)},
        warp(in_block),
        block_index(block_of_all % plan.blocks()),
        block(block_channels(plan, block_index, args.groups, args.channels_per_group)),
        warp_count(block.count - warp * kWarpChannels),
        segment(first_segment + block_of_all / plan.blocks() * segments),
        begin(segment * plan.segment),
        end(min(begin + segments * plan.segment, args.seqlen)),
        row_of_block(block_index * kBlockChannels),
        warp_row(block.b * args.sequence.batch + (block.first + warp * kWarpChannels) * args.sequence.dim),
        lane_at(block_index * kBlockStates + (warp * 32 + lane.lane) * kLaneStates) {}

  __device__ std::int64_t tiles() const { return ceil_div(end - begin, kTileSteps); }
  /// Index of the warp's first channel among plan.rows().
  __device__ std::int64_t row() const { return row_of_block + warp * kWarpChannels; }
  __device__ bool exists(int r, int s, const Round& round) const {
    return lane.channel(r) < warp_count && lane.state(s) < round.states;
  }
  /// Steps of the tile that begins at `start`; at least one.
  __device__ int valid(std::int64_t start) const { return steps_within(start, kTileSteps, end); }
  /// Index in (D, N) tensors.
  __device__ std::int64_t state_at(int r, int s, std::int64_t dstate) const {
    return (block.first + warp * kWarpChannels + lane.channel(r)) * dstate + lane.state(s);
  }
};

/// A channel of the grid, by its index in the workspace.
struct StoredRow {
  std::int64_t index, d, b;
  bool exists;

  __device__ StoredRow(const BackwardPlan& plan, std::int64_t row) : index(row) {
    const BlockChannels block =
        block_channels(plan, row / kBlockChannels, plan.groups, plan.channels_per_group);
    const int channel = static_cast<int>(row % kBlockChannels);
    b = block.b;
    d = block.first + channel;
    exists = channel < block.count;
  }
};

/// A state of the grid, by its index in the workspace.
struct StoredState {
  std::int64_t index, row, in_channels, in_batches;
  bool exists;

  __device__ StoredState(const KernelArgs& kernel, std::int64_t i) : index(i) {
    const ScanArgs& args = kernel.args.scan;
    const int of_block = static_cast<int>(i % kBlockStates);
    const int s = of_block % kLaneStates;
    const int thread = of_block / kLaneStates % kConsumerThreads;
    const int r = of_block / (kLaneStates * kConsumerThreads);
    const LaneMap lane{thread & 31};
    const StoredRow at(kernel.plan,
                       i / kBlockStates * kBlockChannels + (thread >> 5) * kWarpChannels + lane.channel(r));
    row = at.index;
    exists = at.exists && lane.state(s) < kernel.round.states;
    in_channels = at.d * args.dstate + lane.state(s);
    in_batches = at.b * args.dim * args.dstate + in_channels;
  }
};

/// delta_bias and D of `channels` of the block's channels, from `first` on; zeros where there are none. A
/// barrier has to follow.
__device__ inline void load_channels(float* bias, float* D, int first, int channels, const ScanArgs& args,
                                     const WarpCoordinates& own) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= channels) return;
  const bool exists = first + thread < own.block.count;
  const std::int64_t d = own.block.first + first + thread;
  bias[thread] = exists && args.delta_bias != nullptr ? args.delta_bias[d] : 0.0F;
  D[thread] = exists && args.D != nullptr ? args.D[d] : 0.0F;
}

/// Stores one sum of each channel of the warp, which all lanes that share the channel have.
__device__ inline void store_row_sums(float* rows, const float (&sums)[kLaneChannels],
                                      const WarpCoordinates& own) {
  if ((own.lane.lane & 2) != 0) return;
  rows[own.row() + own.lane.channel(0)] = sums[0];
}

/// A thread's states in the workspace.
__device__ inline void load_lane(LaneStates& to, const float* from) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) load_vectors(to[r], from + r * kConsumerThreads * kLaneStates);
}
__device__ inline void store_lane(float* to, const LaneStates& from) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) store_vectors(to + r * kConsumerThreads * kLaneStates, from[r]);
}

/// A·log2(e) of a thread's states; zero where there is none.
__device__ inline void load_exponents(LaneStates& to, const KernelArgs& kernel, const WarpCoordinates& own) {
  const ScanArgs& args = kernel.args.scan;
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s)
      to[r][s] = own.exists(r, s, kernel.round) ? kLog2E * args.A[own.state_at(r, s, args.dstate)] : 0.0F;
}

}  // namespace ssmbench::fused_bwd
