#pragma once

// cuda-window, one decoding step or several: bound by reading and writing the state.
//
// step_update: one token, a state as long as the filter reaches. A thread has eight channels, weights in
// registers, and goes through a run of rows, two at once: x and the state of both are loaded before the first
// store. In layout sdk the eight channels' states lie side by side, so that both layouts read 16-byte vectors.
// tokens_update: several tokens, one row a thread, the state and four tokens loaded at once.
// steps_update: any number of tokens, any state, any channels, one row a thread, four steps at once.

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

/// A thread's channels, side by side with those of its neighbours, and how they are loaded and stored.
/// kAligned: in whole vectors.
template <class Io, bool kAligned>
struct UpdateChannels {
  static constexpr int kChannels = kUpdateChannels;
  std::int64_t first;
  int valid;
  Neighbours among;

  __device__ UpdateChannels(std::int64_t channel, std::int64_t dim)
      : first(channel),
        valid(valid_of(channel, kChannels, dim)),
        among{threadIdx.x % kWarpThreads == 0,
              threadIdx.x % kWarpThreads < kWarpThreads - 1 && dim - channel >= 2 * kChannels} {}

  /// Threads without channels take part in shuffles.
  __device__ bool is_empty() const { return kAligned && valid == 0; }
  /// kCount elements, kCount / kChannels of each channel; from `end` on nothing is read.
  template <int kCount>
  __device__ Packed<Io, kCount> load(const Io* from, const Io* end) const {
    if constexpr (kAligned)
      return load_packed<Io, kCount>(true, from, 1, kCount);
    else
      return load_unaligned<Io, kCount>(from, valid * (kCount / kChannels), end);
  }
  template <int kCount>
  __device__ void store(Io* to, const float (&from)[kCount]) const {
    if constexpr (kAligned)
      store_floats(true, to, 1, kCount, from);
    else
      store_unaligned<Io, kCount, kVectorOf<Io>>(among, to, from, valid * (kCount / kChannels));
  }
};

/// The state of eight channels as it lies in memory.
template <class Io, bool kChannelsLast, int kTaps, bool kAligned>
struct PackedState {
  static constexpr int kChannels = kUpdateChannels;
  static constexpr int kRows = kChannelsLast ? kTaps : 1;  ///< of neighbouring elements
  static constexpr int kRowElements = kChannels * kTaps / kRows;
  Packed<Io, kRowElements> rows[kRows];

  __device__ static Io* row(const ConvUpdateArgs& args, std::int64_t slot, std::int64_t channel, int k) {
    auto* const state = static_cast<Io*>(args.conv_state);
    return kChannelsLast ? state + (slot * kTaps + k) * args.dim + channel
                         : state + (slot * args.dim + channel) * kTaps;
  }
  __device__ void load(const ConvUpdateArgs& args, std::int64_t slot,
                       const UpdateChannels<Io, kAligned>& channels) {
    const Io* const end = static_cast<const Io*>(args.conv_state) + args.slots * args.dim * kTaps;
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      rows[k] = channels.template load<kRowElements>(row(args, slot, channels.first, k), end);
  }
  __device__ void unpack_taps(float (&taps)[kTaps][kChannels]) const {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      float elements[kRowElements];
      unpack(rows[k], elements);
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) {
        if constexpr (kChannelsLast)
          taps[k][i] = elements[i];
        else
          taps[i % kTaps][i / kTaps] = elements[i];
      }
    }
  }
  __device__ static void store(const ConvUpdateArgs& args, std::int64_t slot,
                               const UpdateChannels<Io, kAligned>& channels,
                               const float (&taps)[kTaps][kChannels]) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      float elements[kRowElements];
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) {
        if constexpr (kChannelsLast)
          elements[i] = taps[k][i];
        else
          elements[i] = taps[i % kTaps][i / kTaps];
      }
      channels.store(row(args, slot, channels.first, k), elements);
    }
  }
};

/// Out of one row and its new state.
template <class Io, bool kChannelsLast, int kTaps, bool kAligned>
__device__ void step_row(const ConvUpdateArgs& args, const Filter<kTaps + 1, kUpdateChannels>& filter,
                         std::int64_t row, const UpdateChannels<Io, kAligned>& channels,
                         const RowSlots& slots, const Packed<Io, kUpdateChannels>& packed_x,
                         const PackedState<Io, kChannelsLast, kTaps, kAligned>& state) {
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
  channels.store(static_cast<Io*>(args.out) + row * args.dim + channels.first, out);
  if (slots.destination >= 0)
    PackedState<Io, kChannelsLast, kTaps, kAligned>::store(args, slots.destination, channels, taps);
}

/// Behind the last element of x.
template <class Io>
__device__ const Io* end_of_x(const ConvUpdateArgs& args) {
  return static_cast<const Io*>(args.x) + args.batch * args.tokens * args.dim;
}

template <class Io, bool kChannelsLast, int kTaps, bool kAligned>
__global__ void __launch_bounds__(kUpdateThreads, kUpdateBlocks)
    step_update(const ConvUpdateArgs args, const UpdatePlan plan) {
  constexpr int kChannels = kUpdateChannels;
  const UpdatePosition at = update_position(plan, blockIdx.x, static_cast<int>(threadIdx.x));
  const UpdateChannels<Io, kAligned> channels(at.channel, args.dim);
  if (channels.is_empty()) return;
  const std::int64_t end = at.row + plan.rows < args.batch ? at.row + plan.rows : args.batch;
  const auto filter =
      load_filter<Io, kTaps + 1, kChannels>(kAligned, args.weights, at.channel, args.width, channels.valid);
  for (std::int64_t first = at.row; first < end; first += kRowsAtOnce) {
    RowSlots slots[kRowsAtOnce];
    Packed<Io, kChannels> x[kRowsAtOnce] = {};
    PackedState<Io, kChannelsLast, kTaps, kAligned> state[kRowsAtOnce] = {};
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const bool is_there = first + r < end;
      slots[r] = is_there ? slots_of(args, first + r) : RowSlots{-1, -1};
      if (is_there)
        x[r] = channels.template load<kChannels>(
            static_cast<const Io*>(args.x) + (first + r) * args.dim + at.channel, end_of_x<Io>(args));
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r)
      if (slots[r].source >= 0) state[r].load(args, slots[r].source, channels);
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r)
      if (first + r < end) step_row(args, filter, first + r, channels, slots[r], x[r], state[r]);
  }
}

/// s of the newest step, the last of `window`, activated; zeros where a row has no source.
template <int kReach, int kChannels>
__device__ void step_output(const ConvUpdateArgs& args, const Filter<kReach, kChannels>& filter,
                            const RowSlots& slots, const float (&window)[kReach][kChannels],
                            float (&out)[kChannels]) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    float s = filter.bias[c];
#pragma unroll
    for (int j = 0; j < kReach; ++j)
      if (filter.has(j)) s = fmaf(filter.weight[j][c], window[j][c], s);
    if (args.silu) s = fast_silu(s);
    out[c] = slots.source < 0 ? 0.0F : s;
  }
}

template <int kReach, int kChannels>
__device__ void push(float (&window)[kReach][kChannels]) {
#pragma unroll
  for (int j = 0; j + 1 < kReach; ++j)
#pragma unroll
    for (int c = 0; c < kChannels; ++c) window[j][c] = window[j + 1][c];
}

template <class Io, bool kChannelsLast, int kTaps, bool kAligned>
__global__ void __launch_bounds__(kUpdateThreads)
    tokens_update(const ConvUpdateArgs args, const UpdatePlan plan) {
  constexpr int kChannels = kUpdateChannels;
  const UpdatePosition at = update_position(plan, blockIdx.x, static_cast<int>(threadIdx.x));
  const UpdateChannels<Io, kAligned> channels(at.channel, args.dim);
  if (channels.is_empty()) return;
  const RowSlots slots = slots_of(args, at.row);
  const std::int64_t first = at.row * args.tokens * args.dim + at.channel;
  const Io* next = static_cast<const Io*>(args.x) + first;
  Io* to = static_cast<Io*>(args.out) + first;
  Packed<Io, kChannels> x[kTokensAtOnce] = {};
  const auto load = [&](std::int64_t t) {
#pragma unroll
    for (int u = 0; u < kTokensAtOnce; ++u, next += args.dim)
      if (t + u < args.tokens) x[u] = channels.template load<kChannels>(next, end_of_x<Io>(args));
  };
  load(0);
  PackedState<Io, kChannelsLast, kTaps, kAligned> state{};
  if (slots.source >= 0) state.load(args, slots.source, channels);
  const auto filter =
      load_filter<Io, kTaps + 1, kChannels>(kAligned, args.weights, at.channel, args.width, channels.valid);
  float window[kTaps + 1][kChannels], taps[kTaps][kChannels];
  state.unpack_taps(taps);
#pragma unroll
  for (int j = 0; j < kTaps; ++j)
#pragma unroll
    for (int c = 0; c < kChannels; ++c) window[j][c] = taps[j][c];
  for (std::int64_t t = 0; t < args.tokens; t += kTokensAtOnce) {
#pragma unroll
    for (int u = 0; u < kTokensAtOnce; ++u) {
      if (t + u >= args.tokens) break;
      float out[kChannels];
      unpack(x[u], window[kTaps]);
      step_output(args, filter, slots, window, out);
      channels.store(to, out);
      to += args.dim;
      push(window);
    }
    if (t + kTokensAtOnce < args.tokens) load(t + kTokensAtOnce);
  }
  if (slots.destination < 0) return;
#pragma unroll
  for (int j = 0; j < kTaps; ++j)
#pragma unroll
    for (int c = 0; c < kChannels; ++c) taps[j][c] = window[j][c];
  PackedState<Io, kChannelsLast, kTaps, kAligned>::store(args, slots.destination, channels, taps);
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
  __device__ Packed<Io, kChannels> load(std::int64_t k) const {
    const Io* from =
        k < args.state_len ? state(slots.source, k) : static_cast<const Io*>(args.x) + at(k - args.state_len);
    return load_packed<Io, kChannels>(kVector, from, 1, kChannels);
  }
  /// Steps first to first + kTokensAtOnce, as far as they are before `end`.
  __device__ void load_several(std::int64_t first, std::int64_t end,
                               Packed<Io, kChannels> (&to)[kTokensAtOnce]) const {
#pragma unroll
    for (int u = 0; u < kTokensAtOnce; ++u)
      if (first + u < end) to[u] = load(first + u);
  }

  __device__ void run() const {
    const std::int64_t end = args.state_len + args.tokens;
    const auto filter =
        load_filter<Io, kReach, kChannels>(kVector, args.weights, channel, args.width, kChannels);
    float window[kReach][kChannels] = {};
    if (slots.source >= 0) {
#pragma unroll
      for (int i = 0; i < kReach - 1; ++i)
        if (filter.has(i)) unpack(load(args.state_len - (kReach - 1) + i), window[i]);
    }
    for (std::int64_t t = 0; t < args.tokens; t += kTokensAtOnce) {
      Packed<Io, kChannels> x[kTokensAtOnce] = {};
      if (slots.source >= 0) load_several(args.state_len + t, end, x);
#pragma unroll
      for (int u = 0; u < kTokensAtOnce; ++u) {
        if (t + u >= args.tokens) break;
        float out[kChannels];
        unpack(x[u], window[kReach - 1]);
        step_output(args, filter, slots, window, out);
        store_floats(kVector, static_cast<Io*>(args.out) + at(t + u), 1, kChannels, out);
        push(window);
      }
    }
    if (slots.destination < 0) return;
    for (std::int64_t k = 0; k < args.state_len;
         k += kTokensAtOnce) {  // steps are read before they are written
      Packed<Io, kChannels> steps[kTokensAtOnce] = {};
      load_several(k + args.tokens, end, steps);
#pragma unroll
      for (int u = 0; u < kTokensAtOnce; ++u) {
        if (k + u >= args.state_len) break;
        float step[kChannels];
        unpack(steps[u], step);
        store_floats(kVector, state(slots.destination, k + u), 1, kChannels, step);
      }
    }
  }
};

template <class Io, int kReach, int kChannels, bool kVector>
__global__ void __launch_bounds__(kUpdateThreads)
    steps_update(const ConvUpdateArgs args, const UpdatePlan plan) {
  const UpdatePosition at = update_position(plan, blockIdx.x, static_cast<int>(threadIdx.x));
  if (at.channel >= args.dim) return;
  RowSteps<Io, kReach, kChannels, kVector>{args, at.row, at.channel, slots_of(args, at.row)}.run();
}

}  // namespace ssmbench::window
