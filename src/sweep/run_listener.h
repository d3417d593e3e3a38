#pragma once

#include <cstddef>
#include <vector>

#include "record/result.h"

namespace ssmbench {

/// What is being done for a job. Inputs and reference are made once per case, in the name of the first of
/// its jobs.
enum class Stage { inputs, reference, run };

/// Some of a plan's jobs: an element for each, in the plan's order.
using JobSet = std::vector<bool>;

/// Follows a run. A job's number is its place among all jobs of the plan.
class RunListener {
 public:
  virtual ~RunListener() = default;
  RunListener() = default;
  RunListener(const RunListener&) = delete;
  RunListener& operator=(const RunListener&) = delete;
  RunListener(RunListener&&) = delete;
  RunListener& operator=(RunListener&&) = delete;

  /// What follows happens in this slot of several; before the first call in slot 0.
  virtual void in_slot(std::size_t /*slot*/) {}
  /// Nothing goes on until the next event: others have the host for themselves.
  virtual void waiting() {}
  virtual void starting(std::size_t job, Stage stage) = 0;
  /// A job that was started goes on; others of its case may have been at it in between. Many times a second.
  virtual void resuming(std::size_t /*job*/) {}
  virtual void finished(std::size_t job, const CaseResult& result) = 0;
};

}  // namespace ssmbench
