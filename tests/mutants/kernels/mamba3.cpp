// mamba3_siso_fwd by the form that chunked kernels have, in f64: a step's input is added to the state with the
// weight that all later steps see, and its own reading of it is apart.

#include <numbers>
#include <string_view>
#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

/// One head of one sequence.
class Mamba3Head {
 public:
  Mamba3Head(const Call& call, std::int64_t h) : call_(call), h_(h) {}

  /// Steps [begin, end) of batch b; states are those of m.
  void run(std::int64_t m, std::int64_t b, std::int64_t begin, std::int64_t end) {
    b_ = b;
    begin_ = begin;
    end_ = end;
    load_states(m);
    for (std::int64_t t = begin; t < end; ++t) {
      turn(t);
      read(t);
    }
    if (final_ssm_.given()) store_states(m);
  }

 private:
  bool has(Mistake which) const { return call_.has(which); }
  double& state(std::int64_t p, std::int64_t n) { return state_[static_cast<std::size_t>(p * dstate_ + n)]; }
  double lambda(std::int64_t t) const {
    return sigmoid(trap_(b_, h_, has(Mistake::lambda_of_step_before) && t > begin_ ? t - 1 : t));
  }
  double previous_weight(std::int64_t t) const { return (1 - lambda(t)) * dt_(b_, h_, t); }
  double own_weight(std::int64_t t) const { return sigmoid(trap_(b_, h_, t)) * dt_(b_, h_, t); }
  /// What the input of step t weighs for later steps.
  double scale(std::int64_t t) const {
    const bool unseen = t + 1 == end_ || (has(Mistake::next_chunk_ignored) &&
                                          (t + 1 - begin_) % call_.size("chunk_size") == 0);
    return own_weight(t) + (unseen ? 0 : previous_weight(t + 1));
  }

  void load_states(std::int64_t m) {
    const bool given = initial_ssm_.given();
    state_.assign(static_cast<std::size_t>(headdim_ * dstate_), 0);
    if (!has(Mistake::angles_cross_borders) || angles_.empty() || begin_ == 0)
      angles_.assign(static_cast<std::size_t>(pairs_), 0);
    k_.assign(static_cast<std::size_t>(dstate_), 0);
    if (!given) return;
    for (std::int64_t i = 0; i < pairs_; ++i) angles_[static_cast<std::size_t>(i)] = initial_angle_(m, h_, i);
    const double weight = begin_ < end_ ? previous_weight(begin_) : 0;
    for (std::int64_t n = 0; n < dstate_; ++n) k_[static_cast<std::size_t>(n)] = initial_k_(m, h_, n);
    for (std::int64_t p = 0; p < headdim_; ++p)
      for (std::int64_t n = 0; n < dstate_; ++n)
        state(p, n) = initial_ssm_(m, h_, p, n) + weight * initial_v_(m, h_, p) * initial_k_(m, h_, n);
  }

  void turn(std::int64_t t) {
    for (std::int64_t i = 0; i < pairs_; ++i) {
      const double raw = rates_(b_, t, h_, i);
      const double rate = has(Mistake::tanh_missing) ? raw : std::tanh(raw);
      angles_[static_cast<std::size_t>(i)] +=
          dt_(b_, h_, t) * rate * (has(Mistake::pi_missing) ? 1 : std::numbers::pi);
    }
  }

  std::vector<double> rotated(const Tensor& tensor, const Tensor& bias, std::int64_t t) const {
    const bool late = has(Mistake::rotation_before_bias);
    std::vector<double> x;
    for (std::int64_t n = 0; n < dstate_; ++n) x.push_back(tensor(b_, t, g_, n) + (late ? 0 : bias(h_, n)));
    for (std::int64_t i = 0; i < pairs_; ++i) {
      const double cosine = std::cos(angles_[static_cast<std::size_t>(i)]);
      const double sine = std::sin(angles_[static_cast<std::size_t>(i)]);
      double& first = x[static_cast<std::size_t>(interleaved_ ? 2 * i : i)];
      double& second = x[static_cast<std::size_t>(interleaved_ ? 2 * i + 1 : i + dstate_ / 2)];
      const double x0 = first;
      first = x0 * cosine - second * sine;
      second = x0 * sine + second * cosine;
    }
    for (std::int64_t n = 0; n < dstate_ && late; ++n) x[static_cast<std::size_t>(n)] += bias(h_, n);
    return x;
  }

  /// out of step t, and its input added to the state.
  void read(std::int64_t t) {
    const auto q = rotated(Q_, Q_bias_, t);
    k_ = rotated(K_, K_bias_, t);
    const double decay = std::exp(adt_(b_, h_, t));
    const double own = has(Mistake::scale_on_diagonal) ? scale(t) : own_weight(t);
    for (std::int64_t p = 0; p < headdim_; ++p) {
      const double v = V_(b_, t, h_, p);
      double y = D_.given() ? D_(h_) * v : 0;
      for (std::int64_t n = 0; n < dstate_; ++n) {
        const double k = k_[static_cast<std::size_t>(n)];
        state(p, n) *= decay;
        y += (state(p, n) + own * v * k) * q[static_cast<std::size_t>(n)];
        state(p, n) += scale(t) * v * k;
      }
      const double z = Z_.given() ? Z_(b_, t, h_, p) : 0;
      out_.set(Z_.given() ? y * z * sigmoid(z) : y, b_, t, h_, p);
    }
  }

  void store_states(std::int64_t m) {
    constexpr double kTurn = 2 * std::numbers::pi;
    for (std::int64_t i = 0; i < pairs_; ++i) {
      const double angle = angles_[static_cast<std::size_t>(i)];
      final_angle_.set(angle - kTurn * std::floor(angle / kTurn), m, h_, i);
    }
    for (std::int64_t n = 0; n < dstate_; ++n) final_k_.set(k_[static_cast<std::size_t>(n)], m, h_, n);
    const std::int64_t last = has(Mistake::last_v_for_all) ? call_.size("seqlen") - 1 : end_ - 1;
    for (std::int64_t p = 0; p < headdim_; ++p) {
      const double before = initial_v_.given() ? initial_v_(m, h_, p) : 0;
      final_v_.set(begin_ == end_ ? before : V_(b_, last, h_, p), m, h_, p);
      for (std::int64_t n = 0; n < dstate_; ++n) final_ssm_.set(state(p, n), m, h_, p, n);
    }
  }

  const Call& call_;
  std::int64_t h_, b_ = 0, begin_ = 0, end_ = 0;
  std::int64_t headdim_ = call_.size("headdim"), dstate_ = call_.size("dstate"),
               pairs_ = call_.size("rope_angles");
  std::int64_t g_ = h_ / (call_.size("nheads") / call_.size("groups"));
  bool interleaved_ =
      ssmbench_is(&call_.problem, "rotary_pairing", "interleaved") != has(Mistake::wrong_pairing);
  Tensor Q_{call_.problem, "Q"}, K_{call_.problem, "K"}, V_{call_.problem, "V"}, Z_{call_.problem, "Z"};
  Tensor adt_{call_.problem, "ADT"}, dt_{call_.problem, "DT"}, trap_{call_.problem, "Trap"};
  Tensor rates_{call_.problem, "Angles"}, D_{call_.problem, "D"};
  Tensor Q_bias_{call_.problem, "Q_bias"}, K_bias_{call_.problem, "K_bias"};
  Tensor initial_angle_{call_.problem, "Input_Angle_State"}, initial_ssm_{call_.problem, "Input_SSM_State"};
  Tensor initial_k_{call_.problem, "Input_K_State"}, initial_v_{call_.problem, "Input_V_State"};
  Tensor final_angle_{call_.problem, "Final_Angle_State"}, final_ssm_{call_.problem, "Final_SSM_State"};
  Tensor final_k_{call_.problem, "Final_K_State"}, final_v_{call_.problem, "Final_V_State"};
  Tensor out_{call_.problem, "out"};
  std::vector<double> state_, angles_, k_;
};

}  // namespace

void mamba3_forward(const Call& call) {
  const Tensor borders(call.problem, "cu_seqlens");
  const auto* border = borders.given() ? borders.data<std::int32_t>() : nullptr;
  const std::int64_t sequences = borders.given() ? call.size("sequences") : call.size("batch");
  for (std::int64_t h = 0; h < call.size("nheads"); ++h) {
    Mamba3Head head(call, h);
    for (std::int64_t m = 0; m < sequences; ++m)
      head.run(m, border == nullptr ? m : 0, border == nullptr ? 0 : border[m],
               border == nullptr ? call.size("seqlen") : border[m + 1]);
  }
}

}  // namespace mutants
