#pragma once

#include <cstdint>

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
inline constexpr int kOperand = 2 * kTile;      ///< q, k or a state: 64 rows of all states
inline constexpr int kStepTile = kSteps * 128;  ///< V or Z of a chunk

/// Index of (rank, column) in a table in the order in which lanes take it. A lane has one rank, and of 16
/// neighbouring columns those that fragments give it: 2·(lane % 4), the next, and both of them 8 on.
SSMBENCH_HD constexpr int fragment_slot(int rank, int column) {
  const int lane = rank * 4 + column % 8 / 2;
  return (column / 16 * 16 + lane) * 4 + column % 16 / 8 * 2 + column % 2;
}
/// Index of a word, two head dims of a rank, where a lane takes four neighbours as a vector, and lanes'
/// vectors are side by side. `part`: 0 of rounded factors, 1 of what their rounding leaves.
SSMBENCH_HD constexpr int word_slot(int rank, int part, int word) {
  return ((2 * rank + part) * (kHeaddim / 8) + word / 4) * 4 + word % 4;
}
/// The same of f32 factors, whose vectors are halves of 8 head dims.
SSMBENCH_HD constexpr int float_slot(int rank, int p) {
  return ((2 * rank + p % 8 / 4) * (kHeaddim / 8) + p / 8) * 4 + p % 4;
}
/// Index of a step among those of a chunk: a lane has every second of them, those of its columns of a
/// product.
SSMBENCH_HD constexpr int slot_of_step(int step) {
  return step % 2 * (kSteps / 2) + step / 2;
}

/// The numbers of a chunk of a head.
struct alignas(16) ChunkScalars {
  /// What the inputs of a step weigh for another one: [to][slot_of_step(from)], s with the decay between
  /// them, γ from a step to itself, 0 from later ones.
  float weight[kSteps][kSteps];
  /// s with the decay to the chunk's end, over the scale, [slot_of_step], as two equal bf16 of a word, and
  /// what their rounding leaves in another. In f16 the first is an f32.
  std::uint32_t later[2][kSteps];
  float carry[kSteps];  ///< decay from the chunk's begin; in bf16 times the scale of the state that enters
  float rescale;  ///< what the state is multiplied with before the chunk's inputs are added: in bf16 mostly 1
  float scale;    ///< of the state behind the chunk: times this it is the true one
  float unused[2];
};

inline constexpr int kMaxBlockBytes = 227 * 1024;

/// Slots of the ring buffers.
inline constexpr int kOperandDepth = 3;  ///< Q and K
inline constexpr int kStepDepth = 4;     ///< V, Z and the angles' rates
inline constexpr int kMadeDepth = 3;  ///< what is made of them: V of ranks, sines and cosines, ChunkScalars

/// Offsets in bytes; tiles are aligned to 1024. `kPairs`: rotated ones, padded.
template <int kPaddedPairs>
struct Layout {
  static constexpr int kPairs = kPaddedPairs;
  static constexpr int kStateDepth = kPairs == 32 ? 3 : 2;
  static constexpr int kRates = kSteps * kPairs * 4;
  static constexpr int kTurns = kSteps * kPairs * 8;
  static constexpr int kStepSlot = 2 * kStepTile + kRates;
  static constexpr int kMadeSlot = kTile + kTurns + (sizeof(ChunkScalars) + 1023) / 1024 * 1024;

  static constexpr int kQ = 0;
  static constexpr int kK = kQ + kOperandDepth * kOperand;
  static constexpr int kState = kK + kOperandDepth * kOperand;
  static constexpr int kStepInputs = kState + kStateDepth * kOperand;
  static constexpr int kMade = kStepInputs + kStepDepth * kStepSlot;
  static constexpr int kBiases = kMade + kMadeDepth * kMadeSlot;      ///< of q, then of k, [fragment_slot]
  static constexpr int kFactors = kBiases + 2 * kRank * kStates * 4;  ///< of Factor, [fragment_slot]
  static constexpr int kVFactors =
      kFactors + 3 * kRank * kHeaddim * 4;  ///< MIMO_V in bf16, [word_slot], or f32
  static constexpr int kStateScales = kVFactors + kRank * kHeaddim * 4;
  static constexpr int kBarriers = kStateScales + kStateDepth * 16;
  static constexpr int kBarrierBytes =
      8 * (2 * kOperandDepth + 3 * kOperandDepth + 2 * kStepDepth + 2 * kMadeDepth + 2 * kStateDepth);
  static constexpr int kBytes = kBarriers + kBarrierBytes + 1024;  // the start is not aligned to 1024
  static_assert(kStepSlot % 1024 == 0 && kMadeSlot % 1024 == 0);
  static_assert(kBytes <= kMaxBlockBytes);
};

/// Tables of a head's rank and head dim that outputs take.
enum class Factor {
  skip,   ///< D·MIMO_V
  inner,  ///< −log₂e·MIMO_Z
  outer   ///< MIMO_Z·MIMO_Out·norm's weight, of what there is
};

}  // namespace ssmbench::mamba3_fused
