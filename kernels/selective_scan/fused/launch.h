#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/selective_scan/args.h"
#include "model/implementation.h"

// cuda-fused's scan without the checks of a problem's tensors: for arguments that are part of one, such as some
// of its time steps.

namespace ssmbench {

/// Why it cannot do the problem; nothing where it can.
std::optional<std::string> fused_unsupported(const Problem& problem);
std::size_t fused_workspace_bytes(const Problem& problem);

/// A scan of these arguments, with the sizes of a problem without cu_seqlens. Strides may be those of more
/// steps.
Launch fused_launch(const Problem& problem, const ScanArgs& args, void* workspace);

}  // namespace ssmbench
