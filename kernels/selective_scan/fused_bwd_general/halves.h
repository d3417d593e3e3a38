#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/distributed/gradient_registration.h"
#include "model/problem.h"
#include "model/tensor.h"

// cuda-fused's selective_scan_bwd in two halves, for shards of time: segment_kernel takes all segments of the
// shard from zeros, both ways; all that follows needs what enters the shard.

namespace ssmbench::fused_bwd_general {

/// The reason of problems that the fast kernels (fused_bwd/) do not do, or not on the current device.
std::optional<std::string> halves_unsupported(const Problem& problem);
std::size_t halves_bytes(const Problem& problem);
/// Of a problem in memory of the current device; `workspace` has halves_bytes. Throws ContractError.
GradientHalves halves(const Problem& problem, const TensorSet& tensors, void* workspace);

}  // namespace ssmbench::fused_bwd_general
