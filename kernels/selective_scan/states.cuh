#pragma once

// cuda-fused for selective_scan_bwd: the four states of a thread, to and from memory of any kind.

#include "kernels/common/complex.h"
#include "kernels/selective_scan/fused_general/map.h"

namespace ssmbench::fused_bwd {

template <class Value>
__device__ const Value* values(const float* floats) {
  return reinterpret_cast<const Value*>(floats);
}

// 16 or 32 bytes, aligned to 16.
__device__ inline void load_states(float (&to)[kFusedStates], const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}
__device__ inline void load_states(Complex (&to)[kFusedStates], const Complex* from) {
#pragma unroll
  for (int s = 0; s < kFusedStates; s += 2) {
    const float4 two = *reinterpret_cast<const float4*>(from + s);
    to[s] = {two.x, two.y};
    to[s + 1] = {two.z, two.w};
  }
}
__device__ inline void store_states(float* to, const float (&from)[kFusedStates]) {
  *reinterpret_cast<float4*>(to) = {from[0], from[1], from[2], from[3]};
}
__device__ inline void store_states(Complex* to, const Complex (&from)[kFusedStates]) {
#pragma unroll
  for (int s = 0; s < kFusedStates; s += 2)
    *reinterpret_cast<float4*>(to + s) = {from[s].re, from[s].im, from[s + 1].re, from[s + 1].im};
}

/// `count` of them, and zeros after these; all zeros where there is no memory.
template <class Value>
__device__ void load_states(Value (&to)[kFusedStates], const Value* memory, std::int64_t at, int count) {
#pragma unroll
  for (int s = 0; s < kFusedStates; ++s) to[s] = memory != nullptr && s < count ? memory[at + s] : Value{};
}

}  // namespace ssmbench::fused_bwd
