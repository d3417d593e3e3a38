#include "cli/rows_by_unit.h"

#include <utility>

namespace ssmbench {

RowsByUnit::RowsByUnit(std::unique_ptr<Reporter> table, const Plan& plan, const JobSet& jobs)
    : table_(std::move(table)) {
  std::string last_key;
  std::size_t number = 0;
  for (const auto& planned : plan.cases) {
    if (std::string key = reference_key(planned.the_case); units_.empty() || key != last_key) {
      units_.emplace_back();
      last_key = std::move(key);
    }
    unit_of_case_[planned.the_case.id()] = units_.size() - 1;
    for (std::size_t i = 0; i < planned.jobs.size(); ++i) units_.back().to_come += jobs[number++] ? 1 : 0;
  }
}

void RowsByUnit::case_done(const CaseResult& result) {
  Unit& unit = units_[unit_of_case_.at(result.the_case.id())];
  unit.results.push_back(result);
  if (--unit.to_come == 0) pass_on(unit);
}

void RowsByUnit::finish(const Summary& summary) {
  for (auto& unit : units_) pass_on(unit);
  table_->finish(summary);
}

void RowsByUnit::pass_on(Unit& unit) {
  for (const auto& result : std::exchange(unit.results, {})) table_->case_done(result);
}

}  // namespace ssmbench
