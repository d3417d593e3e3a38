#pragma once

// The end of a block of the Hopper gradient kernel: dB and dC of its chunk.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"

namespace ssmbench::ssd_hopper_bwd {

/// dB or dC of a chunk, of 64 columns each.
template <int kHalves>
using ProjectionSums = float[kHalves][32];

template <int kHalves>
__device__ __forceinline__ void clear_sums(float (&sums)[kHalves][32]) {
#pragma unroll
  for (auto& half : sums)
#pragma unroll
    for (float& value : half) value = 0.0F;
}

/// to += q (64 × 64, in fragments) / scale times 64 rows of N. The scale is 1 but in f16.
template <class T, int kHalves = T::kStates / 64>
__device__ __forceinline__ void multiply_projection(ProjectionSums<kHalves>& to, std::uint32_t (&q)[16],
                                                    std::uint32_t tile, [[maybe_unused]] float scale) {
  using Io = typename T::Io;
  const auto scale_sums = [&](float by) {
#pragma unroll
    for (auto& half : to)
#pragma unroll
      for (float& value : half) value *= by;
  };
  if constexpr (T::kScaled) scale_sums(scale);
  hopper::pin_registers(q);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) hopper::pin_registers(to[half]);
  hopper::wgmma_fence();
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const std::uint64_t rows = hopper::operand_descriptor(tile + half * kTile, kTile);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, hopper::Major::rows>(to[half], q + 4 * k,
                                             hopper::operand_step<hopper::Major::rows>(rows, k, kTile), true);
  }
  hopper::wgmma_commit();
  hopper::wgmma_wait<0>();
#pragma unroll
  for (int half = 0; half < kHalves; ++half) hopper::pin_registers(to[half]);
  if constexpr (T::kScaled) scale_sums(inverse_of_power(scale));
}

/// The descriptor of a tile, or of tiles of 64 columns one behind the other.
__device__ __forceinline__ std::uint64_t tile_operand(std::uint32_t tile) {
  return hopper::operand_descriptor(tile, kTile);
}
/// Starts to = a·b, or to += a·b, of operands in shared memory with sums of kInner products.
template <class Io, hopper::Major kA, hopper::Major kB, int kInner, bool kAdds = false>
__device__ __forceinline__ void start_tile_product(float (&to)[32], std::uint64_t a, std::uint64_t b) {
  if constexpr (kAdds) hopper::pin_registers(to);
  hopper::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kInner / 16; ++k)
    hopper::wgmma<Io, kA, kB>(to, hopper::operand_step<kA>(a, k, kTile),
                              hopper::operand_step<kB>(b, k, kTile), kAdds || k > 0);
  hopper::wgmma_commit();
}

/// to += weights of the two rows ∘ product.
__device__ __forceinline__ void add_weighted(float (&to)[32], const float (&product)[32],
                                             const float (&weights)[2]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) to[i] += weights[i / 2 % 2] * product[i];
}

enum class Projection { B, C };

/// dB or dC, or the slice's sum of it to the workspace. N is a multiple of 8. Place: BlockPlace, or one like it, of
/// Args.
template <class Io, int kHalves, class Place = BlockPlace, class Args>
__device__ __forceinline__ void write_projection(const Args& args, Projection which,
                                                 const ProjectionSums<kHalves>& from, const Patch& at) {
  const Place place(args);
  const SsdInputs& in = args.bwd.in;
  const ChunkedBwdPlan& plan = args.plan;
  const auto states = static_cast<int>(in.dstate);
  auto* const target = static_cast<Io*>(which == Projection::B ? args.bwd.dB : args.bwd.dC);
  const std::int64_t all = in.batch * in.seqlen * in.groups * in.dstate;
  float* const sums = args.workspace.projections + (place.slice * 2 + (which == Projection::C ? 1 : 0)) * all;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int t = at.row_of(2 * row);
    if (t >= place.steps_valid) continue;
    const std::int64_t start =
        ((place.b * in.seqlen + place.start + t) * in.groups + place.group) * in.dstate + at.lane % 4 * 2;
#pragma unroll
    for (int e = 0; e < 8 * kHalves; ++e) {
      if (8 * e >= states) break;
      const float first = from[e / 8][e % 8 * 4 + 2 * row];
      const float second = from[e / 8][e % 8 * 4 + 2 * row + 1];
      if (plan.slices == 1)
        *reinterpret_cast<std::uint32_t*>(target + start + 8 * e) = pack_pair<Io>(first, second);
      else
        *reinterpret_cast<float2*>(sums + start + 8 * e) = make_float2(first, second);
    }
  }
}

}  // namespace ssmbench::ssd_hopper_bwd
