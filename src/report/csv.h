#pragma once

#include <string>

#include "record/line_file.h"
#include "record/reporter.h"

namespace ssmbench {

/// A line per case, for spreadsheets and data frames. The columns are always the same: the sizes of all
/// operations, each empty where an operation does not have it, and of the errors those of the worst output.
class CsvReporter : public Reporter {
 public:
  /// "-" writes to stdout. Throws UsageError when the file exists or cannot be created.
  explicit CsvReporter(std::string path) : file_(std::move(path)) {}
  void begin(const RunInfo& info) override;
  void case_done(const CaseResult& result) override;
  void finish(const Summary& /*summary*/) override {}

 private:
  LineFile file_;
};

}  // namespace ssmbench
