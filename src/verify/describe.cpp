#include "verify/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

std::string describe_failure(const std::string& name, const OutputComparison& c, const TensorView& output) {
  if (c.judged == 0) return fmt::format("{}: every element overflows, none could be judged", name);
  std::string how = fmt::format("{:.3g} × the tolerance", c.tolerance_ratio);
  if (c.nonfinite > 0) {
    how = fmt::format("{} elements not finite", c.nonfinite);
    if (const std::int64_t count = count_never_written(output); count > 0)
      how += fmt::format(", {} of the tensor never written", count);
  }
  return fmt::format("{} at ({}): expected {:.9g}, got {:.9g}; {}", name, fmt::join(c.worst_index, ", "),
                     c.worst_expected, c.worst_got, how);
}

}  // namespace ssmbench
