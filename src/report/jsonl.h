#pragma once

#include <cstdint>
#include <string>

#include "record/line_file.h"
#include "record/record_writer.h"
#include "record/reporter.h"

namespace ssmbench {

/// JSON Lines (record/record_writer.h): a run record, a record per case or study as it finishes, a summary
/// record.
class JsonlReporter : public Reporter {
 public:
  /// "-" writes to stdout. Throws UsageError when the file exists or cannot be created.
  explicit JsonlReporter(std::string path) : file_(std::move(path)) {}
  /// Goes on after the first `keep_bytes` bytes of an existing file.
  JsonlReporter(std::string path, std::uintmax_t keep_bytes) : file_(std::move(path), keep_bytes) {}

  void begin(const RunInfo& info) override { file_.append(run_record(info)); }
  void case_done(const CaseResult& result) override { file_.append(case_record(result)); }
  void case_kept(const CaseResult& /*result*/) override {}  // it is in the file
  void finish(const Summary& summary) override { file_.append(summary_record(summary)); }
  void study_done(const MethodConvergence& result) { file_.append(study_record(result)); }
  void study_done(const ConsistencyResult& result) { file_.append(study_record(result)); }

 private:
  LineFile file_;
};

}  // namespace ssmbench
