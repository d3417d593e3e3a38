#pragma once

#include <string>

#include "report/line_file.h"
#include "report/reporter.h"
#include "study/consistency.h"
#include "study/convergence.h"

namespace ssmbench {

/// JSON Lines, "ssmbench-results/1": a run record, a record per case or study as it finishes, a summary
/// record. The
/// fields are those of the command line's contract; what was not measured is left out. Non-finite numbers are
/// null.
class JsonlReporter : public Reporter {
 public:
  /// "-" writes to stdout. Throws UsageError when the file exists or cannot be created.
  explicit JsonlReporter(std::string path) : file_(std::move(path)) {}

  void begin(const RunInfo& info) override;
  void case_done(const CaseResult& result) override;
  void finish(const Summary& summary) override;
  void study_done(const MethodConvergence& result);
  void study_done(const ConsistencyResult& result);

 private:
  LineFile file_;
};

}  // namespace ssmbench
