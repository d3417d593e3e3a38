#pragma once

#include <cuda_runtime_api.h>

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"

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

}  // namespace ssmbench
