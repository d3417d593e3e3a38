#include "report/labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace ssmbench {
namespace {

template <class Text>
std::string join_shape(const Problem& problem, const Text& text) {
  std::vector<std::string> parts;
  for (const auto& axis : problem.op().axes)
    if (axis.kind == AxisKind::size && !axis.fallback && problem.has(axis)) parts.push_back(text(axis));
  return fmt::format("{}", fmt::join(parts, "×"));
}

}  // namespace

std::string shape_label(const Problem& problem) {
  return join_shape(problem, [&](const AxisSpec& axis) { return std::to_string(problem.size(axis.name)); });
}

std::string shape_heading(const Problem& problem) {
  return join_shape(problem, [](const AxisSpec& axis) { return axis.name; });
}

std::string options_label(const Case& the_case) {
  const Problem& problem = the_case.problem;
  std::vector<std::string> parts;
  for (const auto& axis : problem.op().axes) {
    if (!problem.has(axis)) continue;
    if (axis.kind == AxisKind::flag && problem.flag(axis.name)) parts.push_back(axis.id_token);
    const AxisValue& value = problem.value(axis.name);
    if (axis.kind != AxisKind::flag && axis.fallback && value != *axis.fallback)
      parts.push_back(axis.id_token + to_string(value));
  }
  const InputSpec defaults;
  if (the_case.inputs.distribution != defaults.distribution) parts.push_back(the_case.inputs.distribution);
  if (the_case.inputs.values != defaults.values) parts.push_back(the_case.inputs.values);
  for (const auto& [output, tolerance] : the_case.tolerances)
    parts.push_back(fmt::format("own-tolerance({})", output));
  return fmt::format("{}", fmt::join(parts, " "));
}

const OutputComparison* worst_output(const CaseResult& result) {
  const OutputComparison* worst = nullptr;
  for (const auto& [name, comparison] : result.outputs)
    if (worst == nullptr || comparison.tolerance_ratio > worst->tolerance_ratio) worst = &comparison;
  return worst;
}

double gigabytes_per_second(const CaseResult& result) {
  const TimingStats* timing = result.headline();
  return timing == nullptr ? 0 : result.work.bytes / (timing->median_ms * 1e6);
}

std::vector<std::pair<std::string, std::optional<double>>> device_times(const CaseResult& result) {
  const auto median = [&](const char* name) -> std::optional<double> {
    const auto found = result.timing.find(name);
    if (found == result.timing.end()) return {};
    return found->second.median_ms;
  };
  std::optional<double> end_to_end;
  if (result.transfers) end_to_end = result.transfers->pinned.end_to_end_ms;
  return {{"cold ms", median("cold")}, {"graph ms", median("graph")}, {"e2e ms", end_to_end}};
}

bool has_device_times(const RunInfo& info) {
  return std::ranges::any_of(info.devices, [](const auto& device) { return device.first != "cpu"; });
}

std::string status_label(const CaseResult& result) {
  const std::string lowered = result.status == Status::skip ? "" : result.lowered_arithmetic();
  return fmt::format("{}{}", name_of(result.status), lowered.empty() ? "" : " (" + lowered + ")");
}

std::string budget_label(const CaseResult& result) {
  const TimingStats* timing = result.headline();
  if (timing == nullptr || !result.the_case.budget_ms) return "";
  const double margin = *result.the_case.budget_ms - timing->median_ms;
  return fmt::format("{} the budget of {:.4g} ms by {:.3g} ms", margin >= 0 ? "meets" : "misses",
                     *result.the_case.budget_ms, std::abs(margin));
}

std::string roofline_label(const CaseResult& result) {
  if (!result.roofline) return "";
  const double percent = 100 * result.roofline->fraction;
  return fmt::format("{:.{}f}% {}", percent, percent < 10 ? 1 : 0, result.roofline->bound);
}

bool has_roofline(const RunInfo& info) {
  return std::ranges::any_of(info.devices, [](const auto& device) {
    return std::ranges::any_of(device.second,
                               [](const auto& detail) { return detail.first.starts_with("ceiling_"); });
  });
}

std::string summary_line(const Summary& summary) {
  std::vector<std::string> parts;
  for (const auto& [status, count] : summary.counts)
    parts.push_back(fmt::format("{} {}", count, name_of(status)));
  if (summary.passed_by_user > 0)
    parts.push_back(fmt::format("{} of them by tolerances that the config sets", summary.passed_by_user));
  return fmt::format("{}{}{} in {:.1f} s", summary.interrupted ? "interrupted: " : "",
                     parts.empty() ? "nothing ran" : fmt::format("{}", fmt::join(parts, ", ")),
                     summary.kept > 0 ? fmt::format(" ({} from an earlier run)", summary.kept) : "",
                     summary.seconds);
}

}  // namespace ssmbench
