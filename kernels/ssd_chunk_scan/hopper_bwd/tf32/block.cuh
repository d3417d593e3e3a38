#pragma once

#include "kernels/common/hardware.h"
#include "kernels/common/hopper/mbarrier.cuh"
#include "kernels/common/hopper/tf32_tiles.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"

// What the kernels for gradients of f32 tensors share: tiles, shared memory of the gradient kernel, its
// barriers.

namespace ssmbench::ssd_hopper_bwd::tf32 {

inline constexpr int kStates = 128;  ///< N, padded
inline constexpr int kTileColumns = hopper::kTf32Columns;
inline constexpr int kTileRow = hopper::kTf32RowBytes;
inline constexpr int kTile = kSteps * kTileRow;
inline constexpr int kSquare = 2 * kTile;  ///< 64 × 64 floats, two tiles side by side
inline constexpr int kProjection = kStates / kTileColumns * kTile;  ///< 64 steps of B or C
inline constexpr int kImageHalf = kStates * kTileRow;               ///< 32 columns p of a state
inline constexpr int kImage = 2 * kImageHalf;

/// The row of a state's image that has column n of the state: what a thread has of an image as an operand
/// (hopper::TransposedElements) are then columns t and t + 4, as it has them of C and B.
__device__ constexpr int image_row(int n) {
  return (n & ~7) + n % 4 * 2 + n / 4 % 2;
}

using Elements = hopper::TransposedElements;  ///< of a square, or of an image of a state

/// What a head leaves for ddt, dA and dD (write_flows). Sums by warp are over 16 rows.
struct alignas(16) Flows {
  float out[kWarpsOfGroup][kSteps];   ///< dy·y of what y has from the state
  float rows[kWarpsOfGroup][kSteps];  ///< row sums of W, without the diagonal
  float into[kWarpsOfGroup][kSteps];  ///< x·(S'·B)·leave
  float column[kSteps];               ///< column sums of W/Δ, without the diagonal
  float diagonal[kSteps];             ///< of W/Δ
  float skip[kSteps];                 ///< per column p, dy·x
  float delta[kSteps];
  float decay[4];  ///< of the chunk; the first
};

/// Offsets in bytes; tiles are aligned to 1024.
struct Layout {
  static constexpr int kB = 0;
  static constexpr int kC = kB + kProjection;
  /// Two slots, which a head's x and dout, and its S, have in turn.
  static constexpr int kSlots = kC + kProjection;
  static constexpr int kSlot = kImage;
  static constexpr int kDstate = kSlots + 2 * kSlot;
  static constexpr int kGate = kDstate + kImage;      ///< z
  static constexpr int kRounded = kGate + kSquare;    ///< dy, rounded, then M as [t][s], then dz
  static constexpr int kMixing = kRounded + kSquare;  ///< M as [s][t]
  static constexpr int kStepRows = kMixing + kSquare;
  static constexpr int kFlows = kStepRows + 2 * kStepsBytes;
  static constexpr int kQ = kFlows + static_cast<int>(sizeof(Flows));
  static constexpr int kBarriers = kQ + static_cast<int>(sizeof(OwnTriangle));
  static constexpr int kBytes = kBarriers + 256 + 1024;  // the start is not aligned to 1024
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
};

struct SharedMemory {
  using Ring = hopper::Ring<1>;
  using Position = hopper::RingPosition<1>;

  std::uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023U;

  __device__ std::uint32_t projections_full() const { return base + Layout::kBarriers; }
  __device__ Ring inputs() const { return {base + Layout::kBarriers + 8}; }       ///< x, dout and the steps
  __device__ Ring gates() const { return {inputs().barriers + Ring::kBytes}; }    ///< z
  __device__ Ring states() const { return {gates().barriers + Ring::kBytes}; }    ///< S
  __device__ Ring dstates() const { return {states().barriers + Ring::kBytes}; }  ///< S'
  __device__ Ring flows() const { return {dstates().barriers + Ring::kBytes}; }
  /// Says that keys have written Q, after the last head.
  __device__ std::uint32_t q_full() const { return flows().barriers + Ring::kBytes; }

  __device__ std::uint32_t tile(int offset) const { return base + offset; }
  /// From the array's own address, so that the compiler knows the address space.
  __device__ unsigned char* pointer(int offset) const {
    return dynamic_shared + (base - shared_address(dynamic_shared)) + offset;
  }
  /// Offsets of what a head has in the slots.
  __device__ static int x(Position at) {
    return Layout::kSlots + static_cast<int>(at.parity) * Layout::kSlot;
  }
  __device__ static int dout(Position at) { return x(at) + kSquare; }  ///< dout, then dy, then dx
  __device__ static int state(Position at) {
    return Layout::kSlots + static_cast<int>(at.parity ^ 1) * Layout::kSlot;
  }
  __device__ static int step_rows(Position at) {
    return Layout::kStepRows + static_cast<int>(at.parity) * kStepsBytes;
  }
  /// Rows kStepDelta … kStepLeave.
  __device__ const float (&steps(Position at) const)[4][kSteps] {
    return *reinterpret_cast<const float(*)[4][kSteps]>(pointer(step_rows(at)));
  }
  __device__ Flows& flows_of_head() const { return *reinterpret_cast<Flows*>(pointer(Layout::kFlows)); }
  /// Q of a lane of the keys, transposed: of fragment `fragment` of warp `warp`, which has those from 2·warp
  /// on.
  __device__ float4& q(int warp, int fragment, int lane) const {
    auto& of_rows = *reinterpret_cast<OwnTriangle*>(pointer(Layout::kQ));
    return of_rows.at(kWarpsOfGroup - 1 - warp, fragment - 2 * warp, lane);
  }

  /// By one thread.
  __device__ void init_barriers() const {
    hopper::barrier_init(projections_full(), 1);
    inputs().init(1, 2 * kGroupThreads);  // each lane for what it read or wrote
    gates().init(1, kWarpsOfGroup);
    states().init(1, kGroupThreads + 32);  // and those that make ⟨S', S⟩
    dstates().init(1, kGroupThreads + 32);
    flows().init(2 * kGroupThreads, 32);
    hopper::barrier_init(q_full(), kGroupThreads);  // each lane for what it wrote
    hopper::barrier_init_fence();
  }
};

/// Barriers of the two warpgroups; barrier 0 is the block's.
enum class Meeting {
  rounded = 1,  ///< dy is there: both meet
  mixing,       ///< keys have written M, for which queries wait
  gradients,    ///< queries have read dy, before keys write dx over it
  queries,      ///< of the warpgroup of queries
  keys          ///< of that of keys
};
/// Not the aligned form, bar.sync: roles come from loops of their own, and their lanes from waits.
template <Meeting kMeeting, int kThreadsOfIt>
__device__ __forceinline__ void meet() {
  asm volatile("barrier.sync %0, %1;\n" ::"n"(static_cast<int>(kMeeting)), "n"(kThreadsOfIt) : "memory");
  __syncwarp();
}
/// Arrives at a meeting of both warpgroups and goes on.
template <Meeting kMeeting>
__device__ __forceinline__ void announce() {
  asm volatile("barrier.arrive %0, %1;\n" ::"n"(static_cast<int>(kMeeting)), "n"(2 * kGroupThreads)
               : "memory");
}

}  // namespace ssmbench::ssd_hopper_bwd::tf32
