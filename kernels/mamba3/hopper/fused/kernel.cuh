#pragma once

// cuda-hopper's fused MIMO scan: from Q, K, V and angles' rates to out, for one group of rows (step, rank)
// after the other. Rank 4, N = 128, P up to 64, pairs of the kind "halves".
//
// A block has a head of a sequence, or two of a group, which share copies of Q and K. A chunk is 16 steps, 64
// rows of q and k. With x = V·MIMO_V^r:
//
//     q, k = Rot(θ)(Q + bias), Rot(θ)(K + bias)
//     Y    = carry ∘ (q·Hᵀ) + M·x,  M = (q·kᵀ) ∘ weight           H as it enters the chunk, P × N
//     out  = Σ_r norm(Y + D·x)·silu(Z·MIMO_Z^r)·MIMO_Out^r
//     H    ← decay·H + (later ∘ x)ᵀ·k          the decay mostly by a scale that H has
//
//     warpgroup     role
//     0 producer    loads by TMA; sines and cosines; the decays of a chunk (prepare.cuh)
//     1, 2 turns    of a head each: q and k, from parts of Q and K to tiles of their own (turn.cuh)
//     3, 4 scans    of a head each: M, Y and out; H in f32, 64 registers (scan.cuh, finish.cuh)
//
// Time of a head; the rings of layout.h let roles run apart, and two heads' scans fill what one leaves idle:
//
//     turns   q, k of c + 1, and then c + 2
//     scan    q·kᵀ | M | H·qᵀ | xᵀ·Mᵀ | gates, sum over ranks, stores, H ← … meanwhile
//
// In Yᵀ, whose rows are head dims, H is A of its product from the registers in which it is summed, a lane has
// the same few factors of head dims and ranks in all columns, x needs no shared memory, and half of the sum
// over ranks is within a lane.
//
// Slots are handed on by mbarriers, with an arrival per warp, or per lane, or the bytes of copies. What
// tensor cores read after ordinary stores (q, k, M) is fenced by every thread that stored, before it arrives.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/fused/fused.h"
#include "kernels/mamba3/hopper/fused/prepare.cuh"
#include "kernels/mamba3/hopper/fused/scan.cuh"
#include "kernels/mamba3/hopper/fused/turn.cuh"

namespace ssmbench::mamba3_fused {

/// Threads of a block, and registers of each by role: at most those that all have at launch.
template <class T>
struct Shares {
  static constexpr int kThreads = (1 + 2 * T::kHeads) * kGroupThreads;
  static constexpr int kProducer = 48;
  static constexpr int kTurn = 64;
  static constexpr int kScan = T::kHeads == 2 ? 152 : 232;
  static_assert(kProducer + T::kHeads * (kTurn + kScan) <= (T::kHeads == 2 ? 480 : 504));
};

/// Factors of a head, [table_slot], by all threads.
template <class T>
__device__ void load_tables(const FusedArgs& args, const SharedMemory<T>& shared, int slot) {
  const Mamba3& scan = args.in.scan;
  const Head at(args, slot);
  const int headdim = static_cast<int>(scan.headdim);
  if (threadIdx.x == 0)
    shared.first_row(slot) =
        at.batch * scan.seqlen * (scan.reduces_ranks ? 1 : kRank) * scan.nheads + at.head;
  for (int i = threadIdx.x; i < kRank * kHeaddim; i += Shares<T>::kThreads) {
    const int rank = i / kHeaddim;
    const int p = i % kHeaddim;
    const std::int64_t from = (std::int64_t{at.head} * kRank + rank) * headdim + p;
    const auto value = [&](const float* of) { return p >= headdim ? 0.0F : of == nullptr ? 1.0F : of[from]; };
    const float norm = args.in.norm == nullptr || p >= headdim ? 1.0F : args.in.norm[at.head * headdim + p];
    const auto store = [&](Factor which, float factor) {
      shared.template at_address<float>(shared.table(slot, which))[table_slot(rank, p)] = factor;
    };
    if (args.in.D != nullptr) store(Factor::skip, args.in.D[at.head] * value(args.in.mimo_v));
    store(Factor::inner, -kLog2E * value(args.in.mimo_z));
    const float outer = value(args.in.mimo_out) * norm;
    store(Factor::outer, T::kGated ? finite_inverse(value(args.in.mimo_z) * outer) : outer);
    if constexpr (T::kScaled) {
      store(Factor::raise, value(args.in.mimo_v));
    } else {
      // Of an even rank and the next: two words, side by side.
      auto* const to = shared.template at_address<typename T::Io>(shared.table(slot, Factor::raise)) +
                       2 * table_slot(rank / 2 * 2, p) + rank % 2;
      const auto rounded = from_float<typename T::Io>(value(args.in.mimo_v));
      to[0] = rounded;
      to[2] = from_float<typename T::Io>(value(args.in.mimo_v) - to_float(rounded));
    }
  }
}

template <class T>
__device__ __forceinline__ void produce(const FusedArgs& args, const SharedMemory<T>& shared, int thread) {
  const int warp = uniform(thread / 32);
  const int lane = thread % 32;
  if (warp == 0) {
    InputLoader<T>(args, shared, lane).run();
  } else if (warp == 3) {
    WeightWarp<T>(args, shared, lane).run();
  } else {
    AngleWarp<T>(args, shared).run();
  }
}

template <class T>
__global__ void __launch_bounds__(Shares<T>::kThreads, 1)
    fused_kernel(const __grid_constant__ FusedArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int group = uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers(args.heads);
  for (int slot = 0; slot < args.heads; ++slot) load_tables<T>(args, SharedMemory<T>(), slot);
  __syncthreads();
  if (group == 0) {
    warpgroup_reg_dealloc<Shares<T>::kProducer>();
    produce<T>(args, SharedMemory<T>(), group_thread());
  } else if (group <= T::kHeads) {
    warpgroup_reg_dealloc<Shares<T>::kTurn>();
    if (head_slot<T>() < args.heads) TurnWarpgroup<T>(args, SharedMemory<T>()).run();
  } else {
    warpgroup_reg_alloc<Shares<T>::kScan>();
    const int slot = uniform(head_slot<T>());
    if (slot < args.heads)
      ScanWarpgroup<T>(args, SharedMemory<T>(), slot, uniform(group_thread() / 32)).run();
  }
#else
  __trap();
#endif
}

template <class Io, int kPairs, bool kGated>
Variant variant_of() {
  using Fused = Traits<Io, kPairs, kGated>;
  return {fused_kernel<Fused>, Shares<Fused>::kThreads, Fused::Layout::kBytes};
}
template <class Io>
Variant variant_for(std::int64_t angles, bool gated) {
  if (angles <= 32) return gated ? variant_of<Io, 32, true>() : variant_of<Io, 32, false>();
  return gated ? variant_of<Io, 64, true>() : variant_of<Io, 64, false>();
}

}  // namespace ssmbench::mamba3_fused
