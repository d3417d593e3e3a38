#pragma once

#include <memory>
#include <string>

#include "record/line_file.h"
#include "record/reporter.h"

namespace ssmbench {

/// A Markdown table of the cases, for READMEs and pull requests.
class MarkdownReporter : public Reporter {
 public:
  /// "-" writes to stdout. Throws UsageError when the file exists or cannot be created.
  explicit MarkdownReporter(std::string path)
      : MarkdownReporter(std::make_unique<LineFile>(std::move(path))) {}
  explicit MarkdownReporter(std::unique_ptr<LineFile> file) : file_(std::move(file)) {}
  void begin(const RunInfo& info) override;
  void case_done(const CaseResult& result) override;
  void finish(const Summary& summary) override;

 private:
  std::unique_ptr<LineFile> file_;
  bool has_device_times_ = false;  ///< columns for them
  bool has_roofline_ = false;
  std::string heading_;
};

}  // namespace ssmbench
