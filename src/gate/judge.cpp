#include "gate/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace ssmbench {
namespace {

/// Three ticks of a CUDA device's clock (H200: 32 ns), by which a median may move for no reason.
constexpr double kResolutionMs = 1e-4;

/// Errors of that share of their tolerance may come and go.
constexpr double kNegligibleError = 0.02;

bool ran(const CaseResult& result) {
  return result.status == Status::pass || result.status == Status::unverified;
}

bool got_worse(Status before, Status after) {
  if (before == Status::pass) return after != Status::pass;
  return before == Status::unverified && after != Status::pass && after != Status::unverified;
}

bool same_tolerance(const OutputComparison& a, const OutputComparison& b) {
  if (!a.user_tolerance || !b.user_tolerance) return !a.user_tolerance && !b.user_tolerance;
  return a.user_tolerance->abs == b.user_tolerance->abs && a.user_tolerance->rel == b.user_tolerance->rel;
}

/// What errors grew by more than the policy allows.
void add_error_growth(Comparison& comparison, double allowed) {
  for (const auto& [name, after] : comparison.after->outputs) {
    const auto found = comparison.before->outputs.find(name);
    if (found == comparison.before->outputs.end() || !same_tolerance(found->second, after)) continue;
    const double before = found->second.tolerance_ratio;
    if (after.tolerance_ratio <= before * (1 + allowed) + kNegligibleError) continue;
    comparison.worse.push_back(
        fmt::format("{}: error over tolerance {:.3g}, then {:.3g}", name, before, after.tolerance_ratio));
  }
}

const TimingStats* timing_of(const CaseResult& result, const std::string& name) {
  const auto found = result.timing.find(name);
  return found == result.timing.end() ? nullptr : &found->second;
}

std::optional<TimeChange> time_change(const CaseResult& before, const CaseResult& after,
                                      const GatePolicy& policy) {
  const TimingStats* old_times = timing_of(before, policy.timing);
  const TimingStats* new_times = timing_of(after, policy.timing);
  if (old_times == nullptr && new_times == nullptr) return {};
  if (old_times == nullptr || new_times == nullptr)
    return TimeChange{.before_ms = old_times != nullptr ? old_times->median_ms : 0,
                      .after_ms = new_times != nullptr ? new_times->median_ms : 0,
                      .reason = fmt::format("no {} times in the {}", policy.timing,
                                            old_times == nullptr ? "baseline" : "new results")};
  return compare_times(*old_times, *new_times, policy,
                       fmt::format("{} {} {}", after.the_case.id(), after.impl, policy.timing));
}

Comparison compare(const CaseResult& before, const CaseResult& after, const GatePolicy& policy) {
  Comparison comparison{.before = &before, .after = &after};
  if (got_worse(before.status, after.status))
    comparison.worse.push_back(fmt::format("{}, then {}{}{}", name_of(before.status), name_of(after.status),
                                           after.reason.empty() ? "" : ": ", after.reason));
  if (!ran(before) || !ran(after)) return comparison;
  add_error_growth(comparison, policy.max_error_growth);
  comparison.time = time_change(before, after, policy);
  return comparison;
}

using Key = std::tuple<std::string, std::string, std::string>;

Key key_of(const CaseResult& result) {
  return {result.the_case.id(), result.impl, result.device};
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "SAME";
    case Verdict::faster:
      return "FASTER";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::inconclusive:
      break;
  }
  return "INCONCLUSIVE";
}

Finding Comparison::finding() const {
  if (!worse.empty())
    return after != nullptr && after->status == Status::error ? Finding::crashed : Finding::worse;
  if (!time) return Finding::none;
  if (time->verdict == Verdict::slower) return Finding::slower;
  return time->verdict == Verdict::inconclusive ? Finding::inconclusive : Finding::none;
}

TimeChange compare_times(const TimingStats& before, const TimingStats& after, const GatePolicy& policy,
                         std::string_view name) {
  TimeChange change{.before_ms = before.median_ms, .after_ms = after.median_ms};
  const std::size_t samples = std::min(before.samples_ms.size(), after.samples_ms.size());
  const std::size_t needed = fewest_samples(policy.confidence);
  if (samples < needed) {
    change.reason = fmt::format("{} samples, of {} that {:g}% confidence needs", samples, needed,
                                100 * policy.confidence);
    return change;
  }
  if (std::min(std::ranges::min(before.samples_ms), std::ranges::min(after.samples_ms)) <= 0) {
    change.reason = "a time that is not positive";
    return change;
  }
  change.ratio =
      ratio_of_medians(before.samples_ms, after.samples_ms, {.confidence = policy.confidence}, name);
  const auto& [ratio, low, high] = change.ratio;
  const double limit = std::max(policy.max_regression, kResolutionMs / before.median_ms);
  const double half = limit / 2;
  if (ratio > 1 + limit && low > 1 + half)
    change.verdict = Verdict::slower;
  else if (1 / ratio > 1 + limit && 1 / high > 1 + half)
    change.verdict = Verdict::faster;
  else if (high <= 1 + limit && 1 / low <= 1 + limit)
    change.verdict = Verdict::same;
  return change;
}

std::vector<Comparison> compare_results(const ResultsFile& before, const ResultsFile& after,
                                        const GatePolicy& policy) {
  std::map<Key, const CaseResult*> news;
  for (const auto& result : after.cases) news[key_of(result)] = &result;
  std::vector<Comparison> comparisons;
  for (const auto& result : before.cases) {
    const auto found = news.find(key_of(result));
    if (found == news.end()) {
      Comparison& missing = comparisons.emplace_back(Comparison{.before = &result});
      if (ran(result) && !policy.allow_missing) missing.worse.emplace_back("not in the new results");
      continue;
    }
    if (result.status != Status::skip || found->second->status != Status::skip)
      comparisons.push_back(compare(result, *found->second, policy));
    news.erase(found);
  }
  for (const auto& result : after.cases)
    if (news.contains(key_of(result))) comparisons.push_back({.after = &result});
  return comparisons;
}

std::vector<std::string> device_differences(const ResultsFile& before, const ResultsFile& after) {
  std::set<std::string> used;
  for (const auto& result : before.cases) used.insert(result.device);
  std::vector<std::string> differences;
  for (const auto& device : used) {
    const auto old_details = before.run.devices.find(device);
    const auto new_details = after.run.devices.find(device);
    if (old_details == before.run.devices.end() || new_details == after.run.devices.end()) continue;
    for (const char* field :
         {"name", "cuda_driver", "driver", "compute_capability", "multiprocessors", "l2_bytes", "clock_mhz",
          "memory_clock_mhz", "cores", "threads", "instruction_set"}) {
      const auto old_value = old_details->second.find(field);
      const auto new_value = new_details->second.find(field);
      if (old_value == old_details->second.end() || new_value == new_details->second.end()) continue;
      if (old_value->second != new_value->second)
        differences.push_back(
            fmt::format("{}: {} {}, then {}", device, field, old_value->second, new_value->second));
    }
  }
  return differences;
}

}  // namespace ssmbench
