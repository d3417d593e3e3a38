#pragma once

// cuda-window, gradients, channels last: bound by reading x and dout and writing dx once.
//
// A thread walks down its run as forward_channels.cuh has it. At step t it makes g_t = dout_t·act'(s_t) from x
// and its window, adds g_t·x̃ to the gradients of its weights, and with g_t and the W−1 g before it finishes
// dx of step t−W+1. It goes W−1 steps beyond its run: their g are computed once more.
//
// Sums over time and batch in two stages without atomics: runs of a block in shared memory, in the order of
// the runs, one partial sum per block; then sum_partials adds the blocks' sums in their order.
//
// Four channels a thread: weights, their gradients (2 × 16), windows of x and g (2 × 12) and four steps of two
// tensors are some 100 registers, where eight channels would leave a quarter of the threads.

#include "kernels/causal_conv1d/window/forward_channels.cuh"

namespace ssmbench::window {

/// Sums of gradients of a thread, a block, or many.
template <int kReach, int kChannels>
struct FilterSums {
  float weight[kReach][kChannels];
  float bias[kChannels];
};

/// Where dout lies.
struct DoutStrides {
  std::int64_t batch, channel, step;
};

/// A block's partial sums, [batch × blocks along steps][kReach taps, bias][D].
template <int kReach>
__device__ float* partial_of(float* partials, std::int64_t partial, int term, std::int64_t channel,
                             std::int64_t dim) {
  return partials + (partial * (kReach + 1) + term) * dim + channel;
}

/// The sums of the block's runs, in their order.
template <int kReach, int kChannels>
__device__ void reduce_runs(const FilterSums<kReach, kChannels>& sums, const ChannelPlan& plan,
                            const ChannelPlace& place, std::int64_t dim, float* partials) {
  constexpr int kTerms = (kReach + 1) * kChannels;
  __shared__ float shared[kChannelThreads * kTerms];
  const int groups = plan.groups();
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
#pragma unroll
    for (int j = 0; j < kReach; ++j)
      shared[(place.run * kTerms + j * kChannels + c) * groups + place.group] = sums.weight[j][c];
    shared[(place.run * kTerms + kReach * kChannels + c) * groups + place.group] = sums.bias[c];
  }
  __syncthreads();
  const std::int64_t first = place.channel - std::int64_t{place.group} * kChannels;  // of the block
  for (int i = static_cast<int>(threadIdx.x); i < kTerms * groups; i += kChannelThreads) {
    float sum = 0.0F;
    for (int run = 0; run < plan.runs(); ++run) sum += shared[run * kTerms * groups + i];
    const int term = i / groups / kChannels;
    const std::int64_t channel = first + i % groups * kChannels + i / groups % kChannels;
    if (channel < dim) *partial_of<kReach>(partials, place.partial, term, channel, dim) = sum;
  }
}

/// g of the last kReach steps and what they are of, the oldest first.
template <int kReach, int kChannels>
struct AdjointWindow {
  float g[kReach][kChannels];
  int number[kReach];

  __device__ void push(const float (&newest)[kChannels], int newest_number) {
#pragma unroll
    for (int i = 0; i + 1 < kReach; ++i) {
      number[i] = number[i + 1];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) g[i][c] = g[i + 1][c];
    }
    number[kReach - 1] = newest_number;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) g[kReach - 1][c] = newest[c];
  }

  /// dx̃ of the oldest step.
  template <class Choice>
  __device__ void finish(const Filter<kReach, kChannels>& filter, float (&dx)[kChannels]) const {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) dx[c] = 0.0F;
#pragma unroll
    for (int j = 0; j < kReach; ++j) {
      const int later = kReach - 1 - j;
      const bool counts = filter.has(j) && (!Choice::kHasNumbers || number[later] == number[0]);
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        dx[c] = counts ? fmaf(filter.weight[j][c], g[later][c], dx[c]) : dx[c];
    }
  }
};

template <class Io, int kReach, class Choice>
struct ChannelGradients {
  static constexpr int kChannels = kBackwardChannels;
  static constexpr int kAhead = backward_steps_at_once(sizeof(Io));

  const ConvBackwardArgs& args;
  DoutStrides strides;
  ChannelRun<Io, kChannels, Choice> run;
  Filter<kReach, kChannels> filter;
  StepWindow<kReach, kChannels> window;
  AdjointWindow<kReach, kChannels> adjoints{};
  FilterSums<kReach, kChannels> sums{};

  __device__ ChannelGradients(const ConvBackwardArgs& all, const DoutStrides& dout, const ChannelPlan& plan,
                              Choice options)
      : args(all), strides(dout), run(all.in, options, plan) {}

  __device__ const Io* dout_at(std::int64_t t) const {
    return static_cast<const Io*>(args.dout) + run.place.batch * strides.batch +
           run.place.channel * strides.channel + t * strides.step;
  }

  /// Step t, which finishes dx of the step kReach − 1 before. kIsOwn: it adds to the sums.
  template <bool kIsOwn>
  __device__ void walk_step(std::int64_t t, const Packed<Io, kChannels>& packed_x,
                            const Packed<Io, kChannels>& packed_dout, float (&dx)[kChannels]) {
    float x[kChannels], g[kChannels];
    unpack(packed_x, x);
    unpack(packed_dout, g);
    const int number = run.number(t);
    if constexpr (Choice::kIsActivated != Is::no) {  // looked at: a select, a branch here takes longer
      float s[kChannels];
      convolve<Choice>(filter, window, x, number, s);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) g[c] *= Choice::silu(args.in) ? fast_silu_slope(s[c]).slope : 1.0F;
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      if (number < 0) g[c] = 0.0F;
    if constexpr (kIsOwn) add_to_sums(x, g, number);
    window.push(x, number);
    adjoints.push(g, number);
    adjoints.template finish<Choice>(filter, dx);
  }

  __device__ void add_to_sums(const float (&x)[kChannels], const float (&g)[kChannels], int number) {
#pragma unroll
    for (int j = 0; j < kReach - 1; ++j) {
      const bool counts = !Choice::kHasNumbers || window.number[j] == number;
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        sums.weight[j][c] = counts ? fmaf(g[c], window.x[j][c], sums.weight[j][c]) : sums.weight[j][c];
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      sums.weight[kReach - 1][c] = fmaf(g[c], x[c], sums.weight[kReach - 1][c]);
      sums.bias[c] += g[c];
    }
  }

  /// dx of a step at an end of the run: it may be another run's, one before the sequence, which is of
  /// dinitial_states, or one that dfinal_states add to.
  __device__ void store_end(std::int64_t t, float (&dx)[kChannels]) const {
    const int taps = args.in.taps();
    if (t < run.place.step && run.place.step > 0) return;
    const std::int64_t final = t - (args.in.seqlen - taps);
    if (args.dfinal_states != nullptr && final >= 0) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        if (c < run.valid)
          dx[c] += to_float(static_cast<const Io*>(args.dfinal_states)[run.state_offset(c) + final]);
    }
    if (t >= 0)
      return store_floats(run.options.by_vectors(), static_cast<Io*>(args.dx) + run.offset(t), 1, run.valid,
                          dx);
    if (args.dinitial_states == nullptr || t + taps < 0) return;
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      if (c < run.valid)
        static_cast<Io*>(args.dinitial_states)[run.state_offset(c) + t + taps] = from_float<Io>(dx[c]);
  }

  /// Steps first to last at an end of the run.
  template <bool kIsOwn>
  __device__ void walk_end(std::int64_t first, std::int64_t last) {
#pragma unroll 1
    for (std::int64_t t = first; t < last; ++t) {
      float dx[kChannels];
      const int valid = t < args.in.seqlen ? run.valid : 0;
      const auto dout =
          load_packed<Io, kChannels>(run.options.by_vectors(), dout_at(t), strides.channel, valid);
      walk_step<kIsOwn>(t, run.load_x(t), dout, dx);
      store_end(t - (kReach - 1), dx);
    }
  }

  /// Steps from t on as far as there are kAhead of them; returns the next.
  __device__ std::int64_t walk_body(std::int64_t t) {
    const std::int64_t dim = args.in.dim;
    const Io* next_x = static_cast<const Io*>(args.in.x) + run.offset(t);
    const Io* next_dout = dout_at(t);
    Io* to = static_cast<Io*>(args.dx) + run.offset(t - (kReach - 1));
    Packed<Io, kChannels> x_ahead[kAhead], dout_ahead[kAhead];
    const auto load = [&](std::int64_t step, int u) {
      const int valid = step < run.end ? run.valid : 0;
      x_ahead[u] = load_packed<Io, kChannels>(run.options.by_vectors(), next_x, 1, valid);
      dout_ahead[u] = load_packed<Io, kChannels>(run.options.by_vectors(), next_dout, strides.channel, valid);
      next_x += dim;
      next_dout += strides.step;
    };
#pragma unroll
    for (int u = 0; u < kAhead; ++u) load(t + u, u);
    for (; t + kAhead <= run.end; t += kAhead) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u, to += dim) {
        const Packed<Io, kChannels> x = x_ahead[u];
        const Packed<Io, kChannels> dout = dout_ahead[u];
        load(t + kAhead + u, u);
        float dx[kChannels];
        walk_step<true>(t + u, x, dout, dx);
        store_floats(run.options.by_vectors(), to, 1, run.valid, dx);
      }
    }
    return t;
  }

  __device__ void walk() {
    const std::int64_t begin = run.place.step;
    const std::int64_t body = begin + kReach < run.end ? begin + kReach : run.end;
    filter = load_filter<Io, kReach, kChannels>(run.options.by_vectors(), args.in.weights, run.place.channel,
                                                args.in.width, run.valid);
    window = run.template window_before<kReach>();
    if constexpr (Choice::kHasNumbers) {
#pragma unroll
      for (int i = 0; i < kReach; ++i) adjoints.number[i] = i > 0 ? window.number[i - 1] : -2;
    }
    walk_end<true>(begin, body);
    walk_end<true>(walk_body(body), run.end);
    walk_end<false>(run.end, run.end + kReach - 1);
  }
};

/// Two blocks on a multiprocessor where registers allow it.
template <class Io, int kReach, class Choice>
__global__ void __launch_bounds__(kChannelThreads, kReach == 4 ? 2 : 1)
    backward_channels(const ConvBackwardArgs args, const DoutStrides strides, const ChannelPlan plan,
                      float* partials, const Choice options) {
  ChannelGradients<Io, kReach, Choice> gradients(args, strides, plan, options);
  if (!gradients.run.is_empty()) gradients.walk();
  reduce_runs<kReach, kBackwardChannels>(gradients.sums, plan, gradients.run.place, args.in.dim, partials);
}

}  // namespace ssmbench::window
