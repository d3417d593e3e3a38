#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include "model/method.h"
#include "record/result.h"

namespace ssmbench {

/// Largest errors over all steps of one run of a recurrence, relative to the largest |h|. Not finite where
/// the recurrence left the range of its arithmetic, as an unstable one does.
struct StepErrors {
  std::int64_t steps;
  double delta;
  double discretization;  ///< of the recurrence in fp64
  double rounding;        ///< of the recurrence in f32, against the one in fp64: what f32 adds
};

/// What a study of convergence found about one method and one A.
struct MethodConvergence {
  const Method* method;
  std::complex<double> A;
  double horizon;
  int order;                        ///< the power of Δ that the error falls with, by theory
  double measured_order;            ///< from the last two runs
  double stability_limit;           ///< largest Δ·|A| at which no solution grows, by theory
  double measured_stability_limit;  ///< in units of Δ·|A|
  std::vector<StepErrors> errors;   ///< one per run
};

/// One check of a study of consistency: one case, computed at once and in parts.
struct ConsistencyResult {
  std::string check;     ///< how the case was divided: "steps", "halves", …
  std::string parts_op;  ///< operation of the parts
  std::string parts;     ///< implementation that computed them
  /// `impl` computed at once. For each output the difference of the two, in units of the sum of their
  /// tolerances; worst_expected is what came at once, worst_got what came in parts, rel_l2 is relative to the
  /// reference.
  CaseResult at_once;
};

}  // namespace ssmbench
