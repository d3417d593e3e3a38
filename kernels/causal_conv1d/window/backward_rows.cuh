#pragma once

// cuda-window, gradients, time last: bound by reading x and dout and writing dx once.
//
// A warp takes a segment of a row as forward_rows.cuh has it, its tiles from the last to the first, since dx of
// a step takes g of the W−1 steps after it: a lane's come from the lane after by shuffles, those of lane 31
// from lane 0 of the tile after, which has been done before. x̃ before a lane's own is loaded once more, from
// the L1 cache. Of the tile after the segment only lane 0's steps are loaded, for their g alone.
//
// Instructions bind in 16 bits: steps are counted from the segment's first in 32 bits, and the next tile is
// loaded to the registers of this one as soon as those are unpacked.
//
// A lane's sums of g·x̃ are added up over the warp by shuffles, one partial sum per segment; sum_partials adds
// them in their order.

#include "kernels/causal_conv1d/window/backward_channels.cuh"
#include "kernels/causal_conv1d/window/rows.cuh"

namespace ssmbench::window {

/// x and dout of a lane's steps of a tile, and x of the kReach steps before.
template <class Io, int kReach>
struct TileInputs {
  Packed<Io, kLaneSteps> x, dout;
  Packed<Io, kReach> before;
};

template <class Io, int kReach, class Choice>
struct RowGradients {
  const ConvBackwardArgs& args;
  RowSegment<Io, Choice> segment;
  std::int64_t dout_step;
  const Io *x, *dout;  ///< at the segment's first step, like dx
  Io* dx;
  int length, limit;  ///< steps of the segment, and with those after it that a lane has
  int before_first;   ///< steps up to this one have none before
  Filter<kReach, 1> filter;
  float after[kReach - 1] = {};  ///< lane 0's first g of the tile after
  FilterSums<kReach, 1> sums{};

  __device__ RowGradients(const ConvBackwardArgs& all, const DoutStrides& strides, const RowPlan& plan,
                          Choice options)
      : args(all), segment(all.in, options, plan), dout_step(strides.step) {
    const std::int64_t first = segment.row * all.in.seqlen + segment.begin;
    x = static_cast<const Io*>(all.in.x) + first;
    dx = static_cast<Io*>(all.dx) + first;
    dout = static_cast<const Io*>(all.dout) + segment.batch * strides.batch +
           segment.channel * strides.channel + segment.begin * strides.step;
    before_first = segment.begin > 0 ? -1 : 0;
    length = static_cast<int>(segment.end - segment.begin);
    const std::int64_t left = all.in.seqlen - segment.begin;
    limit = left < plan.segment_steps + kLaneSteps ? static_cast<int>(left) : plan.segment_steps + kLaneSteps;
  }

  /// A lane's first step of the tile at t, all counted from the segment's first one.
  __device__ int own(int t) const { return t + segment.lane * kLaneSteps; }
  /// How many of a lane's steps from `first` on are before `end`.
  __device__ static int valid(int first, int end) {
    if constexpr (Choice::kAreVectors == Is::yes) return first < end ? kLaneSteps : 0;
    return max(min(end - first, kLaneSteps), 0);
  }

  /// Steps before the segment are not loaded, and of those after it only lane 0's.
  __device__ TileInputs<Io, kReach> load(int t) const {
    const int first = own(t);
    const int there = t >= 0 ? valid(first, limit) : 0;
    const bool by_vectors = segment.options.by_vectors();
    return {load_packed<Io, kLaneSteps>(by_vectors, x + first, 1, there),
            load_packed<Io, kLaneSteps>(by_vectors,
                                        dout + (Choice::kAreVectors != Is::yes ? first * dout_step : first),
                                        dout_step, there),
            load_packed<Io, kReach>(by_vectors, x + first - kReach, 1,
                                    there > 0 && first > before_first ? kReach : 0)};
  }

  /// g of the lane's steps.
  __device__ LaneSteps<kReach, Choice> adjoints(int t, const TileInputs<Io, kReach>& tile,
                                                float (&g)[kLaneSteps]) const {
    float own_x[kLaneSteps], loaded[kReach], before[kReach - 1];
    unpack(tile.x, own_x);
    unpack(tile.before, loaded);
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) before[i] = loaded[i + 1];
    if (t == 0 && segment.begin == 0 && segment.lane == 0) segment.template load_before<kReach>(before);
    LaneSteps<kReach, Choice> steps;
    steps.set_x(before, own_x);
    steps.load_numbers(segment, segment.begin + own(t));
    unpack(tile.dout, g);
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      if (Choice::silu(args.in)) g[i] *= fast_silu_slope(steps.convolve(filter, i)).slope;
      if (steps.is_padding(i)) g[i] = 0.0F;
    }
    return steps;
  }

  __device__ void add(const LaneSteps<kReach, Choice>& steps, const float (&g)[kLaneSteps]) {
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
  __device__ void store(int t, const float (&g)[kLaneSteps]) const {
    float g_after[kReach - 1];
    from_lane_after<kReach>(g, after, segment.lane, g_after);
    const int first = own(t);
    int numbers[Choice::kHasNumbers ? kLaneSteps + kReach - 1 : 1];
    if constexpr (Choice::kHasNumbers) {
#pragma unroll
      for (int i = 0; i < kLaneSteps + kReach - 1; ++i)
        numbers[i] = segment.number(segment.begin + first + i);
    }
    float to[kLaneSteps];
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      to[i] = filter.weight[kReach - 1][0] * g[i];
#pragma unroll
      for (int j = kReach - 2; j >= 0; --j) {
        const int later = i + kReach - 1 - j;
        const float value = later < kLaneSteps ? g[later] : g_after[later - kLaneSteps];
        const bool counts = filter.has(j) && (!Choice::kHasNumbers || numbers[later] == numbers[i]);
        to[i] = counts ? fmaf(filter.weight[j][0], value, to[i]) : to[i];
      }
    }
    if (args.dfinal_states != nullptr) {
#pragma unroll
      for (int i = 0; i < kLaneSteps; ++i) to[i] += dfinal(segment.begin + first + i);
    }
    store_floats(segment.options.by_vectors(), dx + first, 1, valid(first, length), to);
  }

  /// By the lane that has the first steps, whose g are in `after` when all tiles are done.
  __device__ void store_dinitial() const {
    if (args.dinitial_states == nullptr || segment.begin > 0 || segment.lane != 0) return;
    const int taps = args.in.taps();
#pragma unroll
    for (int k = 0; k < kReach - 1; ++k) {  // step k − (kReach − 1)
      if (!filter.has(k)) continue;
      const std::int64_t t = k - (kReach - 1);
      float sum = dfinal(t);
#pragma unroll
      for (int j = 0; j <= k; ++j)
        if (filter.has(j)) sum = fmaf(filter.weight[j][0], after[k - j], sum);
      static_cast<Io*>(args.dinitial_states)[segment.row * taps + t + taps] = from_float<Io>(sum);
    }
  }

  /// Its first g are what the tile before needs.
  __device__ void keep(const float (&g)[kLaneSteps]) {
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) after[i] = g[i];
  }
  __device__ void walk() {
    filter = load_filter<Io, kReach, 1>(false, args.in.weights, segment.channel, args.in.width, 1);
    const int behind = (length + kTileSteps - 1) / kTileSteps * kTileSteps;
    int t = behind - kTileSteps;
    TileInputs<Io, kReach> tile = load(t);
    float g[kLaneSteps];
    if (behind < limit) {
      adjoints(behind, load(behind), g);
      keep(g);
    }
    for (; t >= 0; t -= kTileSteps) {
      const auto steps = adjoints(t, tile, g);
      tile = load(t - kTileSteps);
      add(steps, g);
      store(t, g);
      keep(g);
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

template <class Io, int kReach, class Choice>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads, kReach == 4 ? kBackwardRowBlocks : 1)
    backward_rows(const ConvBackwardArgs args, const DoutStrides strides, const RowPlan plan, float* partials,
                  const Choice options) {
  RowGradients<Io, kReach, Choice> gradients(args, strides, plan, options);
  if (gradients.segment.is_empty()) return;
  gradients.walk();
  gradients.reduce(plan.segments, partials);
}

}  // namespace ssmbench::window
