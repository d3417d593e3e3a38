#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "model/case.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "verify/tolerance.h"

// How large tolerances are beside the values that they are for: one larger than its value lets a kernel pass
// that writes zeros. Where terms cancel it has to be that large, and honest implementations show it: they use
// up a share of it.

namespace ssmbench::test {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Of values below, tolerances are what underflow may take.
inline constexpr double kUnderflowDecides = 0x1p-80;

/// The median tolerance of an output in f32 over its median size, of those elements that are judged; 0 where
/// the values are tiny or 0.
inline double relative_tolerance(const Expectation& expected, std::int64_t count) {
  std::vector<double> sizes;
  std::vector<double> tolerances;
  for (std::int64_t i = 0; i < count; ++i) {
    const ExpectedElement element = expected.at(i);
    if (!std::isfinite(element.bound)) continue;
    sizes.push_back(std::abs(element.value));
    tolerances.push_back(tolerance_of(element, DType::f32, {}).arithmetic);
  }
  const double size = median(sizes);
  return size > kUnderflowDecides ? median(tolerances) / size : 0;
}

struct BoundSize {
  std::string output;
  double relative;
};

/// Of every output of a case.
inline std::vector<BoundSize> bound_sizes(const Case& one) {
  std::vector<BoundSize> sizes;
  const auto inputs = generate_inputs(one.problem, one.inputs, never_stop);
  for (const auto& [name, output] : compute_reference(one.problem, views_of(inputs), never_stop))
    sizes.push_back({name, relative_tolerance(output.expectation(), std::ssize(output.expected))});
  return sizes;
}

/// Outputs whose terms cancel, or may: docs/tolerances.md has each of them. Angles round at 2π wherever they
/// are, in bf16 by 2^-6, and sums of their gradients cancel; chunked implementations take gradients of decays
/// as differences of sums over time; a norm does not change with the largest of its numbers where others are
/// small beside it, or where there are no others.
inline bool may_cancel(const Problem& problem, const std::string& output) {
  const auto has = [&](const char* axis, const AxisValue& value) {
    return problem.has(axis) && problem.value(axis) == value;
  };
  return output.find("Angle") != std::string::npos || output == "dA" || output == "dADT" ||
         has("angle_dtype", "bf16") || has("outproj_norm", true);
}

/// Outputs whose tolerance is over `factor` times the value, though no CPU implementation comes anywhere near
/// it. One that is exact, as it is where a value is 0, says nothing.
inline std::vector<BoundSize> needless_bounds(const Case& one, double factor) {
  constexpr double kNearby = 1e-3;
  auto sizes = bound_sizes(one);
  std::erase_if(sizes, [&](const BoundSize& size) {
    return !(size.relative > factor) || may_cancel(one.problem, size.output);
  });
  if (sizes.empty()) return sizes;
  for (const auto& result : run_cases({one}))
    for (const auto& [name, output] : result.outputs)
      if (output.tolerance_ratio == 0 || output.tolerance_ratio > kNearby)
        std::erase_if(sizes, [&](const BoundSize& size) { return size.output == name; });
  return sizes;
}

/// Unstable methods amplify roundings as they amplify states.
inline bool is_stable(const Problem& problem) {
  return !problem.has("method") || problem.choice("method") != "bilinear_flipped";
}

}  // namespace ssmbench::test
