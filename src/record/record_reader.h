#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "record/result.h"
#include "record/study_result.h"

namespace ssmbench {

/// The result that case_record (record_writer.h) wrote. What the record does not carry stays at its default;
/// null is infinity where a maximum is meant, else NaN. Throws UsageError, one line, when it is no case
/// record or is incomplete.
CaseResult read_case_record(const std::string& line);

/// What a results file holds.
struct ResultsFile {
  RunInfo run;  ///< the last one: a file that was continued (--resume) has several
  /// In the file's order. Where several are of one case, implementation and device, the last.
  std::vector<CaseResult> cases;
  std::vector<MethodConvergence> convergence;  ///< studies of methods, in the file's order
  /// Studies of consistency, in the file's order. `impl` names both sides: "cuda-fused against cuda-step in
  /// parts"; errors are their differences.
  std::vector<CaseResult> consistency;
  /// Bytes up to the end of the last complete line: a run that was killed may have left a part of one behind.
  std::uintmax_t whole_bytes = 0;
};

/// Throws UsageError naming file and line when it cannot be read, or holds anything but ssmbench-results/1.
ResultsFile read_results(const std::filesystem::path& path);

}  // namespace ssmbench
