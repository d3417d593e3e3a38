#pragma once

#include <cuda.h>

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/handed.h"

namespace ssmbench::ssd_hopper_bwd {

/// What a walk over all chunks reads and writes (states.cuh).
struct WalkArgs {
  CUtensorMap left, gate, right;  ///< x, none and B; or dout, z and C
  SsdInputs in;
  const float* first;  ///< (B, H, P, N), the state that the walk starts from, or null
  float* last;         ///< the same of the one that it ends with
  const float* steps;  ///< [row][4][step]
  void* images;        ///< [row][dstate tile]: of the states before each chunk of the walk
  float*
      unscales;  ///< in f16: [row][dstate tile][kUnscales], at what belongs to this walk; of the first tile
  HandedStates handed;
  int chunks;
  int parts;  ///< that the walk of a head is cut into, a block each (handed.h); 0: there is no walk
  /// Of a pass of parts: nobody asks for anything but what the walk ends with. Parts are of the chunks that
  /// reach its end alone: decays of f32 make nothing of the others' states.
  bool end_alone = false;
};

/// States that the parts of both walks hand on: those of states, then those of their gradients.
constexpr HandedLayout walk_handed_layout(std::int64_t heads, int parts, int states) {
  return handed_layout(parts > 1 ? 2 * heads * parts : 0, 1, 64 * states);
}

}  // namespace ssmbench::ssd_hopper_bwd
