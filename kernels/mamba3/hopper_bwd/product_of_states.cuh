#pragma once

#include "kernels/common/mma.cuh"
#include "kernels/mamba3/hopper_bwd/block.cuh"

namespace ssmbench::mamba3_bwd {

/// ⟨S', S⟩ of a head's tiles, by a warp: the diagonals of products of 16 rows by 8 of the same.
template <int kStates>
__device__ __forceinline__ float product_of_states(std::uint32_t states, std::uint32_t dstates, int lane) {
  float products[2][4] = {};
#pragma unroll 1
  for (int i = 0; i < kWarpsOfGroup * kStates / 64; ++i) {
    const std::uint32_t offset = i / kWarpsOfGroup * kTile + hopper::fragment_offset(i % kWarpsOfGroup, lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t a[4];
      std::uint32_t b[4];
      load_matrices(a, dstates + (offset ^ j * 32));
      load_matrices(b, states + (offset ^ j * 32));
      mma_bf16(products[0], a, b[0], b[2]);
      mma_bf16(products[1], a, b[1], b[3]);
    }
  }
  const bool is_odd = lane / 4 % 2 != 0;
  const float own = is_odd ? products[0][1] + products[1][3] : products[0][0] + products[1][2];
  return sum_lanes<1, 16>(lane / 8 == lane % 4 ? own : 0.0F);
}

}  // namespace ssmbench::mamba3_bwd
