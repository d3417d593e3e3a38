#pragma once

#include "kernels/distributed/rank_kind.h"

namespace ssmbench {

/// Registers cpu-alltoall or nccl-alltoall of an operation: ranks have shards of time, change them for shards of
/// channels by one all-to-all of each tensor, compute whole sequences, and change back. What Megatron-LM does
/// around its scans (megatron/core/ssm/mamba_context_parallel.py): all the data goes over the wire, where
/// passing states sends states. `kind` has to live as long as the program.
void register_all_to_all(const RankKind& kind, const char* op);

}  // namespace ssmbench
