#include "sweep/best_of_one.h"

namespace ssmbench {
namespace {

/// "cpu" of "cpu*2", "cuda" of "cuda:0".
std::pair<std::string, std::string> place_of(const CaseResult& result) {
  return {result.the_case.id(), result.device.substr(0, result.device.find_first_of(":*"))};
}

bool counts(const CaseResult& result) {
  return result.status == Status::pass && result.headline() != nullptr;
}

}  // namespace

void BestOfOne::add(const CaseResult& result) {
  if (result.team || !counts(result)) return;
  const double ms = result.headline()->median_ms;
  const auto [best, is_first] = best_.try_emplace(place_of(result), Best{result.impl, ms});
  if (!is_first && ms < best->second.ms) best->second = {result.impl, ms};
}

std::optional<Scaling> BestOfOne::scaling_of(const CaseResult& result) const {
  if (!result.team || !counts(result)) return {};
  const auto best = best_.find(place_of(result));
  if (best == best_.end()) return {};
  const double speedup = best->second.ms / result.headline()->median_ms;
  return Scaling{.impl = best->second.impl,
                 .ms_one = best->second.ms,
                 .speedup = speedup,
                 .efficiency = speedup / static_cast<double>(result.team->rank_ms.size())};
}

}  // namespace ssmbench
