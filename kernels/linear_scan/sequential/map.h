#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

// Which lane of cuda-sequential moves what, and where it lies in shared memory. Host and device, so that the
// CPU tests cover it.

namespace ssmbench {

inline constexpr int kSequentialBytes = 128;  ///< of the channels of a step that a warp takes: 4 a lane
inline constexpr int kSequentialSteps = 16;   ///< of a tile
inline constexpr int kSequentialTiles = 8;    ///< of a and b each that a warp has in shared memory

/// Bytes that a lane moves at once: the most that `alignment`, the common alignment of the tensors and of the
/// distance of two steps, allows.
constexpr int sequential_access_bytes(std::uint64_t alignment) {
  return alignment % 16 == 0 ? 16 : alignment % 4 == 0 ? 4 : 2;
}

/// How a warp moves a tile of a, b or out between memory and shared memory, by accesses of `access_bytes`:
/// 16, or 4, or 2 times 2.
template <int access_bytes>
struct SequentialMap {
  static constexpr int kBytes = access_bytes < 4 ? 4 : access_bytes;  ///< a lane's, in one pass
  static constexpr int kLanes = kSequentialBytes / kBytes;
  static constexpr int kStepsOfPass = 32 / kLanes;
  static constexpr int kPasses = kSequentialSteps / kStepsOfPass;

  SSMBENCH_HD static constexpr int step_of(int lane) { return lane / kLanes; }  ///< in the first pass
  SSMBENCH_HD static constexpr int byte_of(int lane) { return lane % kLanes * kBytes; }
};

// Shared memory, in bytes: tile after tile, each [a, b][step][channel]; h takes the place of a.
inline constexpr int kSequentialTensorBytes = kSequentialSteps * kSequentialBytes;
inline constexpr int kSequentialSharedBytes = kSequentialTiles * 2 * kSequentialTensorBytes;

/// The same for tiles that are loaded by TMA (tma_kernel.cuh), by blocks of `warps` warps.
template <int warps>
struct SequentialTmaMap {
  static constexpr int kThreads = 32 * warps;
  static constexpr int kBytes = kSequentialBytes * warps;  ///< of a step
  static constexpr int kSteps = 16;
  static constexpr int kTiles = warps == 1 ? 8 : 6;
  static constexpr int kTensorWords = kSteps * kBytes / 4;
  static constexpr int kSharedBytes = kTiles * 2 * kTensorWords * 4;
};

/// Warps of a block in a problem with `channel_bytes` of channels in a step of all batches: 4, which read
/// long runs of rows, if even so 3 of 4 multiprocessors of an H200 have a block; else 1.
constexpr int sequential_tma_warps(std::int64_t channel_bytes) {
  return channel_bytes >= 96 * SequentialTmaMap<4>::kBytes ? 4 : 1;
}

/// Start of a tile's slot in the ring buffer of kSequentialTiles tiles.
SSMBENCH_HD constexpr int sequential_slot(std::int64_t tile) {
  return static_cast<int>(tile % kSequentialTiles) * 2 * kSequentialTensorBytes;
}
SSMBENCH_HD constexpr int sequential_at(int step, int byte) {
  return step * kSequentialBytes + byte;
}

}  // namespace ssmbench
