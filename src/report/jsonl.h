#pragma once

#include <cstdint>
#include <string>

#include "report/line_file.h"
#include "report/reporter.h"
#include "study/consistency.h"
#include "study/convergence.h"

namespace ssmbench {

/// The record of a case, one line without its newline. read_case_record reads it back.
std::string case_record(const CaseResult& result);

/// JSON Lines, "ssmbench-results/1": a run record, a record per case or study as it finishes, a summary
/// record. The
/// fields are those of the command line's contract; what was not measured is left out. Non-finite numbers are
/// null.
class JsonlReporter : public Reporter {
 public:
  /// "-" writes to stdout. Throws UsageError when the file exists or cannot be created.
  explicit JsonlReporter(std::string path) : file_(std::move(path)) {}
  /// Goes on after the first `keep_bytes` bytes of an existing file.
  JsonlReporter(std::string path, std::uintmax_t keep_bytes) : file_(std::move(path), keep_bytes) {}

  void begin(const RunInfo& info) override;
  void case_done(const CaseResult& result) override;
  void case_kept(const CaseResult& /*result*/) override {}  // it is in the file
  void finish(const Summary& summary) override;
  void study_done(const MethodConvergence& result);
  void study_done(const ConsistencyResult& result);

 private:
  LineFile file_;
};

}  // namespace ssmbench
