#include "check/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "check/judged_output.h"
#include "model/tensor_map.h"
#include "reference/reference.h"
#include "verify/compare_pair.h"
#include "verify/dequantized.h"

namespace ssmbench {
namespace {

bool same(double a, double b) {
  return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

/// Elements whose bits are not the same; NaN and NaN are.
std::int64_t count_different(const HostTensor& a, const HostTensor& b) {
  const std::vector<double> in_a = logical_values(a);
  const std::vector<double> in_b = logical_values(b);
  std::int64_t different = 0;
  for (std::size_t i = 0; i < in_a.size(); ++i) different += same(in_a[i], in_b[i]) ? 0 : 1;
  return different;
}

}  // namespace

std::vector<std::string> different_inputs(const CaseRead& a, const CaseRead& b) {
  std::vector<std::string> names;
  for (const auto& input : a.inputs) {
    const HostTensor* other = find_tensor(b.inputs, input.spec.name);
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
  for (const auto& output : a.outputs) {
    const HostTensor* other = find_tensor(b.outputs, output.spec.name);
    if (other == nullptr) continue;
    const auto of_a = dequantized(output, a.outputs);
    const auto of_b = dequantized(*other, b.outputs);
    differences.push_back({.name = output.spec.name,
                           .axes = output.spec.axes,
                           .elements = element_count(output.spec.shape),
                           .different = count_different(output, *other),
                           .comparison = compare_pair(
                               (of_a ? *of_a : output).view(), (of_b ? *of_b : *other).view(),
                               reference.at(output.spec.name).expectation(), a.arithmetic, b.arithmetic)});
  }
  return differences;
}

}  // namespace ssmbench
