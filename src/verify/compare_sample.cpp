#include "verify/compare_sample.h"

#include <algorithm>

#include "verify/compare.h"

namespace ssmbench {
namespace {

constexpr std::int64_t kMostElements = 1 << 15;
constexpr std::int64_t kParts = 8;

/// Where the elements from a row-major position on are expected.
Expectation from(const Expectation& all, std::int64_t position) {
  Expectation part = all;
  part.values += position;
  part.bound += position;
  if (part.operand_bound != nullptr) part.operand_bound += position;
  if (part.decay_response != nullptr) part.decay_response += position;
  if (part.step != nullptr) part.step += position;
  return part;
}

bool elements_pass(const OutputComparison& comparison) {
  return comparison.nonfinite == 0 && comparison.tolerance_ratio <= 1;
}

}  // namespace

bool sample_passes(const TensorView& output, const Expectation& expected, const Arithmetic& arithmetic,
                   const UserTolerance* user, std::mt19937_64& random) {
  const TensorView all = real_view(output);
  const std::int64_t count = element_count(all.shape);
  if (count <= kMostElements) return elements_pass(compare_output(output, expected, arithmetic, user));
  // A part is all elements that have the same indices along the first axes, as few of these as will do.
  std::size_t fixed = 0;
  std::int64_t size = count;
  while (size > kMostElements / kParts) size /= all.shape[fixed++];
  for (std::int64_t i = 0; i < kParts; ++i) {
    const std::int64_t position =
        std::uniform_int_distribution<std::int64_t>(0, count / size - 1)(random) * size;
    TensorView part = all;
    part.data = static_cast<std::byte*>(all.data) + offset_of(index_of(position, all.shape), all.strides) *
                                                        static_cast<std::int64_t>(size_of(all.dtype));
    std::fill_n(part.shape.begin(), fixed, 1);
    if (!elements_pass(compare_output(part, from(expected, position), arithmetic, user))) return false;
  }
  return true;
}

}  // namespace ssmbench
