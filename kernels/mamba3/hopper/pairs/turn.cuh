#pragma once

// How q and k of a head are made of those of its group:
//
//   q_t = Rot(θ_t)(Q_t + bias),  k_t = Rot(θ_t)(K_t + bias)
//
// θ_t is the sum of what the chunks before add and of the step's phase within its chunk, which another kernel
// has made (phases.cuh). A producer warp adds the former up (producer.cuh), the warpgroup of a head's state
// turns k from one tile of shared memory to another (turn_keys), and that of its outputs turns q in the
// registers in which it is an operand (turn_queries). Only the first 64 states turn.

#include "kernels/common/io_types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/mamba3/hopper/pairs/block.cuh"
#include "kernels/mamba3/phase.h"

namespace ssmbench::mamba3_pairs {

// A 16-bit phase is the lower half of the float 2^23 + phase: one instruction, where a conversion takes two
// and the slowest pipe. What that adds to the angle is subtracted from what the chunks before add.
inline constexpr std::uint32_t kPhaseFloat = 0x4B000000U;
inline constexpr float kPhaseRadians = kTurnInRadians * 0x1p-16F;

__device__ inline float radians_of(std::uint32_t phase) {
  return static_cast<float>(static_cast<std::int32_t>(phase)) * (kTurnInRadians * 0x1p-32F);
}
/// An angle as phases are added to.
__device__ inline float angle_for_phases(std::uint32_t phase) {
  return radians_of(phase) - 0x1p23F * kPhaseRadians;
}

/// Sines and cosines are the hardware's, 2^-21 off on [−π, π].
struct Turn {
  float sine, cosine;

  /// Of phase `kUpper` of two.
  template <bool kUpper>
  __device__ __forceinline__ static Turn of(std::uint32_t phases, float angle) {
    const float phase = __uint_as_float(__byte_perm(phases, kPhaseFloat, kUpper ? 0x7632 : 0x7610));
    const float radians = fmaf(phase, kPhaseRadians, angle);
    return {__sinf(radians), __cosf(radians)};
  }
  /// A pair with its biases, turned.
  template <class Io>
  __device__ __forceinline__ std::uint32_t operator()(std::uint32_t pair, float2 bias) const {
    const float2 x = unpack_pair<Io>(pair);
    const float x0 = x.x + bias.x, x1 = x.y + bias.y;
    return pack_pair<Io>(x0 * cosine - x1 * sine, x0 * sine + x1 * cosine);
  }
};

template <class Io>
__device__ __forceinline__ std::uint32_t add_biases(std::uint32_t pair, float first, float second) {
  const float2 x = unpack_pair<Io>(pair);
  return pack_pair<Io>(x.x + first, x.y + second);
}

__device__ __forceinline__ void load_four(float (&to)[4], const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}

/// k of a chunk. Lane 8r + v of a warp has the 16-byte vectors v of rows r + 4·warp + 16i of K.
template <class T>
__device__ __forceinline__ void turn_keys(const SharedMemory<T>& shared, int head, ChunkCount at) {
  using Io = typename T::Io;
  const int thread = group_thread();
  const int vector = thread % 8;
  const int row = thread / 8;
  const int swizzle = row % 8;
  const std::uint32_t natural = row * 128 + ((vector ^ swizzle) << 4);
  const std::uint32_t from = shared.raw_k_tile(at) + natural;
  const std::uint32_t to = shared.key_tile(head);
  const float* const biases = shared.key_biases(head) + 4 * vector;
  float bias[2][4], angle[4];
  load_four(bias[0], biases);
  load_four(bias[1], biases + 32);
  load_four(angle, shared.scalars_of(head, at).angles + 4 * vector);
  const std::uint32_t turned = to + row * 128 + ((vector % 2 * 4 ^ swizzle) << 4) + vector / 2 * 4;
  const std::uint32_t phases_at = shared.phase_tile(head, at) + row * 64 + vector * 8;
  uint4 raw = *shared.template at_address<uint4>(from);
  uint2 phases = *shared.template at_address<uint2>(phases_at);
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t words[4]{raw.x, raw.y, raw.z, raw.w};
    const uint2 now = phases;
    const int next = min(i + 1, 3);
    raw = *shared.template at_address<uint4>(from + 2048 * next);
    phases = *shared.template at_address<uint2>(phases_at + 1024 * next);
    const Turn turns[4]{Turn::of<false>(now.x, angle[0]), Turn::of<true>(now.x, angle[1]),
                        Turn::of<false>(now.y, angle[2]), Turn::of<true>(now.y, angle[3])};
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      *shared.template at_address<std::uint32_t>((turned ^ pair << 4) + 2048 * i) =
          turns[pair].template operator()<Io>(
              words[pair], make_float2(bias[pair / 2][pair % 2 * 2], bias[pair / 2][pair % 2 * 2 + 1]));
  }
  if constexpr (T::Layout::kHalves == 2) {
    load_four(bias[0], biases + 64);
    load_four(bias[1], biases + 96);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 raw = *shared.template at_address<uint4>(from + kTile + 2048 * i);
      *shared.template at_address<uint4>(to + natural + kTile + 2048 * i) = make_uint4(
          add_biases<Io>(raw.x, bias[0][0], bias[0][1]), add_biases<Io>(raw.y, bias[0][2], bias[0][3]),
          add_biases<Io>(raw.z, bias[1][0], bias[1][1]), add_biases<Io>(raw.w, bias[1][2], bias[1][3]));
    }
  }
}

/// q of a chunk, as A of products.
template <class T>
__device__ __forceinline__ void turn_queries(std::uint32_t (&q)[T::kStates / 4],
                                             const SharedMemory<T>& shared, int head, ChunkCount at) {
  using Io = typename T::Io;
  const int thread = group_thread();
  const int warp = thread / 32;
  const int t = thread % 4;
  const int row = 16 * warp + thread % 32 / 4;
  const std::uint32_t tile = shared.raw_q_tile(at);
  const std::uint32_t from = tile + row * 128;
  const std::uint32_t phases_at = shared.phase_tile(head, at) + row * 64 + t * 16;
  const float* const biases = shared.query_biases(head) + 4 * t;
  const float* const angles = shared.scalars_of(head, at).angles + 8 * t;
  uint4 phases[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    phases[half] = *shared.template at_address<uint4>(phases_at + half * 512);
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    float bias[2][4], angle[4];
    load_four(bias[0], biases + 32 * e);
    load_four(bias[1], biases + 32 * e + 16);
    load_four(angle, angles + 4 * e);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 raw = *shared.template at_address<uint4>(from + half * 1024 + ((2 * t + e ^ row % 8) << 4));
      const std::uint32_t words[4]{raw.x, raw.y, raw.z, raw.w};
      const std::uint32_t low = e == 0 ? phases[half].x : phases[half].z;
      const std::uint32_t high = e == 0 ? phases[half].y : phases[half].w;
      const Turn turns[4]{Turn::of<false>(low, angle[0]), Turn::of<true>(low, angle[1]),
                          Turn::of<false>(high, angle[2]), Turn::of<true>(high, angle[3])};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = 4 * e + i;
        q[4 * (m / 2) + 2 * (m % 2) + half] = turns[i].operator()<Io>(
            words[i], make_float2(bias[i / 2][i % 2 * 2], bias[i / 2][i % 2 * 2 + 1]));
      }
    }
  }
  if constexpr (T::Layout::kHalves == 2) {
    const std::uint32_t other = tile + kTile + hopper::fragment_offset(warp, thread % 32);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float bias[4];
      load_four(bias, biases + 64 + 16 * k);
      std::uint32_t raw[4];
      load_matrices(raw, other ^ k * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        q[16 + 4 * k + i] = add_biases<Io>(raw[i], bias[i / 2 * 2], bias[i / 2 * 2 + 1]);
    }
  }
}

}  // namespace ssmbench::mamba3_pairs
