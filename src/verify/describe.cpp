#include "verify/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace ssmbench {
namespace {

/// Elements whose bits are still all set.
std::int64_t count_never_written(const TensorView& output) {
  const TensorView view = real_view(output);
  const std::size_t size = size_of(view.dtype);
  const auto* element = static_cast<const unsigned char*>(view.data);
  std::int64_t count = 0;
  for (std::int64_t left = element_count(view.shape); left > 0; --left, element += size)
    if (std::all_of(element, element + size, [](unsigned char byte) { return byte == 0xFF; })) ++count;
  return count;
}

}  // namespace

std::optional<Cause> cause_of_failure(const OutputComparison& c) {
  if (c.passed()) return {};
  if (c.judged == 0) return Cause::not_judged;
  if (c.nonfinite > 0) return Cause::nonfinite;
  return c.tolerance_ratio <= 1 ? Cause::distribution : Cause::tolerance;
}

std::string why_failed(const OutputComparison& c) {
  if (c.passed()) return "";
  if (c.judged == 0) return "every element may overflow, so none was compared";
  if (c.nonfinite > 0)
    return fmt::format(
        "{} elements not {}", c.nonfinite,
        std::isnan(c.worst_expected) ? "NaN although an input of theirs is, or not finite" : "finite");
  if (!(c.tolerance_ratio <= 1)) return fmt::format("{:.3g} × the tolerance", c.tolerance_ratio);
  if (!(c.rms_ratio <= 1))
    return fmt::format(
        "each element is within its tolerance, but the RMS error is {:.3g} × what rounding explains",
        c.rms_ratio);
  if (c.significand_bits)
    return fmt::format(
        "each element is within its tolerance, but the numbers have been rounded to {} bits, fewer than "
        "claimed",
        *c.significand_bits);
  if (c.rounding_bias && c.rounding_bias->ratio > 1)
    return fmt::format(
        "each element is a neighbour of its value, but among {} they are off by {:.3g} steps in the mean, "
        "{:.3g} "
        "× what chance explains",
        c.rounding_bias->among, c.rounding_bias->mean, c.rounding_bias->ratio);
  return fmt::format(
      "each element is within its tolerance, but the errors show a decay bias of {:.3g} roundoffs, "
      "{:.3g} × what rounding explains",
      c.decay_bias.value_or(0), c.decay_bias_ratio);
}

std::string tolerance_text(const std::string& output, const OutputComparison& c) {
  const OutputComparison::Parts& parts = c.worst_parts;
  const std::string where = fmt::format("{} at ({})", output, fmt::join(c.worst_index, ", "));
  const double error = std::abs(c.worst_got - c.worst_expected);
  if (c.user_tolerance)
    return fmt::format("  {}: |err| {:.3g}, the config allows {:.3g} + {:.3g}·|{:.3g}|, ratio {:.4g}", where,
                       error, c.user_tolerance->abs, c.user_tolerance->rel, c.worst_expected,
                       c.tolerance_ratio);
  const std::string operands =
      parts.operand_bound ? fmt::format(" and {:.3g} of operands", *parts.operand_bound) : "";
  const std::string decays =
      c.decay_bias ? fmt::format(", decay bias {:.2g} roundoffs ({:.3f})", *c.decay_bias, c.decay_bias_ratio)
                   : "";
  return fmt::format(
      "  {}: |err| {:.3g}, allowed {:.3g} of arithmetic + {:.3g} of half an ulp, ratio {:.4g}; expected "
      "{:.6g}, bound {} × ({:.3g} roundoffs{}); rms {:.3g}{}",
      where, error, parts.arithmetic, parts.storage, c.tolerance_ratio, c.worst_expected, parts.factor,
      parts.bound, operands, c.rms_ratio, decays);
}

std::string describe_failure(const std::string& name, const OutputComparison& c, const TensorView& output) {
  if (c.judged == 0) return fmt::format("{}: {}", name, why_failed(c));
  std::string how = why_failed(c);
  if (c.nonfinite > 0)
    if (const std::int64_t count = count_never_written(output); count > 0)
      how += fmt::format(", {} of the tensor never written", count);
  return fmt::format("{} at ({}): expected {:.9g}, got {:.9g}; {}", name, fmt::join(c.worst_index, ", "),
                     c.worst_expected, c.worst_got, how);
}

}  // namespace ssmbench
