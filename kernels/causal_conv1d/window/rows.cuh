#pragma once

#include "kernels/causal_conv1d/window/elements.cuh"
#include "kernels/causal_conv1d/window/map.h"
#include "kernels/causal_conv1d/window/options.h"

// Where time is last: what a warp holds of a tile of a row, eight neighbouring steps a lane.

namespace ssmbench::window {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

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

/// A warp's row of (batch, channel) and segment of its steps.
template <class Io, class Choice>
struct RowSegment {
  const ConvInputs1d& in;
  Choice options;
  std::int64_t row, batch, channel, segment, begin, end;
  int lane;

  __device__ RowSegment(const ConvInputs1d& inputs, Choice chosen, const RowPlan& plan)
      : in(inputs), options(chosen), lane(static_cast<int>(threadIdx.x) % kWarpThreads) {
    // By a shuffle, so that the compiler sees that a warp has one number and its loops do not diverge.
    const int warp_of_block = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
    const std::int64_t warp = std::int64_t{blockIdx.x} * kRowWarps + warp_of_block;
    row = warp / plan.segments;
    segment = warp % plan.segments;
    batch = row / in.dim;
    channel = row % in.dim;
    begin = segment * plan.segment_steps;
    end = begin + plan.segment_steps < in.seqlen ? begin + plan.segment_steps : in.seqlen;
  }

  __device__ bool is_empty() const { return row >= in.batch * in.dim; }
  /// A lane's first step of the tile at t.
  __device__ std::int64_t own(std::int64_t t) const { return t + lane * kLaneSteps; }
  __device__ int valid(std::int64_t first) const { return valid_of(first, kLaneSteps, in.seqlen); }

  __device__ Packed<Io, kLaneSteps> load_x(std::int64_t t) const {
    return load_packed<Io, kLaneSteps>(
        options.by_vectors(), static_cast<const Io*>(in.x) + row * in.seqlen + own(t), 1, valid(own(t)));
  }
  /// x̃ of one step before the segment or at its end.
  __device__ float load_step(std::int64_t t) const {
    if (t >= 0) return to_float(static_cast<const Io*>(in.x)[row * in.seqlen + t]);
    const std::int64_t i = t + in.taps();
    const auto* states = static_cast<const Io*>(in.initial_states);
    return states != nullptr && i >= 0 ? to_float(states[row * in.taps() + i]) : 0.0F;
  }
  template <int kReach>
  __device__ void load_before(float (&to)[kReach - 1]) const {
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) to[i] = load_step(begin - (kReach - 1) + i);
  }

  __device__ int number(std::int64_t t) const {
    return options.number(in, batch, t);
  }
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
  __device__ void load_numbers(const Segment& segment, std::int64_t first) {
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
      s = filter.has(j) && reaches(i, j) ? fmaf(filter.weight[j][0], x[i + j], s) : s;
    return s;
  }
};

}  // namespace ssmbench::window
