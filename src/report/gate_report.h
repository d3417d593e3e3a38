#pragma once

#include <string>
#include <vector>

#include "gate/judge.h"

namespace ssmbench {

/// What a comparison comes to, in a word: MISSING, NEW, WORSE where something but the time got worse, else
/// the verdict on its time, or a dash where there is nothing to compare.
std::string gate_label(const Comparison& comparison);

/// Why, in one line; empty where there is nothing to say.
std::string gate_remark(const Comparison& comparison);

/// All of it: "SLOWER +5.0% (+4.8% to +5.2%): remark".
std::string gate_message(const Comparison& comparison);

/// "40 SAME, 1 SLOWER".
std::string gate_counts(const std::vector<Comparison>& comparisons);

/// A table for terminals, a line per comparison.
std::string gate_table(const std::vector<Comparison>& comparisons, const GatePolicy& policy);

/// Markdown: a table of what is not SAME, and one of the rest, folded up (left out where it is huge).
std::string gate_markdown(const std::vector<Comparison>& comparisons, const GatePolicy& policy);

/// A line of JSON: {"record":"gate","id":…,"verdict":…,"status":…,"cause":…,"timing":…,"worse":…}.
std::string gate_record(const Comparison& comparison, const GatePolicy& policy);

/// JUnit: slower and worse are failures, what crashed is an error; inconclusive is skipped, or a failure
/// where the policy says so. Their type is the cause, or the verdict in small letters.
std::string gate_junit(const std::vector<Comparison>& comparisons, const GatePolicy& policy);

}  // namespace ssmbench
