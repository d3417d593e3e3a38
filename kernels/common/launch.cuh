#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>

#include "base/cuda_check.h"
#include "kernels/common/hardware.h"
#include "model/launch.h"

namespace ssmbench {

/// The reason where a grid of the product of `factors` blocks, one per `unit`, is too large; nothing where it
/// is not.
inline std::optional<std::string> grid_too_large(std::initializer_list<std::int64_t> factors,
                                                 const std::string& unit) {
  std::int64_t left = kMaxGridX;
  for (const std::int64_t factor : factors) left /= factor;
  if (left > 0) return std::nullopt;
  return "needs at most " + std::to_string(kMaxGridX) + " blocks: one per " + unit;
}

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
