#pragma once

#include "kernels/causal_conv1d/window/elements.cuh"
#include "kernels/causal_conv1d/window/map.h"
#include "kernels/causal_conv1d/window/options.h"

// Where time is last: what a warp holds of a tile of a row, eight neighbouring steps a lane.

namespace ssmbench::window {

/// The kReach − 1 steps before a lane's own, from the lane before; those of lane 0 from `before`, the last of
/// the tile before, which lane 31 holds.
template <int kReach, class T>
__device__ void from_lane_before(const T (&own)[kLaneSteps], const T (&before)[kReach - 1], int lane,
                                 T (&to)[kReach - 1]) {
  const int source = (lane + kWarpThreads - 1) % kWarpThreads;
#pragma unroll
  for (int i = 0; i < kReach - 1; ++i) {
    const T give = lane == kWarpThreads - 1 ? before[i] : own[kLaneSteps - (kReach - 1) + i];
    to[i] = __shfl_sync(kAllLanes, give, source);
  }
}

/// The kReach − 1 steps after a lane's own; those of lane 31 from `after`, the first of the tile after, which
/// lane 0 holds.
template <int kReach, class T>
__device__ void from_lane_after(const T (&own)[kLaneSteps], const T (&after)[kReach - 1], int lane,
                                T (&to)[kReach - 1]) {
  const int source = (lane + 1) % kWarpThreads;
#pragma unroll
  for (int i = 0; i < kReach - 1; ++i) {
    const T give = lane == 0 ? after[i] : own[i];
    to[i] = __shfl_sync(kAllLanes, give, source);
  }
}

/// A warp's row of (batch, channel) and segment of its steps. Segments, and so the steps of a lane, start
/// where memory is aligned to 16 bytes; the first one of a row at its first step or up to a vector before.
/// Steps are counted from there, in 32 bits.
template <class Io, class Choice>
struct RowSegment {
  const ConvInputs1d& in;
  std::int64_t row, batch, channel, segment;
  std::int64_t first;  ///< step 0 of the segment
  int begin, end;      ///< of the steps that are there
  int left;            ///< end of the row, or of a lane's steps behind the segment
  int lane;

  __device__ RowSegment(const ConvInputs1d& inputs, const RowPlan& plan)
      : in(inputs), lane(static_cast<int>(threadIdx.x) % kWarpThreads) {
    // By a shuffle, so that the compiler sees that a warp has one number and its loops do not diverge.
    const int warp_of_block = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
    const std::int64_t warp = std::int64_t{blockIdx.x} * kRowWarps + warp_of_block;
    row = warp / plan.segments;
    segment = warp % plan.segments;
    batch = row / in.dim;
    channel = row % in.dim;
    const int before = static_cast<int>(row * in.seqlen % kVectorOf<Io>);
    first = segment * plan.segment_steps - before;
    begin = segment == 0 ? before : 0;
    end = valid_of(first, plan.segment_steps, in.seqlen);
    left = valid_of(first, plan.segment_steps + kLaneSteps, in.seqlen);
  }

  __device__ bool is_empty() const { return begin >= end; }
  __device__ bool is_first() const { return segment == 0; }
  __device__ bool is_last() const { return first + end == in.seqlen; }
  /// Of step 0.
  __device__ std::int64_t offset() const { return row * in.seqlen + first; }
  /// A lane's first step of the tile at t.
  __device__ int own(int t) const { return t + lane * kLaneSteps; }
  /// Whether all of a lane's steps are there, or some.
  __device__ bool is_whole(int own) const { return own >= begin && own + kLaneSteps <= end; }
  __device__ bool is_there(int step) const { return step >= begin && step < end; }

  /// x̃ of one step before the segment or at its end.
  __device__ float load_step(int t) const {
    if (first + t >= 0) return to_float(static_cast<const Io*>(in.x)[offset() + t]);
    const int i = t - begin + in.taps();  // the segment is the first
    const auto* states = static_cast<const Io*>(in.initial_states);
    return states != nullptr && i >= 0 ? to_float(states[row * in.taps() + i]) : 0.0F;
  }
  __device__ int number(int t) const { return Choice::number(in, batch, first + t); }
};

/// A lane's steps with those before, the oldest first, and their sequences' numbers.
template <int kReach, class Choice>
struct LaneSteps {
  float x[kReach - 1 + kLaneSteps];
  int number[Choice::kHasNumbers ? kReach - 1 + kLaneSteps : 1];

  __device__ void set_x(const float (&before)[kReach - 1], const float (&own)[kLaneSteps]) {
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) x[i] = before[i];
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) x[kReach - 1 + i] = own[i];
  }
  /// For the lane whose first step is `first`.
  template <class Segment>
  __device__ void load_numbers(const Segment& segment, int first) {
    if constexpr (Choice::kHasNumbers) {
#pragma unroll
      for (int i = 0; i < kReach - 1 + kLaneSteps; ++i) number[i] = segment.number(first - (kReach - 1) + i);
    }
  }

  /// Whether step i of the lane reaches the one of tap j.
  __device__ bool reaches(int i, int j) const {
    if constexpr (Choice::kHasNumbers) return number[i + j] == number[i + kReach - 1];
    return true;
  }
  __device__ bool is_padding(int i) const {
    if constexpr (Choice::kHasNumbers) return number[i + kReach - 1] < 0;
    return false;
  }
  /// The newest tap first, which every filter has.
  __device__ float convolve(const Filter<kReach, 1>& filter, int i) const {
    float s = filter.bias[0];
#pragma unroll
    for (int j = kReach - 1; j >= 0; --j)
      s = Choice::has(filter, j) && reaches(i, j) ? fmaf(filter.weight[j][0], x[i + j], s) : s;
    return s;
  }
};

}  // namespace ssmbench::window
