#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked/variant.h"

// What cuda-chunked and cuda-chunked-f32 share on the host.

namespace ssmbench {

/// Why a problem is too large; nothing when it is not.
std::optional<std::string> chunked_unsupported(const Problem& problem);
std::size_t chunked_workspace_bytes(const Problem& problem);

/// Throws ContractError for what is unsupported, DeviceError where the device has no tensor cores or not
/// enough shared memory.
Launch chunked_launch(const Problem& problem, const TensorSet& tensors, void* workspace,
                      const ChunkedVariant& variant);

}  // namespace ssmbench
