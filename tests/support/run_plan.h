#pragma once

#include <vector>

#include "device/device.h"
#include "sweep/plan.h"
#include "sweep/runner.h"

namespace ssmbench::test {

inline Case make_case(Problem problem, const std::string& distribution = "mamba") {
  return {.problem = std::move(problem),
          .inputs = {.distribution = distribution, .values = "native", .seed = 7},
          .budget_ms = {},
          .source = {}};
}

/// Keeps the results that a run reports.
class Collector : public Reporter {
 public:
  void begin(const RunInfo&) override {}
  void case_done(const CaseResult& result) override { results.push_back(result); }
  void finish(const Summary& summary) override { last_summary = summary; }

  std::vector<CaseResult> results;
  Summary last_summary;
};

/// Runs a plan without timing and returns what was reported.
inline std::vector<CaseResult> run_plan(const Plan& plan, RunnerOptions options = {}) {
  options.time = false;
  options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string("again"); };
  Collector collector;
  Progress progress(true, false);
  static const std::atomic<bool> never{false};
  Runner(plan, options, {&collector}, progress, never).run({});
  return collector.results;
}

/// Runs the selected implementations of the registry on the CPU, or on another device.
inline std::vector<CaseResult> run_cases(std::vector<Case> cases, const Selection& selection = {},
                                         const DeviceInfo& device = list_devices().front()) {
  return run_plan(make_plan(std::move(cases), {device}, selection));
}

}  // namespace ssmbench::test
