#pragma once

#include <cstdint>

#include "kernels/common/hardware.h"

// Shared memory of cuda-chunked; the picture is in kernel.cuh.

namespace ssmbench::mamba3_chunked {

inline constexpr int kSteps = 64;  ///< of a chunk
inline constexpr int kRows = 64;   ///< head dims of a block
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarpThreads;
inline constexpr int kMaxStates = 128;

/// A warp adds up the increments of so many steps.
inline constexpr int kSegment = kSteps / kWarps;

/// Bytes from the start of shared memory; tiles of 16-bit elements, rows of 128 bytes or a multiple.
struct Layout {
  int q, k, state;             ///< [step or row][state]
  int v, weighted, scores;     ///< [step][row], [step][row], [step][earlier step]
  int sums, own, later;        ///< [step], f32
  int phases, totals, angles;  ///< [step][pair], [segment][pair], [pair]
  int bytes;

  constexpr Layout(int states, int pairs) {
    const int row = 2 * states;
    const int square = 2 * kSteps * kRows;
    q = 0;
    k = q + kSteps * row;
    state = k + kSteps * row;
    v = state + kRows * row;
    weighted = v + square;
    scores = weighted + square;
    sums = scores + 2 * kSteps * kSteps;
    own = sums + 4 * kSteps;
    later = own + 4 * kSteps;
    phases = later + 4 * kSteps;
    totals = phases + 4 * kSteps * pairs;
    angles = totals + 4 * kWarps * pairs;
    bytes = angles + 4 * pairs;
  }
};

}  // namespace ssmbench::mamba3_chunked
