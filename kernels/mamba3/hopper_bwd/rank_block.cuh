#pragma once

#include "kernels/common/hardware.h"
#include "kernels/mamba3/hopper_bwd/block.cuh"

// What the roles of a block of MIMO's gradient kernel share: shared memory, rings. Places and fragments are those of
// SSD's (ssd_chunk_scan/hopper_bwd/block.cuh).

namespace ssmbench::mamba3_bwd {

/// Query warpgroups, and key warpgroups: each has 64 states.
inline constexpr int kRankParts = 2;
/// All of them: each has 16 columns of M and X.
inline constexpr int kRankGroups = 2 * kRankParts;
inline constexpr int kPartColumns = kSteps / kRankGroups;
inline constexpr int kRankThreads = (1 + kRankGroups) * ssd::kGroupThreads;

/// Where a warp's sum of a rank and column lies: those of different ranks in different banks.
__device__ inline int bias_at(int rank, int column) {
  return rank * kSteps + (column ^ rank % 4 * 8);
}

/// Floats of a row of 64 sums where a warp stages them: rows begin in different banks.
inline constexpr int kStagedRow = 68;
inline constexpr int kStagedBytes = 16 * kStagedRow * 4;  ///< of a warp

/// What a head leaves for write_rank_flows, of each row.
template <int kRanks>
struct alignas(128) RankFlows {
  float out[kRankGroups][kSteps];  ///< terms that end at the row, but for the column sums
  float into[kSteps];              ///< V·(S'·k)·leave
  float column[kWarpsOfGroup]
              [kSteps];    ///< column sums of M ∘ X over w, without the diagonal, of 16 rows each
  float diagonal[kSteps];  ///< of the same, row sums of blocks on the diagonal
  /// dq, dk, turned back: sums of 16 rows each, by rank. y and dV are turned into vectors here first.
  /// [rank][column], at bias_at().
  float biases[2][kRankParts][kWarpsOfGroup][kRanks * kSteps];
  float turns[kRankParts][kWarpsOfGroup][kTilePairs];  ///< dθ: the same
};

/// A thread's share of dθ: the lanes of a step share out its sums.
template <int kRanks>
inline constexpr int kOwnShare = kOwnPairs / kRanks;

/// The first head of a block, in shared memory: it takes divisions, and registers are short.
struct RankPlace {
  int row;  ///< of the plan
  int head;
};

/// Offsets in bytes; tiles are aligned to 1024.
template <class T>
struct RankLayout {
  static constexpr int kHalves = T::kStates / 64;
  static constexpr int kStages = 2;                     ///< of V, dy, q, k, S, S' and the steps
  static constexpr int kDepth = T::kRanks > 4 ? 1 : 2;  ///< of flows
  static constexpr int kVectors = kHalves * kTile;
  static constexpr int kStage = 2 * kTile + 4 * kVectors;
  static constexpr int kOwnsBytes = 4 * kSteps;
  // What is loaded.
  static constexpr int kInputBytes = 2 * kVectors + ssd::kStepsBytes + kOwnsBytes;
  static constexpr int kOperandBytes = 2 * kTile + 2 * kVectors;
  static constexpr int kPhasesBytes = 4 * kAngleTile / T::kRanks;  ///< of a tile
  static constexpr int kTurnedBytes = ssd::kGroupThreads * kOwnShare<T::kRanks> * 4;

  static constexpr int kSquares = kStages * kStage;  ///< M and X
  static constexpr int kStepRows = kSquares + 2 * kTile;
  static constexpr int kOwns = kStepRows + kStages * ssd::kStepsBytes;
  static constexpr int kPhases = kOwns + kStages * kOwnsBytes;
  static constexpr int kTurned = kPhases + 2 * kPhasesBytes;  ///< dθ of q
  static constexpr int kFlows = kTurned + kHalves * kTurnedBytes;
  static constexpr int kBarriers = kFlows + kDepth * static_cast<int>(sizeof(RankFlows<T::kRanks>));
  static constexpr int kPlace = kBarriers + 256;
  static constexpr int kBytes =
      kPlace + static_cast<int>(sizeof(RankPlace)) + 1024;  // the start is not aligned to 1024
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
};

template <class T>
struct RankShared {
  using Traits = T;
  using Layout = RankLayout<T>;
  using Inputs = hopper::Ring<Layout::kStages>;    ///< Q, K and the steps
  using Operands = hopper::Ring<Layout::kStages>;  ///< V, dy, S and S': empty once the products are there
  using Squares = hopper::Ring<1>;                 ///< M and X
  using Flows = hopper::Ring<Layout::kDepth>;
  using Phases = hopper::Ring<2>;
  using Vectors =
      hopper::Ring<Layout::kStages>;  ///< q and k of the inputs, turned: these say when they are empty
  using Turned = hopper::Ring<1>;

  std::uint32_t base = (shared_address(ssd::dynamic_shared) + 1023) & ~1023U;

  /// Where a ring is at a head: all roles go through the heads in step.
  __device__ static hopper::RingPosition<2> pair_at(int head) {
    return {static_cast<std::uint32_t>(head & 1), static_cast<std::uint32_t>(head >> 1 & 1)};
  }
  __device__ static hopper::RingPosition<1> one_at(int head) {
    return {0, static_cast<std::uint32_t>(head & 1)};
  }
  __device__ static typename Flows::Position flows_at(int head) {
    if constexpr (Layout::kDepth == 1)
      return one_at(head);
    else
      return pair_at(head);
  }

  /// There is room for two tiles: of two heads, or of one whose angles take both.
  __device__ static hopper::RingPosition<2> phases_at(int head, int tiles) {
    return tiles == 1 ? pair_at(head) : hopper::RingPosition<2>{0, static_cast<std::uint32_t>(head & 1)};
  }

  __device__ Inputs inputs() const { return {base + Layout::kBarriers}; }
  __device__ Operands operands() const { return {inputs().barriers + Inputs::kBytes}; }
  __device__ Squares squares() const { return {operands().barriers + Operands::kBytes}; }
  __device__ Flows flows() const { return {squares().barriers + Squares::kBytes}; }
  __device__ Phases phases() const { return {flows().barriers + Flows::kBytes}; }
  __device__ Vectors vectors() const { return {phases().barriers + Phases::kBytes}; }
  __device__ Turned turned(int part) const {
    return {vectors().barriers + Vectors::kBytes + part * Turned::kBytes};
  }

  __device__ std::uint32_t x_tile(typename Inputs::Position at) const {
    return base + at.slot * Layout::kStage;
  }
  __device__ std::uint32_t dy_tile(typename Inputs::Position at) const { return x_tile(at) + kTile; }
  __device__ std::uint32_t q_tile(typename Inputs::Position at) const { return x_tile(at) + 2 * kTile; }
  __device__ std::uint32_t k_tile(typename Inputs::Position at) const {
    return q_tile(at) + Layout::kVectors;
  }
  __device__ std::uint32_t state_tile(typename Inputs::Position at) const {
    return k_tile(at) + Layout::kVectors;
  }
  __device__ std::uint32_t dstate_tile(typename Inputs::Position at) const {
    return state_tile(at) + Layout::kVectors;
  }
  __device__ std::uint32_t mixing_tile() const { return base + Layout::kSquares; }
  __device__ std::uint32_t crosses_tile() const { return mixing_tile() + kTile; }
  __device__ std::uint32_t steps_address(typename Inputs::Position at) const {
    return base + Layout::kStepRows + at.slot * ssd::kStepsBytes;
  }
  __device__ const float (&steps(typename Inputs::Position at) const)[kStepFloats][kSteps] {
    return *reinterpret_cast<const float(*)[kStepFloats][kSteps]>(pointer(Layout::kStepRows) +
                                                                  at.slot * ssd::kStepsBytes);
  }
  __device__ std::uint32_t owns_address(typename Inputs::Position at) const {
    return base + Layout::kOwns + at.slot * Layout::kOwnsBytes;
  }
  /// γ
  __device__ const float* owns(typename Inputs::Position at) const {
    return reinterpret_cast<const float*>(pointer(Layout::kOwns)) + at.slot * kSteps;
  }
  __device__ std::uint32_t phases_address(typename Phases::Position at) const {
    return base + Layout::kPhases + at.slot * Layout::kPhasesBytes;
  }
  /// An angle tile.
  __device__ const uint4* phases_of(typename Phases::Position at, int tile) const {
    return reinterpret_cast<const uint4*>(pointer(Layout::kPhases) +
                                          (static_cast<int>(at.slot) + tile) * Layout::kPhasesBytes);
  }
  /// [value][thread of the warpgroup]
  __device__ float* turned_of_q(int part) const {
    return reinterpret_cast<float*>(pointer(Layout::kTurned) + part * Layout::kTurnedBytes);
  }
  __device__ RankFlows<T::kRanks>& flows_of(typename Flows::Position at) const {
    return reinterpret_cast<RankFlows<T::kRanks>*>(pointer(Layout::kFlows))[at.slot];
  }

  /// Room in a slot of inputs and operands for the sums of a warp, of those that have some.
  __device__ float* stage(typename Inputs::Position at, int warp) const {
    static_assert(Layout::kStage >= 2 * Layout::kHalves * kWarpsOfGroup * kStagedBytes);
    return reinterpret_cast<float*>(
        pointer(static_cast<int>(at.slot) * Layout::kStage + warp * kStagedBytes));
  }

  /// Volatile, so that it is loaded where it is used.
  __device__ const volatile RankPlace& place() const {
    return *reinterpret_cast<const volatile RankPlace*>(pointer(Layout::kPlace));
  }
  /// By one thread, before the others begin.
  __device__ void set_place(const HopperArgs& args) const {
    const ssd::BlockPlace place(args);
    *reinterpret_cast<RankPlace*>(pointer(Layout::kPlace)) = {static_cast<int>(place.row(args, 0)),
                                                              place.first_head};
  }

  /// By one thread. `turning`: parts whose states turn.
  __device__ void init_barriers(int turning) const {
    constexpr int kWarps = kRankGroups * kWarpsOfGroup;  // of all who compute
    inputs().init(1, kWarps + 1);
    operands().init(1, kWarps + 1);
    squares().init(kWarps, kWarps);
    flows().init(kWarps * 32, 3 * 32);
    phases().init(1, kWarps);
    vectors().init(kWarps, 1);
    for (int part = 0; part < turning; ++part) turned(part).init(ssd::kGroupThreads, ssd::kGroupThreads);
    hopper::barrier_init_fence();
  }

 private:
  /// From the array's own address, so that the compiler knows the address space.
  __device__ unsigned char* pointer(int offset) const {
    return ssd::dynamic_shared + (base - shared_address(ssd::dynamic_shared)) + offset;
  }
};

}  // namespace ssmbench::mamba3_bwd
