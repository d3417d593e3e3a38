#pragma once

// Fragments between registers and tiles of 64 rows of 128 bytes, swizzled as TMA and wgmma have it: the
// 16-byte vector v of row r lies at vector v ^ (r % 8). Tiles are aligned to 1024 bytes.

#include <cstdint>

#include "kernels/common/mma.cuh"

namespace ssmbench::hopper {

/// Where lane `lane` of warp `warp` of a warpgroup points ldmatrix and stmatrix in a tile, for the fragment
/// (16 rows × 16 columns) of rows 16·warp on. XOR with 32·j for columns 16·j on.
__device__ inline std::uint32_t fragment_offset(int warp, int lane) {
  const int row = 16 * warp + lane % 16;
  return static_cast<std::uint32_t>(row * 128 + ((lane / 16 ^ row & 7) << 4));
}

/// The same for ldmatrix.trans: the fragment's rows are the tile's columns 16·warp on, its columns the tile's
/// rows. Add 2048·k for columns 16·k on.
__device__ inline std::uint32_t transposed_fragment_offset(int warp, int lane) {
  const int row = lane % 8 + lane / 16 * 8;
  const int vector = 2 * warp + lane / 8 % 2;
  return static_cast<std::uint32_t>(row * 128 + ((vector ^ row & 7) << 4));
}

/// Four 8 × 8 matrices of 16-bit elements to shared memory; the inverse of load_matrices.
__device__ inline void store_matrices(std::uint32_t shared, std::uint32_t r0, std::uint32_t r1,
                                      std::uint32_t r2, std::uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "r"(r0),
               "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

}  // namespace ssmbench::hopper
