#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// A bound on the error of a recurrence h_t = a_t·h_{t-1} + b_t that only a freak exceeds, for memories so long
// that the running error bound, which charges every rounding at the sum of absolute values and lets all of
// them conspire, is larger than h. docs/tolerances.md derives it ("Long memories"). In units of the roundoff:
//   D_t = |a_t|·D_{t-1} + δ_t·|a_t·h_{t-1}| + β_t·|b_t|
// is what relative errors δ of the decays, one roundoff at least, and β of the terms do, whatever their signs.
// The order of summation does not change it. Roundings of products and sums do depend on it: every rounding
// of a contiguous run of steps is at most 3 times what one step adds to D, at the largest that this has been,
// decayed. Within a tile of steps they are taken to conspire, and from tile to tile to be independent:
//   V = L²·V_before + (3·max(ΔD, L·(max before)))²,    L: the decay over the tile,  ΔD = D − L·D_before
// The bound is 2·D + 4.5·√V; c = 2 of the tolerance makes that 9 deviations of bounded independent terms, which
// is exceeded with probability 2·exp(−9²/2) = 5e-18 (Hoeffding 1963; Higham & Mary 2019, theorem 2.4).

namespace ssmbench {

/// State of the bound at the end of a tile, for `kCount` recurrences side by side.
template <std::int64_t kCount>
struct StatisticalBound {
  /// `spread` at the start of a tile: the bound in units of kWithinTile.
  double start[kCount] = {};

  /// What one unit of D within the present tile is worth: twice itself, and 4.5·3 for the roundings beside it.
  static constexpr double kWithinTile = 2 + 4.5 * 3;

  /// After a tile in which spread_t = |a_t|·spread_{t-1} + δ_t·|a_t·h_{t-1}| + β_t·|b_t| went from `start` to
  /// `spread`, and Π|a_t| = decay. Between the two the bound is kWithinTile·spread_t.
  __attribute__((always_inline)) void end_tile(const double* spread, const double* decay) {
#pragma omp simd
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double grown = std::max(spread[i] - decay[i] * start[i], 0.0);
      coherent_[i] = decay[i] * coherent_[i] + grown;
      largest_[i] = std::max(3 * grown, decay[i] * largest_[i]);
      variance_[i] = decay[i] * decay[i] * variance_[i] + largest_[i] * largest_[i];
      start[i] = (2 * coherent_[i] + 4.5 * std::sqrt(variance_[i])) * (1 / kWithinTile);
    }
  }

  double bound(std::int64_t i) const {
    return kWithinTile * start[i];
  }

 private:
  double coherent_[kCount] = {}, variance_[kCount] = {}, largest_[kCount] = {};
};

/// Weight of squared errors in a sum over `steps` steps of a long memory, where so many steps on end have errors
/// that are alike. A tolerance of c·kSpread·√(w·Σe²) leaves n steps that all have half a roundoff in common, c·e/8
/// each, twice their sum at w = n/256. Below that many remembered, blocks of 256 steps are as one.
inline double weight_over_time(double alike, std::int64_t steps) {
  constexpr double kBlock = 256;
  return std::clamp(alike, 1.0, std::max(kBlock, static_cast<double>(steps) / kBlock));
}

/// The smaller one, but that what may have overflowed stays without bound.
inline double smaller_bound(double running, double statistical) {
  return std::isinf(running) ? running : std::min(running, statistical);
}

}  // namespace ssmbench
