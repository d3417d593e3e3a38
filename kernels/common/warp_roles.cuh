#pragma once

// Warps of a block that do different things: registers go from some of them to others, and they wait for
// each other in loops of their own.

namespace ssmbench {

/// __syncthreads() where that must not stand: each role waits in a loop of its own.
__device__ inline void role_barrier() {
  asm volatile("bar.sync 0;" ::: "memory");
}

// A kernel is launched with as many registers for each thread, and warps that need fewer give some up. All
// warps of a group of four, whose first is a multiple of four, have to do the same. Without the
// instructions of Hopper (sm_90a) all keep what they have.
//
// Source: PTX ISA, "setmaxnreg".

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SSMBENCH_SM90A_ONLY(...) __VA_ARGS__
#else
#define SSMBENCH_SM90A_ONLY(...) static_cast<void>(0)
#endif

/// This warp has `kRegisters` a thread from now on, a multiple of 8, no more than before.
template <int kRegisters>
__device__ inline void give_registers() {
  SSMBENCH_SM90A_ONLY(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters)));
}

/// The same, no fewer than before. Waits until others have given as many.
template <int kRegisters>
__device__ inline void take_registers() {
  SSMBENCH_SM90A_ONLY(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters)));
}

}  // namespace ssmbench
