#pragma once

// cuda-hopper: the picture comes here.

#include "kernels/common/warp_roles.cuh"
#include "kernels/ssd_chunk_scan/hopper/outputs.cuh"
#include "kernels/ssd_chunk_scan/hopper/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper/scalars.cuh"
#include "kernels/ssd_chunk_scan/hopper/states.cuh"

namespace ssmbench::ssd_hopper {

// Registers of a thread by role: 512 in all, 65536 of a multiprocessor over 128 threads of a group.
inline constexpr int kProducerRegisters = 64;
inline constexpr int kStateRegisters = 192;
inline constexpr int kOutputRegisters = 128;

/// Index of a thread in its warpgroup. Volatile, so that each role takes its own: one that all of them shared would
/// be kept in memory from before they part.
__device__ inline int group_thread() {
  int thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread % kGroupThreads;
}

template <class T>
__device__ __forceinline__ void produce(const HopperArgs& args, const SharedMemory<T>& shared, int thread) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  if (warp == 0) {
    if (lane == 0) Loader<T>(args, shared).run();
  } else if (warp == 3) {
    if (lane == 0) store_outputs<T>(args, shared);
  } else {
    ScalarWarp<T>(args, shared, warp - 1, lane).run();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) ssd_kernel(const __grid_constant__ HopperArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // Uniform, and known to be so.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers();
  __syncthreads();
  if (group == 0) {
    give_registers<kProducerRegisters>();
    produce<T>(args, SharedMemory<T>(), group_thread());
  } else if (group == 1) {
    take_registers<kStateRegisters>();
    StateWarpgroup<T>(args, SharedMemory<T>(), group_thread()).run();
  } else {
    take_registers<kOutputRegisters>();
    OutputWarpgroup<T>(args, SharedMemory<T>(), group - 2, group_thread()).run();
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper
