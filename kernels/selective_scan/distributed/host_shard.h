#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/distributed/local_scan.h"
#include "kernels/selective_scan/args.h"
#include "model/problem.h"

namespace ssmbench::scan_shards {

/// Shards of selective_scan_fwd in host memory.

/// Why a scan's state is not all that a shard needs of the one before, or its decays are no numbers; nothing
/// where shards can be computed.
std::optional<std::string> unsupported(const Problem& whole);
/// Of the shard that `part` is, a problem by itself.
ShardSizes sizes(const Problem& part);
/// The shard, of its own tensors: cpu-simd's scan where it does the problem, else cpu-scalar's. Throws
/// ContractError.
std::unique_ptr<LocalScan> on_host(const Problem& part, const TensorSet& tensors);
/// The same of arguments that were checked, the problem's own or those of its gradients.
std::unique_ptr<LocalScan> on_host(const Problem& part, const ScanArgs& args);

}  // namespace ssmbench::scan_shards
