// selective_scan_bwd, method zoh, real A: each row forward and back, in f64. With σ the logistic function and
// a(t) = exp(Δ·A), the adjoint of h_t is λ_t = C·dy_t + a(t+1)·λ_{t+1}.

#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

class Gradients {
 public:
  explicit Gradients(const Call& call) : call_(call) {}

  void run() {
    for (std::int64_t b = 0; b < call_.size("batch"); ++b)
      for (std::int64_t d = 0; d < dim_; ++d) {
        forward_row(b, d);
        backward_row(b, d);
      }
    for (const Sums* sums : {&dA_, &dB_, &dC_, &dD_, &dbias_}) sums->store();
  }

 private:
  bool has(Mistake which) const { return call_.has(which); }
  double& state(std::int64_t t, std::int64_t n) {
    return states_[static_cast<std::size_t>((t + 1) * dstate_ + n)];
  }
  /// That enters step t: where x has one, that.
  double state_before(std::int64_t b, std::int64_t d, std::int64_t t, std::int64_t n) {
    constexpr std::int64_t kStepsOfX = 8;
    if (x_.given() && t % kStepsOfX == 0 && !has(Mistake::x_ignored)) return x_(b, t / kStepsOfX, d, n);
    return state(t - 1, n);
  }
  double raw_delta(std::int64_t b, std::int64_t d, std::int64_t t) const {
    return delta_(b, d, t) + (bias_.given() ? bias_(d) : 0);
  }
  double step_of(std::int64_t b, std::int64_t d, std::int64_t t) const {
    const double raw = raw_delta(b, d, t);
    return call_.flag("delta_softplus") ? softplus(raw) : raw;
  }
  void forward_row(std::int64_t b, std::int64_t d);
  void backward_row(std::int64_t b, std::int64_t d);
  double gate_backward(std::int64_t b, std::int64_t d, std::int64_t t);
  double& projection_sum(Sums& sums, std::int64_t b, std::int64_t d, std::int64_t n, std::int64_t t) {
    return sums.rank() == 2 ? sums.at(d, n) : sums.at(b, group(d), n, t);
  }
  std::int64_t group(std::int64_t d) const { return d / (dim_ / call_.size("groups")); }

  const Call& call_;
  std::int64_t dim_ = call_.size("dim"), seqlen_ = call_.size("seqlen"), dstate_ = call_.size("dstate");
  Tensor u_{call_.problem, "u"}, delta_{call_.problem, "delta"}, A_{call_.problem, "A"};
  Tensor B_{call_.problem, "B"}, C_{call_.problem, "C"}, D_{call_.problem, "D"}, z_{call_.problem, "z"};
  Tensor bias_{call_.problem, "delta_bias"}, initial_{call_.problem, "initial_state"};
  Tensor dlast_{call_.problem, "dlast_state"}, x_{call_.problem, "x"}, dout_{call_.problem, "dout"},
      du_{call_.problem, "du"}, ddelta_{call_.problem, "ddelta"};
  Tensor dz_{call_.problem, "dz"}, dinitial_{call_.problem, "dinitial_state"};
  Sums dA_{call_.problem, "dA"}, dB_{call_.problem, "dB"}, dC_{call_.problem, "dC"};
  Sums dD_{call_.problem, "dD"}, dbias_{call_.problem, "ddelta_bias"};
  std::vector<double> states_ = std::vector<double>(static_cast<std::size_t>((seqlen_ + 1) * dstate_));
};

void Gradients::forward_row(std::int64_t b, std::int64_t d) {
  for (std::int64_t n = 0; n < dstate_; ++n) state(-1, n) = initial_.given() ? initial_(b, d, n) : 0;
  for (std::int64_t t = 0; t < seqlen_; ++t) {
    const double delta = step_of(b, d, t);
    for (std::int64_t n = 0; n < dstate_; ++n)
      state(t, n) = std::exp(delta * A_(d, n)) * state_before(b, d, t, n) +
                    delta * u_(b, d, t) * projection(B_, b, d, group(d), n, t);
  }
}

/// dz, and the gradient of what the gate multiplies.
double Gradients::gate_backward(std::int64_t b, std::int64_t d, std::int64_t t) {
  const double dout = dout_(b, d, t);
  if (!z_.given()) return dout;
  double y = D_.given() ? D_(d) * u_(b, d, t) : 0;
  for (std::int64_t n = 0; n < dstate_; ++n) y += projection(C_, b, d, group(d), n, t) * state(t, n);
  const double z = z_(b, d, t);
  const double derivative =
      has(Mistake::silu_derivative) ? sigmoid(z) * (1 - sigmoid(z)) : sigmoid(z) * (1 + z * (1 - sigmoid(z)));
  dz_.set(dout * y * derivative, b, d, t);
  return dout * z * sigmoid(z);
}

void Gradients::backward_row(std::int64_t b, std::int64_t d) {
  std::vector<double> carried(static_cast<std::size_t>(dstate_));  // a(t+1)·λ_{t+1}
  if (dlast_.given() && !has(Mistake::dlast_state_ignored))
    for (std::int64_t n = 0; n < dstate_; ++n) carried[static_cast<std::size_t>(n)] = dlast_(b, d, n);
  for (std::int64_t t = seqlen_; t-- > 0;) {
    const double u = u_(b, d, t);
    const double delta = step_of(b, d, t);
    const double dy = gate_backward(b, d, t);
    double du = D_.given() ? dy * D_(d) : 0;
    double ddelta = 0;
    if (dD_.given()) dD_.at(d) += dy * u;
    for (std::int64_t n = 0; n < dstate_; ++n) {
      const double A = A_(d, n);
      const double B = projection(B_, b, d, group(d), n, t);
      const double decay = std::exp(delta * A);
      const double adjoint = carried[static_cast<std::size_t>(n)] + projection(C_, b, d, group(d), n, t) * dy;
      const double of_exponent = adjoint * decay * state_before(b, d, t, n);
      projection_sum(dC_, b, d, n, t) += dy * state(t, n);
      double& dB = projection_sum(dB_, b, d, n, t);
      dB = (has(Mistake::db_not_summed_over_group) ? 0 : dB) + adjoint * delta * u;
      if (!has(Mistake::da_of_one_batch_lost) || b > 0) dA_.at(d, n) += of_exponent * delta;
      ddelta += of_exponent * A + adjoint * B * u;
      du += adjoint * delta * B;
      carried[static_cast<std::size_t>(n)] = decay * adjoint;
    }
    if (call_.flag("delta_softplus") && !has(Mistake::softplus_derivative))
      ddelta *= sigmoid(raw_delta(b, d, t));
    du_.set(du, b, d, t);
    ddelta_.set(ddelta, b, d, t);
    if (dbias_.given()) dbias_.at(d) += ddelta;
  }
  if (!dinitial_.given()) return;
  for (std::int64_t n = 0; n < dstate_; ++n) dinitial_.set(carried[static_cast<std::size_t>(n)], b, d, n);
}

}  // namespace

void scan_backward(const Call& call) {
  Gradients(call).run();
}

}  // namespace mutants
