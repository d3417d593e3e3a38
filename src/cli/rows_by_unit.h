#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "record/reporter.h"
#include "sweep/plan.h"
#include "sweep/run_listener.h"

namespace ssmbench {

/// Passes on the results of cases that share a reference together, when the last of them has come: several
/// workers mix them, and a table whose heading changed with each row could not be read.
class RowsByUnit : public Reporter {
 public:
  /// `jobs`: those of the plan that will run.
  RowsByUnit(std::unique_ptr<Reporter> table, const Plan& plan, const JobSet& jobs);

  void begin(const RunInfo& info) override { table_->begin(info); }
  void case_done(const CaseResult& result) override;
  void case_kept(const CaseResult& result) override { table_->case_kept(result); }
  /// What is incomplete comes first.
  void finish(const Summary& summary) override;

 private:
  struct Unit {
    std::size_t to_come = 0;
    std::vector<CaseResult> results = {};
  };
  void pass_on(Unit& unit);

  std::unique_ptr<Reporter> table_;
  std::map<std::string, std::size_t> unit_of_case_;  ///< by id
  std::vector<Unit> units_;
};

}  // namespace ssmbench
