#pragma once

#include "kernels/mamba3/hopper/pairs/layout.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

// What the roles of a block share: arguments, shared memory and its ring buffers.

namespace ssmbench::mamba3_pairs {

using ssd_hopper::HopperArgs;
using ssd_hopper::Item;
using ssd_hopper::kGroupThreads;
using ssd_hopper::kWarpsOfGroup;
using ssd_hopper::Plan;
using ssd_hopper::RowTile;
using ssd_hopper::Segment;
using ssd_hopper::warp_arrive;

template <class Element, int kPaddedStates, bool kHasGates>
struct Traits {
  using Io = Element;
  static constexpr int kStates = kPaddedStates;  ///< N, padded
  static constexpr bool kGated = kHasGates;      ///< Z exists
  static constexpr bool kScaled = kNarrowRange<Io>;
  static constexpr bool kRotated = true;  ///< as write_weights() asks
  using Layout = mamba3_pairs::Layout<kPaddedStates>;
};

/// The positions in rings of one and two slots, by a count of chunks: in one register.
struct ChunkCount {
  std::uint32_t count = 0;

  __device__ void advance() { ++count; }
  __device__ operator hopper::RingPosition<1>() const { return {0, count & 1}; }
  __device__ operator hopper::RingPosition<2>() const { return {count & 1, count >> 1 & 1}; }
};

template <class T>
struct SharedMemory {
  using Layout = typename T::Layout;
  using Raw = hopper::Ring<kRawDepth>;
  using Loads = hopper::Ring<kLoadDepth>;
  using Keys = hopper::Ring<kKeyDepth>;
  using Gates = hopper::RelayRing<kLoadDepth>;  ///< filled with z, worked on by the outputs, emptied as out
  using States = hopper::Ring<kStateDepth>;
  using Scalars = hopper::Ring<kScalarDepth>;

  std::uint32_t base = (shared_address(ssd_hopper::dynamic_shared) + 1023) & ~1023U;  ///< aligned to 1024

  __device__ Raw raw_k() const { return {base + Layout::kBarriers}; }
  __device__ Raw raw_q() const { return {base + Layout::kBarriers + Raw::kBytes}; }
  __device__ Loads phases(int head) const {
    return {base + Layout::kBarriers + 2 * Raw::kBytes + head * Layout::kHeadBarrierBytes};
  }
  __device__ Keys keys(int head) const { return {phases(head).barriers + Loads::kBytes}; }
  __device__ Loads x(int head) const { return {keys(head).barriers + Keys::kBytes}; }
  __device__ States states(int head) const { return {x(head).barriers + Loads::kBytes}; }
  __device__ Scalars scalars(int head) const { return {states(head).barriers + States::kBytes}; }
  __device__ Gates gates(int head) const { return {{scalars(head).barriers + Scalars::kBytes}}; }

  __device__ std::uint32_t raw_k_tile(Raw::Position at) const {
    return base + Layout::kRawK + at.slot * Layout::kRow;
  }
  __device__ std::uint32_t raw_q_tile(Raw::Position at) const {
    return base + Layout::kRawQ + at.slot * Layout::kRow;
  }
  /// [step][pair], 16 bits.
  __device__ std::uint32_t phase_tile(int head, Loads::Position at) const {
    return base + Layout::kPhases + (head * kLoadDepth + at.slot) * kPhaseBytes;
  }
  __device__ std::uint32_t key_tile(int head) const { return base + Layout::kKeys + head * Layout::kRow; }
  __device__ std::uint32_t x_tile(int head, Loads::Position at) const {
    return base + Layout::kX + (head * kLoadDepth + at.slot) * kTile;
  }
  __device__ std::uint32_t gate_tile(int head, Loads::Position at) const {
    return base + Layout::kGates + (head * kLoadDepth + at.slot) * kTile;
  }
  __device__ std::uint32_t state_tile(int head, States::Position at) const {
    return base + Layout::kState + (head * kStateDepth + at.slot) * Layout::kRow;
  }
  __device__ HeadScalars& scalars_of(int head, Scalars::Position at) const {
    return reinterpret_cast<HeadScalars*>(pointer(Layout::kScalars))[head * kScalarDepth + at.slot];
  }
  /// In f16: what 16 rows of a published state are to be multiplied with, for each warp's rows.
  __device__ float* state_scales(int head, States::Position at) const {
    return reinterpret_cast<float*>(pointer(Layout::kStateScales)) + 4 * (head * kStateDepth + at.slot);
  }
  __device__ float* key_biases(int head) const {
    return reinterpret_cast<float*>(pointer(Layout::kBiases)) + 2 * head * Layout::kStates;
  }
  __device__ float* query_biases(int head) const { return key_biases(head) + Layout::kStates; }
  __device__ OfHead& of_head(int head) const {
    return reinterpret_cast<OfHead*>(pointer(Layout::kOfHeads))[head];
  }
  /// What lies at an address of shared memory.
  template <class Element>
  __device__ Element* at_address(std::uint32_t address) const {
    return reinterpret_cast<Element*>(pointer(static_cast<int>(address - base)));
  }

  /// By one thread.
  __device__ void init_barriers() const {
    constexpr int kReaders = kWarpsOfGroup;
    raw_k().init(1, kReaders * kHeads);
    raw_q().init(1, kReaders * kHeads);
    for (int head = 0; head < kHeads; ++head) {
      phases(head).init(1, 2 * kReaders);
      keys(head).init(kReaders, 2 * kReaders);
      x(head).init(1, 2 * kReaders);
      states(head).init(kReaders, kReaders);
      scalars(head).init(32, 2 * 32 * kReaders);  // each lane for what it wrote or read
      gates(head).init(1, kReaders, 1);
    }
    hopper::barrier_init_fence();
  }

 private:
  /// From the array's own address, so that the compiler knows the address space.
  __device__ unsigned char* pointer(int offset) const {
    return ssd_hopper::dynamic_shared + (base - shared_address(ssd_hopper::dynamic_shared)) + offset;
  }
};

/// Index of a thread in its warpgroup. Volatile, so that each role takes its own, and again where no register
/// is left to keep it in. Unsigned at first: its parts take an instruction each.
__device__ inline int group_thread() {
  unsigned thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return static_cast<int>(thread % kGroupThreads);
}

}  // namespace ssmbench::mamba3_pairs
