#include <cmath>
#include <limits>

#include "reference/common/discretization.h"
#include "reference/common/discretization_derivative.h"
#include "reference/common/rounded.h"
#include "reference/selective_scan/tile.h"

namespace ssmbench {

// The error bound is the one of tile_zoh.cpp with the method's own errors of Ā, c and c' in place of
// zoh's:
//   m_t = |Ā|·m_{t-1} + |c|·|B_t·u_t| + |c'|·|B_{t-1}·u_{t-1}|
//   e_t = |Ā|·e_{t-1} + δĀ·m_{t-1} + (δc + 2·r·|c|)·|B_t·u_t| + (δc' + 2·r·|c'|)·|B_{t-1}·u_{t-1}| + 2·r·m_t
// with r = 1 rounding for a real operation and r = 3 for a complex product, which has √8 at most (Higham,
// "Accuracy and Stability of Numerical Algorithms", 2nd ed., lemma 3.5). Once m_t is beyond f32 an
// implementation may have overflowed, even where C makes y small, and e_t is infinite from there on. The bound
// of statistical_bound.h takes its place where it is smaller, with δ·|Ā| = r·(δĀ − |Ā|) for exponentials, whose
// errors are not alike by more than a roundoff, and r·δĀ for a quotient.
template <class S>
void scan_tile_by(MethodId method, ScanTile& tile, ScanState<S>& state, const S* A, Coefficients<S> B,
                  Coefficients<S> C) {
  constexpr bool kComplex = !std::is_same_v<S, double>;
  constexpr double kRounding = kComplex ? 3 : 1;
  constexpr double kShare = kComplex ? 2 : 1;  // y = 2·Re Σ C·h when complex
  // Roundings next to 1 are alike at all steps where Δ·A is small. An exponential has one of half a roundoff; a
  // bilinear rule has a numerator, a denominator and a quotient, of 2½ roundoffs together where two are above 1.
  // What is estimated of decays is taken in units of that over the ¾ that an exponential may show.
  const bool is_quotient = method == MethodId::bilinear || method == MethodId::bilinear_flipped;
  const double bias = is_quotient ? 2.5 / 0.75 : 1;
  double spreads[kBlockChannels];
  double decays[kBlockChannels];
  for (std::int64_t c = 0; c < kBlockChannels; ++c) {
    double spread = state.statistical.start[c];
    double tile_decay = 1;
    for (std::int64_t t = 0; t < tile.steps; ++t) {
      const std::int64_t at = t * kBlockChannels + c;
      const double delta = tile.delta[at];
      const Discretized<S> step = discretize(method, delta, A[c]);
      const DiscretizationError error = discretization_error(method, delta, tile.delta_error[at], A[c], step);
      const S input = B.at(t, c) * tile.u[at];
      const double now = std::abs(input);
      const double before = std::abs(state.previous_input[c]);
      const double decay = std::abs(step.decay);

      const double inherited = decay * state.error[c] + kRounding * error.decay * state.magnitude[c];
      const double decay_spread = kRounding * (is_quotient ? error.decay : error.decay - decay);
      const double kept_spread = decay * spread + decay_spread * std::abs(state.h[c]);
      state.response[c] = step.decay * (state.response[c] + bias * state.h[c]);
      state.h[c] =
          step.decay * state.h[c] + step.input * input + step.previous_input * state.previous_input[c];
      state.magnitude[c] =
          decay * state.magnitude[c] + std::abs(step.input) * now + std::abs(step.previous_input) * before;
      const double added = kUnderflowError * (std::abs(step.input) + std::abs(step.previous_input)) +
                           (error.input + 2 * kRounding * std::abs(step.input)) * now +
                           (error.previous_input + 2 * kRounding * std::abs(step.previous_input)) * before;
      state.error[c] = inherited + added + 2 * kRounding * state.magnitude[c];
      spread = kept_spread + added;
      tile_decay *= decay;
      if (!(state.magnitude[c] <= std::numeric_limits<float>::max()))
        state.error[c] = std::numeric_limits<double>::infinity();
      state.previous_input[c] = input;

      const S c_value = C.at(t, c);
      tile.y[at] += kShare * real_part(c_value * state.h[c]);
      tile.y_response[at] += kShare * real_part(c_value * state.response[c]);
      tile.y_magnitude[at] += kShare * kRounding * std::abs(c_value) * state.magnitude[c];
      tile.y_error[at] +=
          kShare * std::abs(c_value) * smaller_bound(state.error[c], state.statistical.kWithinTile * spread);
    }
    spreads[c] = spread;
    decays[c] = tile_decay;
  }
  state.statistical.end_tile(spreads, decays);
}

template void scan_tile_by(MethodId, ScanTile&, ScanState<double>&, const double*, Coefficients<double>,
                           Coefficients<double>);
template void scan_tile_by(MethodId, ScanTile&, ScanState<std::complex<double>>&, const std::complex<double>*,
                           Coefficients<std::complex<double>>, Coefficients<std::complex<double>>);

}  // namespace ssmbench
