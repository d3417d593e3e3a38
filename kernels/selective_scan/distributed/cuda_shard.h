#pragma once

#include <cstddef>
#include <memory>

#include "kernels/distributed/local_scan.h"
#include "kernels/selective_scan/args.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench::cuda_scan_shards {

/// The shard of selective_scan_fwd that `part` is by itself, of its own tensors in the memory of the current GPU.
/// `workspace` has shard_bytes(part) bytes. Throws ContractError.
std::unique_ptr<LocalScan> shard(const Problem& part, const TensorSet& tensors, void* workspace);
std::size_t shard_bytes(const Problem& part);

/// The same for what becomes of states between shards alone, of a problem's own arguments or those of its
/// gradients: run() throws. `workspace` has passed_bytes(part) bytes.
std::unique_ptr<LocalScan> passed(const Problem& part, const ScanArgs& args, void* workspace);
std::size_t passed_bytes(const Problem& part);

}  // namespace ssmbench::cuda_scan_shards
