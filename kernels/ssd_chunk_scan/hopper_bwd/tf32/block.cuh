#pragma once

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
  static constexpr int kState = kC + kProjection;
  static constexpr int kDstate = kState + kImage;
  static constexpr int kX = kDstate + kImage;
  static constexpr int kGate = kX + kSquare;          ///< z, then M as [t][s], then dz
  static constexpr int kDout = kGate + kSquare;       ///< dout, then dy, then dx
  static constexpr int kRounded = kDout + kSquare;    ///< dy, rounded
  static constexpr int kMixing = kRounded + kSquare;  ///< M as [s][t]
  static constexpr int kStepRows = kMixing + kSquare;
  static constexpr int kFlows = kStepRows + kStepsBytes;
  static constexpr int kFlowsDepth = 1;
  static constexpr int kQ = kFlows + kFlowsDepth * static_cast<int>(sizeof(Flows));
  static constexpr int kBarriers = kQ + static_cast<int>(sizeof(OwnTriangle));
  static constexpr int kBytes = kBarriers + 256 + 1024;  // the start is not aligned to 1024
  static_assert(kBytes <= kMaxBlockBytes);
};

struct SharedMemory {
  using Inputs = hopper::Ring<1>;  ///< x, z, dout and the steps
  using States = hopper::Ring<1>;  ///< S and S'
  using FlowsRing = hopper::Ring<Layout::kFlowsDepth>;

  std::uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023U;

  __device__ std::uint32_t projections_full() const { return base + Layout::kBarriers; }
  __device__ Inputs inputs() const { return {base + Layout::kBarriers + 8}; }
  __device__ States states() const { return {inputs().barriers + Inputs::kBytes}; }
  __device__ FlowsRing flows() const { return {states().barriers + States::kBytes}; }

  __device__ std::uint32_t tile(int offset) const { return base + offset; }
  /// From the array's own address, so that the compiler knows the address space.
  __device__ unsigned char* pointer(int offset) const {
    return dynamic_shared + (base - shared_address(dynamic_shared)) + offset;
  }
  /// Rows kStepDelta … kStepLeave.
  __device__ const float (&steps() const)[4][kSteps] {
    return *reinterpret_cast<const float(*)[4][kSteps]>(pointer(Layout::kStepRows));
  }
  /// Q of a lane of the keys, transposed: of fragment `fragment` of warp `warp`, which has those from 2·warp
  /// on.
  __device__ float4& q(int warp, int fragment, int lane) const {
    auto& of_rows = *reinterpret_cast<OwnTriangle*>(pointer(Layout::kQ));
    return of_rows.at(kWarpsOfGroup - 1 - warp, fragment - 2 * warp, lane);
  }

  __device__ Flows& flows_of(FlowsRing::Position at) const {
    return reinterpret_cast<Flows*>(pointer(Layout::kFlows))[at.slot];
  }

  /// By one thread.
  __device__ void init_barriers() const {
    hopper::barrier_init(projections_full(), 1);
    inputs().init(1, 2);                       // each warpgroup, by the thread that stores
    states().init(1, 2 * kWarpsOfGroup + 32);  // and each lane that makes ⟨S', S⟩
    flows().init(2 * kGroupThreads, 32);
    hopper::barrier_init_fence();
  }
};

/// Barriers of the two warpgroups; `bar` 0 is the block's.
enum class Meeting {
  rounded = 1,  ///< dy is there, and z has been read: both meet
  mixing,       ///< keys have written M, for which queries wait
  gradients,    ///< queries have read dy, before keys write dx over it
  queries,      ///< of the warpgroup of queries
  keys          ///< of that of keys
};
template <Meeting kMeeting, int kThreadsOfIt>
__device__ __forceinline__ void meet() {
  __syncwarp();  // waits may have left lanes apart
  asm volatile("bar.sync %0, %1;\n" ::"n"(static_cast<int>(kMeeting)), "n"(kThreadsOfIt) : "memory");
}
/// Arrives at a meeting of both warpgroups and goes on.
template <Meeting kMeeting>
__device__ __forceinline__ void announce() {
  __syncwarp();
  asm volatile("bar.arrive %0, %1;\n" ::"n"(static_cast<int>(kMeeting)), "n"(2 * kGroupThreads) : "memory");
}

}  // namespace ssmbench::ssd_hopper_bwd::tf32
