#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cpu/simd_lanes.h"
#include "ops/selective_scan/selective_scan.h"

// What the parts of cpu-simd that are compiled once per instruction set share with the part that is compiled
// once.

namespace ssmbench::simd {

/// Steps that are converted, transposed and scanned at a time: the five tiles of one vector of channels below
/// take 20 KB at 16 lanes, so they stay in a first-level cache.
inline constexpr std::size_t kTile = 64;
/// Most channels of a run. They share the conversion of B and C.
inline constexpr std::size_t kMaxChannels = 64;

/// Neighbouring channels of one batch element that lie in one group.
struct ChannelRun {
  std::int64_t batch, group, first_channel;
  std::size_t channels;
};

/// One thread's working memory. lane: a channel in a vector; vector: one of the run's vectors of channels,
/// each with room for its states rounded up to 4, the width of a transposition.
struct alignas(64) Scratch {
  static constexpr std::size_t kStates = static_cast<std::size_t>(kMaxDState);

  float A[kStates * kMaxChannels];      ///< [vector][state][lane]
  float state[kStates * kMaxChannels];  ///< [vector][state][lane]
  float B[kStates * kMaxChannels];  ///< variable: [state][step of the tile]; constant: [vector][state][lane]
  float C[kStates * kMaxChannels];  ///< like B
  float staging[kStates * kTile];   ///< a matrix before transposition
  float u[kTile * kMaxLanes];       ///< [step][lane], and so the next ones
  float z[kTile * kMaxLanes];
  float delta[kTile * kMaxLanes];    ///< Δ
  float delta_u[kTile * kMaxLanes];  ///< Δ·u
  float y[kTile * kMaxLanes];
};
static_assert(kTile == kMaxChannels, "B and C have one size whether they are variable or constant");

}  // namespace ssmbench::simd
