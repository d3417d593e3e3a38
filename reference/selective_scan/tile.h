#pragma once

#include <complex>
#include <cstdint>

#include "model/method.h"
#include "reference/common/statistical_bound.h"

// The recurrence of one state over a tile of time steps, for a block of channels side by side, in fp64. S is
// double, or std::complex<double> when A is complex.

namespace ssmbench {

/// Channels that one block of the fp64 scan holds side by side, and time steps that it holds at once: the
/// seven [time][channel] arrays of a tile then take 56 KiB, which stays in the L2 cache of any CPU.
inline constexpr std::int64_t kBlockChannels = 16;
inline constexpr std::int64_t kTileSteps = 64;

/// One tile of a block of channels, [time][channel]. `error` quantities count relative errors in units of the
/// roundoff of the implementation under test; see tile_zoh.cpp.
struct ScanTile {
  std::int64_t steps;
  double u[kTileSteps * kBlockChannels];
  double delta[kTileSteps * kBlockChannels];        ///< Δ
  double delta_error[kTileSteps * kBlockChannels];  ///< relative error of Δ
  double delta_u[kTileSteps * kBlockChannels];      ///< Δ·u
  double y[kTileSteps * kBlockChannels];            ///< Σ_n C·h, accumulated; 2·Re of it when complex
  double y_magnitude[kTileSteps * kBlockChannels];  ///< the same on absolute values
  double y_error[kTileSteps * kBlockChannels];  ///< Σ_n |C|·bound(h), accumulated; twice that when complex
  double y_response[kTileSteps * kBlockChannels];  ///< Σ_n C·response, accumulated, as y
};

/// One state n of every channel of the block: its value, the same recurrence on absolute values, and the
/// bound on the error that an implementation has made so far.
template <class S>
struct ScanState {
  S h[kBlockChannels];
  S previous_input[kBlockChannels];  ///< B·u of the step before, for methods of two samples
  double magnitude[kBlockChannels];
  double error[kBlockChannels];
  S response[kBlockChannels];  ///< what a relative error of 1 in every decay so far would do to h
  StatisticalBound<kBlockChannels> statistical;  ///< the other bound on that error

  /// After a tile.
  double bound(std::int64_t channel) const {
    return smaller_bound(error[channel], statistical.bound(channel));
  }
};

/// B or C for one state over a tile: element (t, channel) at data[t * time + channel * lane], strides 0 or
/// more.
template <class S>
struct Coefficients {
  const S* data;
  std::int64_t time;
  std::int64_t lane;  ///< 0: one value for all channels of the block; 1: one value per channel

  S at(std::int64_t t, std::int64_t channel) const { return data[t * time + channel * lane]; }
};

/// Advances one state through the tile and adds its share to y. A: kBlockChannels values. Method zoh, on SIMD
/// lanes.
void scan_tile_zoh(ScanTile& tile, ScanState<double>& state, const double* A, Coefficients<double> B,
                   Coefficients<double> C);

void scan_tile_zoh(ScanTile& tile, ScanState<std::complex<double>>& state, const std::complex<double>* A,
                   Coefficients<std::complex<double>> B, Coefficients<std::complex<double>> C);

/// The same for any method, channel by channel.
template <class S>
void scan_tile_by(MethodId method, ScanTile& tile, ScanState<S>& state, const S* A, Coefficients<S> B,
                  Coefficients<S> C);

}  // namespace ssmbench
