#pragma once

// cuda-hopper's gradients of Mamba-3's MIMO: the gradients of a chunk of rows (step, rank). The formulas are those of
// tensor_bwd/gradients.cuh, the parts those of SISO's kernel (kernel.cuh), with two warpgroups in place of one, so that
// a scheduler has twice the warps to choose from.
//
//   grid    one block per (batch, chunk, group, slice of the group's heads); it walks the heads of its slice, so that
//           dQ and dK stay in registers, and sums over heads have one order
//
//     warpgroup    registers  role
//     0 producer          64  warp 0 loads; 1 writes what sums over time are made from, 2 and 3 those for biases
//     1, 2 queries       104  the second one y; dQ of 64 states in 32 registers
//     3, 4 keys          104  the second one dV; dθ; dK of 64 states in 32 registers
//     1 … 4                   q and k of Q and K, 16 of each 64 states; M and X, 16 columns (rank_consumers.cuh)
//
// Q and K are the group's: each head's q and k are made in place of a copy of them, which comes from the L2.
//
// Shared memory with N = 128, in KB: V, dy, q, k, S and S' 2 × 80, and their steps 2 × 1.3; M and X 16; of rank 4
// phases 4, dθ of q 4, flows 2 × 20.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper_bwd/rank_consumers.cuh"
#include "kernels/mamba3/hopper_bwd/rank_producer.cuh"

namespace ssmbench::mamba3_bwd {

// Registers of a thread by role: 480 in all, since a block is launched with 96 for each thread.
inline constexpr int kRankProducerRegisters = 64;
inline constexpr int kRankRegisters = 104;

template <class T>
__global__ void __launch_bounds__(kRankThreads, 1)
    mamba3_rank_gradients_kernel(const __grid_constant__ HopperArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shared = RankShared<T>;
  if (args.work.table.spans != nullptr && RankedSequencePlace<T::kRanks>(args).steps_valid == 0) return;
  // Uniform, and known to be so.
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / ssd::kGroupThreads, 0);
  if (threadIdx.x == 0) {
    Shared().init_barriers(args.angle_tiles);
    Shared().set_place(args);
  }
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<kRankProducerRegisters>();
    const int warp = ssd::group_thread() / 32;
    const int lane = ssd::group_thread() % 32;
    if (warp == 0) {
      if (lane == 0) RankLoader<T>(args, Shared()).run();
    } else if (warp == 1) {
      write_rank_flows<T>(args, Shared(), lane);
    } else {
      write_rank_biases<T>(args, Shared(), warp == 3, lane);
    }
  } else {
    warpgroup_reg_alloc<kRankRegisters>();
    RankWarpgroup<T>(args, Shared(), group <= kRankParts, (group - 1) % kRankParts).run();
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::mamba3_bwd
