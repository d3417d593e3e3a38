#pragma once

// cuda-window, gradients, channels last: bound by reading x and dout and writing dx once.
//
// A thread walks down its run as forward_channels.cuh has it. At step t it makes g_t = dout_t·act'(s_t) from x
// and its window, adds g_t·x̃ to the gradients of its weights, and with g_t and the W−1 g before it finishes
// dx of step t−W+1. It goes W−1 steps beyond its run: their g are computed once more.
//
// Sums over time and batch in two stages without atomics: runs of a block in shared memory, in the order of
// the runs, one partial sum per block; then sum_partials adds the blocks' sums in their order.

#include "kernels/causal_conv1d/window/channels.cuh"
#include "kernels/common/hopper/dependent_launch.cuh"

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

/// A block's partial sums, [blocks along steps][kReach taps, bias][D].
template <int kReach>
__device__ float* partial_of(float* partials, std::int64_t partial, int term, std::int64_t channel,
                             std::int64_t dim) {
  return partials + (partial * (kReach + 1) + term) * dim + channel;
}

/// The sums of the block's runs, in their order.
template <int kReach, int kChannels>
__device__ void reduce_runs(const FilterSums<kReach, kChannels>& sums, const ChannelPlan& plan,
                            const ChannelPosition& at, std::int64_t dim, float* shared, float* partials) {
  constexpr int kTerms = (kReach + 1) * kChannels;
  const int groups = plan.groups();
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
#pragma unroll
    for (int j = 0; j <= kReach; ++j)
      shared[((at.run * (kReach + 1) + j) * groups + at.group) * kChannels + c] =
          j < kReach ? sums.weight[j < kReach ? j : 0][c] : sums.bias[c];
  }
  __syncthreads();
  const int channels = groups * kChannels;
  const std::int64_t first = at.channel - at.group * kChannels;  // of the block
  for (int i = static_cast<int>(threadIdx.x); i < kTerms * groups; i += kChannelThreads) {
    float sum = 0.0F;
#pragma unroll 4
    for (int run = 0; run < plan.runs(); ++run) sum += shared[run * kTerms * groups + i];
    const int term = i >> plan.channels_log2();
    const std::int64_t channel = first + (i & (channels - 1));
    const bool is_own = (i & (channels - 1)) >= plan.shared_groups * kChannels;
    if (is_own && channel < dim) *partial_of<kReach>(partials, at.run_tile, term, channel, dim) = sum;
  }
}

template <class Io, int kReach, class Choice>
struct ChannelGradients {
  static constexpr int kChannels = kBackwardChannels;
  using Ring = StepRing<Io, kChannels, Choice, kReach, 2>;

  const ConvBackwardArgs& args;
  DoutStrides strides;
  ChannelRun<Io, kChannels, Choice> run;
  Ring ring;
  const Io *next_x, *next_dout;
  Io* to;     ///< dx of the step kReach − 1 before the next
  int limit;  ///< steps before this one are loaded
  FilterSums<kReach, kChannels> sums{};

  __device__ ChannelGradients(const ConvBackwardArgs& all, const DoutStrides& dout, const ChannelPlan& plan,
                              Choice options, void* memory)
      : args(all),
        strides(dout),
        run(all.in, options, plan),
        ring(memory, plan, run),
        next_x(static_cast<const Io*>(all.in.x) + run.offset(0)),
        next_dout(static_cast<const Io*>(all.dout) + run.at.batch * strides.batch +
                  run.at.channel * strides.channel + run.at.step * strides.step),
        to(static_cast<Io*>(all.dx) + run.offset(-(kReach - 1))),
        limit(run.steps + kReach - 1 < run.left ? run.steps + kReach - 1 : run.left) {}

  __device__ std::int64_t elements() const { return args.in.batch * args.in.seqlen * args.in.dim; }
  /// Else it lies as in the other layout.
  __device__ bool copies_dout() const { return Choice::kIsPlain || strides.channel == 1; }
  /// dout of step t.
  __device__ void load_dout(int t, float (&to)[kChannels]) const {
    const Io* const from = static_cast<const Io*>(args.dout) + run.at.batch * strides.batch +
                           run.at.channel * strides.channel + (run.at.step + t) * strides.step;
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      to[c] = t < limit && c < run.channels() ? to_float(from[c * strides.channel]) : 0.0F;
  }

  /// Starts to copy the round at t.
  __device__ void copy(int t) {
#pragma unroll
    for (int u = 0; u < kReach; ++u) {
      ring.copy(run, u, 0, next_x, t + u < limit, static_cast<const Io*>(args.in.x) + elements());
      if (copies_dout())
        ring.copy(run, u, 1, next_dout, t + u < limit, static_cast<const Io*>(args.dout) + elements());
      next_x += args.in.dim;
      next_dout += strides.step;
    }
    copy_async_commit();
  }

  __device__ void add_to_sums(const StepWindow<kReach, kChannels>& window, int u,
                              const float (&g)[kChannels]) {
#pragma unroll
    for (int j = 0; j < kReach; ++j) {
      const int step = (u + 1 + j) % kReach;
      const bool counts = !Choice::kHasNumbers || window.number[step] == window.number[u];
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        sums.weight[j][c] = counts ? fmaf(g[c], window.x[step][c], sums.weight[j][c]) : sums.weight[j][c];
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c) sums.bias[c] += g[c];
  }

  /// dx̃ of the step kReach − 1 before step u, whose g is the newest.
  __device__ void finish(const Filter<kReach, kChannels>& filter, const StepWindow<kReach, kChannels>& window,
                         const float (&g)[kReach][kChannels], int u, float (&dx)[kChannels]) const {
    const int oldest = (u + 1) % kReach;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) dx[c] = filter.weight[kReach - 1][c] * g[oldest][c];
#pragma unroll
    for (int j = kReach - 2; j >= 0; --j) {
      const int later = (u - j + kReach) % kReach;
      const bool counts =
          Choice::has(filter, j) && (!Choice::kHasNumbers || window.number[later] == window.number[oldest]);
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        dx[c] = counts ? fmaf(filter.weight[j][c], g[later][c], dx[c]) : dx[c];
    }
  }

  /// dx of step t at an end of the run: it may be another run's, one before the sequence, which is of
  /// dinitial_states, or one that dfinal_states add to.
  __device__ void store_end(int t, float (&dx)[kChannels]) const {
    const int taps = args.in.taps();
    const int final = t - (run.steps - taps);
    if (args.dfinal_states != nullptr && run.is_last() && final >= 0 && t < run.steps) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        if (c < run.channels())
          dx[c] += to_float(static_cast<const Io*>(args.dfinal_states)[run.state_offset(c) + final]);
    }
    run.store(to, dx, t >= 0 && t < run.steps);
    if (args.dinitial_states == nullptr || !run.is_first() || t >= 0 || t + taps < 0) return;
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      if (c < run.stored)
        static_cast<Io*>(args.dinitial_states)[run.state_offset(c) + t + taps] = from_float<Io>(dx[c]);
  }

  /// kIsInner: the run has all of the round's steps and those whose dx they finish.
  template <bool kIsInner>
  __device__ void round(int t, const Filter<kReach, kChannels>& filter, StepWindow<kReach, kChannels>& window,
                        float (&g)[kReach][kChannels]) {
    int numbers[kReach];
    run.load_numbers(t, numbers);
#pragma unroll
    for (int u = 0; u < kReach; ++u, to += args.in.dim) {
      const Io* const row = to + (kReach - 1) * args.in.dim;
      unpack(ring.read(run, u, 0, row), window.x[u]);
      if (copies_dout())
        unpack(ring.read(run, u, 1, row), g[u]);
      else
        load_dout(t + u, g[u]);
      window.number[u] = numbers[u];
      if constexpr (Choice::kIsActivated != Is::no) {  // looked at: a select, a branch here takes longer
        float s[kChannels];
        window.template convolve<Choice>(filter, u, s);
#pragma unroll
        for (int c = 0; c < kChannels; ++c)
          g[u][c] *= Choice::silu(args.in) ? fast_silu_slope(s[c]).slope : 1.0F;
      }
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        if (window.number[u] < 0 || (!kIsInner && t + u >= run.left)) g[u][c] = 0.0F;
      if (kIsInner || t + u < run.steps) add_to_sums(window, u, g[u]);
      float dx[kChannels];
      finish(filter, window, g, u, dx);
      if constexpr (kIsInner)
        run.store(to, dx, true);
      else
        store_end(t + u - (kReach - 1), dx);
    }
  }

  __device__ void walk() {
    int ahead = 0;
#pragma unroll
    for (int i = 0; i < Ring::kRounds; ++i, ahead += kReach) {
      copy(ahead);
      ring.advance();
    }
    const auto filter = load_filter<Io, kReach, kChannels>(run.options.by_vectors(), args.in.weights,
                                                           run.at.channel, args.in.width, run.channels());
    StepWindow<kReach, kChannels> window(run);
    float g[kReach][kChannels] = {};
    for (int t = 0; t < run.longest + kReach - 1; t += kReach, ahead += kReach) {
      copy_async_wait<Ring::kRounds - 1>();
      run.synchronize();
      if (t > 0 && t + kReach <= run.shortest)
        round<true>(t, filter, window, g);
      else
        round<false>(t, filter, window, g);
      run.synchronize();
      copy(ahead);
      ring.advance();
    }
  }
};

/// Dynamic shared memory of a block: the ring, and after it sums.
template <class Io, int kReach, class Choice>
int backward_channel_bytes(const ChannelPlan& plan) {
  return std::max(StepRing<Io, kBackwardChannels, Choice, kReach, 2>::bytes(plan),
                  kChannelThreads * (kReach + 1) * kBackwardChannels * static_cast<int>(sizeof(float)));
}

template <class Io, int kReach, class Choice>
__global__ void __launch_bounds__(kChannelThreads, kReach == 4 ? kChannelBlocks : 1)
    backward_channels(const ConvBackwardArgs args, const DoutStrides strides, const ChannelPlan plan,
                      float* partials, const Choice options) {
  extern __shared__ uint4 ring_memory[];
  ChannelGradients<Io, kReach, Choice> gradients(args, strides, plan, options, ring_memory);
  if (!gradients.run.is_empty()) gradients.walk();
  hopper::launch_dependents();
  copy_async_wait<0>();
  __syncthreads();
  reduce_runs(gradients.sums, plan, gradients.run.at, args.in.dim, reinterpret_cast<float*>(ring_memory),
              partials);
}

}  // namespace ssmbench::window
