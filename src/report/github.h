#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "record/reporter.h"
#include "report/markdown.h"

namespace ssmbench {

/// Whether this runs in a GitHub Actions workflow: GITHUB_ACTIONS=true.
bool in_github_actions();

/// Prints an error that GitHub shows beside the workflow run. To stderr, which Actions reads as it reads
/// stdout, so that results on stdout stay what they are. Any bytes may be in the texts.
/// Source: "Workflow commands for GitHub Actions", setting an error message.
void annotate_error(std::string_view title, std::string_view message);

/// The command that annotate_error prints.
std::string error_annotation(std::string_view title, std::string_view message);

/// Opens the file that GITHUB_STEP_SUMMARY names for appending; nothing when it names none. Throws
/// UsageError.
std::unique_ptr<LineFile> open_step_summary();

/// In a workflow of GitHub: annotates what is a fail, an error or invalid, and appends the Markdown table to
/// the step's summary. GitHub refuses summaries over 1 MiB: of what is more than some thousand cases only
/// those that are annotated are in it.
class GithubReporter : public Reporter {
 public:
  GithubReporter();
  void begin(const RunInfo& info) override;
  void case_done(const CaseResult& result) override;
  void finish(const Summary& summary) override;

 private:
  LineFile* summary_ = nullptr;  ///< of table_
  std::optional<MarkdownReporter> table_;
  std::size_t rows_ = 0, left_out_ = 0;
};

}  // namespace ssmbench
