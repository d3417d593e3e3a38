#pragma once

#include <cstddef>

#include "ops/mamba3/mamba3.h"

// cpu-simd for Mamba-3: what the code for each instruction set shares with the code that is compiled once.

namespace ssmbench::simd {

/// Steps that are converted, rotated and scanned at a time.
inline constexpr std::size_t kMamba3Tile = 16;
/// Room for states, and for head dims rounded up to any vector's lanes.
inline constexpr std::size_t kMamba3Room = static_cast<std::size_t>(kMaxMamba3Dim);
inline constexpr std::size_t kMamba3Ranks = static_cast<std::size_t>(kMaxMamba3Rank);

/// One thread's working memory. Rows are kMamba3Room apart.
struct alignas(64) Mamba3Scratch {
  float state[kMamba3Room * kMamba3Room];             ///< [state][head dim, rounded up to the lanes]
  float q[kMamba3Tile * kMamba3Ranks * kMamba3Room];  ///< [step][rank][state]
  float k[kMamba3Tile * kMamba3Ranks * kMamba3Room];
  float v[kMamba3Tile * kMamba3Ranks * kMamba3Room];  ///< [step][rank][head dim], times MIMO_V
  float y[kMamba3Tile * kMamba3Ranks * kMamba3Room];
  float scores[kMamba3Tile * kMamba3Ranks * kMamba3Ranks];  ///< γ·q^r·k^r', [step][r][r']
  float ups[kMamba3Ranks * kMamba3Room];                    ///< MIMO_V, MIMO_Z and MIMO_Out, [rank][head dim]
  float gates[kMamba3Ranks * kMamba3Room];
  float downs[kMamba3Ranks * kMamba3Room];
  float row[kMamba3Room], z[kMamba3Room], sum[kMamba3Room];
  float alpha[kMamba3Tile], later[kMamba3Tile];
  float beta;  ///< of a decoding step
  float sine[kMamba3Room], cosine[kMamba3Room];
};

}  // namespace ssmbench::simd
