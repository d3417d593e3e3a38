#pragma once

#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"

// Shared memory of a block of cuda-hopper's fused MIMO scan, and where its tables have what a lane takes.
// Index maps are host and device, so that the CPU tests cover them. Tuned on an H200.

namespace ssmbench::mamba3_fused {

inline constexpr int kRank = 4;   ///< Mamba-3's own
inline constexpr int kRows = 64;  ///< of a chunk: (step, rank)
inline constexpr int kSteps = kRows / kRank;
inline constexpr int kStates = 128;
inline constexpr int kHeaddim = 64;        ///< at most
inline constexpr int kHalf = kStates / 2;  ///< states of a tile; pair i has state i of both tiles

inline constexpr int kTile = 64 * 128;          ///< bytes of 64 rows of 64 elements, swizzled
inline constexpr int kOperand = 2 * kTile;      ///< q or k: 64 rows of all states
inline constexpr int kStepTile = kSteps * 128;  ///< V or Z of a chunk

// Q and K come in parts of a chunk: four steps of both.
inline constexpr int kPartSteps = 4;
inline constexpr int kPartRows = kPartSteps * kRank;
inline constexpr int kParts = kSteps / kPartSteps;  ///< of a chunk
inline constexpr int kPartTile = kPartRows * 128;   ///< bytes of rows of half of the states
inline constexpr int kPart = 4 * kPartTile;         ///< Q's halves, then K's

/// Index of a head dim of a rank in a table. A lane (g, t) of warp w has of D's fragments head dims 16w + g
/// and that 8 on, and ranks 2·(t % 2) and the next: they are a vector.
SSMBENCH_HD constexpr int table_slot(int rank, int p) {
  const int lane = (p / 16 * 8 + p % 8) * 2 + rank / 2;
  return lane * 4 + p % 16 / 8 * 2 + rank % 2;
}
/// Index of a step among those of a chunk: a lane has every second of them, those of its columns of a
/// product.
SSMBENCH_HD constexpr int slot_of_step(int step) {
  return step % 2 * (kSteps / 2) + step / 2;
}
/// Where the cosine and sine of a pair lie among those of a step, as pairs of f32. Lanes of two steps that
/// follow one another read the same pairs: from different banks.
SSMBENCH_HD constexpr int turn_slot(int step, int pair) {
  return pair ^ step % 2 * 4;
}

/// What ldmatrix and stmatrix, transposed, take of a tile of steps for fragments of D: the lane (g, t) has
/// head dims g of a vector, and steps 2j + t / 2 of two j that follow one another.
struct StepRow {
  int step;
  int vector;  ///< of 8 head dims, of the warp's two
};
/// The row to which a lane points for loads of both of the warp's vectors: j from 4·index on.
SSMBENCH_HD constexpr StepRow loaded_row(int index, int lane) {
  const int matrix = lane / 8;
  const int j = 4 * index + matrix / 2 * 2 + lane % 2;
  return {2 * j + lane % 8 / 4, matrix % 2};
}
/// And to store: lanes with odd t have the second vector, those with even t the first.
SSMBENCH_HD constexpr StepRow stored_row(int lane) {
  const int j = lane / 8 * 2 + lane % 2;
  return {2 * j + lane % 8 / 4, lane % 4 / 2};
}

/// The numbers of a chunk of a head.
struct alignas(16) ChunkScalars {
  /// What the inputs of a step weigh for another one: [to][slot_of_step(from)], s with the decay between
  /// them, γ from a step to itself, 0 from later ones.
  float weight[kSteps][kSteps];
  /// s with the decay to the chunk's end, over the scale, [slot_of_step], as two equal bf16 of a word, and
  /// what their rounding leaves in another. In f16 the first is an f32.
  std::uint32_t later[2][kSteps];
  /// [slot_of_step]: decay from the chunk's begin; in bf16 times the scale of the state.
  float carry[kSteps];
  /// What the state is multiplied with before the chunk's inputs are added, in bf16 mostly 1, and the scale
  /// of the state behind the chunk: times this it is the true one.
  float rescale, scale;
};

/// Slots of the ring buffers, for each head but for parts of Q and K.
inline constexpr int kPartDepth = 3;
inline constexpr int kTurnedDepth = 2;  ///< q and k of a chunk
inline constexpr int kStepDepth = 2;    ///< V and Z
inline constexpr int kRateDepth = 2;    ///< the angles' rates
inline constexpr int kTurnDepth = 2;    ///< their cosines and sines
inline constexpr int kScalarDepth = 2;

/// Tables of a head, [table_slot].
enum class Factor {
  skip,   ///< D·MIMO_V
  inner,  ///< −log₂e·MIMO_Z
  outer,  ///< MIMO_Z·MIMO_Out·norm's weight, of what there is; with Z the inverse
  raise   ///< MIMO_V: f32 in f16; in bf16 words of two ranks, rounded, and what that leaves behind each
};
inline constexpr int kTables = 4;
inline constexpr int kTableBytes = kRank * kHeaddim * 4;

/// 1/x, finite where x is 0, so that its inverse is 0 next to what x is multiplied with.
SSMBENCH_HD constexpr float finite_inverse(float x) {
  constexpr float kLeast = 0x1p-126F;
  return x > -kLeast && x < kLeast ? 0x1p127F : 1.0F / x;
}

/// Offsets in bytes; tiles are aligned to 1024. `kPairs`: rotated ones, padded. What heads have of their own
/// lies one head behind the other.
template <int kPaddedPairs>
struct Layout {
  static constexpr int kPairs = kPaddedPairs;
  static constexpr int kHeads = kPairs == 32 ? 2 : 1;  ///< of a block, at most
  static constexpr int kRates = kSteps * kPairs * 4;
  static constexpr int kTurns = kSteps * kPairs * 8;
  static constexpr int kScalarBytes = static_cast<int>(sizeof(ChunkScalars));

  static constexpr int kRaw = 0;
  static constexpr int kTurned = kRaw + kPartDepth * kPart;
  static constexpr int kStepInputs = kTurned + kHeads * kTurnedDepth * 2 * kOperand;
  static constexpr int kMasks = kStepInputs + kHeads * kStepDepth * 2 * kStepTile;
  static constexpr int kRateTiles = kMasks + kHeads * kTile;
  static constexpr int kTurnTiles = kRateTiles + kHeads * kRateDepth * kRates;
  static constexpr int kFactors = kTurnTiles + kHeads * kTurnDepth * kTurns;
  static constexpr int kScalars = kFactors + kHeads * kTables * kTableBytes;
  static constexpr int kMaskScales = kScalars + kHeads * kScalarDepth * kScalarBytes;
  static constexpr int kFirstRows = kMaskScales + kHeads * 16;
  static constexpr int kBarriers = kFirstRows + kHeads * 8;
  static constexpr int kHeadBarrierBytes =
      16 * (kTurnedDepth + kStepDepth + kRateDepth + kTurnDepth + kScalarDepth);
  static constexpr int kBarrierBytes = 16 * kPartDepth + kHeads * kHeadBarrierBytes;
  static constexpr int kBytes = kBarriers + kBarrierBytes + 1024;  // the start is not aligned to 1024
  static_assert(kRates % 1024 == 0 && kScalarBytes % 16 == 0);
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
};

}  // namespace ssmbench::mamba3_fused
