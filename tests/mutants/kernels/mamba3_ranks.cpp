// mamba3_mimo_fwd, and mamba3_step of form mimo, as the definition has them, in f64.

#include <numbers>
#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

using Vector = std::vector<double>;

/// One head; a step is a scan of one, whose states have no prefix and whose tensors no axis of time.
class Mamba3Ranks {
 public:
  Mamba3Ranks(const Call& call, bool is_step) : call_(call), is_step_(is_step) {}

  void run(std::int64_t b, std::int64_t h) {
    b_ = b, h_ = h;
    g_ = h / (call_.size("nheads") / call_.size("groups"));
    load_states();
    for (std::int64_t t = 0; t < (is_step_ ? 1 : call_.size("seqlen")); ++t) {
      turn(t);
      const auto k = vectors(K_, K_bias_, t);
      const auto q = vectors(Q_, Q_bias_, t);
      update(t, k);
      for (std::int64_t r = 0; r < rank_; ++r) read(t, r, q, k);
      store_out(t);
      before_ = k;
      for (std::int64_t p = 0; p < headdim_; ++p) v_before_[p] = at(V_, t, h_, p);
    }
    if (final_ssm_.given()) store_states();
  }

 private:
  bool has(Mistake which) const { return call_.has(which); }
  template <class... Rest>
  double at(const Tensor& tensor, std::int64_t t, Rest... rest) const {
    return is_step_ ? tensor(b_, rest...) : tensor(b_, t, rest...);
  }
  double scalar(const Tensor& tensor, std::int64_t t) const {
    return is_step_ ? tensor(b_, h_) : tensor(b_, h_, t);
  }
  double factor(const Tensor& tensor, std::int64_t r, std::int64_t p) const {
    return tensor.given() ? tensor(h_, r, p) : 1;
  }

  void load_states() {
    state_.assign(static_cast<std::size_t>(headdim_ * dstate_), 0);
    angles_.assign(static_cast<std::size_t>(pairs_), 0);
    v_before_.assign(static_cast<std::size_t>(headdim_), 0);
    y_.assign(static_cast<std::size_t>(rank_ * headdim_), 0);
    before_.assign(static_cast<std::size_t>(rank_), Vector(static_cast<std::size_t>(dstate_)));
    if (!initial_ssm_.given()) return;
    for (std::int64_t i = 0; i < pairs_; ++i) angles_[i] = initial_angle_(b_, h_, i);
    for (std::int64_t r = 0; r < rank_; ++r)
      for (std::int64_t n = 0; n < dstate_; ++n) before_[r][n] = initial_k_(b_, r, h_, n);
    for (std::int64_t p = 0; p < headdim_; ++p) {
      v_before_[p] = initial_v_(b_, h_, p);
      for (std::int64_t n = 0; n < dstate_; ++n) state_[p * dstate_ + n] = initial_ssm_(b_, h_, p, n);
    }
  }

  void turn(std::int64_t t) {
    for (std::int64_t i = 0; i < pairs_; ++i)
      angles_[i] += scalar(dt_, t) * std::numbers::pi * std::tanh(at(rates_, t, h_, i));
  }

  std::vector<Vector> vectors(const Tensor& tensor, const Tensor& bias, std::int64_t t) const {
    std::vector<Vector> all;
    for (std::int64_t r = 0; r < rank_; ++r) {
      Vector x;
      for (std::int64_t n = 0; n < dstate_; ++n) x.push_back(at(tensor, t, r, g_, n) + bias(h_, r, n));
      for (std::int64_t i = 0; i < pairs_; ++i) {
        double& first = x[static_cast<std::size_t>(interleaved_ ? 2 * i : i)];
        double& second = x[static_cast<std::size_t>(interleaved_ ? 2 * i + 1 : i + dstate_ / 2)];
        const double x0 = first;
        first = x0 * std::cos(angles_[i]) - second * std::sin(angles_[i]);
        second = x0 * std::sin(angles_[i]) + second * std::cos(angles_[i]);
      }
      all.push_back(std::move(x));
    }
    return all;
  }

  void update(std::int64_t t, const std::vector<Vector>& k) {
    const double alpha = std::exp(scalar(adt_, t));
    const double lambda = sigmoid(scalar(trap_, t));
    const double beta = (1 - lambda) * scalar(dt_, t) * alpha;
    own_ = lambda * scalar(dt_, t);
    for (std::int64_t p = 0; p < headdim_; ++p)
      for (std::int64_t n = 0; n < dstate_; ++n) {
        double& state = state_[p * dstate_ + n];
        state *= alpha;
        for (std::int64_t r = 0; r < rank_; ++r) {
          const double v = at(V_, t, h_, p);
          const double v_before = has(Mistake::v_state_ignored) ? v : v_before_[p];
          state += factor(up_, r, p) * (beta * v_before * before_[r][n] + own_ * v * k[r][n]);
        }
      }
  }

  /// y^r.
  void read(std::int64_t t, std::int64_t r, const std::vector<Vector>& q, const std::vector<Vector>& k) {
    for (std::int64_t p = 0; p < headdim_; ++p) {
      const double v = at(V_, t, h_, p);
      double y = D_.given() ? D_(h_) * v * factor(up_, r, p) : 0;
      for (std::int64_t n = 0; n < dstate_; ++n) {
        double state = state_[p * dstate_ + n];
        for (std::int64_t other = 0; other < rank_ && has(Mistake::ranks_apart_on_diagonal); ++other)
          if (other != r) state -= own_ * v * factor(up_, other, p) * k[other][n];
        y += state * q[r][n];
      }
      y_[r * headdim_ + p] = y;
    }
  }

  void store_out(std::int64_t t) {
    for (std::int64_t p = 0; p < headdim_; ++p) {
      double sum = 0;
      for (std::int64_t r = 0; r < rank_; ++r) {
        const double gate = has(Mistake::mimo_z_dropped) ? 1 : factor(gate_, r, p);
        const double z = Z_.given() ? at(Z_, t, h_, p) * gate : 0;
        sum += y_[r * headdim_ + p] * (Z_.given() ? z * sigmoid(z) : 1) * factor(down_, r, p);
      }
      is_step_ ? out_.set(sum, b_, h_, p) : out_.set(sum, b_, t, h_, p);
    }
  }

  void store_states() const {
    for (std::int64_t i = 0; i < pairs_; ++i)
      final_angle_.set(std::remainder(angles_[i], 2 * std::numbers::pi), b_, h_, i);
    for (std::int64_t r = 0; r < rank_; ++r)
      for (std::int64_t n = 0; n < dstate_; ++n)
        if (!has(Mistake::k_state_not_updated)) final_k_.set(before_[r][n], b_, r, h_, n);
    for (std::int64_t p = 0; p < headdim_; ++p) {
      final_v_.set(v_before_[p], b_, h_, p);
      for (std::int64_t n = 0; n < dstate_; ++n) final_ssm_.set(state_[p * dstate_ + n], b_, h_, p, n);
    }
  }

  Tensor tensor(const char* name) const { return Tensor(call_.problem, name); }
  Tensor initial(const char* of_scan, const char* of_step) const {
    return tensor(is_step_ ? of_step : of_scan);
  }

  const Call& call_;
  bool is_step_;
  std::int64_t b_ = 0, h_ = 0, g_ = 0;
  std::int64_t headdim_ = call_.size("headdim"), dstate_ = call_.size("dstate"),
               pairs_ = call_.size("rope_angles"), rank_ = call_.size("mimo_rank");
  bool interleaved_ = ssmbench_is(&call_.problem, "rotary_pairing", "interleaved") != 0;
  Tensor Q_ = tensor("Q"), K_ = tensor("K"), V_ = tensor("V"), Z_ = tensor("Z"), D_ = tensor("D");
  Tensor adt_ = tensor("ADT"), dt_ = tensor("DT"), trap_ = tensor("Trap"), rates_ = tensor("Angles");
  Tensor Q_bias_ = tensor("Q_bias"), K_bias_ = tensor("K_bias");
  Tensor up_ = tensor("MIMO_V"), gate_ = tensor("MIMO_Z"), down_ = tensor("MIMO_Out"), out_ = tensor("out");
  Tensor initial_angle_ = initial("Input_Angle_State", "Angle_State");
  Tensor initial_ssm_ = initial("Input_SSM_State", "SSM_State");
  Tensor initial_k_ = initial("Input_K_State", "K_State");
  Tensor initial_v_ = initial("Input_V_State", "V_State");
  Tensor final_angle_ = initial("Final_Angle_State", "Angle_State");
  Tensor final_ssm_ = initial("Final_SSM_State", "SSM_State");
  Tensor final_k_ = initial("Final_K_State", "K_State");
  Tensor final_v_ = initial("Final_V_State", "V_State");
  double own_ = 0;  // γ
  Vector state_, angles_, v_before_, y_;
  std::vector<Vector> before_;
};

}  // namespace

void mamba3_ranks(const Call& call, bool is_step) {
  Mamba3Ranks head(call, is_step);
  for (std::int64_t b = 0; b < call.size("batch"); ++b)
    for (std::int64_t h = 0; h < call.size("nheads"); ++h) head.run(b, h);
}

}  // namespace mutants
