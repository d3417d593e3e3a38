#pragma once

#include "record/result.h"

namespace ssmbench {

/// One output format. Calls come in order: begin once, case_done or case_kept for each finished case, finish
/// once.
/// Members throw OutputError when the result cannot be written.
class Reporter {
 public:
  virtual ~Reporter() = default;
  Reporter() = default;
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;
  Reporter(Reporter&&) = delete;
  Reporter& operator=(Reporter&&) = delete;

  virtual void begin(const RunInfo& info) = 0;
  virtual void case_done(const CaseResult& result) = 0;
  /// A result that an earlier run left in the results file.
  virtual void case_kept(const CaseResult& result) { case_done(result); }
  virtual void finish(const Summary& summary) = 0;
};

}  // namespace ssmbench
