// Products of small dense f32 matrices. Compiled once per instruction set.

#if defined(SSMBENCH_SIMD_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SIMD_PRODUCT_INL_H
#undef SSMBENCH_SIMD_PRODUCT_INL_H
#else
#define SSMBENCH_SIMD_PRODUCT_INL_H
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// A left factor: element (row, k) at data[row·row_stride + k·k_stride]. A transposed one has its strides
/// exchanged.
struct LeftFactor {
  const float* data;
  std::size_t row_stride, k_stride;

  LeftFactor from(std::size_t row, std::size_t k) const {
    return {data + row * row_stride + k * k_stride, row_stride, k_stride};
  }
};
/// A right factor or a result: rows of neighbouring elements.
template <class T>
struct Rows {
  T* data;
  std::size_t stride;

  Rows from(std::size_t row, std::size_t column) const { return {data + row * stride + column, stride}; }
};

// What becomes of a vector of the result where the product is `sum`; `row` is its row.

/// The product alone.
struct Overwrite {
  FloatVec operator()(std::size_t /*row*/, const float* /*at*/, FloatVec sum) const { return sum; }
  Overwrite from(std::size_t /*row*/) const { return *this; }
};
/// The result so far plus the product.
struct Accumulate {
  FloatVec operator()(std::size_t /*row*/, const float* at, FloatVec sum) const {
    return hn::Add(hn::LoadU(FloatTag(), at), sum);
  }
  Accumulate from(std::size_t /*row*/) const { return *this; }
};
/// The result so far, times the row's factor, plus the product. The factor of row r is factors[r·step].
struct AccumulateScaled {
  const float* factors;
  std::size_t step;
  FloatVec operator()(std::size_t row, const float* at, FloatVec sum) const {
    return hn::MulAdd(hn::Set(FloatTag(), factors[row * step]), hn::LoadU(FloatTag(), at), sum);
  }
  AccumulateScaled from(std::size_t row) const { return {factors + row * step, step}; }
};

/// kRows × kVectors vectors of a product, in registers.
template <std::size_t kRows, std::size_t kVectors, class Into>
HWY_INLINE void product_tile(LeftFactor a, Rows<const float> b, std::size_t depth, Rows<float> to,
                             Into into) {
  const FloatTag tag;
  const std::size_t lanes = hn::Lanes(tag);
  FloatVec sums[kRows][kVectors];
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(tag);
  for (std::size_t k = 0; k < depth; ++k) {
    FloatVec right[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(tag, b.data + k * b.stride + v * lanes);
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto left = hn::Set(tag, a.data[r * a.row_stride + k * a.k_stride]);
      for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
    }
  }
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t v = 0; v < kVectors; ++v) {
      float* const at = to.data + r * to.stride + v * lanes;
      hn::StoreU(into(r, at, sums[r][v]), tag, at);
    }
}

/// All rows of kVectors vectors of columns.
template <std::size_t kVectors, class Into>
HWY_INLINE void product_columns(LeftFactor a, Rows<const float> b, std::size_t rows, std::size_t depth,
                                Rows<float> to, Into into) {
// With two vectors, 8 rows take 16 sums: more than 16 registers hold beside the factors.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
  constexpr std::size_t kRows = 4;
#else
  constexpr std::size_t kRows = 8;
#endif
  std::size_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    product_tile<kRows, kVectors>(a.from(r, 0), b, depth, to.from(r, 0), into.from(r));
  for (; r + 2 <= rows; r += 2)
    product_tile<2, kVectors>(a.from(r, 0), b, depth, to.from(r, 0), into.from(r));
  if (r < rows) product_tile<1, kVectors>(a.from(r, 0), b, depth, to.from(r, 0), into.from(r));
}

/// to[row][c] = into(to[row][c], Σ_{k < depth} a(row, k)·b[k][c]) for row < rows, c < columns. Rows of b and
/// `to` are read, and those of `to` written, up to a multiple of the lanes.
template <class Into>
HWY_NOINLINE void multiply(LeftFactor a, Rows<const float> b, std::size_t rows, std::size_t depth,
                           std::size_t columns, Rows<float> to, Into into) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  std::size_t c = 0;
  for (; c + 2 * lanes <= columns; c += 2 * lanes)
    product_columns<2>(a, b.from(0, c), rows, depth, to.from(0, c), into);
  for (; c < columns; c += lanes) product_columns<1>(a, b.from(0, c), rows, depth, to.from(0, c), into);
}

/// Rows that the products with triangles take at a time; a triangle is read up to the end of such a square on
/// its diagonal.
inline constexpr std::size_t kTriangleRows = 8;

/// The same with a square `a` that is 0 right of its diagonal.
template <class Into>
void multiply_lower(LeftFactor a, Rows<const float> b, std::size_t rows, std::size_t columns, Rows<float> to,
                    Into into) {
  for (std::size_t r = 0; r < rows; r += kTriangleRows)
    multiply(a.from(r, 0), b, std::min(kTriangleRows, rows - r), std::min(r + kTriangleRows, rows), columns,
             to.from(r, 0), into.from(r));
}

/// The same with a square `a` that is 0 left of its diagonal.
template <class Into>
void multiply_upper(LeftFactor a, Rows<const float> b, std::size_t rows, std::size_t columns, Rows<float> to,
                    Into into) {
  for (std::size_t r = 0; r < rows; r += kTriangleRows)
    multiply(a.from(r, r), b.from(r, 0), std::min(kTriangleRows, rows - r), rows - r, columns, to.from(r, 0),
             into.from(r));
}

/// to[row][c] = Σ_{k < depth} a(row, k)·b[k][c] for c ≤ row < rows; right of the diagonal some columns are
/// computed, others are not touched.
inline void lower_of_product(LeftFactor a, Rows<const float> b, std::size_t rows, std::size_t depth,
                             Rows<float> to) {
  for (std::size_t r = 0; r < rows; r += kTriangleRows) {
    const std::size_t count = std::min(kTriangleRows, rows - r);
    multiply(a.from(r, 0), b, count, depth, r + count, to.from(r, 0), Overwrite{});
  }
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
