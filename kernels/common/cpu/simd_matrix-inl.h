// Matrices between memory in an io dtype, strided along one axis, and dense f32. Compiled once per
// instruction set.

#if defined(SSMBENCH_SIMD_MATRIX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SIMD_MATRIX_INL_H
#undef SSMBENCH_SIMD_MATRIX_INL_H
#else
#define SSMBENCH_SIMD_MATRIX_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/common/cpu/io_types.h"
#include "kernels/common/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kMaxLanes>;
using FloatVec = hn::Vec<FloatTag>;

inline std::size_t round_up(std::size_t n, std::size_t step) {
  return (n + step - 1) / step * step;
}

using BitsTag = hn::Rebind<std::uint32_t, FloatTag>;

// 16-bit types are converted by integer arithmetic, bit for bit as the model's f16_to_float, float_to_f16, …
// do it. Highway's own conversions differ between instruction sets: some truncate, some read infinities as
// numbers.

// One vector from storage, exactly.

inline hn::Vec<BitsTag> load_halves(const std::uint16_t* from) {
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  return hn::PromoteTo(BitsTag(), hn::LoadU(narrow, from));
}

inline FloatVec promote(F32 /*io*/, const float* from) {
  return hn::LoadU(FloatTag(), from);
}

inline FloatVec promote(Bf16 /*io*/, const std::uint16_t* from) {
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(load_halves(from)));
}

inline FloatVec promote(F16 /*io*/, const std::uint16_t* from) {
  const FloatTag floats;
  const BitsTag tag;
  const auto bits = load_halves(from);
  const auto magnitude = hn::And(bits, hn::Set(tag, 0x7FFF));
  const auto sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
  // As f32 the shifted bits are the value times 2^-112, subnormals included.
  const auto shifted = hn::BitCast(floats, hn::ShiftLeft<13>(magnitude));
  const auto finite = hn::BitCast(tag, hn::Mul(shifted, hn::Set(floats, 0x1p112F)));
  const auto special = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(tag, 0x7BFF)), hn::Set(tag, 0x7F800000));
  return hn::BitCast(floats, hn::Or(hn::Or(finite, special), sign));
}

// One vector to storage, rounded to nearest even.

/// `bits` ≤ 0xFFFF in every lane.
inline void store_low_halves(hn::Vec<BitsTag> bits, std::uint16_t* to) {
  const hn::Rebind<std::int32_t, FloatTag> as_signed;
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(as_signed, bits)), narrow, to);
}

inline void demote(F32 /*io*/, FloatVec value, float* to) {
  hn::StoreU(value, FloatTag(), to);
}

inline void demote(Bf16 /*io*/, FloatVec value, std::uint16_t* to) {
  const BitsTag tag;
  const auto bits = hn::BitCast(tag, value);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(tag, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(tag, 0x7FFF), odd)));
  const auto nan = hn::Or(high, hn::Set(tag, 0x40));
  const auto is_nan = hn::RebindMask(tag, hn::IsNaN(value));
  store_low_halves(hn::IfThenElse(is_nan, nan, rounded), to);
}

inline void demote(F16 /*io*/, FloatVec value, std::uint16_t* to) {
  const FloatTag floats;
  const BitsTag tag;
  const auto bits = hn::BitCast(tag, value);
  const auto magnitude = hn::And(bits, hn::Set(tag, 0x7FFFFFFF));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(tag, 0x8000));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(tag, 1));
  // 0x38000000 rebiases the exponent, 0xFFF + odd rounds half to even.
  const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Sub(odd, hn::Set(tag, 0x38000000 - 0xFFF))));
  const auto small = hn::BitCast(floats, magnitude);
  // Adding ½ makes the FPU round to multiples of 2^-24, the subnormals of f16.
  const auto subnormal =
      hn::Sub(hn::BitCast(tag, hn::Add(small, hn::Set(floats, 0.5F))), hn::Set(tag, 0x3F000000));
  const auto is_subnormal = hn::RebindMask(tag, hn::Lt(small, hn::Set(floats, 0x1p-14F)));
  const auto overflows = hn::RebindMask(tag, hn::Ge(small, hn::Set(floats, 65520.0F)));
  const auto is_nan = hn::RebindMask(tag, hn::IsNaN(value));
  auto result = hn::IfThenElse(is_subnormal, subnormal, normal);
  result = hn::IfThenElse(overflows, hn::Set(tag, 0x7C00), result);
  result = hn::IfThenElse(is_nan, hn::Set(tag, 0x7E00), result);
  store_low_halves(hn::Or(result, sign), to);
}

/// to[i] = from[i] for i < count, then zeros up to a multiple of the vector's lanes.
template <class Io>
void load_row(const typename Io::Storage* from, std::size_t count, float* to) {
  const FloatTag tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(promote(Io{}, from + i), tag, to + i);
  if (i == count) return;
  typename Io::Storage tail[kMaxLanes] = {};
  std::memcpy(tail, from + i, (count - i) * sizeof(*from));
  hn::StoreU(promote(Io{}, tail), tag, to + i);
}

/// to[i] = from[i] for i < count. Reads `from` up to a multiple of the vector's lanes.
template <class Io>
void store_row(const float* from, std::size_t count, typename Io::Storage* to) {
  const FloatTag tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) demote(Io{}, hn::LoadU(tag, from + i), to + i);
  if (i == count) return;
  typename Io::Storage tail[kMaxLanes];
  demote(Io{}, hn::LoadU(tag, from + i), tail);
  std::memcpy(to + i, tail, (count - i) * sizeof(*to));
}

/// to[c][r] = from[r][c]. Works on blocks of 4 × 4: both sides must have room for rows and cols rounded up
/// to 4.
inline void transpose(const float* from, std::size_t from_stride, std::size_t rows, std::size_t cols,
                      float* to, std::size_t to_stride) {
#if HWY_TARGET == HWY_SCALAR  // has no vectors of 4
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) to[c * to_stride + r] = from[r * from_stride + c];
#else
  const hn::FixedTag<float, 4> four;
  for (std::size_t r = 0; r < rows; r += 4) {
    for (std::size_t c = 0; c < cols; c += 4) {
      const float* block = from + r * from_stride + c;
      const auto row0 = hn::LoadU(four, block);
      const auto row1 = hn::LoadU(four, block + from_stride);
      const auto row2 = hn::LoadU(four, block + 2 * from_stride);
      const auto row3 = hn::LoadU(four, block + 3 * from_stride);
      const auto even_low = hn::InterleaveLower(four, row0, row2);
      const auto odd_low = hn::InterleaveLower(four, row1, row3);
      const auto even_high = hn::InterleaveUpper(four, row0, row2);
      const auto odd_high = hn::InterleaveUpper(four, row1, row3);
      float* out = to + c * to_stride + r;
      hn::StoreU(hn::InterleaveLower(four, even_low, odd_low), four, out);
      hn::StoreU(hn::InterleaveUpper(four, even_low, odd_low), four, out + to_stride);
      hn::StoreU(hn::InterleaveLower(four, even_high, odd_high), four, out + 2 * to_stride);
      hn::StoreU(hn::InterleaveUpper(four, even_high, odd_high), four, out + 3 * to_stride);
    }
  }
#endif
}

/// Element strides of a matrix in memory. One of them is 1.
struct MatrixStrides {
  std::int64_t row, col;
};

/// to[r·to_stride + c] = element (r, c) of `from`. What lies between `cols` and the next multiple of the
/// lanes is unspecified. `to` needs room for rows rounded up to 4, `staging` for rows × cols, both rounded up
/// to the lanes.
template <class Io>
void load_matrix(const typename Io::Storage* from, MatrixStrides strides, std::size_t rows, std::size_t cols,
                 float* to, std::size_t to_stride, float* staging) {
  if (strides.col == 1) {
    for (std::size_t r = 0; r < rows; ++r)
      load_row<Io>(from + static_cast<std::int64_t>(r) * strides.row, cols, to + r * to_stride);
    return;
  }
  const std::size_t padded_rows = round_up(rows, hn::Lanes(FloatTag()));
  for (std::size_t c = 0; c < cols; ++c)
    load_row<Io>(from + static_cast<std::int64_t>(c) * strides.col, rows, staging + c * padded_rows);
  transpose(staging, padded_rows, cols, rows, to, to_stride);
}

/// Element (r, c) of `to` = from[r·from_stride + c]. Reads `from`, and needs room in `staging`, as
/// load_matrix writes.
template <class Io>
void store_matrix(const float* from, std::size_t from_stride, std::size_t rows, std::size_t cols,
                  typename Io::Storage* to, MatrixStrides strides, float* staging) {
  if (strides.col == 1) {
    for (std::size_t r = 0; r < rows; ++r)
      store_row<Io>(from + r * from_stride, cols, to + static_cast<std::int64_t>(r) * strides.row);
    return;
  }
  const std::size_t padded_rows = round_up(rows, hn::Lanes(FloatTag()));
  transpose(from, from_stride, rows, cols, staging, padded_rows);
  for (std::size_t c = 0; c < cols; ++c)
    store_row<Io>(staging + c * padded_rows, rows, to + static_cast<std::int64_t>(c) * strides.col);
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
