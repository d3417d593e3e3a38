#pragma once

#include "kernels/common/host_device.h"

// Which thread of cuda-blelloch combines what. Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// Where step `step` of a tile lies in shared memory: an unused word after every 32 keeps the powers of two
/// that the tree is walked in from all falling into one bank (Harris, Sengupta & Owens, "Parallel Prefix Sum
/// (Scan) with CUDA", GPU Gems 3, 2007, section 39.2.3).
SSMBENCH_HD constexpr int padded_index(int step) {
  return step + step / 32;
}

/// The two nodes, `stride` steps wide, that a thread joins: each is held at the last step it covers.
struct BlellochPair {
  int left, right;
};

/// Threads 0 to tile/(2·stride) − 1 have a pair.
SSMBENCH_HD constexpr BlellochPair blelloch_pair(int thread, int stride) {
  return {(2 * thread + 1) * stride - 1, (2 * thread + 2) * stride - 1};
}

}  // namespace ssmbench
