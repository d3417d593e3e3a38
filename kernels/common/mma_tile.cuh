#pragma once

// Row-major tiles in shared memory whose 16-byte vectors are swizzled, and the operands of mma instructions
// from them: fragments as mma.cuh draws them, four registers by one load_matrices.
//
//   load_a              A[m][k] from a tile [m][k]: 16 rows m, 32 bytes of k
//   load_b              B[k][n] from a tile [n][k]: 16 rows n, which are two blocks of 8 columns, 32 bytes
//                       of k; registers 0 and 1 are the first block, 2 and 3 the second
//   load_a_transposed   A[m][k] from a tile [k][m] of 16-bit elements: 16 rows k, 16 columns m
//   load_b_transposed   B[k][n] from a tile [k][n] of 16-bit elements: 16 rows k, 16 columns n, in two blocks

#include <cstdint>

#include "kernels/common/mma.cuh"

namespace ssmbench {

/// A tile in shared memory: rows of kColumns elements, a multiple of 128 bytes.
template <class Element, int kColumns>
struct SharedTile {
  static constexpr int kRowBytes = kColumns * static_cast<int>(sizeof(Element));
  static constexpr int kVectorElements = 16 / static_cast<int>(sizeof(Element));
  unsigned char* memory;

  /// As PTX takes it, of a 16-byte vector of a row.
  __device__ std::uint32_t vector_address(int row, int vector) const {
    return shared_address(memory) + swizzled(row, vector, kRowBytes);
  }
  __device__ unsigned char* vector(int row, int vector) const {
    return memory + swizzled(row, vector, kRowBytes);
  }
  /// An element, which the others of its vector follow.
  __device__ Element* at(int row, int column) const {
    return reinterpret_cast<Element*>(vector(row, column / kVectorElements)) + column % kVectorElements;
  }
};

/// From row `row` and 16-byte vector `vector` on, of which it takes two.
template <class Tile>
__device__ void load_a(std::uint32_t (&r)[4], const Tile& tile, int row, int vector, int lane) {
  load_matrices(r, tile.vector_address(row + lane % 16, vector + lane / 16));
}
template <class Tile>
__device__ void load_b(std::uint32_t (&r)[4], const Tile& tile, int row, int vector, int lane) {
  load_matrices(r, tile.vector_address(row + lane % 8 + lane / 16 * 8, vector + lane / 8 % 2));
}
template <class Tile>
__device__ void load_a_transposed(std::uint32_t (&r)[4], const Tile& tile, int row, int vector, int lane) {
  load_matrices_transposed(r, tile.vector_address(row + lane % 8 + lane / 16 * 8, vector + lane / 8 % 2));
}
template <class Tile>
__device__ void load_b_transposed(std::uint32_t (&r)[4], const Tile& tile, int row, int vector, int lane) {
  load_matrices_transposed(r, tile.vector_address(row + lane % 16, vector + lane / 16));
}

}  // namespace ssmbench
