#pragma once

#include <cstdint>
#include <vector>

#include "model/tensor.h"

namespace ssmbench {

/// Steps [begin, begin + steps) of a tensor.
struct SequenceRange {
  std::int64_t begin, steps;
};

/// The sequences that cu_seqlens packs into `seqlen` steps. Throws ContractError where they do not go from 0 to
/// seqlen without decreasing.
std::vector<SequenceRange> packed_sequences(const TensorView& cu_seqlens, std::int64_t seqlen);

}  // namespace ssmbench
