#pragma once

// cuda-hopper's fused MIMO scan: from Q, K, V and angles' rates to out, for one group of rows (step, rank)
// after the other. Rank 4, N = 128, P up to 64, pairs of the kind "halves".
//
// A block has a head of a sequence. A chunk is 16 steps, 64 rows of q and k. With x = V·MIMO_V^r:
//
//     q, k = Rot(θ)(Q + bias), Rot(θ)(K + bias)
//     Y    = carry ∘ (q·Hᵀ) + M·x,  M = (q·kᵀ) ∘ weight           H as it enters the chunk, P × N
//     out  = Σ_r norm(Y + D·x)·silu(Z·MIMO_Z^r)·MIMO_Out^r
//     H    ← decay·H + (later ∘ x)ᵀ·k          the decay mostly by a scale that H has
//
//     warpgroup    registers  role
//     0 producer          80  loads by TMA; sines and cosines; x and the decays of a chunk (prepare.cuh)
//     1 states           128  H in f32, 64 registers; makes k of K in place meanwhile (states.cuh)
//     2, 3 outputs  2 × 152   every second chunk each; q is made of Q in registers (outputs.cuh)
//
// Time; the rings of layout.h let roles run apart:
//
//     producer   loads of chunks c + 3 | made for c + 2
//     states     H ← …, k(c + 1) meanwhile | H(c + 1) published
//     output 0   q(c) | q·kᵀ, q·Hᵀ | M | M·x, gates meanwhile | sum over ranks, stores
//     output 1   the same of c + 1: both begin together
//
// Slots are handed on by mbarriers, with an arrival per warp, or per lane, or the bytes of copies. What
// tensor cores read after ordinary stores (k, H, x) is fenced by every thread that stored, before it arrives.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/fused/fused.h"
#include "kernels/mamba3/hopper/fused/outputs.cuh"
#include "kernels/mamba3/hopper/fused/prepare.cuh"
#include "kernels/mamba3/hopper/fused/states.cuh"

namespace ssmbench::mamba3_fused {

// Registers of a thread by role: 512 in all, 65536 of a multiprocessor over 128 threads of a group.
inline constexpr int kProducerRegisters = 80;
inline constexpr int kStateRegisters = 128;
inline constexpr int kOutputRegisters = 152;

/// Biases and factors of the head, in the order in which lanes take them, by all threads.
template <class T>
__device__ void load_tables(const FusedArgs& args, const SharedMemory<T>& shared, const Head& at) {
  const Mamba3& scan = args.in.scan;
  for (int i = threadIdx.x; i < kRank * kStates; i += kThreads) {
    const int slot = fragment_slot(i / kStates, i % kStates);
    const std::int64_t from = std::int64_t{at.head} * kRank * kStates + i;
    shared.template at_address<float>(shared.q_bias())[slot] = args.in.Q_bias[from];
    shared.template at_address<float>(shared.k_bias())[slot] = args.in.K_bias[from];
  }
  for (int i = threadIdx.x; i < kRank * kHeaddim; i += kThreads) {
    const int rank = i / kHeaddim;
    const int p = i % kHeaddim;
    const std::int64_t from = (std::int64_t{at.head} * kRank + rank) * scan.headdim + p;
    const auto value = [&](const float* of) {
      return p >= scan.headdim ? 0.0F : of == nullptr ? 1.0F : of[from];
    };
    const float norm =
        args.in.norm == nullptr || p >= scan.headdim ? 1.0F : args.in.norm[at.head * scan.headdim + p];
    const int slot = fragment_slot(rank, p);
    const auto store = [&](Factor which, float factor) {
      shared.template at_address<float>(shared.factors(which))[slot] = factor;
    };
    if (args.in.D != nullptr) store(Factor::skip, args.in.D[at.head] * value(args.in.mimo_v));
    store(Factor::inner, -kLog2E * value(args.in.mimo_z));
    store(Factor::outer, (T::kGated ? value(args.in.mimo_z) : 1.0F) * value(args.in.mimo_out) * norm);
  }
}

/// MIMO_V of the head, likewise: in bf16 what is rounded and what that leaves.
template <class T>
__device__ void load_v_factors(const FusedArgs& args, const SharedMemory<T>& shared, const Head& at) {
  const int headdim = static_cast<int>(args.in.scan.headdim);
  for (int i = threadIdx.x; i < kRank * kHeaddim / 2; i += kThreads) {
    const int rank = i / (kHeaddim / 2);
    const int word = i % (kHeaddim / 2);
    float2 factors{};
    if (2 * word < headdim)
      factors =
          *reinterpret_cast<const float2*>(args.in.mimo_v + (at.head * kRank + rank) * headdim + 2 * word);
    if constexpr (T::kScaled) {
      *shared.template at_address<float2>(shared.v_factors() + 4 * float_slot(rank, 2 * word)) = factors;
    } else {
      auto* const to = shared.template at_address<std::uint32_t>(shared.v_factors());
      const std::uint32_t rounded = pack_pair<__nv_bfloat16>(factors.x, factors.y);
      const float2 back = unpack_pair<__nv_bfloat16>(rounded);
      to[word_slot(rank, 0, word)] = rounded;
      to[word_slot(rank, 1, word)] = pack_pair<__nv_bfloat16>(factors.x - back.x, factors.y - back.y);
    }
  }
}

template <class T>
__device__ __forceinline__ void produce(const FusedArgs& args, const SharedMemory<T>& shared, const Head& at,
                                        int thread) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  if (warp == 0) {
    if (lane == 0) load_inputs<T>(args, shared, at);
  } else if (warp == 2) {
    WeightWarp<T>(args, shared, at, lane).run();
  } else {
    AngleWarp<T>(args, shared, at, warp / 2, lane).run();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) fused_kernel(const __grid_constant__ FusedArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // Uniform, and known to be so.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  const Head at(args.in.scan);
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers();
  load_tables<T>(args, SharedMemory<T>(), at);
  load_v_factors<T>(args, SharedMemory<T>(), at);
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    produce<T>(args, SharedMemory<T>(), at, group_thread());
  } else if (group == 1) {
    warpgroup_reg_dealloc<kStateRegisters>();
    StateWarpgroup<T>(args, SharedMemory<T>(), at, group_thread()).run();
  } else {
    warpgroup_reg_alloc<kOutputRegisters>();
    OutputWarpgroup<T>(args, SharedMemory<T>(), at, group - 2, group_thread()).run();
  }
#else
  __trap();
#endif
}

template <class Io, int kPairs, bool kGated>
Variant variant_of() {
  using Fused = Traits<Io, kPairs, kGated>;
  return {fused_kernel<Fused>, Fused::Layout::kBytes};
}
template <class Io>
Variant variant_for(std::int64_t angles, bool gated) {
  if (angles <= 32) return gated ? variant_of<Io, 32, true>() : variant_of<Io, 32, false>();
  return gated ? variant_of<Io, 64, true>() : variant_of<Io, 64, false>();
}

}  // namespace ssmbench::mamba3_fused
