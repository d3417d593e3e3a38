#pragma once

#include <cuda.h>

#include "kernels/ssd_chunk_scan/args.h"

namespace ssmbench::ssd_hopper_bwd {

/// What a walk over all chunks reads and writes (states.cuh).
struct WalkArgs {
  CUtensorMap left, gate, right;  ///< x, none and B; or dout, z and C
  SsdInputs in;
  const float* first;  ///< (B, H, P, N), the state that the walk starts from, or null
  float* last;         ///< the same of the one that it ends with
  const float* steps;  ///< [row][4][step]
  void* images;        ///< [row][dstate tile]: of the states before each chunk of the walk
  int chunks;
};

}  // namespace ssmbench::ssd_hopper_bwd
