#pragma once

#include <cstddef>
#include <memory>

#include "kernels/distributed/local_scan.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench::cuda_scan_shards {

/// The shard of selective_scan_fwd that `part` is by itself, of its own tensors in the memory of the current GPU.
/// `workspace` has shard_bytes(part) bytes. Throws ContractError.
std::unique_ptr<LocalScan> shard(const Problem& part, const TensorSet& tensors, void* workspace);
std::size_t shard_bytes(const Problem& part);

}  // namespace ssmbench::cuda_scan_shards
