#pragma once

#include <cstdint>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// Where a sequence is: in `batch`, from step `begin` up to step `end`.
struct ScanSequence {
  std::int64_t batch, begin, end;
};

/// The sequences of a forward scan: one a batch, or those that cu_seqlens packs into the only one. Throws
/// ContractError for cu_seqlens that mean nothing.
std::vector<ScanSequence> scan_sequences(const Problem& problem, const TensorSet& inputs);

}  // namespace ssmbench
