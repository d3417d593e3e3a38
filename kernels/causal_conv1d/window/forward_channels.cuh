#pragma once

// cuda-window, forward, channels last: bound by reading x and writing out once.
//
//            lanes 0 … 31, 16 bytes each ──────►  d
//   step 0   ┌────┬────┬────┬────┐   a thread walks down its run of steps with the W−1 steps before in
//   step 1   ├────┼────┼────┼────┤   registers; copies to shared memory are two rounds of W steps ahead
//    …       │    ▼    ▼    ▼    │
//   run 1    ├────┼────┼────┼────┤   the next warp of the block; it reads the W−1 steps before its run once
//    …                               more, which are in the first-level cache

#include "kernels/causal_conv1d/window/channels.cuh"

namespace ssmbench::window {

template <class Io, int kReach, int kChannels, class Choice>
struct ChannelOutputs {
  using Ring = StepRing<Io, kChannels, Choice, kReach, 1>;
  const ConvForwardArgs& args;
  const ChannelRun<Io, kChannels, Choice>& run;
  Ring ring;
  const Io *next, *end;
  Io* to;

  __device__ ChannelOutputs(const ConvForwardArgs& all, const ChannelRun<Io, kChannels, Choice>& steps,
                            const ChannelPlan& plan, void* memory)
      : args(all),
        run(steps),
        ring(memory, plan, steps),
        next(static_cast<const Io*>(all.in.x) + steps.offset(0)),
        end(static_cast<const Io*>(all.in.x) + all.in.batch * all.in.seqlen * all.in.dim),
        to(static_cast<Io*>(all.out) + steps.offset(0)) {}

  /// Starts to copy the round at t.
  __device__ void copy(int t) {
#pragma unroll
    for (int u = 0; u < kReach; ++u, next += args.in.dim) ring.copy(run, u, 0, next, t + u < run.steps, end);
    copy_async_commit();
  }

  /// kIsWhole: the run has all steps of the round.
  template <bool kIsWhole>
  __device__ void round(int t, const Filter<kReach, kChannels>& filter,
                        StepWindow<kReach, kChannels>& window) {
    int numbers[kReach];
    run.load_numbers(t, numbers);
#pragma unroll
    for (int u = 0; u < kReach; ++u, to += args.in.dim) {
      unpack(ring.read(run, u, 0, to), window.x[u]);
      window.number[u] = numbers[u];
      float s[kChannels];
      window.template convolve<Choice>(filter, u, s);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        if (Choice::silu(args.in)) s[c] = fast_silu(s[c]);
        if (window.number[u] < 0) s[c] = 0.0F;
      }
      run.store(to, s, kIsWhole || t + u < run.steps);
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
    int t = 0;
    for (; t + kReach <= run.shortest; t += kReach, ahead += kReach) {
      copy_async_wait<Ring::kRounds - 1>();
      run.synchronize();
      round<true>(t, filter, window);
      run.synchronize();
      copy(ahead);
      ring.advance();
    }
    for (; t < run.longest; t += kReach, ahead += kReach) {
      copy_async_wait<Ring::kRounds - 1>();
      run.synchronize();
      round<false>(t, filter, window);
      run.synchronize();
      copy(ahead);
      ring.advance();
    }
  }

  __device__ void store_final_states() const {
    const int taps = args.in.taps();
    if (args.final_states == nullptr || !run.is_last()) return;
    for (int i = 0; i < taps; ++i) {
      float x[kChannels];
      run.load_step(run.steps - taps + i, x);
#pragma unroll
      for (int c = 0; c < kChannels; ++c)
        if (c < run.stored)
          static_cast<Io*>(args.final_states)[run.state_offset(c) + i] = from_float<Io>(x[c]);
    }
  }
};

template <class Io, int kReach, int kChannels, class Choice>
__global__ void __launch_bounds__(kChannelThreads, kChannelBlocks)
    forward_channels(const ConvForwardArgs args, const ChannelPlan plan, const Choice options) {
  extern __shared__ uint4 ring_memory[];
  const ChannelRun<Io, kChannels, Choice> run(args.in, options, plan);
  if (run.is_empty()) return;
  ChannelOutputs<Io, kReach, kChannels, Choice> outputs(args, run, plan, ring_memory);
  outputs.walk();
  outputs.store_final_states();
}

}  // namespace ssmbench::window
