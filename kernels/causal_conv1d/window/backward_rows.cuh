#pragma once

// cuda-window, gradients, time last: bound by reading x and dout and writing dx once.
//
// A warp takes a segment of a row as forward_rows.cuh has it, its tiles from the last to the first, since dx of
// a step takes g of the W−1 steps after it: a lane's come from the lane after by shuffles, those of lane 31
// from lane 0 of the tile after, which has been done before. x̃ before a lane's own comes from the lane before,
// of the tile that comes next (the one before in time): tiles are loaded two ahead. Of the tile after the
// segment only lane 0's steps are loaded, for their g alone.
//
// A lane's sums of g·x̃ are added up over the warp by shuffles, one partial sum per segment; sum_partials adds
// them in their order.

#include "kernels/causal_conv1d/window/backward_channels.cuh"
#include "kernels/causal_conv1d/window/rows.cuh"

namespace ssmbench::window {

/// x and dout of a lane's steps of a tile.
template <class Io>
struct TilePair {
  Packed<Io, kLaneSteps> x, dout;
};

template <class Io, int kReach, bool kVector, bool kPacked, bool kSilu>
struct RowGradients {
  const ConvBackwardArgs& args;
  DoutStrides strides;
  RowSegment<Io, kVector> segment;
  Filter<kReach, 1> filter;
  float before_segment[kReach - 1];
  float after[kReach - 1] = {};  ///< lane 0's first g of the tile after
  FilterSums<kReach, 1> sums{};

  __device__ RowGradients(const ConvBackwardArgs& all, const DoutStrides& dout, const RowPlan& plan)
      : args(all), strides(dout), segment(all.in, plan) {}

  /// Steps before the segment are not loaded, and of those after it only lane 0's.
  __device__ TilePair<Io> load(std::int64_t t) const {
    const std::int64_t own = segment.own(t);
    const bool is_needed = t >= segment.begin && (t < segment.end || segment.lane == 0);
    const int valid = is_needed ? segment.valid(own) : 0;
    const auto* x = static_cast<const Io*>(args.in.x) + segment.row * args.in.seqlen + own;
    const auto* dout = static_cast<const Io*>(args.dout) + segment.batch * strides.batch +
                       segment.channel * strides.channel + own * strides.step;
    return {load_packed<Io, kLaneSteps, kVector>(x, 1, valid),
            load_packed<Io, kLaneSteps, kVector>(dout, strides.step, valid)};
  }

  /// g of the lane's steps; `x_before` of the tile before in time.
  __device__ LaneSteps<kReach, kPacked> adjoints(std::int64_t t, const TilePair<Io>& tile,
                                                 const Packed<Io, kLaneSteps>& x_before,
                                                 float (&g)[kLaneSteps]) const {
    float own[kLaneSteps], of_tile_before[kLaneSteps], before[kReach - 1], steps_before[kReach - 1];
    unpack(tile.x, own);
    unpack(x_before, of_tile_before);
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i)
      before[i] = t == segment.begin ? before_segment[i] : of_tile_before[kLaneSteps - (kReach - 1) + i];
    from_lane_before<kReach>(own, before, segment.lane, steps_before);
    LaneSteps<kReach, kPacked> steps;
    steps.set_x(steps_before, own);
    steps.load_numbers(segment, segment.own(t));
    unpack(tile.dout, g);
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      if constexpr (kSilu) g[i] *= fast_silu_slope(steps.convolve(filter, i)).slope;
      if (steps.is_padding(i)) g[i] = 0.0F;
    }
    return steps;
  }

  __device__ void add(const LaneSteps<kReach, kPacked>& steps, const float (&g)[kLaneSteps]) {
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      sums.bias[0] += g[i];
#pragma unroll
      for (int j = 0; j < kReach; ++j)
        sums.weight[j][0] =
            steps.reaches(i, j) ? fmaf(g[i], steps.x[i + j], sums.weight[j][0]) : sums.weight[j][0];
    }
  }

  __device__ float dfinal(std::int64_t t) const {
    const std::int64_t i = t - (args.in.seqlen - args.in.taps());
    if (args.dfinal_states == nullptr || i < 0 || t >= args.in.seqlen) return 0.0F;
    return to_float(static_cast<const Io*>(args.dfinal_states)[segment.row * args.in.taps() + i]);
  }

  /// dx of the lane's steps.
  __device__ void store(std::int64_t t, const float (&g)[kLaneSteps]) const {
    float g_after[kReach - 1];
    from_lane_after<kReach>(g, after, segment.lane, g_after);
    const std::int64_t own = segment.own(t);
    int numbers[kPacked ? kLaneSteps + kReach - 1 : 1];
    if constexpr (kPacked) {
#pragma unroll
      for (int i = 0; i < kLaneSteps + kReach - 1; ++i) numbers[i] = segment.number(own + i);
    }
    float dx[kLaneSteps];
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      dx[i] = 0.0F;
#pragma unroll
      for (int j = 0; j < kReach; ++j) {
        const int later = i + kReach - 1 - j;
        const float value = later < kLaneSteps ? g[later] : g_after[later - kLaneSteps];
        const bool counts = filter.has(j) && (!kPacked || numbers[later] == numbers[i]);
        dx[i] = counts ? fmaf(filter.weight[j][0], value, dx[i]) : dx[i];
      }
    }
    if (args.dfinal_states != nullptr && own + kLaneSteps > args.in.seqlen - args.in.taps()) {
#pragma unroll
      for (int i = 0; i < kLaneSteps; ++i) dx[i] += dfinal(own + i);
    }
    store_floats<Io, kLaneSteps, kVector>(static_cast<Io*>(args.dx) + segment.row * args.in.seqlen + own, 1,
                                          segment.valid(own), dx);
  }

  /// By the lane that has the first steps, whose g are in `after` when all tiles are done.
  __device__ void store_dinitial() const {
    if (args.dinitial_states == nullptr || segment.begin > 0 || segment.lane != 0) return;
    const int taps = args.in.taps();
#pragma unroll
    for (int k = 0; k < kReach - 1; ++k) {  // step k − (kReach − 1)
      if (!filter.has(k)) continue;
      const std::int64_t t = k - (kReach - 1);
      float dx = dfinal(t);
#pragma unroll
      for (int j = 0; j <= k; ++j)
        if (filter.has(j)) dx = fmaf(filter.weight[j][0], after[k - j], dx);
      static_cast<Io*>(args.dinitial_states)[segment.row * taps + t + taps] = from_float<Io>(dx);
    }
  }

  __device__ void walk() {
    filter = load_filter<Io, kReach, 1, false>(args.in.weights, segment.channel, args.in.width, 1);
    segment.template load_before<kReach>(before_segment);
    const std::int64_t tiles = (segment.end - segment.begin + kTileSteps - 1) / kTileSteps;
    std::int64_t t = segment.begin + tiles * kTileSteps;
    TilePair<Io> tile = load(t);
    TilePair<Io> next = load(t - kTileSteps);
    TilePair<Io> ahead = load(t - 2 * kTileSteps);
    float g[kLaneSteps];
    if (t < args.in.seqlen) {
      adjoints(t, tile, next.x, g);
#pragma unroll
      for (int i = 0; i < kReach - 1; ++i) after[i] = g[i];
    }
    for (t -= kTileSteps; t >= segment.begin; t -= kTileSteps) {
      tile = next;
      next = ahead;
      ahead = load(t - 2 * kTileSteps);
      const auto steps = adjoints(t, tile, next.x, g);
      add(steps, g);
      store(t, g);
#pragma unroll
      for (int i = 0; i < kReach - 1; ++i) after[i] = g[i];
    }
    store_dinitial();
  }

  __device__ void reduce(std::int64_t segments, float* partials) {
    const std::int64_t partial = segment.batch * segments + segment.segment;
#pragma unroll
    for (int term = 0; term <= kReach; ++term) {
      float sum = term < kReach ? sums.weight[term < kReach ? term : 0][0] : sums.bias[0];
#pragma unroll
      for (int distance = kWarpThreads / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
      if (segment.lane == 0) *partial_of<kReach>(partials, partial, term, segment.channel, args.in.dim) = sum;
    }
  }
};

template <class Io, int kReach, bool kVector, bool kPacked, bool kSilu>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads)
    backward_rows(const ConvBackwardArgs args, const DoutStrides strides, const RowPlan plan,
                  float* partials) {
  RowGradients<Io, kReach, kVector, kPacked, kSilu> gradients(args, strides, plan);
  if (gradients.segment.is_empty()) return;
  gradients.walk();
  gradients.reduce(plan.segments, partials);
}

}  // namespace ssmbench::window
