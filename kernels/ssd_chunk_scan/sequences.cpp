#include "kernels/ssd_chunk_scan/sequences.h"

#include "kernels/common/tensor_data.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench {

SsdSequenceTable bind_ssd_sequences(const Problem& problem, const TensorSet& tensors) {
  return {.count = SsdSequences(problem).count,
          .seqlen = problem.size("seqlen"),
          .cu_seqlens = data_of<const std::int32_t>(tensors, "cu_seqlens")};
}

SsdStops bind_ssd_stops(const Problem& problem, const TensorSet& tensors) {
  return {.count = SsdSequences(problem).stops,
          .states_at = data_of<const std::int32_t>(tensors, "states_at"),
          .states = data_of<void>(tensors, "states")};
}

}  // namespace ssmbench
