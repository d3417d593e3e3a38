#pragma once

#include <cstdint>

// The numbers of GPUs that kernels are cut to.

namespace ssmbench {

/// Blocks in the x dimension of a CUDA grid, the only one that is not limited to 65535.
inline constexpr std::int64_t kMaxGridX = 2147483647;
/// Shared memory of a block on every GPU, without opting in to more.
inline constexpr int kDefaultSharedBytes = 48 * 1024;
inline constexpr int kWarpThreads = 32;
/// A warp's lanes as a mask.
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// NVIDIA H200 (Hopper, compute capability 9.0), which the kernels are tuned for.
namespace h200 {

inline constexpr int kMultiprocessors = 132;
inline constexpr int kRegisters = 65536;           ///< of a multiprocessor
inline constexpr int kSharedBytes = 228 * 1024;    ///< of a multiprocessor
inline constexpr int kReservedSharedBytes = 1024;  ///< of each resident block, for the system

/// What each of `blocks` resident blocks of a multiprocessor may use.
constexpr int shared_bytes_of_each(int blocks) {
  return kSharedBytes / blocks - kReservedSharedBytes;
}

}  // namespace h200
}  // namespace ssmbench
