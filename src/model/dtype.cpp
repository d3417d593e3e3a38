#include "model/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/portable_math.h"

namespace ssmbench {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
  int significand_bits;  // the implicit one included; 0 where rounding has no meaning
  int min_exponent;      // of the smallest normal number
};

constexpr std::array<DTypeInfo, 10> kDTypes{{{DType::f32, "f32", 4, 24, -126},
                                             {DType::f64, "f64", 8, 53, -1022},
                                             {DType::f16, "f16", 2, 11, -14},
                                             {DType::bf16, "bf16", 2, 8, -126},
                                             {DType::c64, "c64", 8, 24, -126},
                                             {DType::i32, "i32", 4, 0, 0},
                                             {DType::i64, "i64", 8, 0, 0},
                                             {DType::i16, "i16", 2, 0, 0},
                                             {DType::i8, "i8", 1, 0, 0},
                                             {DType::e4m3, "e4m3", 1, 4, -6}}};

const DTypeInfo& info(DType dtype) {
  return kDTypes.at(static_cast<std::size_t>(dtype));
}

template <class Integer>
void store_integer(void* data, std::int64_t index, double value, DType dtype) {
  const double most = largest_in_scale(dtype);
  static_cast<Integer*>(data)[index] =
      static_cast<Integer>(std::clamp(std::nearbyint(std::isnan(value) ? 0 : value), -most, most));
}

}  // namespace

std::size_t size_of(DType dtype) {
  return info(dtype).bytes;
}

std::string_view name_of(DType dtype) {
  return info(dtype).name;
}

std::optional<DType> parse_dtype(std::string_view name) {
  const auto* found = std::ranges::find(kDTypes, name, &DTypeInfo::name);
  if (found == kDTypes.end()) return std::nullopt;
  return found->dtype;
}

bool is_index(DType dtype) {
  return dtype == DType::i32 || dtype == DType::i64;
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

double largest_in_scale(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return 127;
    case DType::i16:
      return 32767;
    case DType::e4m3:
      return 448;
    default:
      return 0;
  }
}

double unit_roundoff(DType dtype) {
  return portable::power_of_two(-info(dtype).significand_bits);
}

double ulp_at(double value, DType dtype) {
  const auto& [_, name, bytes, bits, min_exponent] = info(dtype);
  if (bits == 0) return 1;
  // By its bits, not std::ilogb: elements are judged by the billion. A value beyond the dtype's range is judged
  // by the spacing at its own exponent: the error is huge either way.
  constexpr int kBias = 1023, kNotFinite = 2047;
  const int biased = static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52U & 2047U);
  const int exponent = biased == kNotFinite ? min_exponent : std::max(biased - kBias, min_exponent);
  const int of_ulp = exponent - bits + 1;
  return of_ulp >= 1 - kBias ? portable::power_of_two(of_ulp) : std::ldexp(1.0, of_ulp);
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
  if (exponent == 0) {  // zero or subnormal: fraction · 2^-24, exact in float
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U)
    return static_cast<std::uint16_t>(sign | 0x7C00U);  // ≥ 65520 rounds to infinity
  if (magnitude < 0x38800000U) {
    // Subnormal result: adding 0.5 makes the FPU round to multiples of 2^-24, to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  const std::uint32_t rounded = magnitude - 0x38000000U + 0xFFFU + odd;
  return static_cast<std::uint16_t>(sign | (rounded >> 13U));
}

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

float e4m3_to_float(std::uint8_t bits) {
  const int exponent = (bits >> 3U) & 0xF;
  const int fraction = bits & 7;
  if ((bits & 0x7FU) == 0x7FU) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                        : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (bits & 0x80U) != 0 ? -magnitude : magnitude;
}

std::uint8_t float_to_e4m3(float value) {
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7FU);
  const float magnitude = std::min(std::abs(value), 448.0F);
  if (magnitude < 0x1p-6F)  // multiples of 2^-9; 8 of them are the smallest normal number, and its bits
    return static_cast<std::uint8_t>(sign | static_cast<unsigned>(std::nearbyint(magnitude * 0x1p9F)));
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t rounded = bits + 0x7FFFFU + ((bits >> 20U) & 1U);  // a carry goes into the exponent
  return static_cast<std::uint8_t>(sign | ((rounded >> 20U) - (120U << 3U)));
}

double load_as_double(const void* data, std::int64_t index, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f64:
      return static_cast<const double*>(data)[index];
    case DType::f16:
      return f16_to_float(static_cast<const std::uint16_t*>(data)[index]);
    case DType::bf16:
      return bf16_to_float(static_cast<const std::uint16_t*>(data)[index]);
    case DType::i16:
      return static_cast<const std::int16_t*>(data)[index];
    case DType::i8:
      return static_cast<const std::int8_t*>(data)[index];
    case DType::e4m3:
      return e4m3_to_float(static_cast<const std::uint8_t*>(data)[index]);
    case DType::c64:
    case DType::i32:
    case DType::i64:
      break;
  }
  throw std::logic_error("load_as_double: not a real dtype");
}

void store_from_double(void* data, std::int64_t index, DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case DType::f64:
      static_cast<double*>(data)[index] = value;
      return;
    case DType::f16:
      static_cast<std::uint16_t*>(data)[index] = float_to_f16(static_cast<float>(value));
      return;
    case DType::bf16:
      static_cast<std::uint16_t*>(data)[index] = float_to_bf16(static_cast<float>(value));
      return;
    case DType::i16:
      return store_integer<std::int16_t>(data, index, value, dtype);
    case DType::i8:
      return store_integer<std::int8_t>(data, index, value, dtype);
    case DType::e4m3:
      static_cast<std::uint8_t*>(data)[index] = float_to_e4m3(static_cast<float>(value));
      return;
    case DType::c64:
    case DType::i32:
    case DType::i64:
      break;
  }
  throw std::logic_error("store_from_double: not a real dtype");
}

}  // namespace ssmbench
