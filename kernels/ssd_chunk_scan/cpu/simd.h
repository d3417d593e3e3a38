#pragma once

#include <cstddef>

#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

// cpu-simd for Mamba-2: what the code for each instruction set shares with the code that is compiled once.

namespace ssmbench::simd {

/// Steps that are converted and scanned at a time.
inline constexpr std::size_t kSsdTile = 32;
/// Room for states, and for head dims rounded up to any vector's lanes.
inline constexpr std::size_t kSsdStates = static_cast<std::size_t>(kMaxSsdDim);

/// One thread's working memory.
struct alignas(64) SsdScratch {
  float state[kSsdStates * kSsdStates];  ///< [state][head dim, rounded up to the lanes]
  float B[kSsdTile * kSsdStates];        ///< [step][state]
  float C[kSsdTile * kSsdStates];
  float x[kSsdTile * kSsdStates];  ///< [step][head dim]
  float y[kSsdTile * kSsdStates];
  float z[kSsdStates];
  float delta[kSsdTile], decay[kSsdTile];
  bool starts[kSsdTile];  ///< first step of a sequence
};

}  // namespace ssmbench::simd
