#pragma once

// cuda-hopper's SISO scan of two heads a block, which makes q and k of each head of those of their group:
//
//     warpgroup   registers  role
//     0 producer         40  warp 0 loads K, Q, phases, V and Z, warp 3 stores out; warps 1 and 2 compute the
//                            decays of a head's chunk, and the angles before it (producer.cuh)
//     1, 2 states       104  of a head each: k, turned from K to a tile of its own; then the state (states.cuh)
//     3, 4 outputs      112  of a head each: q, turned from Q to registers; then the products (outputs.cuh)
//
// Time of one head; the states are up to a chunk ahead:
//
//     states    k(c) | weight ∘ V | products, H(c + 1) published | k(c + 1), once q·k(c)ᵀ is done
//     outputs   q(c) | q·kᵀ | M | q·H(c)ᵀ | M·V | gates | out
//
// Shared memory with N = 128, in KB: K and Q 32, k 2 × 16, V, Z and out 4 × 2 × 8, H 2 × 2 × 16,
// phases 2 × 2 × 4, decays 2 × 2 × 2.
//
// What belongs to blocks, items and chunks is ssd_chunk_scan's (plan.h): items are two row tiles of a group,
// of which the second may be absent, and then is zeros. None is cut.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/pairs/outputs.cuh"
#include "kernels/mamba3/hopper/pairs/pairs.h"
#include "kernels/mamba3/hopper/pairs/producer.cuh"
#include "kernels/mamba3/hopper/pairs/states.cuh"

namespace ssmbench::mamba3_pairs {

// Registers of a thread by role: 480 in all at most, 96 of 640 threads.
inline constexpr int kProducerRegisters = 40;
inline constexpr int kStateRegisters = 104;
inline constexpr int kOutputRegisters = 112;
inline constexpr int kThreads = (1 + 2 * kHeads) * kGroupThreads;

template <class T>
__global__ void __launch_bounds__(kThreads, 1) pairs_kernel(const __grid_constant__ HopperArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers();
  __syncthreads();
  hopper::wait_for_prerequisites();  // phases and weights
  if (group == 0) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    produce<T>(args);
  } else if (group <= kHeads) {
    warpgroup_reg_alloc<kStateRegisters>();
    StateWarpgroup<T>(args, group - 1).run();
  } else {
    warpgroup_reg_alloc<kOutputRegisters>();
    OutputWarpgroup<T>(args, group - 1 - kHeads).run();
  }
#else
  __trap();
#endif
}

template <class Io, int kStates, bool kGated>
mamba3_hopper::RotatedVariant pairs_variant_of() {
  using Pairs = Traits<Io, kStates, kGated>;
  return {pairs_kernel<Pairs>, kThreads, Pairs::Layout::kBytes};
}
template <class Io>
mamba3_hopper::RotatedVariant pairs_scan_for(int states, bool gated) {
  if (states == 64) return gated ? pairs_variant_of<Io, 64, true>() : pairs_variant_of<Io, 64, false>();
  return gated ? pairs_variant_of<Io, 128, true>() : pairs_variant_of<Io, 128, false>();
}

}  // namespace ssmbench::mamba3_pairs
