#pragma once

#include <cstdint>
#include <vector>

#include "reference/common/padded_rows.h"
#include "reference/ssd_chunk_scan/pass.h"
#include "reference/ssd_chunk_scan/tile.h"

namespace ssmbench {

/// One rank-1 update of the state, S ← decay·S + v ⊗ w, and what is read after it, S·r. Numbers w and r are
/// rotated: an error of an angle turns them, so that their errors are counted in the length of their pair,
/// w_size and r_size.
struct Mamba3Update {
  double decay = 1;
  double roundings = 0;             ///< of the state as it was: of the decay, the product and the sum
  const double* v = nullptr;        ///< [head dim]; null: nothing is added
  const double* v_error = nullptr;  ///< absolute, per w_size
  const double *w = nullptr, *w_size = nullptr;  ///< [state]
  const double *r = nullptr, *r_size = nullptr;  ///< [state]; null: nothing is read
};

/// What an update read, for a head dim.
struct Mamba3Read {
  double value, magnitude, error;
  double reads;  ///< Σ (r_size·S)²: variance of one rounding of r or S, and of angles of r
};

/// The recurrence of a headdim × dstate state in fp64 with its error bounds. The bounds are those of SsdPass
/// (reference/ssd_chunk_scan/pass.h), with lengths of pairs in place of the rotated numbers. Updates are
/// collected by `add`, at most kSsdTileSteps of them, and done by `advance`.
class Mamba3Pass {
 public:
  Mamba3Pass(std::int64_t headdim, std::int64_t dstate);

  void clear();
  /// An exact state, (headdim, dstate) f32; `sizes` makes lengths of pairs of a row.
  template <class Sizes>
  void start_from(const float* state, const Sizes& sizes) {
    clear();
    std::vector<double> row(dstate_);
    std::vector<double> size(dstate_);
    for (std::int64_t p = 0; p < headdim_; ++p) {
      std::copy_n(state + p * dstate_, dstate_, row.begin());
      std::copy(row.begin(), row.end(), state_.row(p));
      sizes(row.data(), size.data());
      std::copy(size.begin(), size.end(), magnitude_.row(p));
    }
  }

  /// The place of the update in the tile.
  std::int64_t add(const Mamba3Update& update);
  void advance();

  Mamba3Read read(std::int64_t update, std::int64_t p) const;
  /// Variances of what update `update` read, for every head dim: of one rounding of each term as a whole, and
  /// of each of its parts w·r.
  double of_terms(std::int64_t update) const { return wholes_[update]; }
  double of_parts(std::int64_t update) const { return parts_[update]; }

  double state(std::int64_t p, std::int64_t n) const { return state_.row(p)[n]; }
  double magnitude(std::int64_t p, std::int64_t n) const { return magnitude_.row(p)[n]; }
  double error(std::int64_t p, std::int64_t n) const { return error_.row(p)[n]; }
  /// Variance of a state element of one rounding of each of its terms.
  double variance(std::int64_t n) const { return diagonal_.row(0)[n]; }

 private:
  SsdMatrixSize size() const;
  void advance_spread();

  std::int64_t headdim_, dstate_;
  std::int64_t count_ = 0;  // updates of the tile
  PaddedRows<double> state_;
  PaddedRows<float> magnitude_, error_;
  PaddedRows<double> spread_;    // K = Σ L²·max v²·w·wᵀ
  PaddedRows<double> diagonal_;  // of K, of lengths of pairs
  SsdStepNumbers decay_{}, wholes_{}, parts_{};
  // The tile, [update][element]
  PaddedRows<double> v_, w_, r_, r_squared_, weighted_w_;
  PaddedRows<float> v_size_, added_, late_, w_size_, r_size_;  // w_size_ after an empty row
  std::array<float, kSsdTileSteps> decay_float_{}, decay_and_error_{};
  SsdContraction reads_;
};

}  // namespace ssmbench
