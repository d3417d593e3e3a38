#pragma once

// cuda-hopper backward for f32 tensors, products in tf32: the gradients of a chunk. The formulas are those of
// chunked_bwd/gradients.cuh, and so are the workspace and the kernels after it. States come from states.cuh.
//
//   grid    one block per (batch, chunk, group, slice of the group's heads), as in ../kernel.cuh
//
//     warpgroup   registers  role
//     0 producer         40  warp 0 loads; warp 1 writes what ddt, dA and dD are made from, ⟨S', S⟩ included
//     1 queries         232  dy, y, dz; dC in 64 registers (queries.cuh)
//     2 keys            232  M, Q, dx; dB in 64 registers, C·Bᵀ in 32 (keys.cuh)
//
// wgmma reads tf32 operands only with k along the rows of shared memory. So products are taken the way round
// in which their second operand lies so, and the first one comes from registers, by ldmatrix or 32-bit loads:
//
//   product             rows × columns   A, registers   B, shared memory
//   dy·xᵀ, transposed           s × t    x              dy, rounded
//   C·Sᵀ, B·S'ᵀ, transposed     p × t    S, S'          C, B
//   dy·S, x·S'                  t × n    dy, x          S, S', whose images are [n][p]
//   M·x, Mᵀ·dy, transposed      p × t    x, dy          M as [t][s], M as [s][t]
//
// Where k counts time in an operand from registers, step 2t of 8 is k = t and step 2t + 1 is k = t + 4, and M
// is written in that order: what a lane has of x and dy is then what it needs for D·x and D·dy. Images have
// their rows in such an order (image_row()), since C and B come by the copy.
//
// What is an operand is rounded to tf32: B and C by the copy, images as they are written, others in
// registers.
//
// Shared memory in KB: B 32, C 32, two slots of 32, S' 32, z 16, dy rounded 16 (then M as [t][s], then dz),
// M as [s][t] 16, and Q, a lower triangle, 10. The slots have x and dout (then dy, then dx) of a head, and
// its S. What a head leaves is loaded for the next one in this order, so that the two swap their slots:
//
//     queries   gates | C·Sᵀ, dy·S   | M·x | dz
//     loads     z     | x, dout in S |     |    S in x, dout
//
// and S' when keys have read it.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/keys.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/queries.cuh"

namespace ssmbench::ssd_hopper_bwd::tf32 {

// Registers of a thread by role: 504 in all, of the 512 that a multiprocessor has.
inline constexpr int kProducers = 40;
inline constexpr int kConsumers = 232;

template <bool kGated>
__global__ void __launch_bounds__(kThreads, 1)
    ssd_tf32_gradients_kernel(const __grid_constant__ GradientArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // Uniform, and known to be so.
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  const SharedMemory shared;
  if (threadIdx.x == 0) shared.init_barriers();
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<kProducers>();
    const int warp = group_thread() / 32;
    const int lane = group_thread() % 32;
    if (warp == 0) {
      if (lane == 0) load_heads<kGated>(args, shared);
    } else if (warp == 1) {
      write_heads(args, shared, lane);
    }
  } else if (group == 1) {
    warpgroup_reg_alloc<kConsumers>();
    Queries<kGated>(args, shared, group_thread()).run();
  } else {
    warpgroup_reg_alloc<kConsumers>();
    Keys<kGated>(args, shared, group_thread()).run();
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper_bwd::tf32
