#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/distributed/local_scan.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "model/problem.h"

namespace ssmbench::ssd_shards {

/// Shards of ssd_chunk_scan_fwd in host memory.

/// Why it cannot be computed in shards; nothing where it can.
std::optional<std::string> unsupported(const Problem& whole);
/// Of the shard that `part` is, a problem by itself.
ShardSizes sizes(const Problem& part);
/// The shard, of its own tensors, by cpu-simd's scan. Throws ContractError.
std::unique_ptr<LocalScan> on_host(const Problem& part, const TensorSet& tensors);
/// The same of arguments that were checked, the problem's own or those of its gradients.
std::unique_ptr<LocalScan> on_host(const Problem& part, const SsdArgs& args);

}  // namespace ssmbench::ssd_shards
