#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sweep/plan.h"
#include "sweep/run_listener.h"

namespace ssmbench {

/// How long the rest of a run will take, judged by what is finished. Inputs and reference of a case and each
/// of its implementations are tasks; what a task takes is a + b·(elements of the problem's tensors), fitted
/// to the finished tasks of its kind: operation, device and implementation, or making inputs, or the
/// reference.
class TimeLeft {
 public:
  /// `jobs`: those that will run.
  TimeLeft(const Plan& plan, const JobSet& jobs, bool verify);

  /// Time went into a stage of a job.
  void spent(std::size_t job, Stage stage, double seconds);
  /// Nothing more will go into it. `counts`: whether it says what others of its kind will take.
  void ended(std::size_t job, Stage stage, bool counts = true);

  /// Nothing as long as little is finished: less than two seconds or a twentieth of the whole, or not a task
  /// of each stage that is still to come.
  std::optional<double> seconds() const;

 private:
  struct Task {
    std::string kind;
    Stage stage;
    double elements;
    double seconds = 0;
    bool ended = false;
  };
  /// Sums for a straight line through (elements, seconds).
  struct Line {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    void add(double elements, double seconds);
    double at(double elements) const;
  };

  Task* find(std::size_t job, Stage stage);

  std::vector<Task> tasks_;
  /// Where in tasks_. Inputs and references are in the name of any job of their case.
  std::map<std::pair<std::size_t, Stage>, std::size_t> place_of_;
  std::map<std::string, Line> by_kind_;
  std::map<Stage, Line> by_stage_;
  double spent_ = 0;
};

}  // namespace ssmbench
