#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "interchange/reader.h"

namespace ssmbench {

/// How two producers' values of one output differ.
struct OutputDifference {
  std::string name, axes;
  std::int64_t elements = 0;
  std::int64_t different = 0;  ///< elements whose bits are not the same; NaN and NaN are
  double max_abs = 0;
  double rel_l2 = 0;  ///< ‖a − b‖ / ‖b‖
  double max_ulp = 0;
  /// Largest |a − b| in units of the sum of what either may be off by; at most 1 for two honest
  /// implementations.
  double tolerance_ratio = 0;
  Shape worst_index;
  double worst_a = 0, worst_b = 0;

  bool agrees() const { return tolerance_ratio <= 1; }
};

/// Names of the inputs that are not bitwise equal; the problems must be equal.
std::vector<std::string> different_inputs(const CaseRead& a, const CaseRead& b);

/// Of every output that both have. The cases have equal problems and inputs. Throws Interrupted, OutOfMemory.
std::vector<OutputDifference> compare_cases(const CaseRead& a, const CaseRead& b,
                                            const std::atomic<bool>& stop);

}  // namespace ssmbench
