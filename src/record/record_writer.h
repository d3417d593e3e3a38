#pragma once

#include <string>

#include "record/result.h"
#include "record/study_result.h"

namespace ssmbench {

// The records of a results file, "ssmbench-results/1": one line of JSON each, without its newline. The fields
// are those of the command line's contract; what was not measured is left out, and non-finite numbers are
// null. record_reader.h reads them back.

std::string run_record(const RunInfo& info);
std::string case_record(const CaseResult& result);
std::string study_record(const MethodConvergence& result);
std::string study_record(const ConsistencyResult& result);
std::string summary_record(const Summary& summary);

}  // namespace ssmbench
