#pragma once

#include <span>
#include <utility>
#include <vector>

#include "interchange/format.h"
#include "interchange/h5.h"
#include "interchange/temporary_file.h"
#include "interchange/writer.h"

namespace ssmbench {

/// A tensor that has been found to fit the problem.
struct CheckedTensor {
  TensorSpec spec;
  const void* data;  // in stored order
};

/// A case that has been found to fit its problem, so that from here on only the disk can fail.
struct CheckedCase {
  std::vector<CheckedTensor> inputs, outputs;
  std::vector<std::pair<TensorSpec, std::span<const double>>> reference;
};

/// Throws ContractError.
CheckedCase check_case(const CaseToWrite& the_case);

/// Writes the group of a case into `cases`. Throws h5::Error, and OutputError as soon as `disk` has failed.
void write_case(hid_t cases, const CaseToWrite& the_case, const CheckedCase& checked, bool compress,
                const TemporaryFile& disk);

}  // namespace ssmbench
