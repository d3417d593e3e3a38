#pragma once

// What cuda-chunked computes per time step: Δ, sums of Δ·A and their exponentials. By one warp for a chunk: a
// lane has steps 2·lane and 2·lane + 1.

#include <cstdint>
#include <type_traits>

#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked/map.h"
#include "kernels/ssd_chunk_scan/chunked/ops.cuh"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/range.h"
#include "kernels/ssd_chunk_scan/sequences.h"

namespace ssmbench::chunked {

__device__ inline float power_of_two(int exponent) {
  return __int_as_float((exponent + 127) << 23);
}

/// x·2^result has its magnitude in [2^target, 2^(target + 1)); limited, so that what is large already can
/// be multiplied with it. 0 for x = 0.
__device__ inline int exponent_to(float magnitude, int target) {
  if (magnitude == 0.0F) return 0;
  const int exponent = (__float_as_int(magnitude) >> 23 & 0xFF) - 127;
  return max(-60, min(60, target - exponent));
}

/// What sums of Δ·A are multiplied with so that decay_of gives their exponentials.
template <class Op>
constexpr float kSumFactor = Op::kExact ? 1.0F : kLog2E;

template <class Op>
__device__ float decay_of(float sum) {
  if constexpr (Op::kExact) return expf(sum);
  return exp2_approximate(sum);
}

/// silu(z). For 16-bit tensors the error of the fast exponential, some 2^-24·|z|, is lost in the rounding of
/// the result; where they are f32 it is not.
template <class Op>
__device__ float gate(float z) {
  if constexpr (Op::kExact) return silu(z);
  const float exponential = sizeof(typename Op::Element) == 4 ? expf(-z) : exp2_approximate(-kLog2E * z);
  return z * reciprocal_approximate(1.0F + exponential);
}

/// dt (not yet Δ) and seq_idx of a lane's two steps; loaded early, since it waits for memory.
struct LaneSteps {
  float dt[2];
  int sequence[2];
  int sequence_before;  ///< of the step before the chunk, to which the state belongs that enters
};

template <class Io>
__device__ LaneSteps load_steps(const SsdInputs& in, const SsdSequence& sequence, std::int64_t h,
                                std::int64_t start) {
  LaneSteps steps{};
  const Io* dt = static_cast<const Io*>(in.dt);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t time = start + 2 * lane_id() + i;
    if (time < sequence.steps) steps.dt[i] = to_float(dt[(sequence.begin + time) * in.nheads + h]);
    if (in.seq_idx != nullptr) steps.sequence[i] = in.seq_idx[sequence.begin + min(time, sequence.steps - 1)];
  }
  if (in.seq_idx != nullptr && start > 0) steps.sequence_before = in.seq_idx[sequence.begin + start - 1];
  return steps;
}

/// For the chunk whose first step has `left` steps of the sequence left, itself included.
template <class Op>
__device__ void compute_scalars(ChunkScalars& to, const LaneSteps& steps, const SsdInputs& in, float A,
                                float bias, std::int64_t left) {
  using Sum = std::conditional_t<Op::kSplitSums, double, float>;
  const StepRule rule{in.dt_softplus, in.dt_low, in.dt_high};
  constexpr unsigned kAll = 0xFFFFFFFFU;
  float delta[2];
  Sum sum[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool inside = 2 * lane_id() + i < left;
    delta[i] = inside ? step_size(steps.dt[i], bias, rule) : 0.0F;
    sum[i] = static_cast<Sum>(delta[i]) * static_cast<Sum>(A) * static_cast<Sum>(kSumFactor<Op>);
  }
  Sum total = sum[0] + sum[1];
  for (int distance = 1; distance < 32; distance *= 2) {
    const Sum before = __shfl_up_sync(kAll, total, distance);
    if (lane_id() >= distance) total += before;
  }
  Sum before = __shfl_up_sync(kAll, total, 1);
  if (lane_id() == 0) before = 0;
  sum[0] += before;
  sum[1] = total;
  const Sum end = __shfl_sync(kAll, total, 31);
  const int last_sequence = __shfl_sync(kAll, steps.sequence[1], 31);

  float weight[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    weight[i] =
        steps.sequence[i] == last_sequence ? delta[i] * decay_of<Op>(static_cast<float>(end - sum[i])) : 0.0F;
  // By the largest weight and not by the largest Δ, which may be that of a sequence that ended in the chunk.
  float scale = 1.0F;
  float unscale = 1.0F;
  if constexpr (Op::kNarrowRange) {
    float largest = fmaxf(fabsf(weight[0]), fabsf(weight[1]));
    for (int distance = 16; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, distance));
    const int exponent = exponent_to(largest, kWeightTarget);
    scale = power_of_two(exponent);
    unscale = power_of_two(-exponent);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int step = 2 * lane_id() + i;
    const auto rounded = static_cast<float>(sum[i]);
    to.sum[step] = rounded;
    if constexpr (Op::kSplitSums) to.sum_rest[step] = static_cast<float>(sum[i] - static_cast<Sum>(rounded));
    to.delta[step] = delta[i];
    to.weight[step] = scale * weight[i];
    to.carry[step] = steps.sequence[i] == steps.sequence_before ? decay_of<Op>(rounded) : 0.0F;
    to.sequence[step] = steps.sequence[i];
  }
  if (lane_id() == 0) {
    to.decay = last_sequence == steps.sequence_before ? decay_of<Op>(static_cast<float>(end)) : 0.0F;
    to.scale = scale;
    to.unscale = unscale;
  }
}

}  // namespace ssmbench::chunked
