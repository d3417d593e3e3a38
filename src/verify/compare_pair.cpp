#include "verify/compare_pair.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/tolerance.h"

namespace ssmbench {
namespace {

double value_at(const TensorView& view, const Shape& index) {
  return load_as_double(view.data, offset_of(index, view.strides), view.dtype);
}

}  // namespace

OutputComparison compare_pair(const TensorView& a, const TensorView& b, const Expectation& expected,
                              const Arithmetic& arithmetic_of_a, const Arithmetic& arithmetic_of_b) {
  const TensorView of_a = real_view(a);
  const TensorView of_b = real_view(b);
  OutputComparison result;
  double difference_squared = 0;
  double expected_squared = 0;
  for (std::int64_t i = 0; i < element_count(of_a.shape); ++i) {
    const ExpectedElement element = expected.at(i);
    if (std::isfinite(element.value)) expected_squared += element.value * element.value;
    if (!std::isfinite(element.bound)) continue;
    ++result.judged;
    const Shape index = index_of(i, of_a.shape);
    const double in_a = value_at(of_a, index);
    const double in_b = value_at(of_b, index);
    if (in_a == in_b) continue;
    const double difference = std::abs(element.difference(in_a, in_b));
    double ratio = std::numeric_limits<double>::infinity();
    if (std::isfinite(difference)) {
      ratio = difference / (tolerance(element, of_a.dtype, arithmetic_of_a) +
                            tolerance(element, of_a.dtype, arithmetic_of_b));
      result.max_abs = std::max(result.max_abs, difference);
      result.max_ulp = std::max(result.max_ulp, difference / spacing(element, of_a.dtype));
      difference_squared += difference * difference;
    } else {
      ++result.nonfinite;
    }
    if (ratio > result.tolerance_ratio) {
      result.tolerance_ratio = ratio;
      result.worst_index = index;
      result.worst_expected = in_a;
      result.worst_got = in_b;
    }
  }
  result.rel_l2 = std::sqrt(difference_squared / (expected_squared > 0 ? expected_squared : 1));
  return result;
}

}  // namespace ssmbench
