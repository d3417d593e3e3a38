#pragma once

#include <string>
#include <vector>

#include "record/line_file.h"
#include "record/reporter.h"

namespace ssmbench {

/// One <testcase>. Any bytes may be in its texts.
struct JunitCase {
  enum class Outcome { passed, failure, error, skipped };

  std::string suite;       ///< what it is grouped by
  std::string class_name;  ///< tools show it as suite.class
  std::string name;
  Outcome outcome = Outcome::passed;
  std::string type = {};  ///< of an outcome that is not passed: a word to group by
  std::string message = {};
  std::string output = {};  ///< of any outcome
  double seconds = 0;
};

/// A whole document. Source: the schema of Jenkins' xUnit plugin (junit-10.xsd), which CI systems agree on.
std::string junit_document(const std::vector<JunitCase>& cases);

/// JUnit of a run, written at its end, also when it is interrupted. A suite is an operation. Out of tolerance
/// and invalid are failures, a crash is an error; unsupported and unverified are skipped. Their type is the
/// result's cause. The time of a case is its median in seconds.
class JunitReporter : public Reporter {
 public:
  /// "-" writes to stdout. Throws UsageError when the file exists or cannot be created.
  explicit JunitReporter(std::string path) : file_(std::move(path)) {}
  void begin(const RunInfo& /*info*/) override {}
  void case_done(const CaseResult& result) override;
  void finish(const Summary& summary) override;

 private:
  LineFile file_;
  std::vector<JunitCase> cases_;
};

}  // namespace ssmbench
