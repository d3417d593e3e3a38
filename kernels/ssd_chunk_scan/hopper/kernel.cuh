#pragma once

// cuda-hopper: the chunked scan by the instructions of compute capability 9.0. Chunks of 64 steps, tiles of
// 64 rows of P, all of N (64, 128 or 256, padded with zeros by the copies).
//
// One block per multiprocessor, persistent. It works on items (plan.h): one or two row tiles that read the
// same B and C, over all chunks of a sequence. Two tiles with N = 256 are in two blocks, a cluster, which copy
// B and C to one another. Per chunk, with M = (C·Bᵀ) ∘ Δ·decay on and below the
// diagonal:
//
//     Y   = carry ∘ (C·Hᵀ) + M·x               H as it enters the chunk, P × N
//     out = (Y + D·x) ∘ silu(z)
//     H   ← decay·H + (weight ∘ x)ᵀ·B
//
//     warpgroup    registers  role
//     0 producer          64  warp 0 loads B, C, x, z, warp 3 stores out (producer.cuh);
//                             warps 1 and 2 compute the decays of a chunk (scalars.cuh)
//     1 states           192  H of the item's tiles in f32, 64 registers each (N = 256: 128), published in the
//                             io dtype for the outputs (states.cuh)
//     2, 3 outputs  2 × 128   of two tiles one each; of one tile every second chunk each (outputs.cuh)
//
// Time, with two tiles; the rings of layout.h let roles run apart:
//
//     producer   loads of chunks c + 2 and c + 3: B and C after C·Hᵀ of both tiles, x after M·x, z after out
//     scalars    decays of chunk c + 2
//     states     H(c + 1) published once C·H(c)ᵀ is done | weight ∘ x | products, H(c + 2)
//     output 0   C·Bᵀ, C·Hᵀ | M | M·x | gates | out
//     output 1       C·Bᵀ, C·Hᵀ | M | M·x | gates | out
//
// Shared memory with two tiles and N = 128, in KB: B and C 3 × 32, x 3 × 16, z and out 2 × 16, H 32, decays
// 3 × 4. A tile is 64 rows of 128 bytes, swizzled: what TMA writes, wgmma and ldmatrix read.
//
// Slots are handed on by mbarriers, with an arrival per warp, or the bytes of copies. What tensor cores or
// the copy engine read after ordinary stores (H, out) is fenced by every thread that stored, before its warp
// arrives.
//
// Mamba-3's scans are instances of it whose steps have given weights (GivenTraits, RankedTraits), and of its
// roles in a kernel of their own, with one more that rotates B and C (RotatedTraits;
// mamba3/hopper/rotated_scan.cuh).

#include "kernels/common/hopper/dependent_launch.cuh"
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
// In the pass of states: 392 of 512.
inline constexpr int kPartsProducerRegisters = 80;
inline constexpr int kPartsStateRegisters = 232;

template <class T>
__device__ __forceinline__ void produce(const typename T::Args& args, const SharedMemory<T>& shared,
                                        int thread) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  if (warp == 0) {
    if (lane == 0) Loader<T>(args, shared).run();
  } else if (warp == 3) {
    if constexpr (!T::kRanked)
      if (lane == 0) store_outputs<T>(args, shared);
  } else if constexpr (T::kPacked) {
    ScalarWarp<T>(args, shared, warp - 1, lane).run(SegmentsOf<T>(args));
  } else {
    ScalarWarp<T>(args, shared, warp - 1, lane).run();
  }
}

/// Initializes the barriers of the block, and of the other one that copies to it.
template <class T>
__device__ __forceinline__ void start_block() {
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers();
  if constexpr (T::kCluster > 1)
    hopper::cluster_sync();
  else
    __syncthreads();
}
/// The other block copies to this one, and arrives at its barriers, until both are here.
template <class T>
__device__ __forceinline__ void end_block() {
  if constexpr (T::kCluster > 1) hopper::cluster_sync();
}

template <class T>
__device__ __forceinline__ void run_role(const typename T::Args& args) {
  // Uniform, and known to be so.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  start_block<T>();
  if constexpr (T::kPacked) hopper::wait_for_prerequisites();  // for where blocks start
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
  end_block<T>();
}

/// In clusters where T has them: that is an attribute of the launch.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) ssd_kernel(const __grid_constant__ typename T::Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  run_role<T>(args);
#else
  __trap();
#endif
}

/// Lets the kernels after the pass of states begin. Whether the block has a part that is not its item's last.
template <class T>
__device__ __forceinline__ bool begin_parts(const typename T::Args& args) {
  hopper::launch_dependents();
  if constexpr (T::kPacked) {
    hopper::wait_for_prerequisites();  // for where blocks start
    const SegmentsOf<T> segments(args);
    return !segments.done() && !segments.ends(segments.segment());
  } else {
    const BlockPlan<T::kCluster> plan(args.plan);
    return !plan.ends(plan.segment(0));
  }
}

template <class T>
__device__ __forceinline__ void run_parts_role(const typename T::Args& args) {
  if (!begin_parts<T>(args)) return;
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  start_block<T>();
  if (warp >= 2 * kWarpsOfGroup) {
    warpgroup_reg_alloc<kPartsStateRegisters>();
    StateWarpgroup<T>(args, SharedMemory<T>(), group_thread()).run();
  } else {
    warpgroup_reg_dealloc<kPartsProducerRegisters>();
    const int lane = group_thread() % 32;
    if (warp == 0) {
      if (lane == 0) Loader<T>(args, SharedMemory<T>()).run();
    } else if (warp <= T::kHeads * kPartsStride) {
      ScalarWarp<T> scalars(args, SharedMemory<T>(), warp - 1, lane);
      if constexpr (T::kPacked)
        scalars.run(SegmentsOf<T>(args));
      else
        scalars.run();
    }
  }
  end_block<T>();
}

/// The pass of states: those that leave all parts of items but the last, without what enters them (handed.h).
/// Blocks of the plan, of three warpgroups: producers twice, of which warp 0 loads and others compute scalars, and
/// states. Parts have one segment each.
template <class T>
__global__ void __launch_bounds__(kStateThreads, 1)
    ssd_parts_kernel(const __grid_constant__ typename T::Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  run_parts_role<T>(args);
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper
