#pragma once

#include <string>

#include "check/verdict.h"
#include "interchange/file_info.h"

namespace ssmbench {

/// The lines of `check` for one case: one per output, and below those that failed (with `details` below all)
/// where it is wrong, how large its errors are and how they run over time.
std::string verdict_text(const CaseRead& read, const CaseVerdict& verdict, bool details);

/// The heading of the columns of verdict_text. err/tol, rms and decays (tolerance_ratio, rms_ratio and
/// decay_bias_ratio) pass up to 1.
std::string verdict_heading();

/// A line of JSON for one case: {"record":"check","file":…,"id":…,"status":…,"cause":…,"outputs":{…}}.
std::string verdict_json(const std::string& file, const FileInfo& info, const CaseRead& read,
                         const CaseVerdict& verdict);

}  // namespace ssmbench
