#include "ops/ssd_chunk_scan/sequences.h"

#include "model/problem.h"

namespace ssmbench {

SsdSequences::SsdSequences(const Problem& problem)
    : packed(problem.has("cu_seqlens") && problem.flag("cu_seqlens")),
      count(packed ? problem.size("sequences") : problem.size("batch")),
      stops(problem.has("states_at") ? problem.size("states_at") : 0),
      state_dtype(problem.has("state_dtype") ? *parse_dtype(problem.choice("state_dtype")) : DType::f32) {}

}  // namespace ssmbench
