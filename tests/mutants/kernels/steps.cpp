// selective_state_update, form mamba1, and linear_scan, in f64.

#include "mutants.h"

namespace mutants {

void state_update(const Call& call) {
  const Tensor state(call.problem, "state");
  const Tensor x(call.problem, "x");
  const Tensor dt(call.problem, "dt");
  const Tensor A(call.problem, "A");
  const Tensor B(call.problem, "B");
  const Tensor C(call.problem, "C");
  const Tensor D(call.problem, "D");
  const Tensor z(call.problem, "z");
  const Tensor bias(call.problem, "dt_bias");
  const Tensor out(call.problem, "out");
  const auto of_group = [](const Tensor& tensor, std::int64_t b, std::int64_t g, std::int64_t n) {
    return tensor.rank() == 2 ? tensor(b, n) : tensor(b, g, n);
  };
  for (std::int64_t b = 0; b < call.size("batch"); ++b)
    for (std::int64_t d = 0; d < call.size("dim"); ++d) {
      const std::int64_t g = d / (call.size("dim") / call.size("groups"));
      double delta = dt(b, d) + (bias.given() ? bias(d) : 0);
      if (call.flag("dt_softplus")) delta = softplus(delta);
      double y = D.given() ? D(d) * x(b, d) : 0;
      for (std::int64_t n = 0; n < call.size("dstate"); ++n) {
        const double h = std::exp(delta * A(d, n)) * state(b, d, n) + delta * x(b, d) * of_group(B, b, g, n);
        y += of_group(C, b, g, n) * h;
        if (!call.has(Mistake::state_not_updated)) state.set(h, b, d, n);
      }
      out.set(z.given() ? y * z(b, d) * sigmoid(z(b, d)) : y, b, d);
    }
}

void linear_scan(const Call& call) {
  const Tensor a(call.problem, "a");
  const Tensor b(call.problem, "b");
  const Tensor out(call.problem, "out");
  for (std::int64_t batch = 0; batch < call.size("batch"); ++batch)
    for (std::int64_t d = 0; d < call.size("dim"); ++d) {
      double h = 0;
      for (std::int64_t t = 0; t < call.size("seqlen"); ++t) {
        const std::int64_t t_of_a = call.has(Mistake::decay_of_step_before) && t > 0 ? t - 1 : t;
        h = a(batch, t_of_a, d) * h + b(batch, t, d);
        out.set(h, batch, t, d);
      }
    }
}

}  // namespace mutants
