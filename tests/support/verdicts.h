#pragma once

#include <fmt/format.h>

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

}  // namespace ssmbench::test
