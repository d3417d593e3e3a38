#pragma once

#include <cstdint>
#include <type_traits>

#include "base/cuda_check.h"
#include "model/implementation.h"

namespace ssmbench {

/// kernel(arguments…) on `blocks` blocks in x, at most kMaxGridX, with `shared_bytes` of dynamic shared
/// memory. The returned function throws DeviceError when it cannot be launched.
template <class... Arguments>
Launch launch_of(void (*kernel)(Arguments...), std::int64_t blocks, dim3 threads, int shared_bytes,
                 const std::type_identity_t<Arguments>&... arguments) {
  return [=](void* stream) {
    kernel<<<static_cast<unsigned>(blocks), threads, static_cast<std::size_t>(shared_bytes),
             static_cast<cudaStream_t>(stream)>>>(arguments...);
    check_cuda(cudaGetLastError());
  };
}

}  // namespace ssmbench
