#pragma once

#include <cuda.h>

#include "kernels/common/hopper/fragments.cuh"
#include "kernels/common/hopper/mbarrier.cuh"
#include "kernels/mamba3/args.h"
#include "kernels/mamba3/hopper/fused/layout.h"
#include "kernels/ssd_chunk_scan/tile.cuh"

// What the roles of a block share: arguments, shared memory and its ring buffers.

namespace ssmbench::mamba3_fused {

/// Arguments of the kernel. Maps are of tiles of a chunk.
struct FusedArgs {
  CUtensorMap q, k;   ///< (B, L·R, G, N)
  CUtensorMap v, z;   ///< (B, L, H, P), of z only where it exists
  CUtensorMap rates;  ///< (B, L, H, S)
  Mamba3Args in;
  const float* log_decay;  ///< (B, H, L)
  const float* later;      ///< (B, H, L): what V ⊗ k of a step weighs for later ones
  const float* own;        ///< (B, H, L): and for its own
  const float* seed;       ///< (B, H, P, N): the state that enters, or null
};

template <class Element, int kPaddedPairs, bool kHasGates>
struct Traits {
  using Io = Element;
  static constexpr bool kScaled = kNarrowRange<Io>;
  static constexpr int kPairs = kPaddedPairs;  ///< rotated ones, padded: 32 or 64
  static constexpr bool kGated = kHasGates;    ///< Z exists
  using Layout = mamba3_fused::Layout<kPairs>;
};

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;
inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupThreads = 32 * kGroupWarps;
inline constexpr int kThreads = 4 * kGroupThreads;
inline constexpr int kAngleWarps = 2;

/// The head of a block, and its group.
struct Head {
  int batch, head, group;

  __device__ explicit Head(const Mamba3& scan)
      : batch(static_cast<int>(blockIdx.x) / static_cast<int>(scan.nheads)),
        head(static_cast<int>(blockIdx.x) - batch * static_cast<int>(scan.nheads)),
        group(head / static_cast<int>(scan.nheads / scan.groups)) {}
};

/// Whether its sequence has a chunk. (A number of chunks, which all roles share, would be kept in memory.)
__device__ inline bool has_chunk(const FusedArgs& args, int chunk) {
  return chunk * kSteps < static_cast<int>(args.in.scan.seqlen);
}

extern __shared__ unsigned char dynamic_shared[];

template <class T>
struct SharedMemory {
  using Layout = typename T::Layout;
  using Q = hopper::Ring<kOperandDepth>;
  using K = hopper::RelayRing<kOperandDepth>;  ///< filled with K, biased and rotated in place
  using StepInputs = hopper::Ring<kStepDepth>;
  using Made = hopper::Ring<kMadeDepth>;
  using States = hopper::Ring<Layout::kStateDepth>;

  std::uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023U;  ///< aligned to 1024

  __device__ Q q() const { return {base + Layout::kBarriers}; }
  __device__ K k() const { return {{q().barriers + Q::kBytes}}; }
  __device__ StepInputs step_inputs() const { return {k().barriers + K::kBytes}; }
  __device__ Made made() const { return {step_inputs().barriers + StepInputs::kBytes}; }
  __device__ States states() const { return {made().barriers + Made::kBytes}; }

  __device__ std::uint32_t q_tile(Q::Position at) const { return base + Layout::kQ + at.slot * kOperand; }
  __device__ std::uint32_t k_tile(K::Position at) const { return base + Layout::kK + at.slot * kOperand; }
  __device__ std::uint32_t state_tile(States::Position at) const {
    return base + Layout::kState + at.slot * kOperand;
  }
  __device__ std::uint32_t v_tile(StepInputs::Position at) const {
    return base + Layout::kStepInputs + at.slot * Layout::kStepSlot;
  }
  __device__ std::uint32_t z_tile(StepInputs::Position at) const { return v_tile(at) + kStepTile; }
  /// [step][pair]
  __device__ std::uint32_t rates(StepInputs::Position at) const { return v_tile(at) + 2 * kStepTile; }
  /// V of ranks: rows (step, rank)
  __device__ std::uint32_t x_tile(Made::Position at) const {
    return base + Layout::kMade + at.slot * Layout::kMadeSlot;
  }
  /// Cosine and sine, [step][pair].
  __device__ std::uint32_t turns(Made::Position at) const { return x_tile(at) + kTile; }
  __device__ ChunkScalars& scalars(Made::Position at) const {
    return *at_address<ChunkScalars>(turns(at) + Layout::kTurns);
  }
  __device__ std::uint32_t q_bias() const { return base + Layout::kBiases; }
  __device__ std::uint32_t k_bias() const { return q_bias() + kRank * kStates * 4; }
  __device__ std::uint32_t factors(Factor which) const {
    return base + Layout::kFactors + static_cast<int>(which) * kRank * kHeaddim * 4;
  }
  __device__ std::uint32_t v_factors() const { return base + Layout::kVFactors; }
  /// In f16: what 16 rows of a published state are to be multiplied with, for each warp's rows.
  __device__ float* state_scales(States::Position at) const {
    return at_address<float>(base + Layout::kStateScales) + kGroupWarps * at.slot;
  }
  /// What lies at an address of shared memory. From the array's own address, so that the compiler knows the
  /// address space.
  template <class Element>
  __device__ Element* at_address(std::uint32_t address) const {
    return reinterpret_cast<Element*>(dynamic_shared + (address - shared_address(dynamic_shared)));
  }

  /// By one thread.
  __device__ void init_barriers() const {
    q().init(1, kGroupWarps);                   // read by one of the output warpgroups
    k().init(1, kGroupWarps, 2 * kGroupWarps);  // and by the states
    step_inputs().init(1, 1 + kAngleWarps + kGroupWarps);
    // Every lane for what it wrote or read by ordinary accesses: racecheck follows no other order.
    made().init(32 * (1 + kAngleWarps), 32 * 2 * kGroupWarps);
    states().init(kGroupWarps, kGroupWarps);
    hopper::barrier_init_fence();
  }
};

/// Index of a thread in its warpgroup. Volatile, so that each role takes its own: one that all of them shared
/// would be kept from before they part.
__device__ inline int group_thread() {
  unsigned thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return static_cast<int>(thread % kGroupThreads);
}

/// Arrives for the warp, once all its lanes are here.
__device__ inline void warp_arrive(std::uint32_t barrier, int lane) {
  __syncwarp();
  if (lane == 0) hopper::barrier_arrive(barrier);
}

}  // namespace ssmbench::mamba3_fused
