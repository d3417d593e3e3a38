#pragma once

// The general kernels of selective_scan_bwd: sums over the channels of a warp, the lanes of a channel, the
// steps of a segment. The order of each is fixed.

#include "kernels/common/complex.h"
#include "kernels/common/vector.cuh"
#include "kernels/selective_scan/fused_bwd_general/map.h"
#include "kernels/selective_scan/states.cuh"

namespace ssmbench::fused_bwd_general {

using fused_general::GeneralPlan;
using fused_general::kThreadStates;

/// Reduces 2·half sums over this thread and its partner at `distance`: this thread keeps the upper half of
/// the sums if `upper`, else the lower, and the partner the other.
template <int half, class Value, int count>
__device__ void exchange_halves(Value (&sums)[count], int distance, bool upper) {
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const Value given = upper ? sums[i] : sums[i + half];
    const Value kept = upper ? sums[i + half] : sums[i];
    sums[i] = kept + shuffle_xor(given, distance);
  }
}

/// Sums over the channels of a warp of dB (sums 0 to 3) and dC (4 to 7) of a thread's states, to `to`. Lanes
/// in bits below those of the channel; 16 is the highest bit of either.
template <class Value>
__device__ void add_channels(Value (&sums)[2 * kThreadStates], Value* to, const GeneralBackwardPlan& plan) {
  const int lanes = plan.tile.lanes_in_warp();
  const int thread = threadIdx.x;
  const int lane = thread & (lanes - 1);
  to += lane * kThreadStates;
  if (lanes == 32) {
#pragma unroll
    for (int which = 0; which < 2; ++which)
#pragma unroll
      for (int s = 0; s < kThreadStates; ++s) to[plan.sum_at(which, s)] = sums[which * kThreadStates + s];
    return;
  }
  exchange_halves<4>(sums, 16, thread & 16);
  to += (thread & 16) != 0 ? plan.sum_at(1, 0) : 0;
  if (lanes == 16) {
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s) to[s] = sums[s];
    return;
  }
  exchange_halves<2>(sums, 8, thread & 8);
  to += (thread & 8) != 0 ? 2 : 0;
  if (lanes == 8) {
    to[0] = sums[0];
    to[1] = sums[1];
    return;
  }
  exchange_halves<1>(sums, 4, thread & 4);
  to += (thread & 4) != 0 ? 1 : 0;
  for (int distance = 2; distance >= lanes; distance /= 2) sums[0] = sums[0] + shuffle_xor(sums[0], distance);
  if ((thread & 3) == lane) *to = sums[0];
}

/// Sums over the lanes of a channel of du, ∂Δ and y, to `to` (one step of one channel of tiles.sums).
__device__ inline void add_lanes(float (&sums)[4], float* to, const GeneralPlan& plan) {
  const int lanes = plan.lanes_in_warp();
  const int lane = plan.lane_of(threadIdx.x) & (lanes - 1);
  const int pitch = plan.partials() * plan.sequence_floats();
  to += plan.partial_of(threadIdx.x) * plan.sequence_floats();
  if (lanes == 1) {
#pragma unroll
    for (int k = 0; k < kBackwardSums; ++k) to[k * pitch] = sums[k];
    return;
  }
  const bool upper = (lane & (lanes / 2)) != 0;
  exchange_halves<2>(sums, lanes / 2, upper);
  if (lanes == 2) {
    to[upper ? 2 * pitch : 0] = sums[0];
    if (!upper) to[pitch] = sums[1];
    return;
  }
  const bool odd = (lane & (lanes / 4)) != 0;
  exchange_halves<1>(sums, lanes / 4, odd);
  for (int distance = lanes / 8; distance > 0; distance /= 2) sums[0] += shuffle_xor(sums[0], distance);
  const int which = (upper ? 2 : 0) + (odd ? 1 : 0);
  if ((lane & (lanes / 4 - 1)) == 0 && which < kBackwardSums) to[which * pitch] = sums[0];
}

/// Sums of a thread's four states over the steps of a tile are added to its totals in shared memory, and
/// those are kept in the workspace from one segment to the one before.
template <class Value>
class Totals {
 public:
  __device__ Totals(Value* shared, const GeneralBackwardPlan& plan)
      : own_(shared + threadIdx.x * kThreadStates), pitch_(plan.tile.threads() * kThreadStates) {}

  /// Calls call(index of a total, where it is kept in the workspace).
  template <class Call>
  __device__ void for_each(const GeneralBackwardPlan& plan, const GeneralBackwardWorkspace& at,
                           const Call& call) const {
    call(0, at.dA);
    if (plan.constant_b) call(1, at.dB);
    if (plan.constant_c) call(plan.constant_b ? 2 : 1, at.dC);
  }
  __device__ void add(int index, const Value (&sums)[kThreadStates]) const {
    Value total[kThreadStates];
    load_vectors(total, own_ + index * pitch_);
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s) total[s] = total[s] + sums[s];
    store_vectors(own_ + index * pitch_, total);
  }
  /// From (B, D, N) in the workspace, or zeros where that is null.
  __device__ void load(int index, const float* from, std::int64_t at, int count) const {
    Value total[kThreadStates];
    load_states(total, values_of<Value>(from), at, count);
    store_vectors(own_ + index * pitch_, total);
  }
  __device__ void save(int index, float* to, std::int64_t at, int count) const {
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s)
      if (s < count) reinterpret_cast<Value*>(to)[at + s] = own_[index * pitch_ + s];
  }

 private:
  Value* own_;
  int pitch_;
};

}  // namespace ssmbench::fused_bwd_general
