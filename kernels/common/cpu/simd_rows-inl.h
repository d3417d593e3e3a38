// Rows and matrices of tensors whose dtype is looked at once for each (io_elements.h). Compiled once per
// instruction set.

#if defined(SSMBENCH_SIMD_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SIMD_ROWS_INL_H
#undef SSMBENCH_SIMD_ROWS_INL_H
#else
#define SSMBENCH_SIMD_ROWS_INL_H
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/cpu/io_types.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "model/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// load_row of the elements of `tensor` from `at` on.
HWY_INLINE void load_row_at(const void* tensor, std::int64_t at, DType io, std::size_t count, float* to) {
  with_io_type(io, [&]<class Io>(Io) {
    load_row<Io>(static_cast<const typename Io::Storage*>(tensor) + at, count, to);
  });
}

/// store_row to the elements of `tensor` from `at` on.
HWY_INLINE void store_row_at(const float* from, std::size_t count, void* tensor, std::int64_t at, DType io) {
  with_io_type(
      io, [&]<class Io>(Io) { store_row<Io>(from, count, static_cast<typename Io::Storage*>(tensor) + at); });
}

/// load_matrix of the elements of `tensor` from `at` on.
inline HWY_NOINLINE void load_matrix_at(const void* tensor, std::int64_t at, DType io, MatrixStrides strides,
                                        std::size_t rows, std::size_t cols, float* to, std::size_t to_stride,
                                        float* staging) {
  with_io_type(io, [&]<class Io>(Io) {
    load_matrix<Io>(static_cast<const typename Io::Storage*>(tensor) + at, strides, rows, cols, to, to_stride,
                    staging);
  });
}

/// store_matrix to the elements of `tensor` from `at` on.
inline HWY_NOINLINE void store_matrix_at(const float* from, std::size_t from_stride, std::size_t rows,
                                         std::size_t cols, void* tensor, std::int64_t at, DType io,
                                         MatrixStrides strides, float* staging) {
  with_io_type(io, [&]<class Io>(Io) {
    store_matrix<Io>(from, from_stride, rows, cols, static_cast<typename Io::Storage*>(tensor) + at, strides,
                     staging);
  });
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
