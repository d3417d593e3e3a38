#pragma once

// cuda-hopper: the chunked scan by the instructions of compute capability 9.0. Chunks of 64 steps, tiles of 64 rows of
// P, all of N (64 or 128, padded with zeros by the copies).
//
//   One block per multiprocessor, persistent; it works on items (plan.h): one or two row tiles that read the same B
//   and C, over all chunks of a sequence. Per chunk, with M = (C·Bᵀ) ∘ Δ·decay on and below the diagonal:
//
//     H  ← decay·H + (weight ∘ x)ᵀ·B                      state, P × N
//     Y  = carry ∘ (C·Hᵀ) + M·x                           H as it enters the chunk
//     out = (Y + D·x) ∘ silu(z)
//
//   warpgroup      registers  role
//   0 producer        64      warp 0: copies B, C, x, z in (producer.cuh); warps 1, 2: decays of a chunk (scalars.cuh);
//                             warp 3: copies out away
//   1 states         192      H of the item's tiles in f32, 64 registers each; publishes them in the io dtype
//                             (states.cuh)
//   2, 3 outputs   2 × 128    two tiles: one each. One tile: every second chunk each (outputs.cuh)
//
//   Time of two tiles, chunk c (the rings of layout.h let roles run apart):
//
//     producer   | loads c + 2 or c + 3: B, C when C·Hᵀ of both is done, x after M·x, z when out is away |
//     scalars    | decays c + 2 |
//     states     | publishes H(c + 1) once C·H(c)ᵀ is done | x·weight, products → H(c + 2) |
//     output 0   | C·Bᵀ, C·Hᵀ | M | M·x | gates | out |
//     output 1        | C·Bᵀ, C·Hᵀ | M | M·x | gates | out |
//
//   Shared memory (layout.h), two tiles, N = 128, in KB: B and C 3 × 32, x 2 × 16, z and out 3 × 16, H 1 × 32,
//   scalars 3 × 4. All tiles are 64 rows of 128 bytes, swizzled: what TMA writes, wgmma and ldmatrix read.
//
// What hands a slot on: mbarriers, one arrival per warp (or the bytes of copies). What tensor cores or the copy engine
// read after ordinary stores (H, out) is fenced by every thread that stored, before its warp arrives.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/ssd_chunk_scan/hopper/outputs.cuh"
#include "kernels/ssd_chunk_scan/hopper/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper/scalars.cuh"
#include "kernels/ssd_chunk_scan/hopper/states.cuh"

namespace ssmbench::ssd_hopper {

// Registers of a thread by role: 512 in all, 65536 of a multiprocessor over 128 threads of a group.
inline constexpr int kProducerRegisters = 64;
inline constexpr int kStateRegisters = 192;
inline constexpr int kOutputRegisters = 128;

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
    warpgroup_reg_dealloc<kProducerRegisters>();
    produce<T>(args, SharedMemory<T>(), group_thread());
  } else if (group == 1) {
    warpgroup_reg_alloc<kStateRegisters>();
    StateWarpgroup<T>(args, SharedMemory<T>(), group_thread()).run();
  } else {
    warpgroup_reg_alloc<kOutputRegisters>();
    OutputWarpgroup<T>(args, SharedMemory<T>(), group - 2, group_thread()).run();
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper
