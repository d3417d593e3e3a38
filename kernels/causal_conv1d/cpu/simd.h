#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/causal_conv1d/args.h"
#include "kernels/causal_conv1d/cpu/filters.h"
#include "kernels/common/cpu/simd_lanes.h"
#include "ops/causal_conv1d/causal_conv1d.h"

// cpu-simd for the causal convolution: what the code for each instruction set shares with the code that is
// compiled once.

namespace ssmbench::simd {

/// A tile is up to so many steps of so many channels (layout bld), or so many steps of one channel (bdl).
inline constexpr std::size_t kConvChannels = 64;
inline constexpr std::size_t kConvSteps = 32;
inline constexpr std::size_t kConvRowSteps = 2048;
/// Steps before a tile, and after it.
inline constexpr std::size_t kConvHalo = static_cast<std::size_t>(kMaxConvWidth) - 1;

/// The filter of a tile's channels, zeros past them.
struct alignas(64) ConvTileFilter {
  float weight[kMaxConvWidth][kConvChannels];
  float bias[kConvChannels];

  /// `count` channels from `first` on.
  void load(const ConvFilters& from, std::int64_t first, std::size_t count, int width) {
    *this = {};
    for (std::size_t c = 0; c < count; ++c) {
      const auto channel = first + static_cast<std::int64_t>(c);
      bias[c] = from.bias[channel];
      for (int j = 0; j < width; ++j) weight[j][c] = from.weight[channel * width + j];
    }
  }
};

/// Rounding rows up to vectors writes a little past a tile.
inline constexpr std::size_t kConvTileFloats =
    std::max((kConvSteps + 2 * kConvHalo) * kConvChannels, kConvRowSteps + 2 * kConvHalo) + 2 * kMaxLanes;

/// One thread's working memory.
struct alignas(64) ConvScratch {
  float x[kConvTileFloats];  ///< from the oldest tap of the first step on
  float out[kConvTileFloats];
  float g[kConvTileFloats];
  float sums[kMaxConvWidth + 1][kConvChannels];  ///< gradients of weights, then of the bias
  std::int32_t numbers[kConvRowSteps + 2 * kConvHalo + 2 * kMaxLanes];
  ConvTileFilter filter;
};

/// Room for a decoding step.
struct UpdateScratch {
  std::vector<float> steps, out, state;  ///< conv_state ++ x, out, and conv_state as it lies in memory
  ConvTileFilter filter;
};

/// The rows of a tile that a task computes: channels of one sequence of the batch.
struct ConvBlock {
  std::int64_t batch, channel;
  std::size_t channels;
};

inline std::int64_t conv_block_channels(const ConvInputs1d& in) {
  return in.channels_last ? static_cast<std::int64_t>(kConvChannels) : 1;
}
inline std::int64_t conv_blocks(const ConvInputs1d& in) {
  return (in.dim + conv_block_channels(in) - 1) / conv_block_channels(in);
}
inline ConvBlock conv_block(const ConvInputs1d& in, std::int64_t batch, std::int64_t index) {
  const std::int64_t channel = index * conv_block_channels(in);
  return {batch, channel, static_cast<std::size_t>(std::min(conv_block_channels(in), in.dim - channel))};
}

}  // namespace ssmbench::simd
