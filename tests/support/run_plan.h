#pragma once

#include <utility>
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

/// Keeps the results of a run.
class Collector : public RunListener {
 public:
  void starting(std::size_t job, Stage stage) override { started.emplace_back(job, stage); }
  void finished(std::size_t, const CaseResult& result) override { results.push_back(result); }

  std::vector<std::pair<std::size_t, Stage>> started;
  std::vector<CaseResult> results;
};

/// Runs a plan without timing and returns what was reported.
inline std::vector<CaseResult> run_plan(const Plan& plan, RunnerOptions options = {}) {
  options.time = false;
  options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string("again"); };
  Collector collector;
  static const std::atomic<bool> never{false};
  Runner(plan, options, collector, never).run();
  return collector.results;
}

/// Runs the selected implementations of the registry on the CPU, or on another device.
inline std::vector<CaseResult> run_cases(std::vector<Case> cases, const Selection& selection = {},
                                         const DeviceInfo& device = list_devices().front()) {
  return run_plan(make_plan(std::move(cases), {device}, selection));
}

}  // namespace ssmbench::test
