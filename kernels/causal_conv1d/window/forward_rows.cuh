#pragma once

// cuda-window, forward, time last: bound by reading x and writing out once.
//
//   row (b, d)   ├── tile 0 ──┼── tile 1 ──┼── tile 2 ──┼── tile 3 ──┤   a warp's segment; all four tiles are
//                 lanes 0 … 31, eight steps each: a vector of 16 bytes    loaded before the first is needed
//
// The W−1 steps before a lane's own come from the lane before by shuffles, those of lane 0 from lane 31 of the
// tile before, and at the begin of a segment from memory.

#include "kernels/causal_conv1d/window/rows.cuh"

namespace ssmbench::window {

template <class Io, int kReach, class Choice>
__device__ void forward_tile(const ConvForwardArgs& args, const RowSegment<Io, Choice>& segment,
                             const Filter<kReach, 1>& filter, std::int64_t t,
                             const LaneSteps<kReach, Choice>& steps) {
  float out[kLaneSteps];
#pragma unroll
  for (int i = 0; i < kLaneSteps; ++i) {
    out[i] = steps.convolve(filter, i);
    if (Choice::silu(args.in)) out[i] = fast_silu(out[i]);
    if (steps.is_padding(i)) out[i] = 0.0F;
  }
  const std::int64_t own = segment.own(t);
  store_floats(segment.options.by_vectors(), static_cast<Io*>(args.out) + segment.row * args.in.seqlen + own,
               1, segment.valid(own), out);
}

/// By the warp of the last segment.
template <class Io, class Choice>
__device__ void store_final_states(const ConvForwardArgs& args, const RowSegment<Io, Choice>& segment) {
  const int taps = args.in.taps();
  if (args.final_states == nullptr || segment.end < args.in.seqlen || segment.lane >= taps) return;
  static_cast<Io*>(args.final_states)[segment.row * taps + segment.lane] =
      from_float<Io>(segment.load_step(args.in.seqlen - taps + segment.lane));
}

template <class Io, int kReach, class Choice>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads)
    forward_rows(const ConvForwardArgs args, const RowPlan plan, const Choice options) {
  const RowSegment<Io, Choice> segment(args.in, options, plan);
  if (segment.is_empty()) return;
  Packed<Io, kLaneSteps> tiles[kForwardTiles];
#pragma unroll
  for (int tile = 0; tile < kForwardTiles; ++tile)
    tiles[tile] = segment.load_x(segment.begin + tile * kTileSteps);
  const auto filter = load_filter<Io, kReach, 1>(false, args.in.weights, segment.channel, args.in.width, 1);
  float before[kReach - 1];
  segment.template load_before<kReach>(before);

#pragma unroll
  for (int tile = 0; tile < kForwardTiles; ++tile) {
    const std::int64_t t = segment.begin + tile * kTileSteps;
    if (t >= segment.end) break;
    float own[kLaneSteps], steps_before[kReach - 1];
    unpack(tiles[tile], own);
    from_lane_before<kReach>(own, before, segment.lane, steps_before);
    LaneSteps<kReach, Choice> steps;
    steps.set_x(steps_before, own);
    steps.load_numbers(segment, segment.own(t));
    forward_tile(args, segment, filter, t, steps);
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) before[i] = own[kLaneSteps - (kReach - 1) + i];
  }
  store_final_states(args, segment);
}

}  // namespace ssmbench::window
