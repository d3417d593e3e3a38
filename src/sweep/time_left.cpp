#include "sweep/time_left.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sweep/units.h"

namespace ssmbench {

TimeLeft::TimeLeft(const Plan& plan, const JobSet& jobs, bool verify) {
  std::size_t number = 0;
  std::string last_reference;
  for (const auto& planned : plan.cases) {
    const Problem& problem = planned.the_case.problem;
    const std::string& op = problem.op().name;
    const double elements = elements_of(problem);
    const std::size_t inputs = tasks_.size();
    std::optional<std::size_t> reference;
    for (const auto& job : planned.jobs) {
      const std::size_t this_one = number++;
      if (!jobs[this_one] || job.skip) continue;
      if (tasks_.size() == inputs) {
        tasks_.push_back({"inputs of " + op, Stage::inputs, elements});
        const std::string key = reference_key(planned.the_case);
        if (verify && key != std::exchange(last_reference, key)) {
          reference = tasks_.size();
          tasks_.push_back({"reference of " + op, Stage::reference, elements});
        }
      }
      place_of_[{this_one, Stage::inputs}] = inputs;
      if (reference) place_of_[{this_one, Stage::reference}] = *reference;
      place_of_[{this_one, Stage::run}] = tasks_.size();
      tasks_.push_back(
          {fmt::format("{} {} {}", op, job.device, job.implementation->name), Stage::run, elements});
    }
  }
}

void TimeLeft::spent(std::size_t job, Stage stage, double seconds) {
  if (Task* task = find(job, stage)) task->seconds += seconds;
}

void TimeLeft::ended(std::size_t job, Stage stage, bool counts) {
  Task* task = find(job, stage);
  if (task == nullptr || std::exchange(task->ended, true)) return;
  spent_ += task->seconds;
  if (!counts) return;
  by_kind_[task->kind].add(task->elements, task->seconds);
  by_stage_[stage].add(task->elements, task->seconds);
}

std::optional<double> TimeLeft::seconds() const {
  constexpr double kLeastSeconds = 2, kLeastPart = 0.05;
  double left = 0;
  for (const auto& task : tasks_) {
    if (task.ended) continue;
    const auto line = by_kind_.find(task.kind);
    const auto stage = by_stage_.find(task.stage);
    if (stage == by_stage_.end()) return {};
    left += std::max(
        0.0, (line != by_kind_.end() ? line->second : stage->second).at(task.elements) - task.seconds);
  }
  if (spent_ < kLeastSeconds || spent_ < kLeastPart * (spent_ + left)) return {};
  return left;
}

void TimeLeft::Line::add(double elements, double seconds) {
  n += 1;
  x += elements;
  y += seconds;
  xx += elements * elements;
  xy += elements * seconds;
}

/// Neither a nor b is negative: where the fit says so, it is the other alone. One size alone says nothing of
/// a.
double TimeLeft::Line::at(double elements) const {
  const double spread = n * xx - x * x;
  if (spread <= 1e-9 * n * xx) return xy / xx * elements;
  const double b = (n * xy - x * y) / spread;
  if (b < 0) return y / n;
  const double a = (y - b * x) / n;
  return a < 0 ? xy / xx * elements : a + b * elements;
}

TimeLeft::Task* TimeLeft::find(std::size_t job, Stage stage) {
  const auto found = place_of_.find({job, stage});
  return found == place_of_.end() ? nullptr : &tasks_[found->second];
}

}  // namespace ssmbench
