#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/variant.h"

// What the backward cuda-chunked and cuda-chunked-f32 share on the host.

namespace ssmbench {

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
