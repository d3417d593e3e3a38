#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ssmbench {

/// Storage types of tensors. bf16 and f16 are held as their 16 bits, e4m3, the 8-bit float without infinities,
/// as its 8 (Micikevicius et al., "FP8 Formats for Deep Learning", 2022). i32 and i64 are indices and numbers
/// of other kinds that are not measured; i16 and i8 are values, in units of a scale.
enum class DType { f32, f64, f16, bf16, c64, i32, i64, i16, i8, e4m3 };

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

/// i32 and i64.
bool is_index(DType dtype);
/// f32, f64, f16 and bf16: what is rounded without a scale.
bool is_float(DType dtype);
/// The largest value of a dtype that is in units of a scale: 127, 32767, 448; 0 for all others.
double largest_in_scale(DType dtype);

/// Unit roundoff u = 2^-p of the dtype's round-to-nearest (p = significand bits): f32 2^-24, f16 2^-11, bf16
/// 2^-8. Of floats.
double unit_roundoff(DType dtype);

/// Distance between `value` rounded to the dtype and the next larger magnitude: one ulp, subnormals included;
/// 1 for integers.
double ulp_at(double value, DType dtype);

// IEEE conversions, round to nearest even, exact where the target can hold the value; NaN stays NaN.
float f16_to_float(std::uint16_t bits);
float bf16_to_float(std::uint16_t bits);
std::uint16_t float_to_f16(float value);
std::uint16_t float_to_bf16(float value);
float e4m3_to_float(std::uint8_t bits);
/// Beyond 448 it is 448, with the sign.
std::uint8_t float_to_e4m3(float value);

/// Element `index` of an array of real dtype (all but c64, i32 and i64), exactly, as double.
double load_as_double(const void* data, std::int64_t index, DType dtype);

/// Stores `value` rounded to nearest even (through float for 16-bit and 8-bit types) as element `index` of an
/// array of real dtype. What an integer or e4m3 cannot hold is the largest one that it can.
void store_from_double(void* data, std::int64_t index, DType dtype, double value);

}  // namespace ssmbench
