#include "reference/common/sequences.h"

#include <string>

#include "base/errors.h"

namespace ssmbench {

std::vector<SequenceRange> packed_sequences(const TensorView& cu_seqlens, std::int64_t seqlen) {
  const auto* borders = static_cast<const std::int32_t*>(cu_seqlens.data);
  const std::int64_t count = cu_seqlens.shape[0] - 1;
  if (borders[0] != 0 || borders[count] != seqlen)
    throw ContractError("cu_seqlens does not go from 0 to " + std::to_string(seqlen));
  std::vector<SequenceRange> all;
  for (std::int64_t m = 0; m < count; ++m) {
    if (borders[m + 1] < borders[m]) throw ContractError("cu_seqlens decreases");
    all.push_back({borders[m], std::int64_t{borders[m + 1]} - borders[m]});
  }
  return all;
}

}  // namespace ssmbench
