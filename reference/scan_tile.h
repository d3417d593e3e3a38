#pragma once

#include <cstdint>

namespace ssmbench {

/// Channels that one block of the fp64 scan holds side by side, and time steps that it holds at once: the
/// eight [time][channel] arrays of a tile then take 64 KiB, which stays in the L2 cache of any CPU.
inline constexpr std::int64_t kBlockChannels = 16;
inline constexpr std::int64_t kTileSteps = 64;

/// One tile of a block of channels, [time][channel] in fp64. `error` quantities count relative errors in
/// units of the roundoff of the implementation under test; see scan_tile.cpp.
struct ScanTile {
  std::int64_t steps;
  double delta[kTileSteps * kBlockChannels];        ///< Δ
  double delta_error[kTileSteps * kBlockChannels];  ///< relative error of Δ
  double input[kTileSteps * kBlockChannels];        ///< Δ·u
  double y[kTileSteps * kBlockChannels];            ///< Σ_n C·h, accumulated
  double
      y_magnitude[kTileSteps * kBlockChannels];  ///< Σ_n |C|·|h| with |h| from absolute values, accumulated
  double y_error[kTileSteps * kBlockChannels];   ///< Σ_n |C|·error(h), accumulated
};

/// One state n of every channel of the block: its value, the same recurrence on absolute values, and the
/// bound on the error that an implementation has made so far.
struct ScanState {
  double h[kBlockChannels];
  double magnitude[kBlockChannels];
  double error[kBlockChannels];
};

/// B or C for one state over a tile: element (t, channel) at data[t * time + channel * lane], strides 0 or
/// more.
struct Coefficients {
  const double* data;
  std::int64_t time;
  std::int64_t lane;  ///< 0: one value for all channels of the block; 1: one value per channel
};

/// Advances one state through the tile by method zoh, h = e^{ΔA}·h + Δ·u·B, and adds its share to y.
/// A: kBlockChannels values.
void scan_tile_zoh(ScanTile& tile, ScanState& state, const double* A, Coefficients B, Coefficients C);

}  // namespace ssmbench
