#pragma once

// cuda-hopper for f32 tensors, products in tf32. As for 16-bit ones (../kernel.cuh) a block is persistent and takes
// items of two row tiles that read the same B and C; chunks have 64 steps.
//
//     warpgroup   registers  role
//     0 producer         56  warp 0 loads B, C, x, z; warp 1 computes the decays of a chunk; warps 2 and 3
//                            transpose B (producer.cuh)
//     1, 2       2 × 224     one head each: its state in registers, M, Y, out (consumer.cuh)
//
// Shared memory with N = 128, in KB: B 32, C 32, B transposed 32, x 2 × 16, z and out 2 × 16, M 2 × 16: one slot
// each. What a chunk leaves early is loaded for the next one during its second half:
//
//     consumer    C·Bᵀ, H·Cᵀ | M | xᵀ·Mᵀ, (w ∘ x)ᵀ·B | gates | out
//     producer    transposes B  | loads B, C, x             | z

#include "kernels/common/warp_specialization.cuh"
#include "kernels/ssd_chunk_scan/hopper/tf32/consumer.cuh"
#include "kernels/ssd_chunk_scan/hopper/tf32/producer.cuh"

namespace ssmbench::ssd_hopper::tf32 {

inline constexpr int kThreads = (1 + kHeads) * kGroupThreads;
// Registers of a thread by role: 504 in all, of 512 that a multiprocessor has over 128 threads of a group.
inline constexpr int kProducerRegisters = 56;
inline constexpr int kConsumerRegisters = 224;

template <class T>
__device__ __forceinline__ void run_role(const HopperArgs& args) {
  if constexpr (!T::kOutputs) {
    hopper::launch_dependents();
    const BlockPlan<1> plan(args.plan);
    if (plan.ends(plan.segment(0))) return;
  }
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers();
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    produce<T>(args, group_thread());
  } else {
    warpgroup_reg_alloc<kConsumerRegisters>();
    Consumer<T>(args, group - 1, group_thread()).run();
  }
}

/// The scan, or the pass of states before it, where items are in parts.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) ssd_tf32_kernel(const __grid_constant__ HopperArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  run_role<T>(args);
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper::tf32
