#pragma once

#include <cstdint>
#include <vector>

namespace ssmbench {

/// What a contraction of the state with a vector gives, element by element.
struct SsdContraction {
  std::vector<double> value;
  std::vector<float> magnitude;  ///< on absolute values
  std::vector<float> error;      ///< Σ |vector|·error(state)
  std::vector<double> squares;   ///< Σ (vector·state)²
  double fourths = 0;            ///< Σ of the fourth powers of all state elements
  double spread = 0;             ///< bound, for every element, on the variance from roundings of terms

  explicit SsdContraction(std::int64_t count)
      : value(count), magnitude(count), error(count), squares(count) {}
  void clear();
};

/// What happens to the state in one step: S ← decay·S + v ⊗ w, rows v over head dims, columns w over states.
struct SsdUpdate {
  double decay;
  double decay_error;       ///< relative
  double cumulative_error;  ///< relative, of what the step before added; see SsdStep
  const double* v;
  const double* v_error;  ///< absolute error of v·w per |w|, the rounding of the product included
  const double* w;
};

/// What is read from the state after a step; null where it is not.
struct SsdReads {
  const double* r = nullptr;            ///< by Σ_n S[p, n]·r[n] for each p
  SsdContraction* of_states = nullptr;  ///< what that gives
  const double* q = nullptr;            ///< by Σ_p S[p, n]·q[p] for each n
  SsdContraction* of_headdims = nullptr;
};

/// One head dim's row of the state and its bounds.
struct SsdStateRow {
  double* state;
  float* magnitude;
  float* error;
};

/// The recurrence of a headdim × dstate state in fp64 with its error bounds, one step at a time: both the
/// state of the forward scan (v = Δx, w = B, read by C) and the adjoint one of its gradient (v = dy, w = C,
/// read by B, steps last to first).
///
/// Bounds for f32 operations are the running error analysis of scan_tile_zoh.cpp: with
/// M ← decay·M + |v|⊗|w|,
///   E ← decay·(E + decay_error·M + cumulative_error·|v|⊗|w| of the step before) + v_error⊗|w| + 2·M
///
/// Bounds for rounded operands. With terms T_s = L(s→t)·v_s·(w_s·r) of a result read by r, a chunked
/// implementation rounds r and the chunk's state (relative errors of r[n]·S[n] for each n), v_s and the
/// product of decay and w_s·r or v_s (of T_s), and w_s (of each w_s[n]·r[n] in T_s). Such roundings are
/// independent, and their sum has a variance of Σ (r[n]·S[n])², Σ_s T_s² and Σ_s Σ_n (…)² times u² at most.
/// The last two take K = Σ_s L²·v_s²·w_s wᵀ_s: rᵀ·K·r and Σ K[n,n]·r[n]². K is kept once for all head dims,
/// with the largest v_s². Reading along head dims has the same with v and w exchanged.
class SsdPass {
 public:
  /// `reads_headdims`: whether sums over head dims will be read, which costs a second K.
  SsdPass(std::int64_t headdim, std::int64_t dstate, bool reads_headdims);

  void clear();
  /// An exact state, (headdim, dstate) f32.
  void start_from(const float* state);
  void advance(const SsdUpdate& update, const SsdReads& reads);
  /// Only the decay of a step, after which nothing is added.
  void decay(double decay, double decay_error, double cumulative_error);

  std::int64_t headdim() const { return headdim_; }
  std::int64_t dstate() const { return dstate_; }
  double state(std::int64_t p, std::int64_t n) const { return state_[p * dstate_ + n]; }
  float magnitude(std::int64_t p, std::int64_t n) const { return magnitude_[p * dstate_ + n]; }
  float error(std::int64_t p, std::int64_t n) const { return error_[p * dstate_ + n]; }
  /// Σ of the squares of K[n,n] over all state elements: the fourth powers of what their terms are in the
  /// root of the sum of squares, which is the size that their roundings have also where they cancel.
  double fourths_of_terms() const;
  /// Variance of a state element from roundings of its terms.
  double variance(std::int64_t n) const { return kTermRoundings * of_states_[n * dstate_ + n]; }

  /// Roundings that T_s has as a whole (v_s and the decayed product), and those of its parts.
  static constexpr double kTermRoundings = 2;
  static constexpr double kPartRoundings = 2;  ///< w_s, and w_s with its decay

 private:
  void advance_spreads(const SsdUpdate& update, const SsdReads& reads);

  std::int64_t headdim_, dstate_;
  std::vector<double> state_;  // [p][n], as the next two
  std::vector<float> magnitude_, error_;
  std::vector<float> last_v_, last_w_;  // |v| and |w| of the step before
  std::vector<float> w_, r_;            // |w| and |r| of the step at hand
  std::vector<double> of_states_;       // K over states, its lower triangle in rows of dstate
  std::vector<double> of_headdims_;     // K over head dims, empty when nobody reads along them
};

}  // namespace ssmbench
