#include "reference/selective_scan/sequences.h"

#include "reference/common/sequences.h"

namespace ssmbench {

std::vector<ScanSequence> scan_sequences(const Problem& problem, const TensorSet& inputs) {
  const std::int64_t seqlen = problem.size("seqlen");
  std::vector<ScanSequence> all;
  if (const TensorView* cu_seqlens = inputs.find("cu_seqlens")) {
    for (const auto& range : packed_sequences(*cu_seqlens, seqlen))
      all.push_back({0, range.begin, range.begin + range.steps});
    return all;
  }
  for (std::int64_t b = 0; b < problem.size("batch"); ++b) all.push_back({b, 0, seqlen});
  return all;
}

}  // namespace ssmbench
