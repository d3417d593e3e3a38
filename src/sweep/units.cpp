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

std::vector<Unit> units_of(const Plan& plan, const JobSet& jobs, bool verify) {
  std::vector<Unit> units;
  std::string last_key;
  std::size_t number = 0;
  for (const auto& planned : plan.cases) {
    std::vector<std::size_t> of_case;
    double runs = 0;
    for (const auto& job : planned.jobs) {
      const std::size_t this_one = number++;
      if (!jobs[this_one]) continue;
      of_case.push_back(this_one);
      runs += job.skip ? 0 : 1;
    }
    if (of_case.empty()) continue;
    if (std::string key = reference_key(planned.the_case); units.empty() || key != last_key) {
      units.emplace_back();
      last_key = std::move(key);
    }
    Unit& unit = units.back();
    unit.jobs.insert(unit.jobs.end(), of_case.begin(), of_case.end());
    if (runs == 0) continue;
    unit.size += runs * elements_of(planned.the_case.problem);
    unit.host_bytes = std::max(unit.host_bytes, memory_need(planned, plan, verify).host);
  }
  std::ranges::stable_sort(units, std::ranges::greater(), &Unit::size);
  return units;
}

}  // namespace ssmbench
