#pragma once

// cuda-window, gradients, time last: bound by reading x and dout and writing dx once.
//
// A warp takes a segment of a row as forward_rows.cuh has it, its tiles from the last to the first, since dx of
// a step takes g of the W−1 steps after it: a lane's come from the lane after by shuffles, those of lane 31
// from lane 0 of the tile after, which has been done before. The tile after the segment is loaded for the g
// of lane 0's steps alone.
//
//   shared memory   ┌─ slot 0 ─┬─ slot 1 ─┬─ slot 2 ─┬─ slot 3 ─┐   tiles of x and of dout in order of time:
//   of a warp       │ tile 4   │ tile 5   │ tile 2   │ tile 3   │   tile 5 is worked on, 4, 3, 2 are on the
//                   └──────────┴──────────┴──────────┴──────────┘   way, and 1 will take the slot of 5
//
// x̃ before a lane's own lies before it in shared memory, for lane 0 at the end of the tile before, so that a
// tile waits for the next one.
//
// A lane's sums of g·x̃ are added up over the warp by shuffles, one partial sum per segment; sum_partials adds
// them in their order.

#include "kernels/causal_conv1d/window/backward_channels.cuh"
#include "kernels/causal_conv1d/window/rows.cuh"

namespace ssmbench::window {

/// A warp's tiles of x and dout on the way from memory, of a lane: where it is in the ring.
template <class Io>
struct TileRing {
  static constexpr int kLaneBytes = kLaneSteps * static_cast<int>(sizeof(Io));
  static constexpr int kTileBytes = kWarpThreads * kLaneBytes;
  static constexpr int kSlots = tile_slots_of(sizeof(Io));
  static constexpr int kRingBytes = kSlots * kTileBytes;  ///< of a tensor
  static constexpr int kBytes = 2 * kRingBytes;

  std::uint32_t own;   ///< address of the lane's steps of a tile; dout lies kRingBytes behind
  std::uint32_t slot;  ///< bytes before the tile
  std::uint32_t wrap;  ///< bytes from before those of lane 0 in slot 0 to the end of the ring

  __device__ TileRing(void* memory, int warp, int lane, int tile)
      : own(shared_address(memory) + warp * kBytes + lane * kLaneBytes),
        slot(static_cast<unsigned>(tile) % kSlots * kTileBytes),
        wrap(lane == 0 ? kRingBytes : 0) {
    own += slot;
  }

  /// Address of the `bytes` before the lane's own.
  __device__ std::uint32_t before(int bytes) const { return own - bytes + (slot == 0 ? wrap : 0); }
  /// To the tile before.
  __device__ void step_back() {
    const std::uint32_t bytes = slot == 0 ? kTileBytes - kRingBytes : kTileBytes;
    slot -= bytes;
    own -= bytes;
  }
};

template <class Io, int kCount>
__device__ Packed<Io, kCount> read_shared(std::uint32_t shared) {
  Packed<Io, kCount> packed;
  load_shared(packed.words, shared);
  return packed;
}

template <class Io, int kReach, class Choice>
struct RowGradients {
  using Ring = TileRing<Io>;
  const ConvBackwardArgs& args;
  RowSegment<Io, Choice> segment;
  DoutStrides strides;
  int tiles, last;     ///< of the segment; the last one that is loaded
  int own;             ///< the lane's first step of the tile that is worked on
  Ring ring;           ///< at that tile
  const Io *x, *dout;  ///< of the lane's first step of the tile that is copied next
  Io* dx;              ///< of own
  int end_begin,
      end_end;  ///< lanes that begin before the one or end after the other are at an end of the row
  Filter<kReach, 1> filter;
  float after[kReach - 1] = {};  ///< lane 0's first g of the tile after
  FilterSums<kReach, 1> sums{};

  __device__ RowGradients(const ConvBackwardArgs& all, const DoutStrides& dout_strides, const RowPlan& plan,
                          void* memory)
      : args(all),
        segment(all.in, plan),
        strides(dout_strides),
        tiles((segment.end + kTileSteps - 1) / kTileSteps),
        last(segment.end < segment.left ? tiles : tiles - 1),
        own(segment.own(last * kTileSteps)),
        ring(memory, static_cast<int>(threadIdx.x) / kWarpThreads, segment.lane, last),
        x(static_cast<const Io*>(all.in.x) + segment.offset() + own),
        dout(static_cast<const Io*>(all.dout) + segment.offset() + own),
        dx(static_cast<Io*>(all.dx) + segment.offset() + own) {
    const bool has_more = segment.begin > 0 || (segment.is_first() && all.in.initial_states != nullptr);
    end_begin = has_more ? segment.begin + kReach - 1 : 0;
    end_end = segment.left - (all.dfinal_states != nullptr && segment.is_last() ? kReach - 1 : 0);
  }

  __device__ bool copies_dout() const { return Choice::kIsPlain || strides.step == 1; }

  /// Starts to copy a lane's steps from `first` on to the slot that the ring is at. Of the tile before the
  /// segment's first one lane 31 has steps, zeros where they are before the row. kIsLast: of the tiles may be
  /// the last, which has fewer steps.
  template <bool kIsLast>
  __device__ void copy(int first) {
    constexpr int kVector = kVectorOf<Io>;
    if (first >= -kLaneSteps) {
      const bool is_there = first >= 0 || !segment.is_first();
#pragma unroll
      for (int v = 0; v < kLaneSteps / kVector; ++v) {
        int count = is_there ? kVector : 0;
        if (kIsLast && is_there) count = max(min(segment.left - first - v * kVector, kVector), 0);
        copy_elements<Io, kVector>(ring.own + v * 16, x + v * kVector, count);
        if (copies_dout())
          copy_elements<Io, kVector>(ring.own + v * 16 + Ring::kRingBytes, dout + v * kVector, count);
      }
    }
    copy_async_commit();
    x -= kTileSteps;
    dout -= kTileSteps;
  }

  /// A lane's x̃ and dout.
  __device__ void load(LaneSteps<kReach, Choice>& steps, float (&to)[kLaneSteps]) const {
    float own_x[kLaneSteps], loaded[kReach], before[kReach - 1];
    unpack(read_shared<Io, kLaneSteps>(ring.own), own_x);
    unpack(read_shared<Io, kReach>(ring.before(kReach * static_cast<int>(sizeof(Io)))), loaded);
    if (copies_dout())
      unpack(read_shared<Io, kLaneSteps>(ring.own + Ring::kRingBytes), to);
    else
      load_dout(to);
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) before[i] = loaded[i + 1];
    steps.set_x(before, own_x);
  }
  __device__ const Io* dout_at(int t) const {
    return static_cast<const Io*>(args.dout) + segment.batch * strides.batch +
           segment.channel * strides.channel + (segment.first + t) * strides.step;
  }
  __device__ void load_dout(float (&to)[kLaneSteps]) const {
    const Io* const from = dout_at(own);
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i)
      to[i] = own + i >= segment.begin && own + i < segment.left ? to_float(from[i * strides.step]) : 0.0F;
  }

  /// Whether a lane is at an end of the row: not all of its steps are the row's, those before it are initial
  /// states, or dfinal_states add to it.
  __device__ bool is_at_end() const {
    return own < end_begin || own + kLaneSteps > end_end;
  }
  /// What of x̃ at an end is not in shared memory.
  __device__ void complete(LaneSteps<kReach, Choice>& steps) const {
#pragma unroll
    for (int i = 0; i < kReach - 1 + kLaneSteps; ++i) {
      const int step = own - (kReach - 1) + i;
      if (step >= segment.left || (step < segment.begin && segment.is_first())) steps.x[i] = 0.0F;
    }
    if (args.in.initial_states == nullptr || own >= end_begin) return;
#pragma unroll
    for (int i = 0; i < kReach - 1 + kLaneSteps; ++i) {
      const int step = own - (kReach - 1) + i;
      if (step < segment.begin) steps.x[i] = segment.load_step(step);
    }
  }

  /// g of the lane's steps, from dout.
  __device__ void activate(LaneSteps<kReach, Choice>& steps, float (&g)[kLaneSteps]) const {
    steps.load_numbers(segment, own);
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      if (Choice::silu(args.in)) g[i] *= fast_silu_slope(steps.convolve(filter, i)).slope;
      if (steps.is_padding(i)) g[i] = 0.0F;
    }
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

  /// What dfinal_states add to dx̃ of a step.
  __device__ float dfinal(int t) const {
    const std::int64_t i = segment.first + t - (args.in.seqlen - args.in.taps());
    if (i < 0 || t >= segment.left) return 0.0F;
    return to_float(static_cast<const Io*>(args.dfinal_states)[segment.row * args.in.taps() + i]);
  }

  /// dx of the lane's steps.
  __device__ void store(bool is_end, const float (&g)[kLaneSteps]) const {
    float g_after[kReach - 1];
    from_lane_after<kReach>(g, after, segment.lane, g_after);
    int numbers[Choice::kHasNumbers ? kLaneSteps + kReach - 1 : 1];
    if constexpr (Choice::kHasNumbers) {
#pragma unroll
      for (int i = 0; i < kLaneSteps + kReach - 1; ++i) numbers[i] = segment.number(own + i);
    }
    float to[kLaneSteps];
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      to[i] = filter.weight[kReach - 1][0] * g[i];
#pragma unroll
      for (int j = kReach - 2; j >= 0; --j) {
        const int later = i + kReach - 1 - j;
        const float value = later < kLaneSteps ? g[later] : g_after[later - kLaneSteps];
        const bool counts = Choice::has(filter, j) && (!Choice::kHasNumbers || numbers[later] == numbers[i]);
        to[i] = counts ? fmaf(filter.weight[j][0], value, to[i]) : to[i];
      }
    }
    if (!is_end) return store_floats(true, dx, 1, kLaneSteps, to);
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      if (args.dfinal_states != nullptr) to[i] += dfinal(own + i);
      if (segment.is_there(own + i)) dx[i] = from_float<Io>(to[i]);
    }
  }

  /// dx̃ of the steps before the row, by one lane: it makes g of the first steps once more.
  __device__ void store_dinitial() const {
    if (args.dinitial_states == nullptr || !segment.is_first() || segment.lane != 0) return;
    float g[kReach - 1];
#pragma unroll 1
    for (int t = 0; t < kReach - 1; ++t) {
      const int step = segment.begin + t;
      float value = 0.0F;
      if (step < segment.left) {
        float s = filter.bias[0];
        for (int j = 0; j < kReach; ++j)
          if (filter.has(j)) s = fmaf(filter.weight[j][0], segment.load_step(step - (kReach - 1) + j), s);
        value = to_float(dout_at(step)[0]);
        if (Choice::silu(args.in)) value *= fast_silu_slope(s).slope;
      }
#pragma unroll
      for (int k = 0; k < kReach - 1; ++k) g[k] = k == t ? value : g[k];
    }
    const int taps = args.in.taps();
#pragma unroll
    for (int k = 0; k < kReach - 1; ++k) {  // step k − (kReach − 1)
      if (!filter.has(k)) continue;
      float sum = args.dfinal_states != nullptr ? dfinal(segment.begin + k - (kReach - 1)) : 0.0F;
#pragma unroll
      for (int j = 0; j <= k; ++j)
        if (filter.has(j)) sum = fmaf(filter.weight[j][0], g[k - j], sum);
      static_cast<Io*>(args.dinitial_states)[segment.row * taps + k - filter.unused] = from_float<Io>(sum);
    }
  }

  /// Its first g are what the tile before needs.
  __device__ void keep(const float (&g)[kLaneSteps]) {
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) after[i] = g[i];
  }

  __device__ void walk() {
#pragma unroll
    for (int i = 0; i < Ring::kSlots; ++i) {  // steps back all around the ring
      copy<true>(own - i * kTileSteps);
      ring.step_back();
    }
    filter = load_filter<Io, kReach, 1>(false, args.in.weights, segment.channel, args.in.width, 1);
#pragma unroll 1
    for (int tile = last; tile >= 0; --tile) {
      const bool is_end = is_at_end();
      LaneSteps<kReach, Choice> steps;
      float g[kLaneSteps];
      copy_async_wait<Ring::kSlots - 2>();
      __syncwarp();
      load(steps, g);
      __syncwarp();
      copy<false>(own - Ring::kSlots * kTileSteps);
      if (is_end) complete(steps);
      activate(steps, g);
      if (is_end) {
#pragma unroll
        for (int i = 0; i < kLaneSteps; ++i)
          if (own + i < segment.begin || own + i >= segment.left) g[i] = 0.0F;
      }
      if (tile < tiles) {
        add(steps, g);
        store(is_end, g);
      }
      keep(g);
      own -= kTileSteps;
      dx -= kTileSteps;
      ring.step_back();
    }
    store_dinitial();
  }

  /// The warp's sums. Lanes that are `distance` apart share their terms: each goes on with one half of them.
  __device__ void reduce(std::int64_t segments, float* partials) const {
    float terms[kReach], bias = sums.bias[0];
    int term = 0;  // that the lane ends with
#pragma unroll
    for (int j = 0; j < kReach; ++j) terms[j] = sums.weight[j][0];
#pragma unroll
    for (int distance = 1, half = kReach / 2; distance < kWarpThreads; distance *= 2, half /= 2) {
      const bool is_upper = half > 0 && (segment.lane & distance) != 0;
      term += is_upper ? half : 0;
#pragma unroll
      for (int j = 0; j < (half > 0 ? half : 1); ++j) {
        const int other = j + half;
        const float give = is_upper ? terms[j] : terms[other];
        terms[j] = (is_upper ? terms[other] : terms[j]) + __shfl_xor_sync(kAllLanes, give, distance);
      }
      bias += __shfl_xor_sync(kAllLanes, bias, distance);
    }
    const std::int64_t partial = segment.batch * segments + segment.segment;
    if (segment.lane > kReach) return;
    const bool has_bias = segment.lane == kReach;
    *partial_of<kReach>(partials, partial, has_bias ? kReach : term, segment.channel, args.in.dim) =
        has_bias ? bias : terms[0];
  }
};

template <class Io, int kReach, class Choice>
__global__ void __launch_bounds__(kRowWarps* kWarpThreads,
                                  kReach == 4 ? backward_row_blocks(sizeof(Io), Choice::kHasNumbers) : 1)
    backward_rows(const ConvBackwardArgs args, const DoutStrides strides, const RowPlan plan, float* partials,
                  const Choice options) {
  extern __shared__ uint4 ring_memory[];
  RowGradients<Io, kReach, Choice> gradients(args, strides, plan, ring_memory);
  if (gradients.segment.row >= args.in.batch * args.in.dim) return;
  if (!gradients.segment.is_empty()) gradients.walk();
  hopper::launch_dependents();
  gradients.reduce(plan.segments, partials);
}

}  // namespace ssmbench::window
