#pragma once

// Warp specialization: warps of a block with different roles, which exchange registers and meet at a barrier
// from loops of their own.

namespace ssmbench {

/// __syncthreads() for roles: each may call it from another place in the code.
__device__ inline void block_barrier() {
  asm volatile("bar.sync 0;" ::: "memory");
}

/// A barrier of one warpgroup's threads. `name`: a hardware barrier from 1 to 15 that is the warpgroup's own.
__device__ inline void warpgroup_barrier(int name) {
  asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
}

// A kernel is launched with the same number of registers for each thread; a warpgroup that needs fewer
// releases some, another takes them. All four warps of a warpgroup execute the call. Without Hopper's
// instructions (sm_90a) all keep what they have.
//
// Source: PTX ISA, "setmaxnreg".

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SSMBENCH_SM90A_ONLY(...) __VA_ARGS__
#else
#define SSMBENCH_SM90A_ONLY(...) static_cast<void>(0)
#endif

/// Leaves this warp `kRegisters` a thread, a multiple of 8, no more than before.
template <int kRegisters>
__device__ inline void warpgroup_reg_dealloc() {
  SSMBENCH_SM90A_ONLY(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters)));
}

/// Gives this warp `kRegisters` a thread, no fewer than before. Waits until others have released them.
template <int kRegisters>
__device__ inline void warpgroup_reg_alloc() {
  SSMBENCH_SM90A_ONLY(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters)));
}

}  // namespace ssmbench
