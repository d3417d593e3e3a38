#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "support/gpu.h"
#include "support/run_plan.h"

namespace ssmbench::test {

/// What came of running every implementation on some problems.
struct Verdicts {
  std::map<std::string, std::size_t> passed, skipped;  ///< problems, by implementation
  std::string failures;                                ///< a line each
};

inline Verdicts verdicts_of(const std::vector<Problem>& problems, const DeviceInfo& device,
                            const std::string& distribution = "mamba") {
  std::vector<Case> cases;
  for (const auto& problem : problems) cases.push_back(make_case(problem, distribution));
  Verdicts verdicts;
  for (const auto& result : run_cases(std::move(cases), {}, device)) {
    if (result.status == Status::pass)
      ++verdicts.passed[result.impl];
    else if (result.status == Status::skip)
      ++verdicts.skipped[result.impl];
    else
      verdicts.failures += fmt::format("{} {}: {}\n", result.impl, result.the_case.id(), result.reason);
  }
  return verdicts;
}

/// How many of the problems have this io dtype.
inline std::size_t count_in(DType dtype, const std::vector<Problem>& problems) {
  return static_cast<std::size_t>(
      std::ranges::count_if(problems, [dtype](const Problem& problem) { return problem.dtype() == dtype; }));
}

}  // namespace ssmbench::test
