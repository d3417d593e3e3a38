#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"
#include "kernels/ssd_chunk_scan/hopper/plan.h"

// Shared memory of a block of cuda-hopper. Tuned on an H200.

namespace ssmbench::ssd_hopper {

/// The numbers of a chunk that belong to a row t of the masked square.
struct alignas(16) RowScalars {
  float sum;     ///< Σ Δ·A·log₂e from the chunk's first step to t
  float within;  ///< decay from the begin of t's slab of 16 steps to t
  float carry;   ///< decay from the chunk's begin to t
  /// Bit s: step s of the slab is in t's sequence and not later than t. With given weights the bits of t's own.
  std::uint32_t mask;
};

/// The numbers of a chunk of a head, each in the order in which lanes take them: the four columns that a lane
/// has of 16 are together (slot_of_step).
struct ChunkScalars {
  RowScalars rows[kSteps];
  float diagonal[kSteps];  ///< sum − log₂ Δ: the factor of a column of a square on the diagonal
  /// Δ·(decay from s to the begin of a later slab), for the 6 squares below the diagonal (square_below).
  float below[6][16];
  /// Δ·(decay from s to the chunk's end) in pairs of the io dtype, and what its rounding leaves in another.
  std::uint32_t weights[2][kSteps / 2];
  std::uint32_t weight_powers[kSteps / 2];  ///< in f16, pairs that weights are to be multiplied with besides
  float decay;                              ///< of the whole chunk
  float weight_scale;  ///< in f16, in `weights`: a power of two that moves them into its range (range.h)
  int has_powers;      ///< whether not all of them are 1
  float unused;        ///< keeps the size a multiple of 16
};

/// Place of a step among the 16 of its slab: [lane % 4][column pair][column].
SSMBENCH_HD constexpr int slot_of_step(int step) {
  return step / 2 % 4 * 4 + step / 8 % 2 * 2 + step % 2;
}
/// Place of the pair of steps 2·pair, 2·pair + 1 in ChunkScalars::weights: [lane % 4][product][half].
SSMBENCH_HD constexpr int slot_of_pair(int pair) {
  return pair % 4 * 8 + pair / 4;
}
/// The square of rows of slab `row` and columns of slab `column` < row in ChunkScalars::below.
SSMBENCH_HD constexpr int square_below(int row, int column) {
  return row * (row - 1) / 2 + column;
}

inline constexpr int kTile = kSteps * kRows * 2;  ///< bytes of a tile of 64 × 64 elements
inline constexpr int kTileRow = kRows * 2;        ///< bytes
inline constexpr int kRowMaps = 6;                ///< tiles of 1, 2, 4 … 32 rows
inline constexpr int kStateScalesBytes = 4 * 4;   ///< of a state: a float for 16 of its rows

/// What a block computes: out and the final states, or the states that leave its segments.
enum class Pass { outputs, states };

/// Slots of the ring buffers. Loads are under way for a chunk or two, so that slots go to what comes from
/// memory; one slot is enough for the state of the next chunk, which is made meanwhile.
template <Pass kPass, int kHeads, int kStates>
struct Depths {
  static constexpr bool kFull = kHeads == 2 && kStates == 128;  ///< shared memory is
  static constexpr int kProjections = 3;                        ///< B and C
  static constexpr int kX = kHeads == 2 ? 3 : 4;
  static constexpr int kGates = kFull ? 2 : kHeads == 2 ? 3 : 4;  ///< z, and out on its way
  static constexpr int kState = kFull ? 1 : kHeads == 2 ? 2 : 3;
  static constexpr int kScalars = kHeads == 2 ? 3 : 4;
};
/// B and C of a chunk are 64 KB: two slots are more than half of shared memory.
template <>
struct Depths<Pass::outputs, 1, 256> {
  static constexpr int kProjections = 2;
  static constexpr int kX = 3;
  static constexpr int kGates = 4;
  static constexpr int kState = 1;
  static constexpr int kScalars = 4;
};
template <int kHeads, int kStates>
struct Depths<Pass::states, kHeads, kStates> {
  static constexpr int kProjections = 4;  ///< B alone
  static constexpr int kX = 4;
  static constexpr int kGates = 0;
  static constexpr int kState = 0;
  static constexpr int kScalars = 4;
};

/// Where B and C are rotated in place: phases of a chunk come with them, and less is left for states.
struct RotatedDepths : Depths<Pass::outputs, 1, 128> {
  static constexpr int kState = 2;
};
inline constexpr int kRotatedPairs = 32;                    ///< of a row, at most
inline constexpr int kPhases = kSteps * kRotatedPairs * 2;  ///< bytes
inline constexpr int kRotatingWarps = 4;

/// Offsets in bytes; tiles are aligned to 1024.
template <Pass kPass, int kItemHeads, int kPaddedStates,
          class BlockDepths = Depths<kPass, kItemHeads, kPaddedStates>>
struct Layout {
  static constexpr int kHeads = kItemHeads;
  static constexpr int kStates = kPaddedStates;
  using Depth = BlockDepths;
  static constexpr bool kRotated = std::is_same_v<Depth, RotatedDepths>;
  static constexpr int kHalves = kStates / 64;  ///< tiles that B, C and the state are wide
  static constexpr int kProjectionSlot =
      (kPass == Pass::outputs ? 2 : 1) * kHalves * kTile + (kRotated ? kPhases : 0);
  static constexpr int kStateSlot = kHalves * kTile;

  static constexpr int kProjections = 0;
  static constexpr int kX = kProjections + Depth::kProjections * kProjectionSlot;
  static constexpr int kGates = kX + kHeads * Depth::kX * kTile;
  static constexpr int kState = kGates + kHeads * Depth::kGates * kTile;
  static constexpr int kScalars = kState + kHeads * Depth::kState * kStateSlot;
  static constexpr int kStateScales =
      kScalars + kHeads * Depth::kScalars * static_cast<int>(sizeof(ChunkScalars));
  static constexpr int kSkip = kStateScales + kHeads * Depth::kState * kStateScalesBytes;
  static constexpr int kBarriers = kSkip + 2 * kRows * static_cast<int>(sizeof(float));
  static constexpr int kRingBytes =
      16 * (Depth::kProjections + kHeads * (Depth::kX + std::max(Depth::kState, 2) + Depth::kScalars)) +
      24 * kHeads * Depth::kGates;
  /// Of the rotating warps: sums of angles of each of them, and biases of B and of C.
  static constexpr int kAngleSums = (kBarriers + kRingBytes + 8 * Depth::kProjections + 15) / 16 * 16;
  static constexpr int kBiases = kAngleSums + kRotatingWarps * kRotatedPairs * 4;
  static constexpr int kRotationEnd = kBiases + 2 * kStates * 4;
  static constexpr int kBytes =  // the start is not aligned to 1024
      (kRotated ? kRotationEnd : kBarriers + kRingBytes) + 1024;
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
};

}  // namespace ssmbench::ssd_hopper
