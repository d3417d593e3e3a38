#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/result.h"

namespace ssmbench {

/// "8×2048×2048×16": the sizes that every sweep has to name, in their order.
std::string shape_label(const Problem& problem);
/// "batch×dim×seqlen×dstate": the names that belong to shape_label.
std::string shape_heading(const Problem& problem);
/// "g2 Bconstant z D bias softplus": the flags that are on, and whatever else is not at its default.
std::string options_label(const Case& the_case);

/// The output that is furthest from the reference, relative to its tolerance; null when nothing was compared.
const OutputComparison* worst_output(const CaseResult& result);

/// Bytes that must move at least, over the time of the headline timing, in GB/s; 0 without a timing.
double gigabytes_per_second(const CaseResult& result);

/// The times beside hot, of which runs on a CPU alone have none: name of the column, milliseconds or nothing.
std::vector<std::pair<std::string, std::optional<double>>> device_times(const CaseResult& result);

/// Whether devices of a run have more than one kind of time.
bool has_device_times(const RunInfo& info);

/// The status, with the arithmetic that is claimed where it is less exact than the case's dtype: "pass (tf32)".
std::string status_label(const CaseResult& result);

/// "meets the budget of 16.67 ms by 16.4 ms"; empty without a budget or a timing.
std::string budget_label(const CaseResult& result);

/// "62% dram": the roofline fraction and what bounds it; empty where it is not known.
std::string roofline_label(const CaseResult& result);
/// Whether a device of the run is calibrated, so that results may have a roofline fraction.
bool has_roofline(const RunInfo& info);

/// "12 pass, 1 fail, 2 skip in 3.4 s".
std::string summary_line(const Summary& summary);

}  // namespace ssmbench
