#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"

// What the backward cuda-chunked and cuda-chunked-f32 share on the host.

namespace ssmbench {

/// Enqueues all kernels of one arithmetic. Throws DeviceError.
using ChunkedBwdLaunch = void (*)(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                                  const ChunkedBwdWorkspace& workspace, cudaStream_t stream);

/// Why a problem is too large; nothing when it is not.
std::optional<std::string> chunked_bwd_unsupported(const Problem& problem);
std::size_t chunked_bwd_workspace_bytes(const Problem& problem);

/// Throws ContractError for what is unsupported.
Launch bind_chunked_bwd(const Problem& problem, const TensorSet& tensors, void* workspace,
                        ChunkedBwdLaunch launch);

}  // namespace ssmbench
