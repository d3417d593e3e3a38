// cpu-scalar for the gradients: the adjoint of the definition (ops/mamba3/mamba3.h) step by step, one
// (sequence, head) after the other on one thread, f32, libm. Each row of the state, a head dim, is kept for
// all steps on the way forward and taken back alone.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/cpu/scalar_head.h"

namespace ssmbench::scalar_mamba3_bwd {
namespace {

constexpr float kPi = std::numbers::pi_v<float>;

float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

class Gradients : Mamba3ScalarHead {
 public:
  Gradients(const Mamba3BwdArgs& args, DType io)
      : Mamba3ScalarHead(args.in, io),
        out_(args),
        rn_(scan_.rank * scan_.dstate),
        rp_(scan_.rank * scan_.headdim),
        dQ_(scan_.batch * scan_.seqlen * scan_.groups * rn_),
        dK_(dQ_.size()),
        dQ_bias_(scan_.nheads * rn_),
        dK_bias_(dQ_bias_.size()),
        dup_(scan_.nheads * rp_),
        dgate_(dup_.size()),
        ddown_(dup_.size()),
        dnorm_(scan_.nheads * scan_.headdim),
        dD_(scan_.nheads) {}

  void run() {
    for_each_mamba3_head(args_, [&](auto... which) { run_head(which...); });
    for (const auto& [from, to] : {std::pair{&dQ_, out_.dQ}, std::pair{&dK_, out_.dK}})
      for (std::size_t at = 0; at < from->size(); ++at) store(to, static_cast<std::int64_t>(at), (*from)[at]);
    for (const auto& [from, to] :
         {std::pair{&dQ_bias_, out_.dQ_bias}, std::pair{&dK_bias_, out_.dK_bias},
          std::pair{&dup_, out_.dmimo_v}, std::pair{&dgate_, out_.dmimo_z},
          std::pair{&ddown_, out_.dmimo_out}, std::pair{&dnorm_, out_.dnorm}, std::pair{&dD_, out_.dD}})
      if (to != nullptr) std::ranges::copy(*from, to);
  }

 private:
  std::int64_t length() const { return end_ - begin_; }
  /// Step i of the sequence; −1 is that of the input states.
  float* q(std::int64_t i) { return q_.data() + (i + 1) * rn_; }
  float* k(std::int64_t i) { return k_.data() + (i + 1) * rn_; }
  float* dq(std::int64_t i) { return dq_.data() + (i + 1) * rn_; }
  float* dk(std::int64_t i) { return dk_.data() + (i + 1) * rn_; }
  float* dv(std::int64_t i) { return dv_.data() + (i + 1) * rp_; }  ///< dV^r, [rank][head dim]
  float* dy(std::int64_t i) { return dy_.data() + i * rp_; }
  float& v(std::int64_t i, std::int64_t p) { return v_[(i + 1) * scan_.headdim + p]; }
  float raised(std::int64_t i, std::int64_t r, std::int64_t p) {
    return v(i, p) * factor(args_.mimo_v, r, p);
  }

  void run_head(std::int64_t index, std::int64_t batch, std::int64_t begin, std::int64_t end,
                std::int64_t head) {
    choose(index, batch, begin, end, head);
    if (length() == 0) return pass_cotangents(out_);
    load();
    make_dy();
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      go_forward(p);
      go_back(p);
    }
    store_vectors();
    store_inputs();
    store_scalars();
    if (out_.dinput_k != nullptr) std::ranges::copy(turning_, out_.dinput_angle + state_at() * scan_.angles);
  }

  /// q, k, V and the scalars of all steps; gradients of 0.
  void load() {
    const std::int64_t steps = length();
    for (auto* vectors : {&q_, &k_, &dq_, &dk_}) vectors->assign((steps + 1) * rn_, 0.0F);
    v_.assign((steps + 1) * scan_.headdim, 0.0F);
    dv_.assign((steps + 1) * rp_, 0.0F);
    turns_.assign(steps * scan_.angles, 0.0F);
    of_decay_.assign(steps, 0.0F);
    of_before_.assign(steps, 0.0F);
    of_own_.assign(steps, 0.0F);
    scalars_.clear();
    std::vector<float> turns(scan_.angles);
    load_turns(turns);
    for (std::int64_t i = 0; i < steps; ++i) {
      turn(begin_ + i, turns);
      std::ranges::copy(turns, turns_.begin() + i * scan_.angles);
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        load_plain(args_.Q, args_.Q_bias, begin_ + i, r, q(i) + r * scan_.dstate);
        load_plain(args_.K, args_.K_bias, begin_ + i, r, k(i) + r * scan_.dstate);
        rotate(turns.data(), 1, q(i) + r * scan_.dstate);
        rotate(turns.data(), 1, k(i) + r * scan_.dstate);
      }
      for (std::int64_t p = 0; p < scan_.headdim; ++p)
        v(i, p) = element(args_.V, step_at(begin_ + i) * scan_.headdim + p);
      scalars_.push_back(scalars(begin_ + i));
    }
    if (args_.input_ssm == nullptr) return;
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      std::copy_n(args_.input_k + k_state_at(r), scan_.dstate, k(-1) + r * scan_.dstate);
    std::copy_n(args_.input_v + state_at() * scan_.headdim, scan_.headdim, v_.begin());
  }

  /// Row p of the state before step i + 1 of that before step i.
  void step_forward(std::int64_t i, std::int64_t p, const float* before, float* after) {
    const Scalars& step = scalars_[i];
    for (std::int64_t n = 0; n < scan_.dstate; ++n) after[n] = step.alpha * before[n];
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      const float of_before = step.beta * raised(i - 1, r, p);
      const float own = step.gamma * raised(i, r, p);
      for (std::int64_t n = 0; n < scan_.dstate; ++n)
        after[n] += of_before * k(i - 1)[r * scan_.dstate + n] + own * k(i)[r * scan_.dstate + n];
    }
  }

  void load_row(std::int64_t p, float* to) const {
    if (args_.input_ssm == nullptr)
      std::fill_n(to, scan_.dstate, 0.0F);
    else
      std::copy_n(args_.input_ssm + (state_at() * scan_.headdim + p) * scan_.dstate, scan_.dstate, to);
  }

  /// y of all steps, what it gives, and dy.
  void make_dy() {
    dy_.assign(length() * rp_, 0.0F);
    y_.assign(length() * rp_, 0.0F);
    const float skip = args_.D == nullptr ? 0.0F : args_.D[head_];
    std::vector<float> before(scan_.dstate);
    std::vector<float> after(scan_.dstate);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      load_row(p, before.data());
      for (std::int64_t i = 0; i < length(); ++i) {
        step_forward(i, p, before.data(), after.data());
        for (std::int64_t r = 0; r < scan_.rank; ++r) {
          float sum = 0;
          for (std::int64_t n = 0; n < scan_.dstate; ++n) sum += after[n] * q(i)[r * scan_.dstate + n];
          y_[i * rp_ + r * scan_.headdim + p] = sum + skip * raised(i, r, p);
        }
        std::swap(before, after);
      }
    }
    for (std::int64_t i = 0; i < length(); ++i) {
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        float* const y = y_.data() + i * rp_ + r * scan_.headdim;
        const float inverse = args_.norm == nullptr ? 1.0F : inverse_of_norm(y);
        take_gate(i, r, y, inverse);
        if (args_.norm != nullptr) take_norm(i, r, y, inverse);
      }
      if (out_.dZ != nullptr) store_gates(i);
    }
  }

  float inverse_of_norm(const float* y) const {
    float squares = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) squares += y[p] * y[p];
    return 1.0F / sqrtf(squares / static_cast<float>(scan_.headdim) + static_cast<float>(kMamba3NormEps));
  }

  /// Makes dy that of what the gate takes, and y that of the gate's argument z = Z·MIMO_Z.
  void take_gate(std::int64_t i, std::int64_t r, const float* y, float inverse) {
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const float dout = element(out_.dout, out_at(begin_ + i, r) + p);
      const float down = factor(args_.mimo_out, r, p);
      const float weight = args_.norm == nullptr ? 1.0F : args_.norm[head_ * scan_.headdim + p];
      const float gated = y[p] * inverse * weight;
      float& dy = dy_[i * rp_ + r * scan_.headdim + p];
      dy = dout * down;
      float open = 1;
      dz_.resize(rp_);
      if (args_.Z != nullptr) {
        const float Z = element(args_.Z, step_at(begin_ + i) * scan_.headdim + p);
        const float z = Z * factor(args_.mimo_z, r, p);
        open = silu(z);
        const float dz = dy * gated * sigmoid(z) * (1.0F + z * sigmoid(-z));
        dgate_[head_ * rp_ + r * scan_.headdim + p] += dz * Z;
        dz_[r * scan_.headdim + p] = dz * factor(args_.mimo_z, r, p);
        dy *= open;
      }
      ddown_[head_ * rp_ + r * scan_.headdim + p] += dout * gated * open;
    }
  }

  /// Through the norm: dy ← inverse·(dn − n·mean(dn·n)), dn = dy·weight, n = y·inverse.
  void take_norm(std::int64_t i, std::int64_t r, const float* y, float inverse) {
    float* const row = dy(i) + r * scan_.headdim;
    float sum = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      dnorm_[head_ * scan_.headdim + p] += row[p] * y[p] * inverse;
      row[p] *= args_.norm[head_ * scan_.headdim + p];
      sum += row[p] * y[p] * inverse;
    }
    const float mean = sum / static_cast<float>(scan_.headdim);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) row[p] = inverse * (row[p] - y[p] * inverse * mean);
  }

  void store_gates(std::int64_t i) const {
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      float sum = 0;
      for (std::int64_t r = 0; r < scan_.rank; ++r) sum += dz_[r * scan_.headdim + p];
      store(out_.dZ, step_at(begin_ + i) * scan_.headdim + p, sum);
    }
  }

  /// Row p of the state before each step and after the last.
  void go_forward(std::int64_t p) {
    states_.resize((length() + 1) * scan_.dstate);
    load_row(p, states_.data());
    for (std::int64_t i = 0; i < length(); ++i)
      step_forward(i, p, states_.data() + i * scan_.dstate, states_.data() + (i + 1) * scan_.dstate);
  }

  void go_back(std::int64_t p) {
    const std::int64_t row = (state_at() * scan_.headdim + p) * scan_.dstate;
    adjoint_.assign(scan_.dstate, 0.0F);
    if (out_.dfinal_ssm != nullptr) std::copy_n(out_.dfinal_ssm + row, scan_.dstate, adjoint_.begin());
    for (std::int64_t i = length() - 1; i >= 0; --i) {
      const float* const before = states_.data() + i * scan_.dstate;
      const float* const after = before + scan_.dstate;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        const float dy_here = dy(i)[r * scan_.headdim + p];
        for (std::int64_t n = 0; n < scan_.dstate; ++n) {
          adjoint_[n] += dy_here * q(i)[r * scan_.dstate + n];
          dq(i)[r * scan_.dstate + n] += dy_here * after[n];
        }
      }
      const Scalars& step = scalars_[i];
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        of_own_[i] += take_input(i, r, p, step.gamma);
        of_before_[i] += take_input(i - 1, r, p, step.beta);
      }
      float of_decay = 0;
      for (std::int64_t n = 0; n < scan_.dstate; ++n) {
        of_decay += adjoint_[n] * before[n];
        adjoint_[n] *= step.alpha;
      }
      of_decay_[i] += of_decay;
    }
    if (out_.dinput_ssm != nullptr) std::ranges::copy(adjoint_, out_.dinput_ssm + row);
  }

  /// The gradients of V_i^r ⊗ k_i^r, which step i or the next adds to the state with `weight`. Returns
  /// ⟨G, V ⊗ k⟩.
  float take_input(std::int64_t i, std::int64_t r, std::int64_t p, float weight) {
    const float* const of_k = k(i) + r * scan_.dstate;
    float* const to = dk(i) + r * scan_.dstate;
    const float of_v = raised(i, r, p);
    float sum = 0;
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      sum += adjoint_[n] * of_k[n];
      to[n] += weight * of_v * adjoint_[n];
    }
    dv(i)[r * scan_.headdim + p] += weight * sum;
    return of_v * sum;
  }

  /// dQ, dK and their biases; from them dθ, its sums over later steps, and dAngles.
  void store_vectors() {
    turning_.assign(scan_.angles, 0.0F);
    if (out_.dfinal_angle != nullptr)
      std::copy_n(out_.dfinal_angle + state_at() * scan_.angles, scan_.angles, turning_.begin());
    of_angles_.assign(length(), 0.0F);
    for (std::int64_t r = 0; r < scan_.rank && out_.dfinal_k != nullptr; ++r)
      for (std::int64_t n = 0; n < scan_.dstate; ++n)
        dk(length() - 1)[r * scan_.dstate + n] += out_.dfinal_k[k_state_at(r) + n];
    for (std::int64_t i = length() - 1; i >= 0; --i) {
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        add_turns(q(i) + r * scan_.dstate, dq(i) + r * scan_.dstate);
        add_turns(k(i) + r * scan_.dstate, dk(i) + r * scan_.dstate);
        add_vector(i, r, dq(i) + r * scan_.dstate, dQ_, dQ_bias_);
        add_vector(i, r, dk(i) + r * scan_.dstate, dK_, dK_bias_);
      }
      store_rates(i);
    }
    if (out_.dinput_k == nullptr) return;
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      std::copy_n(dk(-1) + r * scan_.dstate, scan_.dstate, out_.dinput_k + k_state_at(r));
  }

  void add_turns(const float* x, const float* dx) {
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair) {
      const std::int64_t first = scan_.first_of_pair(pair);
      const std::int64_t second = scan_.second_of_pair(pair);
      turning_[pair] += x[first] * dx[second] - x[second] * dx[first];
    }
  }

  void add_vector(std::int64_t i, std::int64_t r, float* dx, std::vector<float>& to,
                  std::vector<float>& bias) const {
    rotate(turns_.data() + i * scan_.angles, -1, dx);
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      to[row_at(begin_ + i, r) + n] += dx[n];
      bias[head_ * rn_ + r * scan_.dstate + n] += dx[n];
    }
  }

  void store_rates(std::int64_t i) {
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair) {
      const float rate = tanhf(Mamba3ScalarHead::rate(begin_ + i, pair));
      of_angles_[i] += kPi * rate * turning_[pair];
      const float gradient = kPi * (1.0F - rate * rate) * scalars_[i].dt * turning_[pair];
      const std::int64_t at = step_at(begin_ + i) * scan_.angles + pair;
      if (scan_.is_mimo)
        static_cast<float*>(out_.drates)[at] = gradient;
      else
        store(out_.drates, at, gradient);
    }
  }

  void store_inputs() {
    const float skip = args_.D == nullptr ? 0.0F : args_.D[head_];
    for (std::int64_t i = 0; i < length(); ++i) {
      const bool has_final = i + 1 == length() && out_.dfinal_v != nullptr;
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        float sum = has_final ? element(out_.dfinal_v, state_at() * scan_.headdim + p) : 0.0F;
        for (std::int64_t r = 0; r < scan_.rank; ++r) {
          const float of_y = dy(i)[r * scan_.headdim + p];
          const float of_rank = dv(i)[r * scan_.headdim + p] + skip * of_y;
          dD_[head_] += of_y * raised(i, r, p);
          dup_[head_ * rp_ + r * scan_.headdim + p] += of_rank * v(i, p);
          sum += of_rank * factor(args_.mimo_v, r, p);
        }
        store(out_.dV, step_at(begin_ + i) * scan_.headdim + p, sum);
      }
    }
    if (out_.dinput_v == nullptr) return;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      float sum = 0;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        dup_[head_ * rp_ + r * scan_.headdim + p] += dv(-1)[r * scan_.headdim + p] * v(-1, p);
        sum += dv(-1)[r * scan_.headdim + p] * factor(args_.mimo_v, r, p);
      }
      out_.dinput_v[state_at() * scan_.headdim + p] = sum;
    }
  }

  /// of_decay_, of_before_ and of_own_ are ⟨G, S_{t-1}⟩, ⟨G, V_{t-1} ⊗ k_{t-1}⟩ and ⟨G, V_t ⊗ k_t⟩.
  void store_scalars() const {
    for (std::int64_t i = 0; i < length(); ++i) {
      const Scalars& step = scalars_[i];
      const std::int64_t at = scalar_at(begin_ + i);
      const float before = step.alpha * of_before_[i];
      out_.dadt[at] = step.alpha * of_decay_[i] + step.beta * of_before_[i];
      out_.ddt[at] = step.closed * before + step.open * of_own_[i] + of_angles_[i];
      store(out_.dtrap, at, step.open * step.closed * step.dt * (of_own_[i] - before));
    }
  }

  const Mamba3BwdArgs& out_;
  std::int64_t rn_, rp_;        // elements of a row of each rank
  std::vector<float> dQ_, dK_;  // as they are stored
  std::vector<float> dQ_bias_, dK_bias_, dup_, dgate_, ddown_, dnorm_, dD_;
  // One head's, [step][rank][element], some after one of the input states
  std::vector<float> q_, k_, dq_, dk_, dv_, dy_, y_;
  std::vector<float> v_;        // after that of the input states, [step][head dim]
  std::vector<float> dz_;       // of one step, [rank][head dim]
  std::vector<float> turns_;    // angles, [step][pair]
  std::vector<float> turning_;  // Σ dθ of later steps, [pair]
  std::vector<float> of_decay_, of_before_, of_own_, of_angles_;  // [step]
  std::vector<Scalars> scalars_;
  // One row's
  std::vector<float> states_;  // before each step and after the last, [step][state]
  std::vector<float> adjoint_;
};

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const Mamba3BwdArgs args = bind_mamba3_bwd(problem, tensors);
  return [=, io = problem.dtype()](void*) { Gradients(args, io).run(); };
}

Implementation scalar(const char* op) {
  return {.name = "cpu-scalar",
          .op = op,
          .device = DeviceKind::cpu,
          .summary = "the plain sequential adjoint loop, one thread",
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = bind};
}

const Registration siso(scalar("mamba3_siso_bwd"));
const Registration mimo(scalar("mamba3_mimo_bwd"));

}  // namespace
}  // namespace ssmbench::scalar_mamba3_bwd
