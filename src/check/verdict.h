#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "check/error_profile.h"
#include "interchange/reader.h"
#include "record/result.h"

namespace ssmbench {

struct OutputVerdict {
  std::string name, axes;
  OutputComparison comparison;
  ErrorProfile profile;
  std::vector<std::string> patterns;  ///< where it is wrong, when it is
};

/// What a case of an interchange file is worth, by the fp64 reference computed from its inputs.
struct CaseVerdict {
  std::vector<OutputVerdict> outputs;
  std::string explanation;  ///< a known mistake that explains all that is wrong, or empty

  bool passed() const;
};

/// Names of the inputs that hold NaN or Inf.
std::vector<std::string> nonfinite_inputs(const CaseRead& read);

/// Judges every output that the file has. Throws Interrupted, OutOfMemory.
CaseVerdict judge_case(const CaseRead& read, const std::atomic<bool>& stop);

}  // namespace ssmbench
