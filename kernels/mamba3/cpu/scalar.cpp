// cpu-scalar: Mamba-3's recurrence as the definition has it (ops/mamba3/mamba3.h), one (sequence, head) after
// the other on one thread, f32, libm. It is the readable version of what every faster implementation
// computes.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/cpu/scalar_head.h"

namespace ssmbench::scalar_mamba3_fwd {
namespace {

/// One head of one sequence. Vectors with ranks are [rank][element].
class Head : Mamba3ScalarHead {
 public:
  Head(const Mamba3Args& args, DType io)
      : Mamba3ScalarHead(args, io),
        ssm_(scan_.headdim * scan_.dstate),
        turns_(scan_.angles),
        q_(scan_.rank * scan_.dstate),
        k_(scan_.rank * scan_.dstate),
        k_before_(scan_.rank * scan_.dstate),
        v_(scan_.headdim),
        v_before_(scan_.headdim),
        y_(scan_.rank * scan_.headdim) {}

  /// Steps [begin, end) of batch `batch`; the states are those of sequence `index`.
  void run(std::int64_t index, std::int64_t batch, std::int64_t begin, std::int64_t end, std::int64_t head) {
    choose(index, batch, begin, end, head);
    load_states();
    for (std::int64_t t = begin; t < end; ++t) {
      turn(t, turns_);
      load_vectors(t);
      update(t);
      read();
      if (args_.norm != nullptr)
        for (std::int64_t r = 0; r < scan_.rank; ++r) normalize(r);
      store_out(t);
      std::swap(k_, k_before_);
      std::swap(v_, v_before_);
    }
    if (args_.final_ssm != nullptr) store_states();
  }

 private:
  void load_states() {
    load_turns(turns_);
    if (args_.input_ssm == nullptr) {
      for (auto* state : {&ssm_, &k_before_, &v_before_}) std::ranges::fill(*state, 0.0F);
      return;
    }
    std::copy_n(args_.input_ssm + state_at() * std::ssize(ssm_), ssm_.size(), ssm_.begin());
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      std::copy_n(args_.input_k + k_state_at(r), scan_.dstate, k_before_.begin() + r * scan_.dstate);
    std::copy_n(args_.input_v + state_at() * scan_.headdim, scan_.headdim, v_before_.begin());
  }

  void load_vectors(std::int64_t t) {
    for (std::int64_t p = 0; p < scan_.headdim; ++p) v_[p] = element(args_.V, step_at(t) * scan_.headdim + p);
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      load_plain(args_.Q, args_.Q_bias, t, r, q_.data() + r * scan_.dstate);
      load_plain(args_.K, args_.K_bias, t, r, k_.data() + r * scan_.dstate);
      rotate(turns_.data(), 1, q_.data() + r * scan_.dstate);
      rotate(turns_.data(), 1, k_.data() + r * scan_.dstate);
    }
  }

  /// S ← α·S + β·Σ V_{t-1}^r ⊗ k_{t-1}^r + γ·Σ V_t^r ⊗ k_t^r.
  void update(std::int64_t t) {
    const Scalars step = scalars(t);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      float* const states = ssm_.data() + p * scan_.dstate;
      for (std::int64_t n = 0; n < scan_.dstate; ++n) states[n] *= step.alpha;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        const float up = factor(args_.mimo_v, r, p);
        const float before = step.beta * v_before_[p] * up;
        const float now = step.gamma * v_[p] * up;
        const float* const k_before = k_before_.data() + r * scan_.dstate;
        const float* const k = k_.data() + r * scan_.dstate;
        for (std::int64_t n = 0; n < scan_.dstate; ++n) states[n] += before * k_before[n] + now * k[n];
      }
    }
  }

  /// y^r = S·q^r + D·V^r.
  void read() {
    const float skip = args_.D == nullptr ? 0.0F : args_.D[head_];
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        const float* const states = ssm_.data() + p * scan_.dstate;
        const float* const q = q_.data() + r * scan_.dstate;
        float sum = 0;
        for (std::int64_t n = 0; n < scan_.dstate; ++n) sum += states[n] * q[n];
        y_[r * scan_.headdim + p] = sum + skip * v_[p] * factor(args_.mimo_v, r, p);
      }
  }

  void normalize(std::int64_t r) {
    float* const y = y_.data() + r * scan_.headdim;
    float squares = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) squares += y[p] * y[p];
    const float mean = squares / static_cast<float>(scan_.headdim);
    const float inverse = 1.0F / sqrtf(mean + static_cast<float>(kMamba3NormEps));
    for (std::int64_t p = 0; p < scan_.headdim; ++p) y[p] *= inverse * args_.norm[head_ * scan_.headdim + p];
  }

  /// The gate, and the sum over ranks.
  void store_out(std::int64_t t) const {
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      float sum = 0;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        float y = y_[r * scan_.headdim + p];
        if (args_.Z != nullptr)
          y *= silu(element(args_.Z, step_at(t) * scan_.headdim + p) * factor(args_.mimo_z, r, p));
        if (!scan_.reduces_ranks) store(args_.out, out_at(t, r) + p, y);
        sum += y * factor(args_.mimo_out, r, p);
      }
      if (scan_.reduces_ranks) store(args_.out, out_at(t, 0) + p, sum);
    }
  }

  void store_states() const {
    std::ranges::copy(ssm_, args_.final_ssm + state_at() * std::ssize(ssm_));
    for (std::int64_t i = 0; i < scan_.angles; ++i)
      args_.final_angle[state_at() * scan_.angles + i] = kTurn * (turns_[i] - floorf(turns_[i]));
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      std::copy_n(k_before_.begin() + r * scan_.dstate, scan_.dstate, args_.final_k + k_state_at(r));
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const std::int64_t at = state_at() * scan_.headdim + p;
      if (scan_.is_step)
        static_cast<float*>(args_.final_v)[at] = v_before_[p];
      else
        store(args_.final_v, at, v_before_[p]);
    }
  }

  std::vector<float> ssm_;    // [head dim][state]
  std::vector<float> turns_;  // angles
  std::vector<float> q_, k_, k_before_;
  std::vector<float> v_, v_before_, y_;
};

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const Mamba3Args args = bind_mamba3(problem, tensors);
  return [=, io = problem.dtype()](void*) {
    Head one(args, io);
    for_each_mamba3_head(args, [&](auto... which) { one.run(which...); });
  };
}

Implementation scalar(const char* op) {
  return {.name = "cpu-scalar",
          .op = op,
          .device = DeviceKind::cpu,
          .summary = "the plain sequential loop, one thread",
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = bind};
}

const Registration siso(scalar("mamba3_siso_fwd"));
const Registration mimo(scalar("mamba3_mimo_fwd"));
const Registration step(scalar("mamba3_step"));

}  // namespace
}  // namespace ssmbench::scalar_mamba3_fwd
