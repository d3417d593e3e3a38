#pragma once

#include <cuda.h>

#include <type_traits>

#include "kernels/common/hopper/cluster.cuh"
#include "kernels/common/hopper/fragments.cuh"
#include "kernels/common/hopper/mbarrier.cuh"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/handed.h"
#include "kernels/ssd_chunk_scan/hopper/layout.h"
#include "kernels/ssd_chunk_scan/hopper/packed.h"
#include "kernels/ssd_chunk_scan/scaled.cuh"
#include "kernels/ssd_chunk_scan/sequences.h"

// What the roles of a block share: arguments, shared memory and its ring buffers.

namespace ssmbench::ssd_hopper {

/// What steps weigh, given for each one: f32, (B, H, L).
struct GivenWeights {
  const float* log_decay;  ///< in place of Δ·A
  const float* later;      ///< what x ⊗ B of a step weighs for later ones, in place of Δ
  const float* own;        ///< and for its own, on M's diagonal
  /// Where T::kRanked: a step is 2^rank_shift ≤ 8 rows of x, B, C and out, which all see one another. seqlen
  /// counts rows.
  int rank_shift;
  float* rows;  ///< then, in place of out: (B, rows, H, P)
};

/// What turns B and C of a group for each of its heads, in place, where T::kRotated.
struct Rotation {
  CUtensorMap phases;  ///< (B, L, H, S): of steps within their chunks, 2^-16 turns
  /// (B, chunks, H, S): what chunks add, 2^-32 turns. Packed sequences have theirs from packed_slot() on.
  const std::uint32_t* of_chunks;
  int heads_per_group, angles;
  const float* B_bias;       ///< (H, N)
  const float* C_bias;       ///< (H, N)
  const float* input_angle;  ///< (B, H, S) or null
  float* final_angle;        ///< (B, H, S) or null
  float* final_B;            ///< (B, H, N) or null: the last step's, not rounded; not where there is none
};

/// Arguments of the kernel.
struct HopperArgs {
  CUtensorMap x, B, C, z, out;  ///< (B, L, H, P) and (B, L, G, N), of z only where it exists
  SsdArgs ssd;
  Plan plan;
  HandedStates handed;
  GivenWeights given;  ///< where T::kGiven; then dt, A, dt_bias and seq_idx are not read
  Rotation rotation;
};

/// Tiles of 1, 2, 4 … 32 rows of a tensor, for the ends of sequences.
struct RowMaps {
  CUtensorMap of_rows[kRowMaps];
};
/// Of packed sequences, in a batch of 1. The plan is of one of them.
struct PackedArgs : HopperArgs {
  const std::int32_t* cu_seqlens;
  PackedStart* starts;  ///< of the blocks
  /// Where items are in parts: the first block of each item of each sequence, and behind the last.
  std::int32_t* firsts;
  int stop_count;
  PackedStop* stops;        ///< in the order of their steps
  PackedStop* first_stops;  ///< of each sequence
  float* stop_states;       ///< (stop_count, H, P, N)
  RowMaps x_rows, B_rows, C_rows, out_rows;
};

template <class Element, Pass kBlockPass, int kItemHeads, int kPaddedStates, bool kHasGates>
struct Traits {
  using Io = Element;
  using Args = HopperArgs;
  static constexpr Pass kPass = kBlockPass;
  static constexpr int kHeads = kItemHeads;      ///< row tiles of an item
  static constexpr int kStates = kPaddedStates;  ///< N, padded
  static constexpr bool kGated = kHasGates;      ///< z exists
  static constexpr bool kScaled = kNarrowRange<Io>;
  static constexpr bool kGiven = false;    ///< weights of steps are given, not computed from dt and A
  static constexpr bool kRanked = false;   ///< they are, and a step has several rows
  static constexpr bool kRotated = false;  ///< they are, and B and C of a group are rotated for each head
  static constexpr bool kPacked = false;   ///< sequences are packed
  static constexpr bool kStops = false;    ///< they are, and there are states on the way that are wanted
  static constexpr int kCluster = 1;       ///< blocks that share an item
  using Layout = ssd_hopper::Layout<kPass, kHeads, kStates>;
  using Depth = typename Layout::Depth;
};

template <class Element, Pass kBlockPass, int kItemHeads, int kPaddedStates, bool kHasGates,
          bool kHasStops = false>
struct PackedTraits : Traits<Element, kBlockPass, kItemHeads, kPaddedStates, kHasGates> {
  using Args = PackedArgs;
  static constexpr bool kPacked = true;
  static constexpr bool kStops = kHasStops;
};

/// Of a scan whose steps have given weights.
template <class Element, Pass kBlockPass, int kItemHeads, int kPaddedStates, bool kHasGates>
struct GivenTraits : Traits<Element, kBlockPass, kItemHeads, kPaddedStates, kHasGates> {
  static constexpr bool kGiven = true;
};
/// The same where a step has several rows; there are no gates.
template <class Element, Pass kBlockPass, int kItemHeads, int kPaddedStates>
struct RankedTraits : GivenTraits<Element, kBlockPass, kItemHeads, kPaddedStates, false> {
  static constexpr bool kRanked = true;
};

template <class Element, int kPaddedStates, bool kHasGates>
struct RotatedTraits : GivenTraits<Element, Pass::outputs, 1, kPaddedStates, kHasGates> {
  static constexpr bool kRotated = true;
  using Layout = ssd_hopper::Layout<Pass::outputs, 1, kPaddedStates, RotatedDepths>;
  using Depth = typename Layout::Depth;
};
/// A kernel's traits for packed sequences.
template <class OfWhole>
struct PackedOf : OfWhole {
  using Args = PackedArgs;
  static constexpr bool kPacked = true;
};

/// Of items of two tiles, one for each of the two blocks of a cluster. Each loads half of B and C for both.
template <class Element, Pass kBlockPass, int kPaddedStates, bool kHasGates>
struct PairTraits : Traits<Element, kBlockPass, 1, kPaddedStates, kHasGates> {
  static constexpr int kCluster = 2;
};

/// What the plan has for this block. Those of a cluster are one of the plan's, each with a tile of its items.
template <int kCluster>
class BlockPlan {
 public:
  __device__ explicit BlockPlan(const Plan& plan) : plan_(plan) {}
  __device__ int segments() const { return plan_.segments(block()); }
  __device__ Segment segment(int index) const { return plan_.segment(block(), index); }
  __device__ Item item(const Segment& of) const {
    Item item = plan_.item(of.item);
    if (kCluster == 2 && blockIdx.x % 2 == 1) item.first = item.second;
    return item;
  }
  /// Whether the segment is its item's last.
  __device__ bool ends(const Segment& of) const { return of.end >= plan_.chunks.value; }

 private:
  __device__ static int block() { return static_cast<int>(blockIdx.x) / kCluster; }
  const Plan& plan_;
};

/// The segments of this block, one after the other.
template <bool kPacked, int kCluster>
class Segments {
 public:
  __device__ explicit Segments(const HopperArgs& args) : plan_(args.plan) {}
  __device__ bool done() const { return index_ >= plan_.segments(); }
  __device__ void advance() { ++index_; }
  __device__ Segment segment() const { return plan_.segment(index_); }
  __device__ Item item(const Segment& of) const { return plan_.item(of); }
  __device__ bool ends(const Segment& of) const { return plan_.ends(of); }

 private:
  BlockPlan<kCluster> plan_;
  int index_ = 0;
};
template <class T>
using SegmentsOf = Segments<T::kPacked, T::kCluster>;

/// Of an item, b is the sequence: it has states of its own.
template <>
class Segments<true, 1> : public PackedSegments {
 public:
  __device__ explicit Segments(const PackedArgs& args)
      : PackedSegments(args.starts[blockIdx.x], args.plan.items, args.cu_seqlens), args_(args) {}
  __device__ Item item(const Segment& of) const {
    int index = of.item;
    asm volatile("" : "+r"(index));  // made again after a segment: no register is left to keep it in
    Item item = args_.plan.item(index);
    item.b = sequence();
    return item;
  }

 private:
  const PackedArgs& args_;
};

/// Warps or warpgroups share the chunks of an item's heads: each has one head, and every `kStride`th chunk.
template <int kHeads, int kStride>
struct Share {
  int index;  ///< 0 … kHeads · kStride − 1

  __device__ int head() const {
    if constexpr (kHeads == 1) return 0;
    return kStride == 1 ? index : index % 2;
  }
  /// Chunks from the count-th one to the next that it has.
  __device__ int until(int count) const {
    if constexpr (kStride == 1) return 0;
    const int own = kHeads == 2 ? index / 2 : index;
    return (own - count % kStride + kStride) % kStride;
  }
  __device__ bool has(int count) const { return until(count) == 0; }
};
/// Stride of two output warpgroups, and of the two warps that compute scalars for them.
template <int kHeads>
inline constexpr int kOutputStride = 3 - kHeads;
/// Stride of the warps that compute scalars in the pass of states, which uses up more than one warp makes.
inline constexpr int kPartsStride = 3;

inline constexpr int kWarpsOfGroup = 4;
inline constexpr int kGroupThreads = 32 * kWarpsOfGroup;
inline constexpr int kThreads = 4 * kGroupThreads;  ///< of a block: producers, states, two times outputs
inline constexpr int kStateThreads =
    3 * kGroupThreads;  ///< in the pass of states: two times producers, states

extern __shared__ unsigned char dynamic_shared[];

template <class T>
struct SharedMemory {
  using Layout = typename T::Layout;
  using Depth = typename T::Depth;

  std::uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023U;  ///< aligned to 1024

  /// With a rotation they are worked on in place.
  using Projections = std::conditional_t<T::kRotated, hopper::RelayRing<Depth::kProjections>,
                                         hopper::Ring<Depth::kProjections>>;
  using X = hopper::Ring<Depth::kX>;
  using Gates = hopper::RelayRing<Depth::kGates>;
  /// Two output warpgroups that take turns at one slot have a barrier each: of one alone, a warpgroup could
  /// take the end of the phase before its own for that of its own.
  static constexpr bool kTurns = T::kHeads == 1 && Depth::kState == 1;
  using States = hopper::Ring<kTurns ? 2 : Depth::kState>;
  using Scalars = hopper::Ring<Depth::kScalars>;

  __device__ Projections projections() const {
    if constexpr (T::kRotated)
      return {{base + Layout::kBarriers}};
    else
      return {base + Layout::kBarriers};
  }
  /// Until B and C are there, and rotated.
  __device__ void wait_projections(typename Projections::Position at) const {
    if constexpr (T::kRotated)
      projections().wait_done(at);
    else
      projections().wait_full(at);
  }
  __device__ X x(int head) const { return {after(Projections::kBytes) + head * X::kBytes}; }
  /// Filled with z, worked on by the output warpgroup, emptied as out.
  __device__ Gates gates(int head) const {
    return {{after(Projections::kBytes + T::kHeads * X::kBytes) + head * Gates::kBytes}};
  }
  __device__ States states(int head) const {
    return {after(Projections::kBytes + T::kHeads * (X::kBytes + Gates::kBytes)) + head * States::kBytes};
  }
  __device__ Scalars scalars(int head) const {
    return {after(Projections::kBytes + T::kHeads * (X::kBytes + Gates::kBytes + States::kBytes)) +
            head * Scalars::kBytes};
  }

  /// B of a slot; C lies behind it.
  __device__ std::uint32_t b_tile(typename Projections::Position at) const {
    return base + Layout::kProjections + at.slot * Layout::kProjectionSlot;
  }
  __device__ std::uint32_t c_tile(typename Projections::Position at) const {
    return b_tile(at) + Layout::kHalves * kTile;
  }
  __device__ std::uint32_t x_tile(int head, typename X::Position at) const {
    return base + Layout::kX + (head * Depth::kX + at.slot) * kTile;
  }
  __device__ std::uint32_t gate_tile(int head, typename Gates::Position at) const {
    return base + Layout::kGates + (head * Depth::kGates + at.slot) * kTile;
  }
  __device__ std::uint32_t state_tile(int head, typename States::Position at) const {
    return base + Layout::kState + (head * Depth::kState + state_slot(at)) * Layout::kStateSlot;
  }
  /// Until the outputs have done with a state that is in the way of this one.
  __device__ void wait_state_slot(int head, typename States::Position at) const {
    if constexpr (kTurns) {  // the one before
      if (at.slot == 0) at.parity ^= 1;
      at.slot ^= 1;
      hopper::barrier_wait(states(head).empty(at), at.parity);
    } else {
      states(head).wait_empty(at);
    }
  }
  __device__ ChunkScalars& scalars_of(int head, typename Scalars::Position at) const {
    return reinterpret_cast<ChunkScalars*>(pointer(Layout::kScalars))[head * Depth::kScalars + at.slot];
  }
  /// In f16: what 16 rows of a published state are to be multiplied with, for each warp's rows.
  __device__ float* state_scales(int head, typename States::Position at) const {
    return reinterpret_cast<float*>(pointer(Layout::kStateScales)) +
           4 * (head * Depth::kState + state_slot(at));
  }
  /// D of the rows that an output warpgroup works on, as float4 [j][lane % 4] for columns 16·j on.
  __device__ float* skip(int warpgroup) const {
    return reinterpret_cast<float*>(pointer(Layout::kSkip)) + warpgroup * kRows;
  }

  /// Phases of a slot, [step][pair].
  __device__ std::uint32_t phases(typename Projections::Position at) const {
    return b_tile(at) + 2 * Layout::kHalves * kTile;
  }
  /// What lies at an address of shared memory.
  template <class Element>
  __device__ Element* at_address(std::uint32_t address) const {
    return reinterpret_cast<Element*>(pointer(static_cast<int>(address - base)));
  }

  /// A warp has done with B and C of a slot. Both blocks of a cluster fill those of both.
  __device__ void release_projections(typename Projections::Position at, int lane) const {
    const std::uint32_t empty = projections().empty(at);
    __syncwarp();
    if constexpr (T::kCluster == 1) {
      if (lane == 0) hopper::barrier_arrive(empty);
    } else {
      if (lane < T::kCluster) hopper::cluster_barrier_arrive(empty, lane);
    }
  }

  /// By one thread.
  __device__ void init_barriers() const {
    constexpr int kReaders = kWarpsOfGroup;
    constexpr bool kOutputs = T::kPass == Pass::outputs;
    if constexpr (T::kRotated)
      projections().init(1, kRotatingWarps, kReaders * (1 + kOutputs * T::kHeads));
    else
      projections().init(1, T::kCluster * kReaders * (1 + kOutputs * T::kHeads));
    for (int head = 0; head < T::kHeads; ++head) {
      x(head).init(1, kReaders * (1 + kOutputs));
      if constexpr (kOutputs) {
        gates(head).init(1, kWarpsOfGroup, 1);
        states(head).init(kWarpsOfGroup, kReaders);
      }
      scalars(head).init(32, 32 * kReaders * (1 + kOutputs));  // each lane for what it wrote or read
    }
    hopper::barrier_init_fence();
  }

 private:
  /// From the array's own address, so that the compiler knows the address space.
  __device__ unsigned char* pointer(int offset) const {
    return dynamic_shared + (base - shared_address(dynamic_shared)) + offset;
  }
  __device__ static int state_slot(typename States::Position at) {
    return kTurns ? 0 : static_cast<int>(at.slot);
  }
  __device__ std::uint32_t after(int barrier_bytes) const {
    return base + Layout::kBarriers + static_cast<std::uint32_t>(barrier_bytes);
  }
};

/// Index of a thread in its warpgroup. Volatile, so that each role takes its own: one that all of them shared
/// would be kept in memory from before they part.
__device__ inline int group_thread() {
  int thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread % kGroupThreads;
}

/// Sets the flag of a giver of states, behind what the block's threads have written, once they have synchronized.
__device__ __forceinline__ void set_flag(const HandedStates& handed, std::int64_t giver) {
  asm volatile("st.release.gpu.global.u32 [%0], 1;\n" ::"l"(handed.flags + giver) : "memory");
}
__device__ __forceinline__ void wait_for_flag(const HandedStates& handed, std::int64_t giver) {
  unsigned flag = 0;
  while (flag == 0)
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(flag) : "l"(handed.flags + giver) : "memory");
}

/// Arrives for the warp, once all its lanes are here.
__device__ inline void warp_arrive(std::uint32_t barrier, int lane) {
  __syncwarp();
  if (lane == 0) hopper::barrier_arrive(barrier);
}

}  // namespace ssmbench::ssd_hopper
