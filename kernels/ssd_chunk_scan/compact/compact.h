#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/ssd_chunk_scan/bind.h"

// The small kernels of cuda-chunked-f32 on the host.

namespace ssmbench {

/// Why a problem is too large; nothing when it is not.
std::optional<std::string> compact_unsupported(const Problem& problem);
std::size_t compact_workspace_bytes(const Problem& problem);

/// Throws ContractError for what is unsupported.
Launch bind_compact(const Problem& problem, const TensorSet& tensors, void* workspace);

}  // namespace ssmbench
