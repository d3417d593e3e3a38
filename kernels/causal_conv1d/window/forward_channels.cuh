#pragma once

// cuda-window, forward, channels last: bound by reading x and writing out once.
//
//            lanes 0 … 31, 16 bytes each ──────►  d
//   step 0   ┌────┬────┬────┬────┐   a thread walks down its run of steps with the W−1 steps before in
//   step 1   ├────┼────┼────┼────┤   registers; its loads are kStepsAtOnce steps ahead
//    …       │    ▼    ▼    ▼    │
//   run 1    ├────┼────┼────┼────┤   the next warp of the block; it reads the W−1 steps before its run once
//    …                               more, which are in the first-level cache
//
// Weights (4 × 8), bias, window (3 × 8) and four vectors of 16 bytes are some 100 registers: two blocks on a
// multiprocessor.

#include "kernels/causal_conv1d/window/elements.cuh"
#include "kernels/causal_conv1d/window/map.h"
#include "kernels/causal_conv1d/window/options.h"

namespace ssmbench::window {

/// The steps before the next one, and their sequences' numbers; the oldest first.
template <int kReach, int kChannels>
struct StepWindow {
  float x[kReach - 1][kChannels];
  int number[kReach - 1];

  __device__ void push(const float (&newest)[kChannels], int newest_number) {
#pragma unroll
    for (int i = 0; i + 1 < kReach - 1; ++i) {
      number[i] = number[i + 1];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) x[i][c] = x[i + 1][c];
    }
    number[kReach - 2] = newest_number;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) x[kReach - 2][c] = newest[c];
  }
};

/// A thread's place in the tensors of layout bld.
template <class Io, int kChannels, class Choice>
struct ChannelRun {
  const ConvInputs1d& in;
  Choice options;
  ChannelPlace place;
  std::int64_t end;  ///< of the run
  int valid;         ///< channels

  __device__ ChannelRun(const ConvInputs1d& inputs, Choice chosen, const ChannelPlan& plan)
      : in(inputs),
        options(chosen),
        place(channel_place(plan, blockIdx.x, static_cast<int>(threadIdx.x))),
        end(place.step + plan.steps < inputs.seqlen ? place.step + plan.steps : inputs.seqlen),
        valid(valid_of(place.channel, kChannels, inputs.dim)) {}

  __device__ bool is_empty() const { return valid <= 0 || place.step >= end; }
  __device__ std::int64_t offset(std::int64_t t) const {
    return (place.batch * in.seqlen + t) * in.dim + place.channel;
  }
  __device__ Packed<Io, kChannels> load_x(std::int64_t t) const {
    return load_packed<Io, kChannels>(options.by_vectors(), static_cast<const Io*>(in.x) + offset(t), 1,
                                      t < in.seqlen ? valid : 0);
  }
  __device__ int number(std::int64_t t) const { return options.number(in, place.batch, t); }
  __device__ std::int64_t state_offset(int c) const {
    return (place.batch * in.dim + place.channel + c) * in.taps();
  }

  /// x̃ of a step before the run.
  __device__ void load_before(std::int64_t t, float (&to)[kChannels]) const {
    if (t >= 0) return unpack(load_x(t), to);
    const std::int64_t i = t + in.taps();
    const auto* states = static_cast<const Io*>(in.initial_states);
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      to[c] = states != nullptr && i >= 0 && c < valid ? to_float(states[state_offset(c) + i]) : 0.0F;
  }
  template <int kReach>
  __device__ StepWindow<kReach, kChannels> window_before() const {
    StepWindow<kReach, kChannels> window;
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i) {
      const std::int64_t t = place.step - (kReach - 1) + i;
      load_before(t, window.x[i]);
      window.number[i] = number(t);
    }
    return window;
  }
};

/// s of one step.
template <class Choice, int kReach, int kChannels>
__device__ void convolve(const Filter<kReach, kChannels>& filter, const StepWindow<kReach, kChannels>& window,
                         const float (&x)[kChannels], int number, float (&s)[kChannels]) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) s[c] = filter.bias[c];
#pragma unroll
  for (int j = 0; j < kReach - 1; ++j) {
    const bool counts = filter.has(j) && (!Choice::kHasNumbers || window.number[j] == number);
#pragma unroll
    for (int c = 0; c < kChannels; ++c)  // predicated, not a branch
      s[c] = counts ? fmaf(filter.weight[j][c], window.x[j][c], s[c]) : s[c];
  }
#pragma unroll
  for (int c = 0; c < kChannels; ++c) s[c] = fmaf(filter.weight[kReach - 1][c], x[c], s[c]);
}

/// One step: x is what has been loaded, `to` where out of the step is.
template <class Io, int kReach, int kChannels, class Choice>
__device__ void forward_step(const ChannelRun<Io, kChannels, Choice>& run,
                             const Filter<kReach, kChannels>& filter, StepWindow<kReach, kChannels>& window,
                             std::int64_t t, const Packed<Io, kChannels>& packed, Io* to) {
  float x[kChannels], s[kChannels];
  unpack(packed, x);
  const int number = run.number(t);
  convolve<Choice>(filter, window, x, number, s);
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    if (Choice::silu(run.in)) s[c] = fast_silu(s[c]);
    if (number < 0) s[c] = 0.0F;
  }
  store_floats(run.options.by_vectors(), to, 1, run.valid, s);
  window.push(x, number);
}

template <class Io, int kReach, int kChannels, class Choice>
__global__ void __launch_bounds__(kChannelThreads, 2)
    forward_channels(const ConvForwardArgs args, const ChannelPlan plan, const Choice options) {
  const ChannelRun<Io, kChannels, Choice> run(args.in, options, plan);
  if (run.is_empty()) return;
  const std::int64_t begin = run.place.step;
  const std::int64_t dim = args.in.dim;
  const Io* next = static_cast<const Io*>(args.in.x) + run.offset(begin);
  Io* to = static_cast<Io*>(args.out) + run.offset(begin);

  Packed<Io, kChannels> ahead[kStepsAtOnce];
#pragma unroll
  for (int u = 0; u < kStepsAtOnce; ++u, next += dim)
    ahead[u] = load_packed<Io, kChannels>(options.by_vectors(), next, 1, begin + u < run.end ? run.valid : 0);
  const auto filter = load_filter<Io, kReach, kChannels>(options.by_vectors(), args.in.weights,
                                                         run.place.channel, args.in.width, run.valid);
  auto window = run.template window_before<kReach>();

  std::int64_t t = begin;
  for (; t + kStepsAtOnce <= run.end; t += kStepsAtOnce) {
#pragma unroll
    for (int u = 0; u < kStepsAtOnce; ++u, next += dim, to += dim) {
      const Packed<Io, kChannels> now = ahead[u];
      ahead[u] = load_packed<Io, kChannels>(options.by_vectors(), next, 1,
                                            t + kStepsAtOnce + u < run.end ? run.valid : 0);
      forward_step(run, filter, window, t + u, now, to);
    }
  }
#pragma unroll
  for (int u = 0; u + 1 < kStepsAtOnce; ++u, to += dim)  // the last steps of the sequence
    if (t + u < run.end) forward_step(run, filter, window, t + u, ahead[u], to);
  if (args.final_states == nullptr || run.end < args.in.seqlen) return;
#pragma unroll
  for (int c = 0; c < kChannels; ++c)
#pragma unroll
    for (int i = 0; i < kReach - 1; ++i)
      if (c < run.valid && filter.has(i))
        static_cast<Io*>(args.final_states)[run.state_offset(c) + i - filter.unused] =
            from_float<Io>(window.x[i][c]);
}

}  // namespace ssmbench::window
