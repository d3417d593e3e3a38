#include "bench/stopping_rule.h"

#include <algorithm>
#include <cmath>

#include "bench/statistics.h"

namespace ssmbench {
namespace {

double median_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  return quantile(samples, 0.5);
}

}  // namespace

void StoppingRule::add(double sample_ms) {
  samples_.push_back(sample_ms);
  const auto n = static_cast<double>(samples_.size());
  const double before = sample_ms - mean_;
  mean_ += before / n;
  squares_ += before * (sample_ms - mean_);

  if (!checkpoints_.empty() && samples_.size() < checkpoints_.back().samples * 11 / 10) return;
  const auto half = samples_.begin() + static_cast<std::ptrdiff_t>(samples_.size() / 2);
  checkpoints_.push_back({samples_.size(), median_of(samples_), median_of({half, samples_.end()})});
}

std::string_view StoppingRule::verdict(double seconds) const {
  const auto runs = static_cast<double>(samples_.size());
  if (runs >= policy_.max_runs) return "runs";
  if (runs >= policy_.min_runs && seconds >= policy_.min_seconds) {
    if (is_precise()) return "precision";
    if (is_on_plateau()) return "plateau";
    if (seconds >= policy_.patient_seconds) return "time";
  }
  return seconds >= policy_.max_seconds ? "time" : "";
}

bool StoppingRule::is_precise() const {
  const auto n = static_cast<double>(samples_.size());
  return n > 1 && std::sqrt(squares_ / (n - 1) / n) <= policy_.precision * mean_;
}

bool StoppingRule::is_on_plateau() const {
  constexpr std::size_t kFewest = 10;  // medians of fewer stay where they are for a while by chance
  if (samples_.size() < kFewest) return false;
  const Checkpoint& last = checkpoints_.back();
  auto [lowest, highest] = std::minmax({last.median, last.median_of_latest});
  for (auto at = checkpoints_.rbegin(); at != checkpoints_.rend() && 2 * at->samples >= last.samples; ++at) {
    lowest = std::min(lowest, at->median);
    highest = std::max(highest, at->median);
  }
  return highest - lowest <= policy_.precision * highest;
}

}  // namespace ssmbench
