#pragma once

#include "kernels/causal_conv1d/window/map.h"
#include "kernels/common/launch.cuh"
#include "ops/causal_conv1d/causal_conv1d.h"

// What launches of cuda-window share.

namespace ssmbench::window {

inline ConvShape shape_of(const CausalConv1d& conv, DType dtype) {
  return {conv.batch, conv.dim, conv.seqlen, static_cast<int>(conv.width), static_cast<int>(size_of(dtype))};
}

/// launch_of() with any dynamic shared memory that the GPU has.
template <class... Arguments>
Launch launch_with_memory(void (*kernel)(Arguments...), std::int64_t blocks, dim3 threads, int shared_bytes,
                          const std::type_identity_t<Arguments>&... arguments) {
  if (shared_bytes > kDefaultSharedBytes)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  return launch_of(kernel, blocks, threads, shared_bytes, arguments...);
}

}  // namespace ssmbench::window
