#pragma once

// cuda-window, forward, time last: bound by reading x and writing out once.
//
//   row (b, d)   ├── tile 0 ──┼── tile 1 ──┼── tile 2 ──┼── tile 3 ──┤   a warp's segment; all four tiles are
//                 lanes 0 … 31, eight steps each: a vector of 16 bytes    loaded before the first is needed
//
// Lanes start where memory is aligned: a row that does not has a lane at its first steps that has fewer, and
// maybe one at its last, which load and store single elements.
//
// The W−1 steps before a lane's own come from the lane before by shuffles, those of lane 0 from lane 31 of the
// tile before, and at the begin of a segment from memory.

#include "kernels/causal_conv1d/window/rows.cuh"

namespace ssmbench::window {

template <class Io, int kReach, class Choice>
struct RowOutputs {
  const ConvForwardArgs& args;
  RowSegment<Io, Choice> segment;
  Filter<kReach, 1> filter;

  __device__ RowOutputs(const ConvForwardArgs& all, const RowPlan& plan) : args(all), segment(all.in, plan) {}

  /// A lane's x of a tile, what is not there as zeros.
  __device__ Packed<Io, kLaneSteps> load(int t) const {
    const int own = segment.own(t);
    const Io* const x = static_cast<const Io*>(args.in.x) + segment.offset() + own;
    if (segment.is_whole(own)) return load_packed<Io, kLaneSteps>(true, x, 1, kLaneSteps);
    return load_packed<Io, kLaneSteps>(false, x, 1, segment.end - own, segment.begin - own);
  }
  __device__ void store(int own, const float (&out)[kLaneSteps]) const {
    Io* const to = static_cast<Io*>(args.out) + segment.offset() + own;
    if (segment.is_whole(own)) return store_floats(true, to, 1, kLaneSteps, out);
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i)
      if (segment.is_there(own + i)) to[i] = from_float<Io>(out[i]);
  }

  __device__ void do_tile(int t, const LaneSteps<kReach, Choice>& steps) const {
    float out[kLaneSteps];
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      out[i] = steps.convolve(filter, i);
      if (Choice::silu(args.in)) out[i] = fast_silu(out[i]);
      if (steps.is_padding(i)) out[i] = 0.0F;
    }
    store(segment.own(t), out);
  }

  /// By the warp of the last segment.
  __device__ void store_final_states() const {
    const int taps = args.in.taps();
    if (args.final_states == nullptr || !segment.is_last() || segment.lane >= taps) return;
    static_cast<Io*>(args.final_states)[segment.row * taps + segment.lane] =
        from_float<Io>(segment.load_step(segment.end - taps + segment.lane));
  }

  __device__ void walk() {
    Packed<Io, kLaneSteps> tiles[kForwardTiles];
#pragma unroll
    for (int tile = 0; tile < kForwardTiles; ++tile) tiles[tile] = load(tile * kTileSteps);
    filter = load_filter<Io, kReach, 1>(false, args.in.weights, segment.channel, args.in.width, 1);
    float before[kReach - 1];
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) before[i] = segment.load_step(i - (kReach - 1));

#pragma unroll
    for (int tile = 0; tile < kForwardTiles; ++tile) {
      const int t = tile * kTileSteps;
      if (t >= segment.end) break;
      float own[kLaneSteps], steps_before[kReach - 1];
      unpack(tiles[tile], own);
      if (tile == 0) set_first(own);
      from_lane_before<kReach>(own, before, segment.lane, steps_before);
      LaneSteps<kReach, Choice> steps;
      steps.set_x(steps_before, own);
      steps.load_numbers(segment, segment.own(t));
      do_tile(t, steps);
#pragma unroll
      for (int i = 0; i < kReach - 1; ++i) before[i] = own[kLaneSteps - (kReach - 1) + i];
    }
  }

  /// The steps of lane 0 that are before the row: initial states.
  __device__ void set_first(float (&own)[kLaneSteps]) const {
    if (segment.begin == 0 || segment.lane > 0) return;
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i)
      if (i < segment.begin) own[i] = segment.load_step(i);
  }
};

template <class Io, int kReach, class Choice>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads)
    forward_rows(const ConvForwardArgs args, const RowPlan plan, const Choice) {
  RowOutputs<Io, kReach, Choice> outputs(args, plan);
  if (outputs.segment.row >= args.in.batch * args.in.dim || outputs.segment.is_empty()) return;
  outputs.walk();
  outputs.store_final_states();
}

}  // namespace ssmbench::window
