// cpu-scalar for the gradients: the adjoint loop in f32, one row (b, h, p) after the other on one thread, all
// states of a row kept. It is the readable version of what a faster implementation computes.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/bind.h"

namespace ssmbench::scalar_ssd_bwd {
namespace {

float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

/// The steps of one (batch, head), and what its rows add up to.
struct Steps {
  std::vector<float> delta, slope, decay, of_decay, of_delta;
  std::vector<bool> starts;  // first of a sequence: the state before it is not seen

  explicit Steps(std::int64_t seqlen)
      : delta(seqlen), slope(seqlen), decay(seqlen), of_decay(seqlen), of_delta(seqlen), starts(seqlen) {}
};

template <class Io>
class Gradients {
 public:
  explicit Gradients(const SsdBwdArgs& args)
      : args_(args),
        in_(args.in),
        dB_(in_.batch * in_.seqlen * in_.groups * in_.dstate),
        dC_(dB_.size()),
        dA_(in_.nheads),
        dbias_(in_.nheads),
        dD_(in_.skip_per_headdim ? in_.nheads * in_.headdim : in_.nheads),
        B_(in_.seqlen * in_.dstate),
        C_(B_.size()),
        states_((in_.seqlen + 1) * in_.dstate),
        adjoint_(in_.dstate) {}

  void run() {
    Steps steps(in_.seqlen);
    for (std::int64_t b = 0; b < in_.batch; ++b)
      for (std::int64_t h = 0; h < in_.nheads; ++h) {
        load_steps(b, h, steps);
        for (std::int64_t p = 0; p < in_.headdim; ++p) {
          go_forward(b, h, p, steps);
          go_back(b, h, p, steps);
        }
        store_steps(b, h, steps);
      }
    std::ranges::transform(dB_, static_cast<Storage*>(args_.dB), Io::store);
    std::ranges::transform(dC_, static_cast<Storage*>(args_.dC), Io::store);
    std::ranges::copy(dA_, args_.dA);
    if (args_.ddt_bias != nullptr) std::ranges::copy(dbias_, args_.ddt_bias);
    if (args_.dD != nullptr) std::ranges::copy(dD_, args_.dD);
  }

 private:
  using Storage = typename Io::Storage;

  static float load(const void* data, std::int64_t at) {
    return Io::load(static_cast<const Storage*>(data)[at]);
  }
  static void store(void* data, std::int64_t at, float value) {
    static_cast<Storage*>(data)[at] = Io::store(value);
  }
  std::int64_t step_at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return (b * in_.seqlen + t) * in_.nheads + h;
  }
  std::int64_t projection_at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return ((b * in_.seqlen + t) * in_.groups + h / in_.heads_per_group) * in_.dstate;
  }
  std::int64_t state_at(std::int64_t b, std::int64_t h, std::int64_t p) const {
    return ((b * in_.nheads + h) * in_.headdim + p) * in_.dstate;
  }
  std::int64_t skip_at(std::int64_t h, std::int64_t p) const {
    return in_.skip_per_headdim ? h * in_.headdim + p : h;
  }
  float* state(std::int64_t t) { return states_.data() + t * in_.dstate; }  ///< before step t

  void load_steps(std::int64_t b, std::int64_t h, Steps& steps) {
    for (std::int64_t t = 0; t < in_.seqlen; ++t) {
      const float x = load(in_.dt, step_at(b, h, t)) + (in_.dt_bias != nullptr ? in_.dt_bias[h] : 0.0F);
      const float delta = in_.dt_softplus ? softplus(x) : x;
      const bool cut = delta < in_.dt_low || delta > in_.dt_high;
      steps.slope[t] = cut ? 0.0F : in_.dt_softplus ? sigmoid(x) : 1.0F;
      steps.delta[t] = std::clamp(delta, in_.dt_low, in_.dt_high);
      for (std::int64_t n = 0; n < in_.dstate; ++n) {
        B_[t * in_.dstate + n] = load(in_.B, projection_at(b, h, t) + n);
        C_[t * in_.dstate + n] = load(in_.C, projection_at(b, h, t) + n);
      }
      const std::int64_t at = b * in_.seqlen + t;
      steps.starts[t] = in_.seq_idx != nullptr && t > 0 && in_.seq_idx[at] != in_.seq_idx[at - 1];
      steps.decay[t] = steps.starts[t] ? 0.0F : expf(steps.delta[t] * in_.A[h]);
    }
    std::ranges::fill(steps.of_decay, 0.0F);
    std::ranges::fill(steps.of_delta, 0.0F);
  }

  void go_forward(std::int64_t b, std::int64_t h, std::int64_t p, const Steps& steps) {
    if (in_.initial_states != nullptr)
      std::copy_n(in_.initial_floats() + state_at(b, h, p), in_.dstate, state(0));
    else
      std::fill_n(state(0), in_.dstate, 0.0F);
    for (std::int64_t t = 0; t < in_.seqlen; ++t) {
      const float input = steps.delta[t] * load(in_.x, step_at(b, h, t) * in_.headdim + p);
      for (std::int64_t n = 0; n < in_.dstate; ++n)
        state(t + 1)[n] = steps.decay[t] * state(t)[n] + input * B_[t * in_.dstate + n];
    }
  }

  void go_back(std::int64_t b, std::int64_t h, std::int64_t p, Steps& steps) {
    if (args_.dfinal_states != nullptr)
      std::copy_n(args_.dfinal_states + state_at(b, h, p), in_.dstate, adjoint_.begin());
    else
      std::ranges::fill(adjoint_, 0.0F);
    const float skip = in_.D != nullptr ? in_.D[skip_at(h, p)] : 0.0F;
    for (std::int64_t t = in_.seqlen - 1; t >= 0; --t) {
      const std::int64_t row = step_at(b, h, t) * in_.headdim + p;
      const std::int64_t projection = projection_at(b, h, t);
      const float x = load(in_.x, row);
      const float dout = load(args_.dout, row);
      const float dy = in_.z != nullptr ? dout * silu(load(in_.z, row)) : dout;
      const float input = steps.delta[t] * x;
      const float* before = state(t);
      const float* after = state(t + 1);
      float y = 0;
      float of_input = 0;
      float of_decay = 0;
      for (std::int64_t n = 0; n < in_.dstate; ++n) {
        const float C = C_[t * in_.dstate + n];
        const float g = adjoint_[n] + dy * C;
        y += C * after[n];
        of_input += g * B_[t * in_.dstate + n];
        dC_[projection + n] += dy * after[n];
        dB_[projection + n] += g * input;
        adjoint_[n] = steps.decay[t] * g;
        if (!steps.starts[t]) of_decay += adjoint_[n] * before[n];
      }
      steps.of_decay[t] += of_decay;
      steps.of_delta[t] += of_input * x;
      store(args_.dx, row, steps.delta[t] * of_input + skip * dy);
      if (args_.dD != nullptr) dD_[skip_at(h, p)] += dy * x;
      if (in_.z != nullptr) {
        const float z = load(in_.z, row);
        store(args_.dz, row, dout * (y + skip * x) * sigmoid(z) * (1.0F + z * sigmoid(-z)));
      }
    }
    if (args_.dinitial_states != nullptr)
      std::ranges::copy(adjoint_, args_.dinitial_states + state_at(b, h, p));
  }

  void store_steps(std::int64_t b, std::int64_t h, const Steps& steps) {
    for (std::int64_t t = 0; t < in_.seqlen; ++t) {
      const float ddt = (in_.A[h] * steps.of_decay[t] + steps.of_delta[t]) * steps.slope[t];
      dA_[h] += steps.delta[t] * steps.of_decay[t];
      dbias_[h] += ddt;
      store(args_.ddt, step_at(b, h, t), ddt);
    }
  }

  SsdBwdArgs args_;
  SsdInputs in_;
  std::vector<float> dB_, dC_, dA_, dbias_, dD_;
  std::vector<float> B_, C_;    // of the head's group, [time][state]
  std::vector<float> states_;   // of one row: states_[t] before step t, [time][state]
  std::vector<float> adjoint_;  // of one row, after the step at hand
};

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const SsdBwdArgs args = bind_ssd_bwd(problem, tensors);
  return with_io_type(problem.dtype(),
                      [&]<class Io>(Io) -> Launch { return [=](void*) { Gradients<Io>(args).run(); }; });
}

const Registration registration{{.name = "cpu-scalar",
                                 .op = "ssd_chunk_scan_bwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "the plain sequential adjoint loop, one thread",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::scalar_ssd_bwd
