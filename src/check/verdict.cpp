#include "check/verdict.h"

#include <algorithm>
#include <cmath>

#include "check/hypotheses.h"
#include "check/patterns.h"
#include "reference/reference.h"
#include "verify/compare.h"
#include "verify/dequantized.h"

namespace ssmbench {

bool CaseVerdict::passed() const {
  return std::ranges::all_of(outputs, [](const auto& output) { return output.comparison.passed(); });
}

std::vector<std::string> nonfinite_inputs(const CaseRead& read) {
  std::vector<std::string> names;
  for (const auto& input : read.inputs) {
    if (is_index(input.spec.dtype)) continue;
    const auto values = logical_values(input);
    if (std::ranges::any_of(values, [](double value) { return !std::isfinite(value); }))
      names.push_back(input.spec.name);
  }
  return names;
}

CaseVerdict judge_case(const CaseRead& read, const std::atomic<bool>& stop) {
  CaseVerdict verdict;
  const auto reference = compute_reference(read.problem, views_of(read.inputs), stop);
  std::set<std::string> failed;
  for (const auto& output : read.outputs) {
    const Expectation expected = reference.at(output.spec.name).expectation();
    const auto values = dequantized(output, read.outputs);
    const HostTensor& meant = values ? *values : output;
    const JudgedOutput judged = judge_output(meant, expected, read.arithmetic);
    verdict.outputs.push_back({.name = output.spec.name,
                               .axes = output.spec.axes,
                               .comparison = compare_output(meant.view(), expected, read.arithmetic, nullptr,
                                                            time_axis(output.spec)),
                               .profile = profile_of(judged, expected),
                               .patterns = patterns_of(judged, expected, read)});
    if (!verdict.outputs.back().comparison.passed()) failed.insert(output.spec.name);
  }
  if (!failed.empty()) verdict.explanation = explanation_of(read, failed, stop);
  return verdict;
}

}  // namespace ssmbench
