#include "reference/selective_state_update/recurrence.h"

#include <cmath>

namespace ssmbench {

void set_decays(HeadToken& token, BoundedValue delta, const float* rate, bool rate_per_state,
                std::int64_t dstate) {
  token.delta = delta;
  for (std::int64_t n = 0; n < dstate; ++n) {
    const double a = rate[rate_per_state ? n : 0];
    token.decay[n] = std::exp(delta.value * a);
    token.decay_error[n] =
        std::abs(a) * (delta.error + std::abs(delta.value)) + 2 + relative_underflow_error(token.decay[n]);
  }
}

void advance(const HeadToken& token, double x, std::int64_t dstate, StateRow& row) {
  const BoundedValue& delta = token.delta;
  for (std::int64_t n = 0; n < dstate; ++n) {
    const double kept = token.decay[n] * row.magnitude[n];
    const double added = delta.value * x * token.B[n];
    row.value[n] = token.decay[n] * row.value[n] + added;
    row.magnitude[n] = kept + std::abs(added);
    row.error[n] = token.decay[n] * row.error[n] + token.decay_error[n] * kept +
                   (delta.error + 2 * std::abs(delta.value)) * std::abs(x * token.B[n]) +
                   2 * row.magnitude[n] + kUnderflowError * (std::abs(delta.value) + std::abs(token.B[n]));
  }
}

StateSum contract(const HeadToken& token, const StateRow& row, std::int64_t dstate) {
  StateSum y{0, 0, 0};
  for (std::int64_t n = 0; n < dstate; ++n) {
    y.value += token.C[n] * row.value[n];
    y.error += std::abs(token.C[n]) * row.error[n];
    y.magnitude += std::abs(token.C[n]) * row.magnitude[n];
  }
  return y;
}

StateRow stored_states(const TensorView& states, std::int64_t at, std::int64_t dstate) {
  StateRow row;
  for (std::int64_t n = 0; n < dstate; ++n) {
    row.value[n] = load_as_double(states.data, at * dstate + n, states.dtype);
    row.magnitude[n] = std::abs(row.value[n]);
    row.error[n] = 0;
  }
  return row;
}

}  // namespace ssmbench
