#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/dtype.h"

namespace ssmbench {

/// What an implementation computes in. f32 and f64: every operation. tf32, f16 and bf16: the operands of
/// matrix products are rounded to it, while sums, exponentials and whatever else is not a matrix product stay
/// f32; an operation without matrix products rounds everything to it.
enum class Math { f32, f64, tf32, f16, bf16 };

std::string_view name_of(Math math);
std::optional<Math> parse_math(std::string_view name);
/// In the order of Math.
std::vector<std::string_view> math_names();

/// Unit roundoff u = 2^-p (p = significand bits): tf32 and f16 2^-11, bf16 2^-8.
double unit_roundoff(Math math);

/// The arithmetic that an implementation, or the producer of a file, claims; tolerances are derived from it.
struct Arithmetic {
  Math math = Math::f32;
  DType state_dtype = DType::f32;  ///< what states between chunks are stored in, where there are chunks

  /// Roundoff of the operands of matrix products, chunk states among them.
  double operand_roundoff() const;

  bool operator==(const Arithmetic&) const = default;
};

}  // namespace ssmbench
