#pragma once

#include "record/reporter.h"

namespace ssmbench {

/// The table on the terminal: one line per finished case on stdout, as it finishes. Colour only on a
/// terminal.
class TableReporter : public Reporter {
 public:
  TableReporter();
  void begin(const RunInfo& info) override;
  void case_done(const CaseResult& result) override;
  void finish(const Summary& summary) override;

 private:
  bool colour_;
  bool has_device_times_ = false;  ///< columns for them
  bool has_roofline_ = false;
  std::string heading_;  ///< printed again only when another op has other axes
};

}  // namespace ssmbench
