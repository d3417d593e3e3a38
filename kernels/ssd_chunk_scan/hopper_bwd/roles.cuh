#pragma once

// The roles in a block of the Hopper gradient kernels, Mamba-2's and Mamba-3's: producer warps, a query warpgroup and a
// key warpgroup.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/producer.cuh"

namespace ssmbench::ssd_hopper_bwd {

// Registers of a thread by role: 504 in all, of the 512 that a multiprocessor has.
inline constexpr int kProducerRegisters = 48;
inline constexpr int kQueryRegisters = 224;
inline constexpr int kKeyRegisters = 232;

/// All of a block. Shared: its shared memory. Queries, Keys: of (args, shared, thread), with run(). load(shared): by one
/// thread. store(shared): by another. write(shared, lane): by one warp, what sums over time are made from.
template <class Shared, class Queries, class Keys, class Args, class Load, class Store, class Write>
__device__ __forceinline__ void run_roles(const Args& args, const Load& load, const Store& store,
                                          const Write& write) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // Uniform, and known to be so.
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) Shared().init_barriers();
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    const int warp = group_thread() / 32;
    const int lane = group_thread() % 32;
    if (warp == 0) {
      if (lane == 0) load(Shared());
    } else if (warp == 3) {
      if (lane == 0) store(Shared());
    } else if (warp == 2) {
      write(Shared(), lane);
    }
  } else if (group == 1) {
    warpgroup_reg_alloc<kQueryRegisters>();
    Queries(args, Shared(), group_thread()).run();
  } else {
    warpgroup_reg_alloc<kKeyRegisters>();
    Keys(args, Shared(), group_thread()).run();
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper_bwd
