#pragma once

#include "kernels/common/hardware.h"
#include "kernels/common/hopper/mbarrier.cuh"
#include "kernels/common/hopper/tf32_tiles.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/ssd_chunk_scan/chunked/map.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

// What the roles of a block share in the kernel for f32 tensors: shared memory and its ring buffers.

namespace ssmbench::ssd_hopper::tf32 {

inline constexpr int kHeads = 2;  ///< row tiles of an item, a consumer warpgroup each
inline constexpr int kTileColumns = hopper::kTf32Columns;
inline constexpr int kTileRow = hopper::kTf32RowBytes;
inline constexpr int kTile = kSteps * kTileRow;
inline constexpr int kSquare = kRows / kTileColumns * kTile;  ///< 64 × 64 floats: two tiles side by side
inline constexpr int kTransposingWarps = 2;
using Scalars = ::ssmbench::ChunkScalars;

template <Pass kBlockPass, int kPaddedStates>
struct Traits {
  static constexpr Pass kPass = kBlockPass;
  static constexpr bool kOutputs = kPass == Pass::outputs;
  static constexpr int kStates = kPaddedStates;  ///< N, padded: 64 or 128
  /// Slots of B, of B transposed and of x. One is filled again while the rest of its chunk is computed.
  static constexpr int kDepth = kOutputs ? 1 : 2;
  static constexpr int kScalarsDepth = 2;
};

/// Offsets in bytes; tiles are aligned to 1024.
template <class T>
struct Layout {
  static constexpr int kProjection = T::kStates / kTileColumns * kTile;  ///< 64 steps of B or C
  static constexpr int kTransposedTile = T::kStates * kTileRow;          ///< of 32 steps
  static constexpr int kTransposed = kSteps / kTileColumns * kTransposedTile;

  static constexpr int kB = 0;
  static constexpr int kBTransposed = kB + T::kDepth * kProjection;
  static constexpr int kX = kBTransposed + T::kDepth * kTransposed;
  static constexpr int kC = kX + kHeads * T::kDepth * kSquare;
  static constexpr int kGates = kC + (T::kOutputs ? kProjection : 0);
  static constexpr int kMasked = kGates + (T::kOutputs ? kHeads * kSquare : 0);
  static constexpr int kScalars = kMasked + (T::kOutputs ? kHeads * kSquare : 0);
  static constexpr int kBarriers = kScalars + kHeads * T::kScalarsDepth * static_cast<int>(sizeof(Scalars));
  static constexpr int kBytes = kBarriers + 256 + 1024;  // the start is not aligned to 1024
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
};

template <class T>
struct SharedMemory {
  using Offsets = Layout<T>;
  using Ring = hopper::Ring<T::kDepth>;  ///< of B, of B transposed, of x
  using Single = hopper::Ring<1>;        ///< of C, of z and out
  using ScalarRing = hopper::Ring<T::kScalarsDepth>;

  std::uint32_t base = (shared_address(dynamic_shared) + 1023) / 1024 * 1024;

  __device__ Ring b() const { return {barriers()}; }
  __device__ Ring transposed() const { return {barriers() + Ring::kBytes}; }
  __device__ Ring x(int head) const { return {barriers() + (2 + head) * Ring::kBytes}; }
  __device__ ScalarRing scalars(int head) const {
    return {barriers() + (2 + kHeads) * Ring::kBytes + head * ScalarRing::kBytes};
  }
  __device__ Single c() const { return {after_scalars()}; }
  __device__ Single gates(int head) const { return {after_scalars() + (1 + head) * Single::kBytes}; }

  __device__ std::uint32_t b_tile(typename Ring::Position at) const {
    return base + Offsets::kB + at.slot * Offsets::kProjection;
  }
  __device__ std::uint32_t transposed_tile(typename Ring::Position at) const {
    return base + Offsets::kBTransposed + at.slot * Offsets::kTransposed;
  }
  __device__ std::uint32_t x_tile(int head, typename Ring::Position at) const {
    return base + Offsets::kX + (head * T::kDepth + at.slot) * kSquare;
  }
  __device__ std::uint32_t c_tile() const { return base + Offsets::kC; }
  /// z, and out over it.
  __device__ std::uint32_t gate_tile(int head) const { return base + Offsets::kGates + head * kSquare; }
  /// M of a head, [t][s], s in the order of time_place().
  __device__ std::uint32_t masked_tile(int head) const { return base + Offsets::kMasked + head * kSquare; }
  __device__ Scalars& scalars_of(int head, typename ScalarRing::Position at) const {
    return reinterpret_cast<Scalars*>(pointer(base + Offsets::kScalars))[head * T::kScalarsDepth + at.slot];
  }
  /// What lies at an address of shared memory; from the array's own, so that the compiler knows the address space.
  __device__ unsigned char* pointer(std::uint32_t address) const {
    return dynamic_shared + (address - shared_address(dynamic_shared));
  }

  /// By one thread.
  __device__ void init_barriers() const {
    constexpr int kConsumerWarps = kHeads * kWarpsOfGroup;
    b().init(1, kTransposingWarps + (T::kOutputs ? kConsumerWarps : 0));
    transposed().init(kTransposingWarps, kConsumerWarps);
    for (int head = 0; head < kHeads; ++head) {
      x(head).init(1, kWarpsOfGroup);
      scalars(head).init(32, kGroupThreads);  // each lane for what it wrote or read
      gates(head).init(1, 1);
    }
    c().init(1, kConsumerWarps);
    hopper::barrier_init_fence();
  }

 private:
  __device__ std::uint32_t barriers() const { return base + Offsets::kBarriers; }
  __device__ std::uint32_t after_scalars() const {
    return barriers() + (2 + kHeads) * Ring::kBytes + kHeads * ScalarRing::kBytes;
  }
};

}  // namespace ssmbench::ssd_hopper::tf32
