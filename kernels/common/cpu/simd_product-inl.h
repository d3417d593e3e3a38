// Products of small dense f32 matrices. Compiled once per instruction set.

#if defined(SSMBENCH_SIMD_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SIMD_PRODUCT_INL_H
#undef SSMBENCH_SIMD_PRODUCT_INL_H
#else
#define SSMBENCH_SIMD_PRODUCT_INL_H
#endif

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
};
/// A right factor or a result: rows of neighbouring elements.
template <class T>
struct Rows {
  T* data;
  std::size_t stride;
};

/// kRows × kVectors vectors of a product, in registers.
template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void add_product_tile(LeftFactor a, Rows<const float> b, std::size_t depth, Rows<float> to) {
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
      hn::StoreU(hn::Add(hn::LoadU(tag, at), sums[r][v]), tag, at);
    }
}

template <std::size_t kRows>
HWY_INLINE void add_product_rows(LeftFactor a, Rows<const float> b, std::size_t depth, std::size_t columns,
                                 Rows<float> to) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  std::size_t c = 0;
  for (; c + 2 * lanes <= columns; c += 2 * lanes)
    add_product_tile<kRows, 2>(a, {b.data + c, b.stride}, depth, {to.data + c, to.stride});
  for (; c < columns; c += lanes)
    add_product_tile<kRows, 1>(a, {b.data + c, b.stride}, depth, {to.data + c, to.stride});
}

/// to[row][c] += Σ_{k < depth} a(row, k)·b[k][c] for row < rows, c < columns. Rows of b and `to` are read,
/// and those of `to` written, up to a multiple of the lanes.
HWY_INLINE void add_product(LeftFactor a, Rows<const float> b, std::size_t rows, std::size_t depth,
                            std::size_t columns, Rows<float> to) {
  constexpr std::size_t kRows = 4;  // times two vectors: enough sums to hide the latency of a multiply-add
  std::size_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    add_product_rows<kRows>({a.data + r * a.row_stride, a.row_stride, a.k_stride}, b, depth, columns,
                            {to.data + r * to.stride, to.stride});
  for (; r < rows; ++r)
    add_product_rows<1>({a.data + r * a.row_stride, a.row_stride, a.k_stride}, b, depth, columns,
                        {to.data + r * to.stride, to.stride});
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
