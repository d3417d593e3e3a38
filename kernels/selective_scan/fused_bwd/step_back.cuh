#pragma once

// The fast kernels of selective_scan_bwd: one step back in time, and the sums over lanes. The picture is in
// kernel.cuh.

#include "kernels/selective_scan/fused_bwd/coordinates.cuh"
#include "kernels/selective_scan/fused_bwd/map.h"
#include "kernels/selective_scan/states.cuh"

namespace ssmbench::fused_bwd {

/// Sums of one step: over a thread's states, of each of its channels, and over its channels, of each state.
struct StepSums {
  float by_exponent[kLaneChannels] = {};  ///< Σ A·log2(e)·Ā·g·h_before
  float by_input[kLaneChannels] = {};     ///< Σ g·B
  float y[kLaneChannels] = {};            ///< Σ C·h
  float dB[kLaneStates] = {}, dC[kLaneStates] = {};
};

/// One state, one step back; `before` and `after` are h before and after the step.
__device__ __forceinline__ void step_back(float& carry, float& dA, StepSums& sums, int r, int s,
                                          const StepInputs& step, float decay, float A, float B, float C,
                                          float before, float after) {
  const float g = fmaf(step.dy, C, carry);
  carry = decay * g;
  const float by_exponent = carry * before;
  dA = fmaf(step.delta, by_exponent, dA);
  sums.by_exponent[r] = fmaf(A, by_exponent, sums.by_exponent[r]);
  sums.by_input[r] = fmaf(g, B, sums.by_input[r]);
  sums.y[r] = fmaf(C, after, sums.y[r]);
  sums.dB[s] = fmaf(g, step.delta_u, sums.dB[s]);
  sums.dC[s] = fmaf(step.dy, after, sums.dC[s]);
}

/// The sum of a value over this lane and the one at `distance`: of the odd step in lanes that have the bit of
/// `distance`, of the even step in the others.
__device__ __forceinline__ float exchange_steps(float even, float odd, int distance, bool upper) {
  return (upper ? odd : even) + shuffle_xor(upper ? even : odd, distance);
}

/// Adds over the four lanes that share channels. even.…[0] is then of the lane's channel(0), and of the odd
/// step where lane bit 1 is set.
__device__ __forceinline__ void add_over_states(StepSums& even, StepSums& odd, int lane) {
  const bool upper = (lane & 2) != 0;
  const auto add = [&](float(&a)[kLaneChannels], float(&b)[kLaneChannels]) {
    a[0] += shuffle_xor(a[1], 4);
    b[0] += shuffle_xor(b[1], 4);
    a[0] = exchange_steps(a[0], b[0], 2, upper);
  };
  add(even.by_exponent, odd.by_exponent);
  add(even.by_input, odd.by_input);
  add(even.y, odd.y);
}

/// Adds over the eight lanes that share states. even.…[0] is then of the lane's state(0), and of the odd step
/// where lane bit 0 is set.
__device__ __forceinline__ void add_over_channels(StepSums& even, StepSums& odd, int lane) {
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

}  // namespace ssmbench::fused_bwd
