// Products of the rows of a chunk in Mamba-3's gradients, of which a step sees those before it. Compiled once per
// instruction set.

#if defined(SSMBENCH_MAMBA3_SIMD_TRIANGLES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_MAMBA3_SIMD_TRIANGLES_INL_H
#undef SSMBENCH_MAMBA3_SIMD_TRIANGLES_INL_H
#else
#define SSMBENCH_MAMBA3_SIMD_TRIANGLES_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/cpu/simd_product-inl.h"
#include "kernels/mamba3/cpu/simd_bwd.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// Rows are (step, rank), rank fastest; squares have kMamba3ChunkRows columns.
struct ChunkTriangles {
  std::size_t steps, ranks;

  std::size_t rows() const { return steps * ranks; }

  /// to[row][c] = Σ a[row]·b[c] for rows c of steps up to that of `row`; some of later steps are computed.
  void lower_square(const float* a, const float* b, std::size_t stride, std::size_t depth, float* columns,
                    float* to) const {
    transpose(b, stride, rows(), depth, columns, kMamba3ChunkRows);
    const std::size_t block = std::max<std::size_t>(1, kTriangleRows / ranks);
    for (std::size_t t = 0; t < steps; t += block) {
      const std::size_t end = std::min(t + block, steps);
      const std::size_t row = t * ranks;
      multiply({a + row * stride, stride, 1}, {columns, kMamba3ChunkRows}, (end - t) * ranks, depth,
               end * ranks, {to + row * kMamba3ChunkRows, kMamba3ChunkRows}, Overwrite{});
    }
  }

  /// to[row] += Σ square[row][c]·right[c] of the rows c of earlier steps.
  void add_earlier(const float* square, const float* right, std::size_t stride, std::size_t columns,
                   float* to) const {
    const std::size_t block = steps_of_block(right, stride, columns);
    for (std::size_t t = 0; t < steps; t += block) {
      const std::size_t end = std::min(t + block, steps);
      const std::size_t row = t * ranks;
      multiply({square + row * kMamba3ChunkRows, kMamba3ChunkRows, 1}, {right, stride}, (end - t) * ranks,
               (end - 1) * ranks, columns, {to + row * stride, stride}, Accumulate{});
    }
  }

  /// to[c] += Σ square[row][c]·right[row] of the rows of later steps.
  void add_later(const float* square, const float* right, std::size_t stride, std::size_t columns,
                 float* to) const {
    const std::size_t block = steps_of_block(right, stride, columns);
    for (std::size_t t = 0; t + 1 < steps; t += block) {
      const std::size_t end = std::min(t + block, steps);
      const std::size_t row = t * ranks;
      const std::size_t later = row + ranks;
      multiply({square + later * kMamba3ChunkRows + row, 1, kMamba3ChunkRows},
               {right + later * stride, stride}, (end - t) * ranks, rows() - later, columns,
               {to + row * stride, stride}, Accumulate{});
    }
  }

 private:
  /// Steps that products with triangles take at a time. Beside the triangle they multiply by 0: not where
  /// that would make NaN of what earlier steps have.
  std::size_t steps_of_block(const float* right, std::size_t stride, std::size_t columns) const {
    return is_finite(right, stride, rows(), columns) ? std::max<std::size_t>(1, kTriangleRows / ranks) : 1;
  }
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
