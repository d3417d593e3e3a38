#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/dtype.h"
#include "model/problem.h"
#include "reference/common/padded_rows.h"
#include "reference/common/rounded.h"
#include "reference/ssd_chunk_scan/long_memory.h"
#include "reference/ssd_chunk_scan/tile.h"

namespace ssmbench {

/// One number for each step of a tile.
using SsdStepNumbers = std::array<double, kSsdTileSteps>;

/// What contractions of the state with vectors give, step by step of a tile, element by element.
struct SsdContraction {
  PaddedRows<double> value;
  PaddedRows<float> magnitude;  ///< on absolute values
  PaddedRows<float> error;      ///< Σ |vector|·error(state); of long memories the root of its squares' sum
  PaddedRows<double> squares;   ///< Σ (vector·state)²
  SsdStepNumbers spread{};      ///< bound, for every element, on the variance from roundings of terms

  explicit SsdContraction(std::int64_t count)
      : value(kSsdTileSteps, count),
        magnitude(kSsdTileSteps, count),
        error(kSsdTileSteps, count),
        squares(kSsdTileSteps, count) {}
};

/// Makes errors of their squares, which independent elements add up to. `largest`: the largest error of the
/// state's elements, for squares beyond f32; `squared` and `count`: of the vector.
void finish_errors(std::int64_t steps, const std::vector<float>& largest, const PaddedRows<double>& squared,
                   std::int64_t count, SsdContraction& sums);

/// What happens to the state in the steps of a tile and what is read from it after each:
/// S ← decay·S + v ⊗ w, rows v over head dims, columns w over states. Vectors are [step][element].
struct SsdTile {
  std::int64_t steps = 0;
  SsdStepNumbers decay{};
  SsdStepNumbers decay_error{};       ///< relative
  SsdStepNumbers cumulative_error{};  ///< relative, of what the step before added; see SsdStep
  const PaddedRows<double>& v;
  const PaddedRows<double>& v_error;  ///< absolute error of v·w per |w|, the rounding of the product included
  const PaddedRows<double>& w;
  const PaddedRows<double>& r;     ///< read by Σ_n S[p, n]·r[n] for each p
  const PaddedRows<double>& q;     ///< and by Σ_p S[p, n]·q[p] for each n, where the pass reads head dims
  double least_operand = 0;        ///< of v and q; see least_operand()
  SsdStepNumbers least_product{};  ///< of v with its decay; see SsdFloor
};

/// What a rounded operand's error is relative to at least: f16 has the same steps for all numbers below 2^-14.
inline double least_operand(DType dtype) {
  return dtype == DType::f16 ? 0x1p-14 : 0;
}
/// As reference_depends_on_dtype, of operations whose operands have one.
inline bool has_least_operand(const Problem& problem) {
  return least_operand(problem.dtype()) > 0;
}

/// K = Σ L²·size²·w·wᵀ over steps, and the variance that it bounds; see SsdPass.
class SsdSpread {
 public:
  explicit SsdSpread(std::int64_t count);

  void clear();
  /// `sizes`: of the other factor of each step. `least`: what roundings of w are relative to at least.
  void advance(std::int64_t steps, const SsdStepNumbers& decay, const SsdStepNumbers& sizes,
               const PaddedRows<double>& w, const PaddedRows<double>& r, double least);

  SsdStepNumbers variance{};           ///< of what r reads, by step of the tile
  SsdStepNumbers squared_diagonals{};  ///< Σ K[n,n]², by step of the tile
  double diagonal(std::int64_t n) const { return diagonal_.row(0)[n]; }

 private:
  std::int64_t count_;
  PaddedRows<double> matrix_;
  PaddedRows<double> diagonal_;
  PaddedRows<double> v_;  // size²·w
};

/// The variance of a state's elements from roundings of f16 that do not become less where decays make the products
/// L(s→t)·v_s small: Σ least²·w_s[n]² over steps. An implementation moves the products of a chunk into the range of
/// f16 by one factor, by which the largest Δ of the chunk becomes 1/2 or more, or by none. What it rounds there it has
/// rounded by the end of the chunk, and decays then apply to it as to the state.
class SsdFloor {
 public:
  explicit SsdFloor(std::int64_t dstate) : old_(dstate), before_(dstate), now_(dstate) {}

  /// The least number that a product rounds relative to, for a step of Δ; `least`: least_operand().
  static double of_step(double least, double delta) { return least * std::max(1.0, 2 * std::abs(delta)); }

  void clear();
  /// Step t of the tile.
  void advance(const SsdTile& tile, std::int64_t t);
  /// In squared roundoffs.
  double variance(std::int64_t n) const {
    return decay_ * decay_ * old_[n] + least_square() * (before_[n] + now_[n]);
  }

 private:
  double least_square() const { return std::pow(std::max(least_before_, least_now_), 2); }

  // Steps by the kLongestChunk: those that may be of the chunk at hand, those before them, and older ones.
  std::vector<double> old_, before_, now_;
  double least_before_ = 0, least_now_ = 0;
  double decay_ = 1;  // since the last of before_
  std::int64_t steps_ = 0;
};

/// What may be lost to underflow, where implementations multiply in any order. Of a term L(s→t)·v_s·w_s·r_t
/// any product of some of its factors may become 0: e^(sum_t − sum_s) where v_s·w_s is large, w_s·r_t before it
/// meets v_s. What the other factors multiply to is at most (1 + |v_s|)·(1 + |w_s|)·(1 + |r_t|), since no
/// decay is above 1; the sum over s is at most Σ(1 + |v_s|)·(1 + max|w_s|)·(1 + |r_t|). An exact state that
/// the sequence starts from counts as a term.
class SsdUnderflow {
 public:
  SsdUnderflow(std::int64_t headdim, std::int64_t dstate) : rows_(headdim), columns_(dstate) { clear(); }

  void clear();
  /// (headdim, dstate)
  void start_from(const float* state);
  /// A step of these vectors.
  template <class T>
  void add(const double* v, const T* w) {
    for (double& row : rows_) row += 1 + std::abs(*v++);
    for (double& column : columns_) column = std::max<double>(column, 1 + std::abs(*w++));
  }
  /// What a read may have lost, by the other index, in roundoffs of f32: a bound for head dim p or state n
  /// is this times row(p) or column(n).
  template <class T>
  double lost_over_states(const T* r) const {
    return lost(columns_, r);
  }
  template <class T>
  double lost_over_headdims(const T* q) const {
    return lost(rows_, q);
  }
  double row(std::int64_t p) const { return rows_[p]; }
  double column(std::int64_t n) const { return columns_[n]; }

 private:
  template <class T>
  static double lost(const std::vector<double>& sizes, const T* read) {
    double sum = 0;
    for (const double size : sizes) sum += size * (1 + std::abs(*read++));
    return kUnderflowError * sum;
  }

  std::vector<double> rows_, columns_;
};

/// The recurrence of a headdim × dstate state in fp64 with its error bounds, a tile of steps at a time: both
/// the state of the forward scan (v = Δx, w = B, read by C) and the adjoint one of its gradient (v = dy, w =
/// C, read by B, steps last to first).
///
/// Bounds for f32 operations are the running error analysis of selective_scan/tile_zoh.cpp: with
/// M ← decay·M + |v|⊗|w|,
///   E ← decay·(E + decay_error·M + cumulative_error·|v|⊗|w| of the step before) + v_error⊗|w| + 2·M
/// From chunk to chunk the bound of long_memory.h takes its place where it is smaller.
///
/// Bounds for rounded operands. With terms T_s = L(s→t)·v_s·(w_s·r) of a result read by r, a chunked
/// implementation rounds r and the chunk's state (relative errors of r[n]·S[n] for each n), v_s and the
/// product of decay and w_s·r or v_s (of T_s), and w_s (of each w_s[n]·r[n] in T_s). Such roundings are
/// independent, and their sum has a variance of Σ (r[n]·S[n])², Σ_s T_s² and Σ_s Σ_n (…)² times u² at most.
/// The last two take K = Σ_s L²·v_s²·w_s wᵀ_s: rᵀ·K·r and Σ K[n,n]·r[n]². K is kept once for all head dims,
/// with the largest v_s². Reading along head dims has the same with v and w exchanged. v and q are made by the
/// implementation: the roundings of what is less than least_operand() are as large as those of that. SsdFloor has
/// those of the decayed products.
class SsdPass {
 public:
  /// `reads_headdims`: whether sums over head dims will be read, which costs a second K.
  SsdPass(std::int64_t headdim, std::int64_t dstate, bool reads_headdims);

  void clear();
  /// An exact state, (headdim, dstate) f32.
  void start_from(const float* state);
  void advance(const SsdTile& tile);
  /// Only the decay of a step, after which nothing is added; reads nothing.
  void decay(double decay, double decay_error, double cumulative_error);

  std::int64_t headdim() const { return headdim_; }
  std::int64_t dstate() const { return dstate_; }
  double state(std::int64_t p, std::int64_t n) const { return state_.row(p)[n]; }
  float magnitude(std::int64_t p, std::int64_t n) const { return magnitude_.row(p)[n]; }
  double error(std::int64_t p, std::int64_t n) const {
    return error_.row(p)[n] + kUnderflowError * underflow_.row(p) * underflow_.column(n);
  }
  /// No state (p, n) of the sequence was ever larger than row(p)·column(n).
  const SsdUnderflow& underflow() const { return underflow_; }
  /// Whether all errors are those of a long memory.
  bool is_long() const { return memory_.is_long(); }
  /// Σ error / Σ |state| after the last tile.
  double relative_error() const { return memory_.relative_error(); }
  /// Variance of a state element from roundings of its terms.
  double variance(std::int64_t n) const {
    return kTermRoundings * (over_states_.diagonal(n) + floor_.variance(n));
  }

  /// What reading over states after step t of the last tile may have lost to underflow, in roundoffs of f32.
  double lost(std::int64_t t, std::int64_t p) const { return underflow_.row(p) * lost_over_states_[t]; }

  /// What the last tile gave.
  const SsdContraction& of_states() const { return of_states_; }
  const SsdContraction& of_headdims() const { return of_headdims_; }
  /// Σ of the fourth powers of all state elements after step t of the last tile, where head dims are read.
  double fourths(std::int64_t t) const { return fourths_[t]; }
  /// The same of the squares of K[n,n] over all state elements: the fourth powers of what their terms are in
  /// the root of the sum of squares, which is the size that their roundings have also where they cancel.
  double fourths_of_terms(std::int64_t t) const {
    return static_cast<double>(headdim_) * over_states_.squared_diagonals[t];
  }

  /// Roundings that T_s has as a whole (v_s and the decayed product), and those of its parts.
  static constexpr double kTermRoundings = 2;
  static constexpr double kPartRoundings = 2;  ///< w_s, and w_s with its decay

 private:
  SsdMatrixSize size_of(std::int64_t steps) const;
  void advance_values(const SsdTile& tile);
  void advance_bounds(const SsdTile& tile);
  void advance_memory(const SsdTile& tile);
  void advance_spreads(const SsdTile& tile);
  void add_underflow(const SsdTile& tile);
  void add_floor(const SsdTile& tile);

  std::int64_t headdim_, dstate_;
  bool reads_headdims_;
  PaddedRows<double> state_;  // [p][n], as the next two
  PaddedRows<float> magnitude_, error_;
  SsdLongMemory memory_;
  SsdUnderflow underflow_;
  SsdStepNumbers lost_over_states_{};
  std::vector<double> last_v_;  // |v| of the step before
  SsdSpread over_states_, over_headdims_;
  SsdFloor floor_;
  SsdContraction of_states_, of_headdims_;
  SsdStepNumbers fourths_{};
  // The tile at hand, [step][element].
  PaddedRows<double> r_squared_, q_squared_;
  PaddedRows<float> v_size_, added_, late_, q_size_, r_size_;
  PaddedRows<float> w_size_;  // after a first row for the step before the tile
};

}  // namespace ssmbench
