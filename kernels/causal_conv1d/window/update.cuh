#pragma once

// cuda-window, one decoding step or several: bound by reading and writing the state.
//
// step_update: one token, a state as long as the filter reaches. A thread has eight channels, weights in
// registers, and goes through a run of rows, two at once: x and the state of both are loaded before the first
// store. In layout sdk the eight channels' states lie side by side, so that both layouts read 16-byte vectors.
// steps_update: any number of tokens, any state, any channels, one row a thread.

#include "kernels/causal_conv1d/window/elements.cuh"
#include "kernels/causal_conv1d/window/map.h"

namespace ssmbench::window {

/// The slots of a row; -1: none.
struct RowSlots {
  std::int64_t source, destination;
};

__device__ inline RowSlots slots_of(const ConvUpdateArgs& args, std::int64_t row) {
  if (args.source == nullptr) return {row, row};
  return {args.source[row], args.destination[row]};
}

/// The state of eight channels as it lies in memory.
template <class Io, bool kChannelsLast, int kTaps>
struct PackedState {
  static constexpr int kChannels = kUpdateChannels;
  Packed<Io, kChannels> of_tap[kTaps];  ///< channels last; else the vectors of (channel, tap)

  __device__ static Io* address(const ConvUpdateArgs& args, std::int64_t slot, std::int64_t channel, int k) {
    auto* const state = static_cast<Io*>(args.conv_state);
    return kChannelsLast ? state + (slot * kTaps + k) * args.dim + channel
                         : state + (slot * args.dim + channel) * kTaps + k * kChannels;
  }
  __device__ void load(const ConvUpdateArgs& args, std::int64_t slot, std::int64_t channel) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k)
      of_tap[k] = load_packed<Io, kChannels>(true, address(args, slot, channel, k), 1, kChannels);
  }
  __device__ void unpack_taps(float (&taps)[kTaps][kChannels]) const {
    float vectors[kTaps][kChannels];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) unpack(of_tap[k], vectors[k]);
#pragma unroll
    for (int i = 0; i < kTaps * kChannels; ++i) {
      if constexpr (kChannelsLast)
        taps[i / kChannels][i % kChannels] = vectors[i / kChannels][i % kChannels];
      else
        taps[i % kTaps][i / kTaps] = vectors[i / kChannels][i % kChannels];
    }
  }
  __device__ static void store(const ConvUpdateArgs& args, std::int64_t slot, std::int64_t channel,
                               const float (&taps)[kTaps][kChannels]) {
    float vectors[kTaps][kChannels];
#pragma unroll
    for (int i = 0; i < kTaps * kChannels; ++i) {
      if constexpr (kChannelsLast)
        vectors[i / kChannels][i % kChannels] = taps[i / kChannels][i % kChannels];
      else
        vectors[i / kChannels][i % kChannels] = taps[i % kTaps][i / kTaps];
    }
#pragma unroll
    for (int k = 0; k < kTaps; ++k)
      store_floats(true, address(args, slot, channel, k), 1, kChannels, vectors[k]);
  }
};

/// Out of one row and its new state.
template <class Io, bool kChannelsLast, int kTaps>
__device__ void step_row(const ConvUpdateArgs& args, const Filter<kTaps + 1, kUpdateChannels>& filter,
                         std::int64_t row, std::int64_t channel, const RowSlots& slots,
                         const Packed<Io, kUpdateChannels>& packed_x,
                         const PackedState<Io, kChannelsLast, kTaps>& state) {
  constexpr int kChannels = kUpdateChannels;
  float taps[kTaps][kChannels], x[kChannels], out[kChannels];
  unpack(packed_x, x);
  state.unpack_taps(taps);
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    float s = filter.bias[c];
#pragma unroll
    for (int j = 0; j < kTaps; ++j) s = fmaf(filter.weight[j][c], taps[j][c], s);
    s = fmaf(filter.weight[kTaps][c], x[c], s);
    if (args.silu) s = fast_silu(s);
    out[c] = slots.source < 0 ? 0.0F : s;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) taps[j][c] = j + 1 < kTaps ? taps[j + 1 < kTaps ? j + 1 : j][c] : x[c];
  }
  store_floats(true, static_cast<Io*>(args.out) + row * args.dim + channel, 1, kChannels, out);
  if (slots.destination >= 0)
    PackedState<Io, kChannelsLast, kTaps>::store(args, slots.destination, channel, taps);
}

template <class Io, bool kChannelsLast, int kTaps>
__global__ void __launch_bounds__(kUpdateThreads)
    step_update(const ConvUpdateArgs args, const UpdatePlan plan) {
  constexpr int kChannels = kUpdateChannels;
  const UpdatePlace place = update_place(plan, blockIdx.x, static_cast<int>(threadIdx.x));
  if (place.channel >= args.dim) return;
  const std::int64_t end = place.row + plan.rows < args.batch ? place.row + plan.rows : args.batch;
  const auto filter =
      load_filter<Io, kTaps + 1, kChannels>(true, args.weights, place.channel, args.width, kChannels);
  for (std::int64_t first = place.row; first < end; first += kRowsAtOnce) {
    RowSlots slots[kRowsAtOnce];
    Packed<Io, kChannels> x[kRowsAtOnce];
    PackedState<Io, kChannelsLast, kTaps> state[kRowsAtOnce] = {};
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const bool is_there = first + r < end;
      slots[r] = is_there ? slots_of(args, first + r) : RowSlots{-1, -1};
      x[r] = load_packed<Io, kChannels>(
          true, static_cast<const Io*>(args.x) + (first + r) * args.dim + place.channel, 1,
          is_there ? kChannels : 0);
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r)
      if (slots[r].source >= 0) state[r].load(args, slots[r].source, place.channel);
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r)
      if (first + r < end)
        step_row<Io, kChannelsLast, kTaps>(args, filter, first + r, place.channel, slots[r], x[r], state[r]);
  }
}

/// A row of kChannels neighbouring channels; kVector: channels are last in conv_state, too.
template <class Io, int kReach, int kChannels, bool kVector>
struct RowSteps {
  const ConvUpdateArgs& args;
  std::int64_t row, channel;
  RowSlots slots;

  __device__ Io* state(std::int64_t slot, std::int64_t k) const {
    auto* const all = static_cast<Io*>(args.conv_state);
    return args.channels_last ? all + (slot * args.state_len + k) * args.dim + channel
                              : all + (slot * args.dim + channel) * args.state_len + k;
  }
  __device__ std::int64_t at(std::int64_t t) const { return (row * args.tokens + t) * args.dim + channel; }
  /// Step k of conv_state ++ x.
  __device__ void load(std::int64_t k, float (&to)[kChannels]) const {
    const Io* from =
        k < args.state_len ? state(slots.source, k) : static_cast<const Io*>(args.x) + at(k - args.state_len);
    if constexpr (kVector)
      unpack(load_packed<Io, kChannels>(true, from, 1, kChannels), to);
    else
      to[0] = to_float(*from);
  }
  __device__ void store(Io* to, const float (&from)[kChannels]) const {
    if constexpr (kVector)
      store_floats(true, to, 1, kChannels, from);
    else
      *to = from_float<Io>(from[0]);
  }

  __device__ void run() const {
    const auto filter =
        load_filter<Io, kReach, kChannels>(kVector, args.weights, channel, args.width, kChannels);
    float window[kReach][kChannels] = {};
    if (slots.source >= 0) {
#pragma unroll
      for (int i = 0; i < kReach - 1; ++i)
        if (filter.has(i)) load(args.state_len - (kReach - 1) + i, window[i]);
    }
    for (std::int64_t t = 0; t < args.tokens; ++t) {
      if (slots.source >= 0) load(args.state_len + t, window[kReach - 1]);
      float out[kChannels];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        float s = filter.bias[c];
#pragma unroll
        for (int j = 0; j < kReach; ++j)
          if (filter.has(j)) s = fmaf(filter.weight[j][c], window[j][c], s);
        if (args.silu) s = fast_silu(s);
        out[c] = slots.source < 0 ? 0.0F : s;
#pragma unroll
        for (int j = 0; j + 1 < kReach; ++j) window[j][c] = window[j + 1][c];
      }
      store(static_cast<Io*>(args.out) + at(t), out);
    }
    if (slots.destination < 0) return;
    for (std::int64_t k = 0; k < args.state_len; ++k) {  // a step is read before it is written
      float step[kChannels];
      load(k + args.tokens, step);
      store(state(slots.destination, k), step);
    }
  }
};

template <class Io, int kReach, int kChannels, bool kVector>
__global__ void __launch_bounds__(kUpdateThreads)
    steps_update(const ConvUpdateArgs args, const UpdatePlan plan) {
  const UpdatePlace place = update_place(plan, blockIdx.x, static_cast<int>(threadIdx.x));
  if (place.channel >= args.dim) return;
  RowSteps<Io, kReach, kChannels, kVector>{args, place.row, place.channel, slots_of(args, place.row)}.run();
}

}  // namespace ssmbench::window
