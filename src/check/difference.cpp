#include "check/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "check/judged_output.h"
#include "reference/reference.h"
#include "verify/tolerance.h"

namespace ssmbench {
namespace {

const HostTensor* find(const std::vector<HostTensor>& tensors, const std::string& name) {
  const auto found =
      std::ranges::find(tensors, name, [](const HostTensor& tensor) { return tensor.spec.name; });
  return found == tensors.end() ? nullptr : &*found;
}

bool same(double a, double b) {
  return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

OutputDifference difference_of(const HostTensor& output_a, const HostTensor& output_b, DType math_a,
                               DType math_b, const ReferenceOutput& reference) {
  const TensorView view = real_view(output_a.view());
  const std::vector<double> a = logical_values(output_a);
  const std::vector<double> b = logical_values(output_b);
  OutputDifference result{
      .name = output_a.spec.name, .axes = output_a.spec.axes, .elements = std::ssize(a), .worst_index = {}};
  double squares = 0;
  double norm = 0;
  std::int64_t worst = 0;
  for (std::int64_t i = 0; i < std::ssize(a); ++i) {
    if (same(a[i], b[i])) {
      if (std::isfinite(b[i])) norm += b[i] * b[i];
      continue;
    }
    ++result.different;
    const double error = std::abs(a[i] - b[i]);
    const double allowed = tolerance(reference.expected[i], reference.bound[i], view.dtype, math_a) +
                           tolerance(reference.expected[i], reference.bound[i], view.dtype, math_b);
    // Where an honest implementation may overflow nothing can be asked.
    if (!std::isfinite(reference.bound[i])) continue;
    const double ratio = std::isfinite(error) ? error / allowed : std::numeric_limits<double>::infinity();
    if (ratio > result.tolerance_ratio) {
      result.tolerance_ratio = ratio;
      worst = i;
    }
    if (!std::isfinite(error)) continue;
    squares += error * error;
    norm += b[i] * b[i];
    result.max_abs = std::max(result.max_abs, error);
    result.max_ulp = std::max(result.max_ulp, error / ulp_at(b[i], view.dtype));
  }
  result.rel_l2 = std::sqrt(squares / (norm > 0 ? norm : 1));
  result.worst_index = index_of(worst, view.shape);
  result.worst_a = a[worst];
  result.worst_b = b[worst];
  return result;
}

}  // namespace

std::vector<std::string> different_inputs(const CaseRead& a, const CaseRead& b) {
  std::vector<std::string> names;
  for (const auto& input : a.inputs) {
    const HostTensor* other = find(b.inputs, input.spec.name);
    if (other == nullptr || other->spec.bytes() != input.spec.bytes() ||
        std::memcmp(other->buffer.data(), input.buffer.data(), input.spec.bytes()) != 0)
      names.push_back(input.spec.name);
  }
  return names;
}

std::vector<OutputDifference> compare_cases(const CaseRead& a, const CaseRead& b,
                                            const std::atomic<bool>& stop) {
  std::vector<OutputDifference> differences;
  const auto reference = compute_reference(a.problem, views_of(a.inputs), stop);
  for (const auto& output : a.outputs)
    if (const HostTensor* other = find(b.outputs, output.spec.name))
      differences.push_back(difference_of(output, *other, a.math, b.math, reference.at(output.spec.name)));
  return differences;
}

}  // namespace ssmbench
