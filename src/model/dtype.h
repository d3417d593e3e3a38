#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ssmbench {

/// Storage types of tensors. bf16 and f16 are held as their 16 bits.
enum class DType { f32, f64, f16, bf16, c64, i32 };

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

/// Unit roundoff u = 2^-p of the dtype's round-to-nearest (p = significand bits): f32 2^-24, f16 2^-11, bf16
/// 2^-8.
double unit_roundoff(DType dtype);

/// Distance between `value` rounded to the dtype and the next larger magnitude: one ulp, subnormals included.
double ulp_at(double value, DType dtype);

// IEEE conversions, round to nearest even, exact where the target can hold the value; NaN stays NaN.
float f16_to_float(std::uint16_t bits);
float bf16_to_float(std::uint16_t bits);
std::uint16_t float_to_f16(float value);
std::uint16_t float_to_bf16(float value);

/// Element `index` of an array of real dtype (f32, f64, f16, bf16), exactly, as double.
double load_as_double(const void* data, std::int64_t index, DType dtype);

/// Stores `value` rounded (through float for 16-bit types) as element `index` of an array of real dtype.
void store_from_double(void* data, std::int64_t index, DType dtype, double value);

}  // namespace ssmbench
