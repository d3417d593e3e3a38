#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "interchange/reader.h"
#include "record/result.h"

namespace ssmbench {

/// How two producers' values of one output differ.
struct OutputDifference {
  std::string name, axes;
  std::int64_t elements = 0;
  std::int64_t different = 0;  ///< elements whose bits are not the same; NaN and NaN are
  /// In units of the sum of their tolerances: at most 1 for two honest implementations.
  OutputComparison comparison;

  bool agrees() const { return comparison.tolerance_ratio <= 1; }
};

/// Names of the inputs that are not bitwise equal; the problems must be equal.
std::vector<std::string> different_inputs(const CaseRead& a, const CaseRead& b);

/// The differences of every output that both have. The cases have equal problems and inputs. Throws
/// Interrupted, OutOfMemory.
std::vector<OutputDifference> compare_cases(const CaseRead& a, const CaseRead& b,
                                            const std::atomic<bool>& stop);

}  // namespace ssmbench
