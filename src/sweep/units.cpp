#include "sweep/units.h"

#include <algorithm>
#include <string>

#include "model/tensor.h"

namespace ssmbench {
double elements_of(const Problem& problem) {
  double sum = 0;
  for (const auto& tensor : problem.tensors()) sum += static_cast<double>(element_count(tensor.shape));
  return sum;
}

namespace {

/// A unit of one case, and what cases that share its reference have in common.
struct CaseUnit {
  Unit unit;
  std::string reference;
};

/// Of each case with jobs.
std::vector<CaseUnit> units_of_cases(const Plan& plan, const JobSet& jobs, bool verify,
                                     std::size_t most_of_reference) {
  std::vector<CaseUnit> units;
  std::size_t number = 0;
  for (const auto& planned : plan.cases) {
    Unit unit;
    double runs = 0;
    for (const auto& job : planned.jobs) {
      const std::size_t this_one = number++;
      if (!jobs[this_one]) continue;
      unit.jobs.push_back(this_one);
      runs += job.skip ? 0 : 1;
    }
    if (unit.jobs.empty()) continue;
    if (runs > 0) {
      unit.size = runs * elements_of(planned.the_case.problem);
      unit.host_bytes = memory_need(planned, plan, verify, most_of_reference).host;
    }
    units.push_back({std::move(unit), reference_key(planned.the_case)});
  }
  return units;
}

void add_to(Unit& unit, const Unit& more) {
  unit.jobs.insert(unit.jobs.end(), more.jobs.begin(), more.jobs.end());
  unit.size += more.size;
  unit.host_bytes = std::max(unit.host_bytes, more.host_bytes);
}

}  // namespace

std::vector<Unit> units_of(const Plan& plan, const JobSet& jobs, bool verify, std::size_t slots,
                           std::size_t most_of_reference) {
  const auto of_cases = units_of_cases(plan, jobs, verify, most_of_reference);
  double all = 0;
  for (const auto& one : of_cases) all += one.unit.size;
  const double most = slots > 1 ? all / static_cast<double>(slots) / 2 : all;
  std::vector<Unit> units;
  for (auto first = of_cases.begin(); first != of_cases.end();) {
    const auto last = std::find_if(first, of_cases.end(),
                                   [&](const CaseUnit& one) { return one.reference != first->reference; });
    Unit together;
    for (auto one = first; one != last; ++one) add_to(together, one->unit);
    if (verify && together.size <= most)
      units.push_back(std::move(together));
    else
      for (auto one = first; one != last; ++one) units.push_back(one->unit);
    first = last;
  }
  std::ranges::stable_sort(units, std::ranges::greater(), &Unit::size);
  return units;
}

}  // namespace ssmbench
