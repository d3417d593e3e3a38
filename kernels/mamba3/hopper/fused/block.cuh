#pragma once

#include <cuda.h>

#include "kernels/common/hardware.h"
#include "kernels/common/hopper/fragments.cuh"
#include "kernels/common/hopper/mbarrier.cuh"
#include "kernels/mamba3/args.h"
#include "kernels/mamba3/hopper/fused/layout.h"
#include "kernels/ssd_chunk_scan/tile.cuh"

// What the roles of a block share: arguments, shared memory and its ring buffers.

namespace ssmbench::mamba3_fused {

/// Arguments of the kernel.
struct FusedArgs {
  CUtensorMap q, k;   ///< (B, L·R, G, N), in tiles of a part
  CUtensorMap v, z;   ///< (B, L, H, P), in tiles of a chunk, of z only where it exists
  CUtensorMap rates;  ///< (B, L, H, S), likewise
  Mamba3Args in;
  int heads;               ///< of a block: neighbours of a group
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
  static constexpr int kHeads = Layout::kHeads;  ///< of a block, at most
};

inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupThreads = 32 * kGroupWarps;

/// The index in (B, H) of a head of a block.
__device__ inline int item_of(const FusedArgs& args, int slot) {
  return static_cast<int>(blockIdx.x) * args.heads + slot;
}
/// A head of a block, and its group.
struct Head {
  int batch, head, group;

  __device__ Head(const FusedArgs& args, int slot) {
    const int nheads = static_cast<int>(args.in.scan.nheads);
    batch = item_of(args, slot) / nheads;
    head = item_of(args, slot) - batch * nheads;
    group = head / static_cast<int>(args.in.scan.nheads / args.in.scan.groups);
  }
};

/// Whether its sequence has a chunk. (A number of chunks, which all roles share, would be kept in memory.)
__device__ inline bool has_chunk(const FusedArgs& args, int chunk) {
  return chunk * kSteps < static_cast<int>(args.in.scan.seqlen);
}

/// The positions in rings of a power of two of slots, by a count of chunks: in one register.
struct ChunkCount {
  std::uint32_t count = 0;

  __device__ void advance() { ++count; }
  template <int kDepth>
  __device__ operator hopper::RingPosition<kDepth>() const {
    static_assert((kDepth & (kDepth - 1)) == 0);
    return {count % kDepth, count / kDepth & 1};
  }
};

extern __shared__ unsigned char dynamic_shared[];

template <class T>
struct SharedMemory {
  using Layout = typename T::Layout;
  using Parts = hopper::Ring<kPartDepth>;
  using Turned = hopper::Ring<kTurnedDepth>;
  using StepInputs = hopper::Ring<kStepDepth>;
  using Rates = hopper::Ring<kRateDepth>;
  using Turns = hopper::Ring<kTurnDepth>;
  using Scalars = hopper::Ring<kScalarDepth>;

  std::uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023U;  ///< aligned to 1024

  __device__ Parts parts() const { return {base + Layout::kBarriers}; }
  __device__ Turned turned(int head) const {
    return {base + Layout::kBarriers + Parts::kBytes + head * Layout::kHeadBarrierBytes};
  }
  __device__ StepInputs step_inputs(int head) const { return {turned(head).barriers + Turned::kBytes}; }
  __device__ Rates rates(int head) const { return {step_inputs(head).barriers + StepInputs::kBytes}; }
  __device__ Turns turns(int head) const { return {rates(head).barriers + Rates::kBytes}; }
  __device__ Scalars scalars(int head) const { return {turns(head).barriers + Turns::kBytes}; }

  __device__ std::uint32_t part(Parts::Position at) const { return base + Layout::kRaw + at.slot * kPart; }
  /// q; k is kOperand on.
  __device__ std::uint32_t q_tile(int head, Turned::Position at) const {
    return base + Layout::kTurned + (head * kTurnedDepth + at.slot) * 2 * kOperand;
  }
  __device__ std::uint32_t v_tile(int head, StepInputs::Position at) const {
    return base + Layout::kStepInputs + (head * kStepDepth + at.slot) * 2 * kStepTile;
  }
  __device__ std::uint32_t z_tile(int head, StepInputs::Position at) const {
    return v_tile(head, at) + kStepTile;
  }
  /// [step][pair]
  __device__ std::uint32_t rate_tile(int head, Rates::Position at) const {
    return base + Layout::kRateTiles + (head * kRateDepth + at.slot) * Layout::kRates;
  }
  /// Cosine and sine, [step][turn_slot].
  __device__ std::uint32_t turn_tile(int head, Turns::Position at) const {
    return base + Layout::kTurnTiles + (head * kTurnDepth + at.slot) * Layout::kTurns;
  }
  /// M of a head.
  __device__ std::uint32_t mask_tile(int head) const { return base + Layout::kMasks + head * kTile; }
  /// In f16: what each warp's 16 rows of M were multiplied with.
  __device__ float* mask_scales(int head) const {
    return at_address<float>(base + Layout::kMaskScales) + kGroupWarps * head;
  }
  /// The first row of a head and sequence in `out`, of rows of headdim.
  __device__ std::int64_t& first_row(int head) const {
    return at_address<std::int64_t>(base + Layout::kFirstRows)[head];
  }
  __device__ std::uint32_t table(int head, Factor which) const {
    return base + Layout::kFactors + (head * kTables + static_cast<int>(which)) * kTableBytes;
  }
  __device__ ChunkScalars& scalars_of(int head, Scalars::Position at) const {
    return *at_address<ChunkScalars>(base + Layout::kScalars +
                                     (head * kScalarDepth + at.slot) * Layout::kScalarBytes);
  }
  /// What lies at an address of shared memory. From the array's own address, so that the compiler knows the
  /// address space.
  template <class Element>
  __device__ Element* at_address(std::uint32_t address) const {
    return reinterpret_cast<Element*>(dynamic_shared + (address - shared_address(dynamic_shared)));
  }

  /// By one thread. Every lane arrives for what it wrote or read by ordinary accesses: racecheck follows no
  /// other order.
  __device__ void init_barriers(int heads) const {
    constexpr int kTurningWarps = T::kPairs == 32 ? 2 : 4;
    const int angle_warps = heads == 2 ? 1 : 2;
    parts().init(1, kGroupWarps * heads);
    for (int head = 0; head < heads; ++head) {
      turned(head).init(kGroupWarps, kGroupWarps);
      step_inputs(head).init(1, kGroupWarps);
      rates(head).init(1, angle_warps);
      turns(head).init(32 * angle_warps, 32 * kTurningWarps);
      scalars(head).init(kSteps, 32 * kGroupWarps);
    }
    hopper::barrier_init_fence();
  }
};

/// Index of a thread in the block. Volatile, so that each role takes its own, and again where no register is
/// left to keep it in. Unsigned: its parts take an instruction each.
__device__ inline unsigned block_thread() {
  unsigned thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
/// In its warpgroup.
__device__ inline int group_thread() {
  return static_cast<int>(block_thread() % kGroupThreads);
}
/// Which of the block's heads a warpgroup has that turns or scans.
template <class T>
__device__ int head_slot() {
  const auto of_role = static_cast<int>(block_thread() / kGroupThreads) - 1;
  return of_role % T::kHeads;
}

/// What is the same of all lanes, so that the compiler knows it to be.
__device__ inline int uniform(int of_lane) {
  return __shfl_sync(kAllLanes, of_lane, 0);
}

/// Arrives for the warp, once all its lanes are here.
__device__ inline void warp_arrive(std::uint32_t barrier, int lane) {
  __syncwarp();
  if (lane == 0) hopper::barrier_arrive(barrier);
}

}  // namespace ssmbench::mamba3_fused
