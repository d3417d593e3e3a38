#pragma once

#include <string>

#include "report/line_file.h"
#include "report/reporter.h"

namespace ssmbench {

/// A Markdown table of the cases, for READMEs and pull requests.
class MarkdownReporter : public Reporter {
 public:
  /// "-" writes to stdout. Throws UsageError when the file exists or cannot be created.
  explicit MarkdownReporter(std::string path) : file_(std::move(path)) {}
  void begin(const RunInfo& info) override;
  void case_done(const CaseResult& result) override;
  void finish(const Summary& summary) override;

 private:
  LineFile file_;
  bool has_device_times_ = false;  ///< columns for them
  std::string heading_;
};

}  // namespace ssmbench
