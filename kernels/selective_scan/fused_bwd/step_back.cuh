#pragma once

// The common case of cuda-fused for selective_scan_bwd: one step back in time, and the sums over lanes. The
// picture is in fused_bwd_parallel.cu.

#include "kernels/selective_scan/fused_bwd/map.h"
#include "kernels/selective_scan/fused_bwd_general/sums.cuh"

namespace ssmbench::parallel_bwd {

using fused_bwd::shuffle_xor;

/// Sums of one step: over a thread's states, of each of its channels, and over its channels, of each state.
struct StepSums {
  float of_exponent[kLaneChannels] = {};  ///< Σ A·log2(e)·Ā·g·h_before
  float of_input[kLaneChannels] = {};     ///< Σ g·B
  float y[kLaneChannels] = {};            ///< Σ C·h
  float dB[kLaneStates] = {}, dC[kLaneStates] = {};
};

/// One state, one step back. `step` is {Δ, Δ·u, dy, u}; h before and after it.
__device__ inline void step_back(float& carry, float& dA, StepSums& sums, int r, int s, const float4& step,
                                 float decay, float A, float B, float C, float before, float after) {
  const float g = fmaf(step.z, C, carry);
  carry = decay * g;
  const float of_exponent = carry * before;
  dA = fmaf(step.x, of_exponent, dA);
  sums.of_exponent[r] = fmaf(A, of_exponent, sums.of_exponent[r]);
  sums.of_input[r] = fmaf(g, B, sums.of_input[r]);
  sums.y[r] = fmaf(C, after, sums.y[r]);
  sums.dB[s] = fmaf(g, step.y, sums.dB[s]);
  sums.dC[s] = fmaf(step.z, after, sums.dC[s]);
}

/// The sum of a value over this lane and the one at `distance`: of the odd step in lanes that have the bit of
/// `distance`, of the even step in the others.
__device__ inline float exchange_steps(float even, float odd, int distance, bool upper) {
  return (upper ? odd : even) + shuffle_xor(upper ? even : odd, distance);
}

/// Adds over the four lanes that share channels. even.…[0] is then of the lane's channel(0), and of the odd
/// step where lane bit 1 is set.
__device__ inline void add_over_states(StepSums& even, StepSums& odd, int lane) {
  const bool upper = (lane & 2) != 0;
  const auto add = [&](float(&a)[kLaneChannels], float(&b)[kLaneChannels]) {
    a[0] += shuffle_xor(a[1], 4);
    b[0] += shuffle_xor(b[1], 4);
    a[0] = exchange_steps(a[0], b[0], 2, upper);
  };
  add(even.of_exponent, odd.of_exponent);
  add(even.of_input, odd.of_input);
  add(even.y, odd.y);
}

/// Adds over the eight lanes that share states. even.…[0] is then of the lane's state(0), and of the odd step
/// where lane bit 0 is set.
__device__ inline void add_over_channels(StepSums& even, StepSums& odd, int lane) {
  const bool upper = (lane & 1) != 0;
  const auto add = [&](float(&a)[kLaneStates]) {
    a[0] += shuffle_xor(a[2], 16);
    a[1] += shuffle_xor(a[3], 16);
    a[0] += shuffle_xor(a[1], 8);
  };
  add(even.dB);
  add(even.dC);
  add(odd.dB);
  add(odd.dC);
  even.dB[0] = exchange_steps(even.dB[0], odd.dB[0], 1, upper);
  even.dC[0] = exchange_steps(even.dC[0], odd.dC[0], 1, upper);
}

}  // namespace ssmbench::parallel_bwd
