#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ssmbench {

/// How input values are drawn. The values of a tensor depend on (seed, tensor name, logical index) and the
/// fields here alone: not on layout, thread count or machine.
struct InputSpec {
  std::string distribution = "mamba";  ///< see src/inputs/distributions.h
  /// "native": each value is rounded to the tensor's own dtype. "shared": rounded to what f32, f16 and bf16
  /// can all hold, so that cases of different dtype see the same values and share one reference.
  std::string values = "native";
  std::int64_t seed = 0;
};

/// The exact values, before rounding to a dtype, of elements first, first + 1, … (row-major logical order) of
/// the named input, complex ones as their real_view. They lie in one row: they differ in the last logical
/// index only.
using InputFill = std::function<void(std::string_view tensor, std::int64_t first, std::span<double> values)>;

/// The fill of an object with such a member function, which it keeps a copy of.
template <class Inputs>
InputFill fill_from(Inputs inputs) {
  return [inputs = std::move(inputs)](std::string_view tensor, std::int64_t first, std::span<double> values) {
    inputs.fill(tensor, first, values);
  };
}

}  // namespace ssmbench
