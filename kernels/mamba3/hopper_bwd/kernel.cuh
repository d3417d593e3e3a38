#pragma once

// cuda-hopper's gradients of Mamba-3's SISO: the gradients of a chunk by the instructions of compute capability 9.0. The
// formulas are those of tensor_bwd/gradients.cuh, the parts those of SSD's (ssd_chunk_scan/hopper_bwd), with these
// differences: q and k are made of Q and K for each head, and dq and dk are turned back before they are added over
// heads.
//
//   grid    one block per (batch, chunk, group, slice of the group's heads); it walks the heads of its slice, so that
//           dQ and dK stay in registers, and sums over heads have one order
//
//     warpgroup    registers  role
//     0 producer          56  warp 0 loads, warp 3 stores dV and dZ, warps 1 and 2 what sums over time are made from
//     1 queries          224  dy, M, X, y, dZ; dQ in 64 registers (queries.cuh)
//     2 keys             224  dV, dθ; dK in 64 registers; q and k of the next head (keys.cuh)
//
// Both share code, consumers.cuh.
//
// Shared memory with Z and N = 128, in KB: V, Z, dout, q, k, S and S' 2 × 88, and their steps 2 × 1.3; dy, M and X 24;
// dθ of q 8; flows 2 × 7; biases 1.

#include "kernels/mamba3/hopper_bwd/consumers.cuh"
#include "kernels/mamba3/hopper_bwd/producer.cuh"

namespace ssmbench::mamba3_bwd {

template <class T>
__global__ void __launch_bounds__(ssd::kThreads, 1)
    mamba3_hopper_gradients_kernel(const __grid_constant__ HopperArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shared = HopperShared<T>;
  if (args.work.table.spans != nullptr && SequencePlace(args).steps_valid == 0) return;
  // Uniform, and known to be so.
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / ssd::kGroupThreads, 0);
  if (threadIdx.x == 0) Shared().init_barriers();
  // Those of states that do not exist stay 0.
  for (int i = static_cast<int>(threadIdx.x); i < 2 * T::kStates; i += ssd::kThreads)
    Shared().biases()[i] = 0.0F;
  hopper::fence_async_proxy();
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    const int warp = ssd::group_thread() / 32;
    const int lane = ssd::group_thread() % 32;
    if (warp == 0) {
      if (lane == 0) load_heads<T>(args, Shared());
    } else if (warp == 3) {
      if (lane == 0) ssd::store_gradients<T, SequencePlace>(args, Shared());
    } else {
      write_flows<T>(args, Shared(), lane, warp - 1);
    }
  } else {
    warpgroup_reg_alloc<kConsumerRegisters>();
    Consumer<T>(args, Shared(), ssd::group_thread(), group == 1).run();
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::mamba3_bwd
