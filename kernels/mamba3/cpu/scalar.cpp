// cpu-scalar: Mamba-3's recurrence as the definition has it (ops/mamba3/mamba3.h), one (sequence, head) after
// the other on one thread, f32, libm. It is the readable version of what every faster implementation
// computes. Angles are kept in turns, so that reducing them is exact.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/bind.h"

namespace ssmbench {
namespace {

constexpr float kTurn = 2 * std::numbers::pi_v<float>;

template <class Io>
float element(const void* data, std::int64_t at) {
  return Io::load(static_cast<const typename Io::Storage*>(data)[at]);
}

/// One head of one sequence. Vectors with ranks are [rank][element].
template <class Io>
class Head {
 public:
  explicit Head(const Mamba3Args& args)
      : args_(args),
        scan_(args.scan),
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
    index_ = index;
    batch_ = batch;
    head_ = head;
    load_states();
    for (std::int64_t t = begin; t < end; ++t) {
      turn(t);
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
  std::int64_t step_at(std::int64_t t) const { return (batch_ * scan_.seqlen + t) * scan_.nheads + head_; }
  std::int64_t scalar_at(std::int64_t t) const { return (batch_ * scan_.nheads + head_) * scan_.seqlen + t; }
  std::int64_t state_at() const { return index_ * scan_.nheads + head_; }
  std::int64_t k_state_at(std::int64_t r) const {
    return ((index_ * scan_.rank + r) * scan_.nheads + head_) * scan_.dstate;
  }
  /// An element of MIMO_V, MIMO_Z or MIMO_Out.
  float factor(const float* all, std::int64_t r, std::int64_t p) const {
    return all == nullptr ? 1.0F : all[(head_ * scan_.rank + r) * scan_.headdim + p];
  }

  void load_states() {
    if (args_.input_ssm == nullptr) {
      for (auto* state : {&ssm_, &turns_, &k_before_, &v_before_}) std::ranges::fill(*state, 0.0F);
      return;
    }
    std::copy_n(args_.input_ssm + state_at() * std::ssize(ssm_), ssm_.size(), ssm_.begin());
    for (std::int64_t i = 0; i < scan_.angles; ++i)
      turns_[i] = args_.input_angle[state_at() * scan_.angles + i] / kTurn;
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      std::copy_n(args_.input_k + k_state_at(r), scan_.dstate, k_before_.begin() + r * scan_.dstate);
    std::copy_n(args_.input_v + state_at() * scan_.headdim, scan_.headdim, v_before_.begin());
  }

  /// DT·π·tanh of an angle is DT·tanh/2 turns.
  void turn(std::int64_t t) {
    const float dt = args_.dt[scalar_at(t)];
    for (std::int64_t i = 0; i < scan_.angles; ++i) {
      const std::int64_t at = step_at(t) * scan_.angles + i;
      const float rate =
          scan_.is_mimo ? static_cast<const float*>(args_.rates)[at] : element<Io>(args_.rates, at);
      const float turns = turns_[i] + 0.5F * dt * tanhf(rate);
      turns_[i] = turns - rintf(turns);
    }
  }

  void load_vectors(std::int64_t t) {
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      v_[p] = element<Io>(args_.V, step_at(t) * scan_.headdim + p);
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      load_vector(args_.Q, args_.Q_bias, t, r, q_.data() + r * scan_.dstate);
      load_vector(args_.K, args_.K_bias, t, r, k_.data() + r * scan_.dstate);
    }
  }

  /// Q or K of a rank with its bias, rotated.
  void load_vector(const void* from, const float* bias, std::int64_t t, std::int64_t r, float* to) const {
    const std::int64_t group = head_ / scan_.heads_per_group();
    const std::int64_t row =
        (((batch_ * scan_.seqlen + t) * scan_.rank + r) * scan_.groups + group) * scan_.dstate;
    for (std::int64_t n = 0; n < scan_.dstate; ++n)
      to[n] = element<Io>(from, row + n) + bias[(head_ * scan_.rank + r) * scan_.dstate + n];
    for (std::int64_t i = 0; i < scan_.angles; ++i) {
      const float cosine = cosf(kTurn * turns_[i]);
      const float sine = sinf(kTurn * turns_[i]);
      float& first = to[scan_.first_of_pair(i)];
      float& second = to[scan_.second_of_pair(i)];
      const float x0 = first;
      const float x1 = second;
      first = x0 * cosine - x1 * sine;
      second = x0 * sine + x1 * cosine;
    }
  }

  /// S ← α·S + β·Σ V_{t-1}^r ⊗ k_{t-1}^r + γ·Σ V_t^r ⊗ k_t^r.
  void update(std::int64_t t) {
    const float trap = element<Io>(args_.trap, scalar_at(t));
    const float dt = args_.dt[scalar_at(t)];
    const float alpha = expf(args_.adt[scalar_at(t)]);
    const float beta = dt * alpha / (1.0F + expf(trap));  // 1 − σ(x) = σ(−x)
    const float gamma = dt / (1.0F + expf(-trap));
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      float* const states = ssm_.data() + p * scan_.dstate;
      for (std::int64_t n = 0; n < scan_.dstate; ++n) states[n] *= alpha;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        const float up = factor(args_.mimo_v, r, p);
        const float before = beta * v_before_[p] * up;
        const float now = gamma * v_[p] * up;
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
    auto* const out = static_cast<typename Io::Storage*>(args_.out);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      float sum = 0;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        float y = y_[r * scan_.headdim + p];
        if (args_.Z != nullptr)
          y *= silu(element<Io>(args_.Z, step_at(t) * scan_.headdim + p) * factor(args_.mimo_z, r, p));
        const std::int64_t at = ((batch_ * scan_.seqlen + t) * scan_.rank + r) * scan_.nheads + head_;
        if (!scan_.reduces_ranks) out[at * scan_.headdim + p] = Io::store(y);
        sum += y * factor(args_.mimo_out, r, p);
      }
      if (scan_.reduces_ranks) out[step_at(t) * scan_.headdim + p] = Io::store(sum);
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
        static_cast<typename Io::Storage*>(args_.final_v)[at] = Io::store(v_before_[p]);
    }
  }

  const Mamba3Args& args_;
  const Mamba3& scan_;
  std::int64_t index_ = 0, batch_ = 0, head_ = 0;
  std::vector<float> ssm_;    // [head dim][state]
  std::vector<float> turns_;  // angles
  std::vector<float> q_, k_, k_before_;
  std::vector<float> v_, v_before_, y_;
};

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const Mamba3Args args = bind_mamba3(problem, tensors);
  return with_io_type(problem.dtype(), [&]<class Io>(Io) -> Launch {
    return [=](void*) {
      Head<Io> one(args);
      for (std::int64_t m = 0; m < args.scan.sequences; ++m) {
        const bool packed = args.cu_seqlens != nullptr;
        const std::int64_t begin = packed ? args.cu_seqlens[m] : 0;
        const std::int64_t end = packed ? args.cu_seqlens[m + 1] : args.scan.seqlen;
        for (std::int64_t h = 0; h < args.scan.nheads; ++h) one.run(m, packed ? 0 : m, begin, end, h);
      }
    };
  });
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
}  // namespace ssmbench
