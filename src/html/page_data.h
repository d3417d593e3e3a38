#pragma once

#include <string>
#include <vector>

#include "record/record_reader.h"

namespace ssmbench {

/// A results file and what it is called in the report.
struct NamedResults {
  std::string name;
  ResultsFile results;
};

/// What the report's page draws, as JSON that may stand in a script element: no '<'. Numbers are rounded to
/// six digits, or null where they are not finite; samples are left out but for the interval of their median,
/// and cases that were skipped are counted by cause and reason. page/1_data.js says what is where.
std::string page_data(const std::vector<NamedResults>& files);

}  // namespace ssmbench
