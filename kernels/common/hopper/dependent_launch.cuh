#pragma once

// Programmatic dependent launch: a kernel that may begin while the one before it on the stream still runs,
// and itself waits for what that one writes.
//
// Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"; PTX ISA,
// "griddepcontrol".

#include <cstdint>
#include <type_traits>

#include "base/cuda_check.h"
#include "model/launch.h"

namespace ssmbench::hopper {

/// Lets the kernel after this one begin once all blocks of this one have called it or ended.
__device__ inline void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the kernels before this one have ended and what they wrote is seen. Returns at once in a
/// kernel that was launched to begin after the one before it.
__device__ inline void wait_for_prerequisites() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// When a kernel begins: once the one before it on the stream has ended, or as soon as there is room for it. The
/// latter takes a device of compute capability 9.0 or more.
enum class Begin { after, early };

/// kernel(arguments…) on `blocks` blocks in x, at most kMaxGridX, with `shared_bytes` of dynamic shared memory.
/// Throws DeviceError when it cannot be launched.
template <class... Arguments>
void launch_kernel(Begin begin, cudaStream_t stream, void (*kernel)(Arguments...), std::int64_t blocks,
                   dim3 threads, int shared_bytes, const std::type_identity_t<Arguments>&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = threads;
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = begin == Begin::early ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...));
}

/// As launch_of() of kernels/common/launch.cuh, for a kernel that may begin early.
template <class... Arguments>
Launch dependent_launch_of(void (*kernel)(Arguments...), std::int64_t blocks, unsigned threads,
                           int shared_bytes, const std::type_identity_t<Arguments>&... arguments) {
  return [=](void* stream) {
    launch_kernel(Begin::early, static_cast<cudaStream_t>(stream), kernel, blocks, dim3(threads),
                  shared_bytes, arguments...);
  };
}

}  // namespace ssmbench::hopper
