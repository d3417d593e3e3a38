#pragma once

// cuda-hopper backward: the gradients of a chunk by the instructions of compute capability 9.0. The formulas
// are those of chunked_bwd/gradients.cuh, and so are the workspace and the kernels after it. States and their
// gradients come from states.cuh.
//
//   grid    one block per (batch, chunk, group, slice of the group's heads); it walks the heads of its slice,
//           so that C·Bᵀ, Q, dB and dC are there once, and sums over heads have one order
//
//     warpgroup   registers with z, without  role
//     0 producer                     40, 48  warp 0 factors of decays; warp 1 what ddt, dA and dD are made
//                                            from, ⟨S', S⟩ included; warp 2 loads; warp 3 stores dx and dz
//     1 weights                          88  M, Q (weights.cuh)
//     2 queries                    200, 168  dy, y, dz; dC in 64 registers (queries.cuh)
//     3 keys                       184, 208  dx; dB in 64 registers (keys.cuh)
//
// Below the squares of 16 × 16 on the diagonal a decay is the product of a row's and a column's factor. M
// goes without its diagonal, which no decay is in; it is added to y and dx in f32, as D is.
//
// The code of all loops has to fit in the instruction cache of a quarter of a multiprocessor, 32 KB or
// somewhat more: what does not is fetched at half of the rate at which it could be issued.
//
// Shared memory with z and N = 128, in KB: B and C 32; x, z, dout, S and S' 2 × 56, and their steps and
// factors 2 × 2; dy and M 2 × 16; lower triangles of C·Bᵀ and Q in f32 20; dy in f32 16; flows 2 × 3. States
// lie in the workspace as tiles do in shared memory, so that they are copied as plain bytes.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/keys.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/queries.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/weights.cuh"

namespace ssmbench::ssd_hopper_bwd {

/// Registers of a thread by role: all 512 that a multiprocessor has.
template <bool kGated>
struct RoleRegisters {
  static constexpr int kProducers = kGated ? 40 : 48;
  static constexpr int kWeights = 88;
  static constexpr int kQueries = kGated ? 200 : 168;
  static constexpr int kKeys = kGated ? 184 : 208;
  static_assert(kProducers + kWeights + kQueries + kKeys == 512);
};

template <class T>
__global__ void __launch_bounds__(kGradientThreads, 1)
    ssd_hopper_gradients_kernel(const __grid_constant__ GradientArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shared = SharedMemory<T>;
  using Registers = RoleRegisters<T::kGated>;
  // Uniform, and known to be so.
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) Shared().init_barriers();
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<Registers::kProducers>();
    const int warp = group_thread() / 32;
    const int lane = group_thread() % 32;
    // Those with much code are where warps of the others have the least.
    if (warp == 0) {
      prepare_heads<T>(args, Shared(), lane);
    } else if (warp == 1) {
      write_flows<T>(args, Shared(), lane);
    } else if (warp == 2) {
      if (lane == 0) load_inputs<T>(args, Shared());
    } else if (lane == 0) {
      store_gradients<T>(args, Shared());
    }
  } else if (group == 1) {
    warpgroup_reg_dealloc<Registers::kWeights>();
    WeightWarpgroup<T>(args, Shared(), group_thread()).run();
  } else if (group == 2) {
    warpgroup_reg_alloc<Registers::kQueries>();
    QueryWarpgroup<T>(args, Shared(), group_thread()).run();
  } else {
    warpgroup_reg_alloc<Registers::kKeys>();
    KeyWarpgroup<T>(args, Shared(), group_thread()).run();
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper_bwd
