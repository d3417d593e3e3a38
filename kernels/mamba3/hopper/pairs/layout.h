#pragma once

#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"
#include "kernels/ssd_chunk_scan/hopper/layout.h"

// Shared memory of a block of cuda-hopper's SISO scan of two heads, and where its tables have what a lane
// takes. Index maps are host and device, so that the CPU tests cover them. Tuned on an H200.

namespace ssmbench::mamba3_pairs {

using ssd_hopper::kRows;
using ssd_hopper::kSteps;
using ssd_hopper::kTile;

inline constexpr int kHeads = 2;  ///< row tiles of a block
using ssd_hopper::kRotatedPairs;
inline constexpr int kPhaseBytes = kSteps * kRotatedPairs * 2;

// Slots of the ring buffers, for each head but for Q and K, which both share.
inline constexpr int kRawDepth = 1;   ///< Q, K
inline constexpr int kLoadDepth = 2;  ///< phases, V, Z
inline constexpr int kKeyDepth = 1;   ///< k of a head
inline constexpr int kStateDepth = 2;
inline constexpr int kScalarDepth = 2;

/// The numbers of a chunk of a head. `decay` and, in bf16, `weight_scale` are not used.
struct HeadScalars : ssd_hopper::ChunkScalars {
  float rescale;  ///< what the state is multiplied with before the chunk's inputs are added: mostly 1 in bf16
  float scale;    ///< of the state behind the chunk: times this it is the true one
  float unused[2];
  float angles[kRotatedPairs];  ///< before the chunk, as phases are added to (angle_for_phases)
};

/// What the warpgroups of a head keep for a segment, having no registers for it. Chunks are those of the
/// block up to the segment's end.
struct alignas(16) OfHead {
  float skip;  ///< D
  std::uint32_t output_until, state_until;
};

/// The states of pairs that may turn, 64 of them, are in k, q and the state in another order. Lane t of a
/// fragment, which has columns 2t, 2t + 1 of each 8, has the states 16t … 16t + 15 there, which lie together
/// in Q, in phases and in biases. The state of that lane's first column of columns 8j …:
SSMBENCH_HD constexpr int state_of_column(int j, int lane_of_row) {
  return j < 8 ? 16 * lane_of_row + 2 * j : 8 * j + 2 * lane_of_row;
}

/// Where bias n of a head lies in shared memory: what a lane loads by one instruction is beside what its
/// neighbours load. Of k a lane has states 8v … 8v + 7 of 64; of q 16t … 16t + 15 of the first and, in each
/// 16 of the others, 2t, 2t + 1, 2t + 8 and 2t + 9.
SSMBENCH_HD constexpr int index_of_key_bias(int n) {
  return n / 64 * 64 + n % 8 / 4 * 32 + n % 64 / 8 * 4 + n % 4;
}
SSMBENCH_HD constexpr int index_of_query_bias(int n) {
  if (n < 64) return n % 16 / 4 * 16 + n / 16 * 4 + n % 4;
  return 64 + n % 64 / 16 * 16 + n % 8 / 2 * 4 + n % 16 / 8 * 2 + n % 2;
}

/// Offsets in bytes; tiles are aligned to 1024. What heads have of their own lies one head behind the other.
template <int kPaddedStates>
struct Layout {
  static constexpr int kStates = kPaddedStates;
  static constexpr int kHalves = kStates / 64;
  static constexpr int kRow = kHalves * kTile;  ///< Q, K, k or a state
  static constexpr int kScalarBytes = static_cast<int>(sizeof(HeadScalars));
  static constexpr int kStateScaleBytes =
      4 * static_cast<int>(sizeof(float));  ///< in f16, of a published state

  static constexpr int kRawK = 0;
  static constexpr int kRawQ = kRawK + kRawDepth * kRow;
  static constexpr int kKeys = kRawQ + kRawDepth * kRow;
  static constexpr int kX = kKeys + kHeads * kKeyDepth * kRow;
  static constexpr int kGates = kX + kHeads * kLoadDepth * kTile;
  static constexpr int kState = kGates + kHeads * kLoadDepth * kTile;
  static constexpr int kPhases = kState + kHeads * kStateDepth * kRow;
  static constexpr int kScalars = kPhases + kHeads * kLoadDepth * kPhaseBytes;
  static constexpr int kStateScales = kScalars + kHeads * kScalarDepth * kScalarBytes;
  static constexpr int kBiases = kStateScales + kHeads * kStateDepth * kStateScaleBytes;
  static constexpr int kOfHeads = kBiases + kHeads * 2 * kStates * 4;
  static constexpr int kBarriers = kOfHeads + kHeads * static_cast<int>(sizeof(OfHead));
  static constexpr int kHeadBarrierBytes =
      16 * (2 * kLoadDepth + kKeyDepth + kStateDepth + kScalarDepth) + 24 * kLoadDepth;
  static constexpr int kBarrierBytes = 2 * 16 * kRawDepth + kHeads * kHeadBarrierBytes;
  static constexpr int kBytes = kBarriers + kBarrierBytes + 1024;  // the start is not aligned to 1024
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
  static_assert(kScalarBytes % 16 == 0);
};

}  // namespace ssmbench::mamba3_pairs
