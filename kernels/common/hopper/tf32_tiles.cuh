#pragma once

// Tiles of 32 floats a row as TMA and wgmma have them, 128 bytes swizzled, and what a thread of a warpgroup
// has of them as operands of tf32 products whose k counts the tile's rows: wgmma transposes no tf32 tile, so
// that these come through registers.

#include <cstdint>

namespace ssmbench::hopper {

inline constexpr int kTf32Columns = 32;  ///< floats of a row
inline constexpr int kTf32RowBytes = 128;

/// A thread's elements of a tile [t][p] of 64 columns p: (j, half, odd) is p = 16·warp + lane / 4 + 8·half
/// and t = 8j + 2·(lane % 4) + odd. With k = t and k = t + 4 for steps 2t and 2t + 1 (wgmma_tf32.cuh) these
/// are an operand and, as well, a result (p, t). Four pointers, from which j is an offset of the
/// instructions.
class TransposedElements {
 public:
  /// `first`: of element_offset().
  __device__ __forceinline__ TransposedElements(unsigned char* tile, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < 4; ++i)  // the odd row is one further, whose vectors are swizzled by one more
      first_[i] = reinterpret_cast<float*>(tile + (first ^ i / 2 << 5 ^ i % 2 * (kTf32RowBytes | 16)));
  }
  __device__ __forceinline__ float& at(int j, int half, int odd) const {
    return first_[2 * half + odd][j * 8 * kTf32Columns];
  }

 private:
  float* first_[4];
};

/// Bytes from a tile's start to a thread's first element, where columns 32 … 63 lie `half_bytes` on.
__device__ inline std::uint32_t element_offset(int thread, int half_bytes) {
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int t = 2 * (thread % 4);
  return static_cast<std::uint32_t>(warp / 2 * half_bytes + t * kTf32RowBytes +
                                    ((warp % 2 * 4 + g / 4 ^ t) << 4) + g % 4 * 4);
}

}  // namespace ssmbench::hopper
