#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/common/padded_rows.h"
#include "reference/ssd_chunk_scan/pass.h"
#include "reference/ssd_chunk_scan/tile.h"

namespace ssmbench {

/// One rank-1 update of the state, S ← decay·S + v ⊗ w, and what is read after it, S·r and q·S. Numbers w and
/// r are rotated: an error of an angle turns them, so that their errors are counted in the length of their
/// pair, w_size and r_size.
struct Mamba3Update {
  double decay = 1;
  double roundings = 0;               ///< of the state as it was: of the decay, the product and the sum
  double drift = 0;                   ///< those among them that are of angles, which nothing makes alike
  bool is_step = false;               ///< whether it is a step's decay
  const double* v = nullptr;          ///< [head dim]; null: nothing is added
  const double* v_error = nullptr;    ///< absolute, per w_size
  const double* undecayed = nullptr;  ///< [head dim]; v without the step's own decay, where it has that
  const double *w = nullptr, *w_size = nullptr;  ///< [state]
  const double *r = nullptr, *r_size = nullptr;  ///< [state]; null: nothing is read along states
  const double* q = nullptr;                     ///< [head dim]; null: nothing is read along head dims
  double more_variance = 1;                      ///< factor on what rounded operands do to v ⊗ w
};

/// What an update read, for a head dim or a state.
struct Mamba3Read {
  double value, magnitude, error;
  double reads;  ///< Σ (r_size·S)², or Σ (q·S)²: variance of one rounding of r, q or S, and of angles of r
};

/// K = Σ L²·size²·w·wᵀ over updates, size of the other factor, and the variances that it bounds; see SsdPass.
class Mamba3Spread {
 public:
  explicit Mamba3Spread(std::int64_t count);

  void clear();
  /// [update][element] each; `w_size` and `read_squared` are of lengths.
  void advance(std::int64_t updates, const SsdStepNumbers& squared_decay, const SsdStepNumbers& weights,
               const PaddedRows<double>& w, const float* w_size, const PaddedRows<double>& read,
               const PaddedRows<double>& read_squared);

  SsdStepNumbers wholes{};             ///< of one rounding of each term as a whole, by update
  SsdStepNumbers parts{};              ///< of one of each of its parts
  SsdStepNumbers squared_diagonals{};  ///< Σ K[n,n]²
  double diagonal(std::int64_t n) const { return diagonal_.row(0)[n]; }

 private:
  std::int64_t count_;
  PaddedRows<double> matrix_, diagonal_, weighted_;
};

/// The recurrence of a headdim × dstate state in fp64 with its error bounds. The bounds are those of SsdPass
/// (reference/ssd_chunk_scan/pass.h), with lengths of pairs in place of the rotated numbers. Over long memories
/// roundings of angles are taken to conspire within a chunk and to be independent from chunk to chunk. Updates are
/// collected by `add`, at most kSsdTileSteps of them, and done by `advance`.
class Mamba3Pass {
 public:
  /// `reads_headdims`: whether sums over head dims will be read, which costs a second K.
  /// `join_pairs` makes lengths of pairs of the absolute values of a row.
  Mamba3Pass(std::int64_t headdim, std::int64_t dstate, bool reads_headdims,
             std::function<void(double*)> join_pairs);

  void clear();
  /// A state, (headdim, dstate) f32; `sizes` makes lengths of pairs of a row, and `errors`, null for none,
  /// are relative to them, [state].
  template <class Sizes>
  void start_from(const float* state, const Sizes& sizes, const double* errors = nullptr) {
    clear();
    std::vector<double> row(dstate_);
    std::vector<double> size(dstate_);
    for (std::int64_t p = 0; p < headdim_; ++p) {
      std::copy_n(state + p * dstate_, dstate_, row.begin());
      std::copy(row.begin(), row.end(), state_.row(p));
      sizes(row.data(), size.data());
      std::copy(size.begin(), size.end(), magnitude_.row(p));
      for (std::int64_t n = 0; errors != nullptr && n < dstate_; ++n)
        error_.row(p)[n] = static_cast<float>(errors[n] * size[n]);
    }
    memory_.start_from(magnitude_, error_);
    underflow_.start_from(state);
  }

  /// The place of the update in the tile.
  std::int64_t add(const Mamba3Update& update);
  void advance();

  /// Along states, for a head dim.
  Mamba3Read read(std::int64_t update, std::int64_t p) const { return read(along_states_, update, p); }
  /// Along head dims, for a state.
  Mamba3Read read_headdims(std::int64_t update, std::int64_t n) const {
    return read(along_headdims_, update, n);
  }
  /// For every head dim of what was read along states, and for every state of what was read along head dims.
  const Mamba3Spread& spread() const { return over_states_; }
  const Mamba3Spread& spread_of_headdims() const { return over_headdims_; }
  /// Σ of the fourth powers of all state elements after an update, where head dims are read.
  double fourths(std::int64_t update) const { return fourths_[update]; }

  /// Whether all errors are those of a long memory.
  bool is_long() const { return memory_.is_long(); }
  /// Σ error / Σ of the lengths of pairs of the state after the last tile.
  double relative_error() const { return memory_.relative_error(); }

  double state(std::int64_t p, std::int64_t n) const { return state_.row(p)[n]; }
  double magnitude(std::int64_t p, std::int64_t n) const { return magnitude_.row(p)[n]; }
  double error(std::int64_t p, std::int64_t n) const {
    return error_.row(p)[n] + kUnderflowError * underflow_.row(p) * underflow_.column(n);
  }
  /// Variance of a state element of one rounding of each of its terms.
  double variance(std::int64_t n) const { return over_states_.diagonal(n); }

 private:
  static Mamba3Read read(const SsdContraction& from, std::int64_t update, std::int64_t i) {
    return {from.value.row(update)[i], from.magnitude.row(update)[i], from.error.row(update)[i],
            from.squares.row(update)[i]};
  }
  SsdMatrixSize size() const;
  void add_errors(const Mamba3Update& update);
  void advance_values();
  void advance_bounds();
  void advance_memory();
  void advance_spreads();
  void add_underflow();

  std::int64_t headdim_, dstate_;
  bool reads_headdims_;
  std::int64_t count_ = 0;  // updates of the tile
  PaddedRows<double> state_;
  PaddedRows<float> magnitude_, error_;
  std::function<void(double*)> join_pairs_;
  SsdLongMemory memory_;
  SsdUnderflow underflow_;
  SsdTileErrors errors_;        // of the tile
  PaddedRows<double> lengths_;  // of pairs of the state
  Mamba3Spread over_states_, over_headdims_;
  SsdContraction along_states_, along_headdims_;
  SsdStepNumbers decay_{}, more_variance_{}, fourths_{};
  // The tile, [update][element]
  PaddedRows<double> v_, undecayed_, w_, r_, r_squared_, q_, q_squared_;
  PaddedRows<float> v_size_, added_, late_, w_size_, r_size_, q_size_;  // w_size_ after an empty row
  std::array<float, kSsdTileSteps> decay_float_{}, decay_and_error_{};
};

}  // namespace ssmbench
