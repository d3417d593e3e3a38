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

/// The part of a launch after the gradient kernel, with tiles of T and tensors of Io: defined in kernel.cuh, and
/// instantiated there where it is used.
template <class T, class Io>
void launch_gradient_sums(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                          const ChunkedBwdWorkspace& workspace, cudaStream_t stream);

/// A ChunkedBwdLaunch and the tiles that it is for.
struct ChunkedBwdVariant {
  ChunkedBwdLaunch launch;
  TileKind tiles;
};

ChunkedBwdPlan chunked_bwd_plan(const Problem& problem, const TileKind& tiles);
ChunkedBwdWorkspace chunked_bwd_arrays(const ChunkedBwdPlan& plan, void* workspace);
/// The tiles of cuda-chunked: products of 16-bit elements, or tf32.
TileKind chunked_bwd_tiles(DType dtype);

/// Why a problem is too large; nothing when it is not.
std::optional<std::string> chunked_bwd_unsupported(const Problem& problem, const TileKind& tiles);
std::size_t chunked_bwd_workspace_bytes(const Problem& problem, const TileKind& tiles);

/// Throws ContractError for what is unsupported.
Launch bind_chunked_bwd(const Problem& problem, const TensorSet& tensors, void* workspace,
                        const ChunkedBwdVariant& variant);

}  // namespace ssmbench
