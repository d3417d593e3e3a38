#pragma once

// Shared memory of the scan that rotates q and k itself (rotated_scan.cuh has the picture), and what its roles
// share. An item is one or two row tiles whose heads read the same Q and K.

#include <cstdint>

#include "kernels/mamba3/hopper/prepare.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::mamba3_hopper {

using ssd_hopper::HopperArgs;
using ssd_hopper::Item;
using ssd_hopper::kGroupThreads;
using ssd_hopper::kRows;
using ssd_hopper::kSteps;
using ssd_hopper::kTile;
using ssd_hopper::kWarpsOfGroup;
using ssd_hopper::Plan;
using ssd_hopper::Segment;

inline constexpr int kMostHeads = 2;  ///< row tiles of a block
inline constexpr int kPhaseBytes = kSteps * kRotatedPairs * 2;

/// Slots of the ring buffers, for each head but for Q and K, which both share.
struct RotatedDepths {
  static constexpr int kRaw = 1;    ///< Q, K
  static constexpr int kLoads = 2;  ///< phases, V, Z
  static constexpr int kKeys = 1;   ///< k of a head
  static constexpr int kX = kLoads;
  static constexpr int kGates = kLoads;
  static constexpr int kState = 2;
  static constexpr int kScalars = 2;
};

/// What the outputs of a head keep for a segment, having no registers for it.
struct alignas(8) OfHead {
  float skip;           ///< D
  std::uint32_t until;  ///< chunks of the block up to the segment's end
};

/// Offsets in bytes; tiles are aligned to 1024. What heads have of their own lies one head behind the other.
template <int kPaddedStates>
struct RotatedLayout {
  using Depth = RotatedDepths;
  static constexpr int kStates = kPaddedStates;
  static constexpr int kHalves = kStates / 64;
  static constexpr int kRow = kHalves * kTile;  ///< Q, K, k or a state

  static constexpr int kRawK = 0;
  static constexpr int kRawQ = kRawK + Depth::kRaw * kRow;
  static constexpr int kKeys = kRawQ + Depth::kRaw * kRow;
  static constexpr int kX = kKeys + kMostHeads * Depth::kKeys * kRow;
  static constexpr int kGates = kX + kMostHeads * Depth::kX * kTile;
  static constexpr int kState = kGates + kMostHeads * Depth::kGates * kTile;
  static constexpr int kPhases = kState + kMostHeads * Depth::kState * kRow;
  static constexpr int kScalars = kPhases + kMostHeads * Depth::kLoads * kPhaseBytes;
  static constexpr int kAngles =
      kScalars + kMostHeads * Depth::kScalars * static_cast<int>(sizeof(ssd_hopper::ChunkScalars));
  static constexpr int kStateScales = kAngles + kMostHeads * Depth::kScalars * kRotatedPairs * 4;
  static constexpr int kBiases = kStateScales + kMostHeads * Depth::kState * ssd_hopper::kStateScalesBytes;
  static constexpr int kOfHeads = kBiases + kMostHeads * 2 * kStates * 4;
  static constexpr int kBarriers = kOfHeads + kMostHeads * static_cast<int>(sizeof(OfHead));
  static constexpr int kBarrierBytes =
      2 * 16 * Depth::kRaw +
      kMostHeads *
          (16 * (2 * Depth::kLoads + Depth::kKeys + Depth::kState + Depth::kScalars) + 24 * Depth::kGates);
  static constexpr int kBytes = kBarriers + kBarrierBytes + 1024;  // the start is not aligned to 1024
  static_assert(kBytes <= ssd_hopper::kMaxBlockBytes);
};

/// The positions in rings of one and two slots, by a count of chunks: in one register.
struct ChunkCount {
  std::uint32_t count = 0;

  __device__ void advance() { ++count; }
  __device__ operator hopper::RingPosition<1>() const { return {0, count & 1}; }
  __device__ operator hopper::RingPosition<2>() const { return {count & 1, count >> 1 & 1}; }
};

/// The states of pair slots: in k, q and the state the first 64 columns are not in the order of the states. Lane
/// t of a fragment, which has pairs t + 4m of them, m = 0 … 7, has those of the states 16t … 16t + 15 there, which
/// lie together in Q, in phases and biases.
template <class Element, int kPaddedStates, bool kHasGates, int kItemHeads>
struct RotatedTraits
    : ssd_hopper::GivenTraits<Element, ssd_hopper::Pass::outputs, kItemHeads, kPaddedStates, kHasGates> {
  static constexpr bool kRotated = true;
  static constexpr bool kStateScale = !kNarrowRange<Element>;
  using Layout = RotatedLayout<kPaddedStates>;
  using Depth = RotatedDepths;
  using Positions = ChunkCount;

  /// The state of a lane's first element of columns 8j …  of an accumulator.
  __device__ static int column_of(int j, int lane_of_row) {
    return j < 8 ? 16 * lane_of_row + 2 * j : 8 * j + 2 * lane_of_row;
  }
};
/// As producers see a block, and as a warpgroup sees its head.
template <class Element, int kPaddedStates, bool kHasGates>
using BlockTraits = RotatedTraits<Element, kPaddedStates, kHasGates, kMostHeads>;
template <class T>
using HeadTraits = RotatedTraits<typename T::Io, T::kStates, T::kGated, 1>;

}  // namespace ssmbench::mamba3_hopper

namespace ssmbench::ssd_hopper {

/// Of a block whose heads have warpgroups of their own. `head` is what they call their first.
template <class T>
requires(T::kRotated) struct SharedMemory<T> {
  using Layout = typename T::Layout;
  using Depth = typename T::Depth;
  using Raw = hopper::Ring<Depth::kRaw>;
  using Loads = hopper::Ring<Depth::kLoads>;
  using Projections = hopper::Ring<Depth::kKeys>;
  using X = hopper::Ring<Depth::kX>;
  using Gates = hopper::RelayRing<Depth::kGates>;
  using States = hopper::Ring<Depth::kState>;
  using Scalars = hopper::Ring<Depth::kScalars>;

  int head = 0;
  std::uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023U;

  __device__ explicit SharedMemory(int first = 0) : head(first) {}

  __device__ Raw raw_k() const { return {base + Layout::kBarriers}; }
  __device__ Raw raw_q() const { return {base + Layout::kBarriers + Raw::kBytes}; }
  __device__ Loads phases(int of) const { return {of_head(of)}; }
  /// k of a head: what the state and the outputs call B.
  __device__ Projections keys(int of) const { return {of_head(of) + Loads::kBytes}; }
  __device__ X x(int of) const { return {of_head(of) + Loads::kBytes + Projections::kBytes}; }
  __device__ States states(int of) const { return {x(of).barriers + X::kBytes}; }
  __device__ Scalars scalars(int of) const { return {states(of).barriers + States::kBytes}; }
  __device__ Gates gates(int of) const { return {{scalars(of).barriers + Scalars::kBytes}}; }

  __device__ void wait_projections(typename Projections::Position at) const { keys(0).wait_full(at); }
  __device__ void release_projections(typename Projections::Position at, int lane) const {
    __syncwarp();
    if (lane == 0) hopper::barrier_arrive(keys(0).empty(at));
  }
  __device__ void wait_state_slot(int of, typename States::Position at) const { states(of).wait_empty(at); }

  __device__ std::uint32_t raw_k_tile(typename Raw::Position at) const {
    return base + Layout::kRawK + at.slot * Layout::kRow;
  }
  __device__ std::uint32_t raw_q_tile(typename Raw::Position at) const {
    return base + Layout::kRawQ + at.slot * Layout::kRow;
  }
  /// [step][pair], 16 bits.
  __device__ std::uint32_t phase_tile(int of, typename Loads::Position at) const {
    return base + Layout::kPhases + ((head + of) * Depth::kLoads + at.slot) * mamba3_hopper::kPhaseBytes;
  }
  __device__ std::uint32_t b_tile(typename Projections::Position) const {
    return base + Layout::kKeys + head * Layout::kRow;
  }
  __device__ std::uint32_t x_tile(int of, typename X::Position at) const {
    return base + Layout::kX + ((head + of) * Depth::kX + at.slot) * kTile;
  }
  __device__ std::uint32_t gate_tile(int of, typename Gates::Position at) const {
    return base + Layout::kGates + ((head + of) * Depth::kGates + at.slot) * kTile;
  }
  __device__ std::uint32_t state_tile(int of, typename States::Position at) const {
    return base + Layout::kState + ((head + of) * Depth::kState + at.slot) * Layout::kRow;
  }
  __device__ ChunkScalars& scalars_of(int of, typename Scalars::Position at) const {
    return reinterpret_cast<ChunkScalars*>(
        pointer(Layout::kScalars))[(head + of) * Depth::kScalars + at.slot];
  }
  /// Angles before the chunk, as floats that phases are added to (angle_for_phases).
  __device__ float* angles(int of, typename Scalars::Position at) const {
    return reinterpret_cast<float*>(pointer(Layout::kAngles)) +
           ((head + of) * Depth::kScalars + at.slot) * mamba3_hopper::kRotatedPairs;
  }
  __device__ float* state_scales(int of, typename States::Position at) const {
    return reinterpret_cast<float*>(pointer(Layout::kStateScales)) +
           4 * ((head + of) * Depth::kState + at.slot);
  }
  __device__ float* key_biases() const {
    return reinterpret_cast<float*>(pointer(Layout::kBiases)) + 2 * head * Layout::kStates;
  }
  __device__ float* query_biases() const { return key_biases() + Layout::kStates; }
  __device__ mamba3_hopper::OfHead& of_head() const {
    return reinterpret_cast<mamba3_hopper::OfHead*>(pointer(Layout::kOfHeads))[head];
  }
  template <class Element>
  __device__ Element* at_address(std::uint32_t address) const {
    return reinterpret_cast<Element*>(pointer(static_cast<int>(address - base)));
  }

  /// By one thread. `heads`: that the block has.
  __device__ void init_barriers(int heads) const {
    constexpr int kReaders = kWarpsOfGroup;
    raw_k().init(1, kReaders * heads);
    raw_q().init(1, kReaders * heads);
    for (int of = 0; of < heads; ++of) {
      phases(of).init(1, 2 * kReaders);
      keys(of).init(kReaders, 2 * kReaders);
      x(of).init(1, 2 * kReaders);
      states(of).init(kReaders, kReaders);
      scalars(of).init(32, 2 * 32 * kReaders);
      gates(of).init(1, kReaders, 1);
    }
    hopper::barrier_init_fence();
  }

 private:
  static constexpr int kHeadBarriers =
      Loads::kBytes + Projections::kBytes + X::kBytes + States::kBytes + Scalars::kBytes + Gates::kBytes;
  __device__ std::uint32_t of_head(int of) const {
    return base + Layout::kBarriers + 2 * Raw::kBytes + (head + of) * kHeadBarriers;
  }
  __device__ unsigned char* pointer(int offset) const {
    return dynamic_shared + (base - shared_address(dynamic_shared)) + offset;
  }
};

}  // namespace ssmbench::ssd_hopper

namespace ssmbench::mamba3_hopper {
using ssd_hopper::SharedMemory;
}
