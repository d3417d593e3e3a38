#include "gate/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

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

std::string text_of(const std::optional<UserTolerance>& tolerance) {
  return tolerance ? fmt::format("{:g} + {:g}·|expected|", tolerance->abs, tolerance->rel) : "derived";
}

/// Tolerances of configs, and the claims that tolerances are derived from.
void add_changed_rules(Comparison& comparison) {
  const CaseResult& before = *comparison.before;
  const CaseResult& after = *comparison.after;
  if (before.claims && after.claims && *before.claims != *after.claims) {
    const bool is_looser =
        unit_roundoff(after.claims->math) > unit_roundoff(before.claims->math) ||
        unit_roundoff(after.claims->state_dtype) > unit_roundoff(before.claims->state_dtype);
    (is_looser ? comparison.worse : comparison.changes)
        .push_back(fmt::format("claimed {} arithmetic and {} states, now {} and {}",
                               name_of(before.claims->math), name_of(before.claims->state_dtype),
                               name_of(after.claims->math), name_of(after.claims->state_dtype)));
  }
  for (const auto& [name, output] : after.outputs) {
    const auto found = before.outputs.find(name);
    if (found == before.outputs.end() || same_tolerance(found->second, output)) continue;
    const auto& then = found->second.user_tolerance;
    const auto& now = output.user_tolerance;
    const bool is_looser = now && (!then || now->abs > then->abs || now->rel > then->rel);
    (is_looser ? comparison.worse : comparison.changes)
        .push_back(fmt::format("{}: tolerance was {}, now {}", name, text_of(then), text_of(now)));
  }
}

/// What errors grew by more than the policy allows.
void add_error_growth(Comparison& comparison, double allowed) {
  for (const auto& [name, after] : comparison.after->outputs) {
    const auto found = comparison.before->outputs.find(name);
    if (found == comparison.before->outputs.end() || !same_tolerance(found->second, after)) continue;
    const double before = found->second.tolerance_ratio;
    if (after.tolerance_ratio <= before * (1 + allowed) + kNegligibleError) continue;
    comparison.worse.push_back(
        fmt::format("{}: error over tolerance was {:.3g}, now {:.3g}", name, before, after.tolerance_ratio));
  }
}

/// The results of one case and implementation, one per process of a side.
using Repeats = std::vector<const CaseResult*>;

/// The processes' samples of one kind.
ProcessSamples samples_of(const Repeats& repeats, const std::string& timing) {
  ProcessSamples samples;
  for (const CaseResult* result : repeats)
    if (const auto found = result->timing.find(timing);
        ran(*result) && found != result->timing.end() && !found->second.samples_ms.empty())
      samples.push_back(found->second.samples_ms);
  return samples;
}

std::optional<TimeChange> time_change(const Repeats& before, const Repeats& after, const GatePolicy& policy) {
  const ProcessSamples old_times = samples_of(before, policy.timing);
  const ProcessSamples new_times = samples_of(after, policy.timing);
  if (old_times.empty() && new_times.empty()) return {};
  if (old_times.empty() || new_times.empty())
    return TimeChange{.before_ms = old_times.empty() ? 0 : median_of_processes(old_times),
                      .after_ms = new_times.empty() ? 0 : median_of_processes(new_times),
                      .reason = fmt::format("no {} times in the {}", policy.timing,
                                            old_times.empty() ? "baseline" : "new results")};
  return compare_times(old_times, new_times, policy);
}

int badness(Status status) {
  switch (status) {
    case Status::error:
      return 5;
    case Status::invalid:
      return 4;
    case Status::fail:
      return 3;
    case Status::skip:
      return 2;
    case Status::pass:
      return 1;
    case Status::unverified:
      break;
  }
  return 0;
}

/// The one that speaks for them: the worst, and of fine ones one that was verified.
const CaseResult& representative(const Repeats& repeats) {
  return **std::ranges::max_element(repeats, {},
                                    [](const CaseResult* result) { return badness(result->status); });
}

Comparison compare(const Repeats& befores, const Repeats& afters, const GatePolicy& policy) {
  const CaseResult& before = representative(befores);
  const CaseResult& after = representative(afters);
  Comparison comparison{.before = &before, .after = &after};
  if (got_worse(before.status, after.status))
    comparison.worse.push_back(fmt::format("was {}, now {}{}{}", name_of(before.status),
                                           name_of(after.status), after.reason.empty() ? "" : ": ",
                                           after.reason));
  if (!ran(before) || !ran(after)) return comparison;
  add_changed_rules(comparison);
  add_error_growth(comparison, policy.max_error_growth);
  comparison.time = time_change(befores, afters, policy);
  return comparison;
}

/// Of a case, an implementation and a device: what results of two files are compared by.
using Key = std::string;

Key key_of(const CaseResult& result) {
  return fmt::format("{}\n{}\n{}", result.the_case.id(), result.impl, result.device);
}

std::vector<Key> keys_of(const std::vector<CaseResult>& results) {
  std::vector<Key> keys(results.size());
#pragma omp parallel for schedule(static) if (results.size() > 1000)
  for (std::size_t i = 0; i < results.size(); ++i) keys[i] = key_of(results[i]);
  return keys;
}

/// The results of one side, in the order of its files.
class Grouped {
 public:
  explicit Grouped(const std::vector<ResultsFile>& files) {
    for (const auto& file : files) {
      auto keys = keys_of(file.cases);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto [place, is_new] = place_of_.try_emplace(std::move(keys[i]), groups_.size());
        if (is_new) groups_.emplace_back(place->first, Repeats());
        groups_[place->second].second.push_back(&file.cases[i]);
      }
    }
  }

  const std::vector<std::pair<Key, Repeats>>& groups() const { return groups_; }
  /// Null where there is none.
  const Repeats* find(const Key& key) const {
    const auto found = place_of_.find(key);
    return found == place_of_.end() ? nullptr : &groups_[found->second].second;
  }

 private:
  std::vector<std::pair<Key, Repeats>> groups_;
  std::unordered_map<Key, std::size_t> place_of_;
};

/// What both sides have results of, and where the comparison goes.
struct Both {
  std::size_t place;
  const Repeats* before;
  const Repeats* after;
};

void compare_all(const std::vector<Both>& of_both, const GatePolicy& policy,
                 const std::function<void(std::size_t, std::size_t)>& tell,
                 std::vector<Comparison>& comparisons) {
  constexpr std::size_t kBetweenTells = 4096;
  for (std::size_t first = 0; first < of_both.size(); first += kBetweenTells) {
    if (tell) tell(first, of_both.size());
    const std::size_t end = std::min(first + kBetweenTells, of_both.size());
#pragma omp parallel for schedule(dynamic, 64)
    for (std::size_t i = first; i < end; ++i)
      comparisons[of_both[i].place] = compare(*of_both[i].before, *of_both[i].after, policy);
  }
}

double limit_of(const TimeChange& change, const GatePolicy& policy) {
  return std::max(policy.max_regression, kResolutionMs / change.before_ms);
}

Verdict verdict_of(const TimeChange& change, const GatePolicy& policy) {
  const double limit = limit_of(change, policy);
  const auto& ratio = change.ratio;
  const bool differs = change.corrected_p_value <= 1 - policy.confidence;
  if (differs && ratio.ratio > 1 + limit) return Verdict::slower;
  if (differs && 1 / ratio.ratio > 1 + limit) return Verdict::faster;
  return ratio.high <= 1 + limit && 1 / ratio.low <= 1 + limit ? Verdict::same : Verdict::inconclusive;
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

TimeChange compare_times(const ProcessSamples& before, const ProcessSamples& after,
                         const GatePolicy& policy) {
  TimeChange change{.before_ms = median_of_processes(before),
                    .after_ms = median_of_processes(after),
                    .processes_before = before.size(),
                    .processes_after = after.size()};
  const std::size_t samples = std::min(sample_count(before), sample_count(after));
  const std::size_t needed = fewest_samples(policy.confidence);
  if (samples < needed) {
    change.reason =
        fmt::format("{} samples; {:g}% confidence needs {}", samples, 100 * policy.confidence, needed);
    return change;
  }
  for (const ProcessSamples* side : {&before, &after})
    for (const auto& process : *side)
      if (std::ranges::min(process) <= 0) {
        change.reason = "a sample is not positive";
        return change;
      }
  change.ratio = ratio_of_medians(before, after, policy.confidence);
  const double limit = limit_of(change, policy);
  change.p_value = chance_of(change.ratio, 1 + (change.ratio.covers_processes ? 0 : limit / 2));
  correct_for_number({&change}, policy);
  return change;
}

void correct_for_number(const std::vector<TimeChange*>& changes, const GatePolicy& policy) {
  std::vector<double> p_values;
  for (const TimeChange* change : changes) p_values.push_back(change->p_value);
  const auto corrected = corrected_by_holm(p_values);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    changes[i]->corrected_p_value = corrected[i];
    changes[i]->verdict = verdict_of(*changes[i], policy);
  }
}

std::vector<Comparison> compare_results(const std::vector<ResultsFile>& before,
                                        const std::vector<ResultsFile>& after, const GatePolicy& policy,
                                        const std::function<void(std::size_t, std::size_t)>& tell) {
  const Grouped olds(before);
  const Grouped news(after);
  std::vector<Comparison> comparisons;
  std::vector<Both> of_both;
  for (const auto& [key, repeats] : olds.groups()) {
    const CaseResult& result = representative(repeats);
    const Repeats* const found = news.find(key);
    if (found == nullptr) {
      Comparison& missing = comparisons.emplace_back(Comparison{.before = &result});
      if (ran(result) && !policy.allow_missing) missing.worse.emplace_back("missing from the new results");
    } else if (result.status != Status::skip || representative(*found).status != Status::skip) {
      of_both.push_back({comparisons.size(), &repeats, found});
      comparisons.emplace_back();
    }
  }
  compare_all(of_both, policy, tell, comparisons);
  for (const auto& [key, repeats] : news.groups())
    if (olds.find(key) == nullptr) comparisons.push_back({.after = &representative(repeats)});
  std::vector<TimeChange*> judged;
  for (auto& comparison : comparisons)
    if (comparison.time && comparison.time->reason.empty()) judged.push_back(&*comparison.time);
  correct_for_number(judged, policy);
  return comparisons;
}

bool is_copy(const ResultsFile& a, const ResultsFile& b) {
  if (a.run.started != b.run.started) return false;
  std::unordered_map<Key, const CaseResult*> of_a;
  for (const auto& result : a.cases) of_a[key_of(result)] = &result;
  bool same = false;
  for (const auto& result : b.cases) {
    const auto found = of_a.find(key_of(result));
    if (found == of_a.end()) continue;
    for (const auto& [name, times] : result.timing) {
      const auto other = found->second->timing.find(name);
      if (other == found->second->timing.end()) continue;
      if (other->second.samples_ms != times.samples_ms) return false;
      same = true;
    }
  }
  return same;
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
            fmt::format("{}: {} was {}, now {}", device, field, old_value->second, new_value->second));
    }
  }
  return differences;
}

}  // namespace ssmbench
