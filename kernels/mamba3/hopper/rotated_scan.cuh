#pragma once

// Mamba-2's kernel for Hopper (ssd_chunk_scan's kernel.cuh has the picture) with a fifth warpgroup, that
// rotates B and C in place between their copy and their use (rotation.cuh). Items of one row tile, whole or
// cut.

#include "kernels/mamba3/hopper/rotation.cuh"
#include "kernels/mamba3/hopper/scan.h"
#include "kernels/ssd_chunk_scan/hopper/kernel.cuh"

namespace ssmbench::mamba3_hopper {

template <class T>
__global__ void __launch_bounds__(kRotatedThreads, 1)
    rotated_scan_kernel(const __grid_constant__ typename T::Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using namespace ssd_hopper;
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers();
  __syncthreads();
  hopper::wait_for_prerequisites();  // phases and weights
  if (group == 0) {
    warpgroup_reg_dealloc<mamba3_hopper::kProducerRegisters>();
    produce<T>(args, SharedMemory<T>(), group_thread());
  } else if (group == 1) {
    warpgroup_reg_alloc<mamba3_hopper::kStateRegisters>();
    StateWarpgroup<T>(args, SharedMemory<T>(), group_thread()).run();
  } else if (group == 4) {
    warpgroup_reg_dealloc<kRotatingRegisters>();
    RotatingWarpgroup<T>(args, SharedMemory<T>()).run();
  } else {
    warpgroup_reg_alloc<mamba3_hopper::kOutputRegisters>();
    OutputWarpgroup<T>(args, SharedMemory<T>(), group - 2, group_thread()).run();
  }
#else
  __trap();
#endif
}

template <class T>
RotatedKernel<typename T::Args> rotated_kernel_of() {
  return {rotated_scan_kernel<T>, kRotatedThreads, T::Layout::kBytes};
}
template <class Io>
RotatedVariant rotated_scan_for(int states, bool gated) {
  using namespace ssd_hopper;
  if (states == 64)
    return gated ? rotated_kernel_of<RotatedTraits<Io, 64, true>>()
                 : rotated_kernel_of<RotatedTraits<Io, 64, false>>();
  return gated ? rotated_kernel_of<RotatedTraits<Io, 128, true>>()
               : rotated_kernel_of<RotatedTraits<Io, 128, false>>();
}
template <class Io>
PackedRotatedVariant packed_rotated_scan_for(int states, bool gated) {
  using namespace ssd_hopper;
  if (states == 64)
    return gated ? rotated_kernel_of<PackedOf<RotatedTraits<Io, 64, true>>>()
                 : rotated_kernel_of<PackedOf<RotatedTraits<Io, 64, false>>>();
  return gated ? rotated_kernel_of<PackedOf<RotatedTraits<Io, 128, true>>>()
               : rotated_kernel_of<PackedOf<RotatedTraits<Io, 128, false>>>();
}

}  // namespace ssmbench::mamba3_hopper
