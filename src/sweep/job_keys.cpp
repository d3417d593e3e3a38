#include "sweep/job_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/fnv1a.h"

namespace ssmbench {
namespace {

std::string text_of(const RunnerOptions& options) {
  const TimingPolicy& timing = options.timing;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", options.verify, options.time, timing.warmup,
                     timing.warmup_seconds, timing.min_runs, timing.max_runs, timing.min_seconds,
                     timing.patient_seconds, timing.max_seconds, timing.precision, options.reruns.count,
                     options.reruns.max_seconds);
}

/// But for its ceilings, which are measured and come out otherwise each time.
std::map<std::string, std::string> identity_of(std::map<std::string, std::string> device) {
  std::erase_if(device, [](const auto& field) { return field.first.starts_with("ceiling_"); });
  return device;
}

}  // namespace

std::vector<std::string> job_keys(const Plan& plan, const RunnerOptions& options, const RunInfo& info) {
  const std::string common = fmt::format("{}\n{}", info.build, text_of(options));
  std::vector<std::string> keys;
  for (const auto& planned : plan.cases) {
    std::string the_case = fmt::format("{} {} {}", planned.the_case.id(),
                                       planned.the_case.budget_ms.value_or(0), planned.the_case.timed);
    for (const auto& [output, allowed] : planned.the_case.tolerances)
      the_case += fmt::format(" {} {} {}", output, allowed.abs, allowed.rel);
    for (const auto& job : planned.jobs) {
      const std::string device = device_id(plan.devices[job.device]);
      const std::string text = fmt::format("{}\n{}\n{} {}\n{}", the_case, job.implementation->name, device,
                                           identity_of(info.devices.at(device)), common);
      keys.push_back(fmt::format("{:016x}", fnv1a(text)));
    }
  }
  return keys;
}

}  // namespace ssmbench
