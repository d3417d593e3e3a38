// mamba3_siso_bwd as the adjoint of the recurrence, step by step in f64.

#include <numbers>
#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  // [step][element]

/// The inputs and cotangents of a call.
struct Given {
  explicit Given(const Call& call) : problem(call.problem) {}

  const ssmbench_problem& problem;
  Tensor Q{problem, "Q"}, K{problem, "K"}, V{problem, "V"}, Z{problem, "Z"}, D{problem, "D"};
  Tensor adt{problem, "ADT"}, dt{problem, "DT"}, trap{problem, "Trap"}, rates{problem, "Angles"};
  Tensor Q_bias{problem, "Q_bias"}, K_bias{problem, "K_bias"}, dout{problem, "dout"};
  Tensor angle{problem, "Input_Angle_State"}, ssm{problem, "Input_SSM_State"};
  Tensor k{problem, "Input_K_State"}, v{problem, "Input_V_State"};
  Tensor dangle{problem, "dFinal_Angle_State"}, dssm{problem, "dFinal_SSM_State"};
  Tensor dk{problem, "dFinal_K_State"}, dv{problem, "dFinal_V_State"};
};

/// The gradients that several heads or steps add to.
struct Gradients {
  explicit Gradients(const Call& call) : problem(call.problem) {}
  void store() const {
    for (const Sums* sums : {&dQ, &dK, &dV, &dZ, &of_decay, &of_dt, &of_trap, &of_rates, &dQ_bias, &dK_bias,
                             &dD, &angle, &ssm, &k, &v})
      if (sums->given()) sums->store();
  }

  const ssmbench_problem& problem;
  Sums dQ{problem, "dQ"}, dK{problem, "dK"}, dV{problem, "dV"}, dZ{problem, "dZ"}, of_decay{problem, "dADT"};
  Sums of_dt{problem, "dDT"}, of_trap{problem, "dTrap"}, of_rates{problem, "dAngles"};
  Sums dQ_bias{problem, "dQ_bias"}, dK_bias{problem, "dK_bias"}, dD{problem, "dD"};
  Sums angle{problem, "dInput_Angle_State"}, ssm{problem, "dInput_SSM_State"};
  Sums k{problem, "dInput_K_State"}, v{problem, "dInput_V_State"};
};

/// One head of one sequence; row 0 of the vectors is what comes before its first step.
class Mamba3Adjoint {
 public:
  Mamba3Adjoint(const Call& call, const Given& in, Gradients& out) : call_(call), in_(in), out_(out) {}

  void run(std::int64_t m, std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t end) {
    m_ = m, b_ = b, h_ = h, begin_ = begin, steps_ = end - begin;
    g_ = h / (call_.size("nheads") / call_.size("groups"));
    const auto rows = static_cast<std::size_t>(steps_ + 1);
    for (Rows* all : {&q_, &k_, &dq_, &dk_}) all->assign(rows, Vector(static_cast<std::size_t>(dstate_)));
    for (Rows* all : {&v_, &dv_, &dy_}) all->assign(rows, Vector(static_cast<std::size_t>(headdim_)));
    for (Rows* all : {&angles_, &turns_}) all->assign(rows, Vector(static_cast<std::size_t>(pairs_)));
    states_.assign(rows, Vector(static_cast<std::size_t>(headdim_ * dstate_)));
    for (Vector* all : {&of_decay_, &of_before_, &of_own_}) all->assign(rows, 0);
    go_forward();
    go_back();
    store_angles();
    store_vectors();
    store_scalars();
  }

 private:
  bool has(Mistake which) const { return call_.has(which); }
  /// Step i, from 1, of the sequence.
  std::int64_t time(std::int64_t i) const { return begin_ + i - 1; }
  double alpha(std::int64_t i) const { return std::exp(in_.adt(b_, h_, time(i))); }
  double lambda(std::int64_t i) const { return sigmoid(in_.trap(b_, h_, time(i))); }
  double dt(std::int64_t i) const { return in_.dt(b_, h_, time(i)); }
  double beta(std::int64_t i) const { return (1 - lambda(i)) * dt(i) * alpha(i); }
  double gamma(std::int64_t i) const { return lambda(i) * dt(i); }

  /// Turns pairs by the angles of step i, back with sign −1.
  void turn(Vector& x, std::int64_t i, double sign) const {
    for (std::int64_t pair = 0; pair < pairs_; ++pair) {
      double& first = x.at(first_of(pair));
      double& second = x.at(second_of(pair));
      const double sine = sign * std::sin(angles_[i][pair]);
      const double cosine = std::cos(angles_[i][pair]);
      const double x0 = first;
      first = x0 * cosine - second * sine;
      second = x0 * sine + second * cosine;
    }
  }
  std::size_t first_of(std::int64_t pair) const {
    return static_cast<std::size_t>(interleaved_ ? 2 * pair : pair);
  }
  std::size_t second_of(std::int64_t pair) const {
    return static_cast<std::size_t>(interleaved_ ? 2 * pair + 1 : pair + dstate_ / 2);
  }

  void load_start() {
    if (!in_.ssm.given()) return;
    for (std::int64_t i = 0; i < pairs_; ++i) angles_[0][i] = in_.angle(m_, h_, i);
    for (std::int64_t n = 0; n < dstate_; ++n) k_[0][n] = in_.k(m_, h_, n);
    for (std::int64_t p = 0; p < headdim_; ++p) {
      v_[0][p] = in_.v(m_, h_, p);
      for (std::int64_t n = 0; n < dstate_; ++n) states_[0][p * dstate_ + n] = in_.ssm(m_, h_, p, n);
    }
  }

  void go_forward() {
    load_start();
    for (std::int64_t i = 1; i <= steps_; ++i) {
      const std::int64_t t = time(i);
      for (std::int64_t pair = 0; pair < pairs_; ++pair)
        angles_[i][pair] =
            angles_[i - 1][pair] + dt(i) * std::numbers::pi * std::tanh(in_.rates(b_, t, h_, pair));
      for (std::int64_t n = 0; n < dstate_; ++n) {
        q_[i][n] = in_.Q(b_, t, g_, n) + in_.Q_bias(h_, n);
        k_[i][n] = in_.K(b_, t, g_, n) + in_.K_bias(h_, n);
      }
      turn(q_[i], i, 1);
      turn(k_[i], i, 1);
      for (std::int64_t p = 0; p < headdim_; ++p) {
        v_[i][p] = in_.V(b_, t, h_, p);
        double y = in_.D.given() ? in_.D(h_) * v_[i][p] : 0;
        for (std::int64_t n = 0; n < dstate_; ++n) {
          double& state = states_[i][p * dstate_ + n];
          state = alpha(i) * states_[i - 1][p * dstate_ + n] + beta(i) * v_[i - 1][p] * k_[i - 1][n] +
                  gamma(i) * v_[i][p] * k_[i][n];
          y += state * q_[i][n];
        }
        take_gate(i, p, y);
      }
    }
  }

  void take_gate(std::int64_t i, std::int64_t p, double y) {
    const std::int64_t t = time(i);
    const double dout = in_.dout(b_, t, h_, p);
    dy_[i][p] = dout;
    if (in_.Z.given()) {
      const double z = in_.Z(b_, t, h_, p);
      const double open = sigmoid(z);
      dy_[i][p] = dout * z * open;
      out_.dZ.at(b_, t, h_, p) = dout * y * open * (1 + z * (1 - open));
    }
    dv_[i][p] = in_.D.given() ? in_.D(h_) * dy_[i][p] : 0;
    if (in_.D.given()) out_.dD.at(h_) += dy_[i][p] * v_[i][p];
  }

  void go_back() {
    const bool ends = in_.dssm.given() && steps_ > 0;
    for (std::int64_t p = 0; p < headdim_; ++p) {
      Vector adjoint(static_cast<std::size_t>(dstate_));
      for (std::int64_t n = 0; n < dstate_ && in_.dssm.given() && !has(Mistake::final_ssm_ignored); ++n)
        adjoint[n] = in_.dssm(m_, h_, p, n);
      for (std::int64_t i = steps_; i > 0; --i)
        for (std::int64_t n = 0; n < dstate_; ++n) step_back(i, p, n, adjoint[n]);
      if (in_.dv.given()) dv_[steps_][p] += in_.dv(m_, h_, p);
      for (std::int64_t n = 0; n < dstate_ && in_.ssm.given(); ++n) out_.ssm.at(m_, h_, p, n) = adjoint[n];
      if (in_.ssm.given()) out_.v.at(m_, h_, p) = dv_[0][p];
      for (std::int64_t i = 1; i <= steps_; ++i) out_.dV.at(b_, time(i), h_, p) = dv_[i][p];
    }
    const bool of_k = in_.dk.given() && !(ends && has(Mistake::final_k_ignored));
    for (std::int64_t n = 0; n < dstate_ && of_k; ++n) dk_[steps_][n] += in_.dk(m_, h_, n);
    for (std::int64_t n = 0; n < dstate_ && in_.ssm.given(); ++n) out_.k.at(m_, h_, n) = dk_[0][n];
  }

  void step_back(std::int64_t i, std::int64_t p, std::int64_t n, double& adjoint) {
    dq_[i][n] += dy_[i][p] * states_[i][p * dstate_ + n];
    adjoint += dy_[i][p] * q_[i][n];
    dv_[i][p] += gamma(i) * adjoint * k_[i][n];
    dv_[i - 1][p] += beta(i) * adjoint * k_[i - 1][n];
    dk_[i][n] += gamma(i) * adjoint * v_[i][p];
    dk_[i - 1][n] += beta(i) * adjoint * v_[i - 1][p];
    of_decay_[i] += adjoint * states_[i - 1][p * dstate_ + n];
    of_before_[i] += adjoint * v_[i - 1][p] * k_[i - 1][n];
    of_own_[i] += adjoint * v_[i][p] * k_[i][n];
    adjoint *= alpha(i);
  }

  void store_angles() {
    for (std::int64_t pair = 0; pair < pairs_; ++pair) {
      double sum = in_.dangle.given() ? in_.dangle(m_, h_, pair) : 0;
      for (std::int64_t i = steps_; i > 0; --i) {
        const std::size_t first = first_of(pair);
        const std::size_t second = second_of(pair);
        if (has(Mistake::angles_not_summed)) sum = 0;
        sum += q_[i].at(first) * dq_[i].at(second) - q_[i].at(second) * dq_[i].at(first) +
               k_[i].at(first) * dk_[i].at(second) - k_[i].at(second) * dk_[i].at(first);
        turns_[i][pair] = sum;
        const double rate = std::tanh(in_.rates(b_, time(i), h_, pair));
        const double slope = has(Mistake::tanh_slope_missing) ? 1 : 1 - rate * rate;
        out_.of_rates.at(b_, time(i), h_, pair) = std::numbers::pi * slope * dt(i) * sum;
      }
      if (in_.ssm.given()) out_.angle.at(m_, h_, pair) = sum;
    }
  }

  void store_vectors() {
    for (std::int64_t i = 1; i <= steps_; ++i) {
      turn(dq_[i], i, -1);
      if (!has(Mistake::dk_not_turned_back)) turn(dk_[i], i, -1);
      for (std::int64_t n = 0; n < dstate_; ++n) {
        double& dQ = out_.dQ.at(b_, time(i), g_, n);
        dQ = dq_[i][n] + (has(Mistake::dq_not_summed_over_group) ? 0 : dQ);
        out_.dK.at(b_, time(i), g_, n) += dk_[i][n];
        out_.dQ_bias.at(h_, n) += dq_[i][n];
        out_.dK_bias.at(h_, n) += dk_[i][n];
      }
    }
  }

  void store_scalars() {
    for (std::int64_t i = 1; i <= steps_; ++i) {
      const std::int64_t t = time(i);
      out_.of_decay.at(b_, h_, t) = alpha(i) * of_decay_[i] + beta(i) * of_before_[i];
      const double before = alpha(i) * of_before_[i];
      double ddt = (1 - lambda(i)) * before + lambda(i) * of_own_[i];
      for (std::int64_t pair = 0; pair < pairs_ && !has(Mistake::ddt_without_angles); ++pair)
        ddt += std::numbers::pi * std::tanh(in_.rates(b_, t, h_, pair)) * turns_[i][pair];
      out_.of_dt.at(b_, h_, t) = ddt;
      const double other = has(Mistake::dtrap_of_own_input) ? 0 : before;
      out_.of_trap.at(b_, h_, t) = lambda(i) * (1 - lambda(i)) * dt(i) * (of_own_[i] - other);
    }
  }

  const Call& call_;
  const Given& in_;
  Gradients& out_;
  std::int64_t m_ = 0, b_ = 0, h_ = 0, g_ = 0, begin_ = 0, steps_ = 0;
  std::int64_t headdim_ = call_.size("headdim"), dstate_ = call_.size("dstate"),
               pairs_ = call_.size("rope_angles");
  bool interleaved_ = ssmbench_is(&call_.problem, "rotary_pairing", "interleaved") != 0;
  Rows q_, k_, dq_, dk_, v_, dv_, dy_, angles_, turns_, states_;
  Vector of_decay_, of_before_, of_own_;
};

}  // namespace

void mamba3_backward(const Call& call) {
  const Given in(call);
  Gradients out(call);
  Mamba3Adjoint adjoint(call, in, out);
  const Tensor borders(call.problem, "cu_seqlens");
  const auto* border = borders.given() ? borders.data<std::int32_t>() : nullptr;
  const std::int64_t sequences = borders.given() ? call.size("sequences") : call.size("batch");
  for (std::int64_t m = 0; m < sequences; ++m)
    for (std::int64_t h = 0; h < call.size("nheads"); ++h)
      adjoint.run(m, border == nullptr ? m : 0, h, border == nullptr ? 0 : border[m],
                  border == nullptr ? call.size("seqlen") : border[m + 1]);
  out.store();
}

}  // namespace mutants
