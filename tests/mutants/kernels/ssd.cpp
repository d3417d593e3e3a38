// ssd_chunk_scan_fwd and ssd_chunk_scan_bwd: one head after the other, in f64, by the recurrence.

#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

/// Gradients that several heads or steps add to.
struct GradientSums {
  explicit GradientSums(const ssmbench_problem& problem)
      : dA(problem, "dA"),
        dB(problem, "dB"),
        dC(problem, "dC"),
        dD(problem, "dD"),
        dbias(problem, "ddt_bias") {}
  void store() const {
    for (const Sums* sums : {&dA, &dB, &dC, &dD, &dbias}) sums->store();
  }
  Sums dA, dB, dC, dD, dbias;
};

/// One head of one batch, its states kept for all steps, so that it can be walked backward too.
class Head {
 public:
  Head(const Call& call, std::int64_t b, std::int64_t h) : call_(call), b_(b), h_(h) {}

  void forward();
  /// Of sequences that cu_seqlens packs.
  void forward_packed() const;
  void store_outputs() const;
  /// The state of head dim p where states_at names a step from `first` to `last`.
  void store_stops(std::int64_t first, std::int64_t last, std::int64_t p,
                   const std::vector<double>& h) const {
    const Tensor stops(call_.problem, "states_at");
    const Tensor states(call_.problem, "states");
    for (std::int64_t k = 0; stops.given() && k < call_.size("states_at"); ++k) {
      const std::int64_t step = stops.data<std::int32_t>()[k];
      if (step < first || step > last) continue;
      for (std::int64_t n = 0; n < dstate_; ++n) states.set(h[static_cast<std::size_t>(n)], k, h_, p, n);
    }
  }
  void backward(GradientSums& sums);

 private:
  bool has(Mistake which) const { return call_.has(which); }
  double& state(std::int64_t t, std::int64_t p, std::int64_t n) {
    return states_[static_cast<std::size_t>(((t + 1) * headdim_ + p) * dstate_ + n)];
  }
  double state(std::int64_t t, std::int64_t p, std::int64_t n) const {
    return states_[static_cast<std::size_t>(((t + 1) * headdim_ + p) * dstate_ + n)];
  }
  double before_limit(std::int64_t t) const {
    const double raw = dt_(b_, t, h_) + (bias_.given() ? bias_(h_) : 0);
    return call_.flag("dt_softplus") ? softplus(raw) : raw;
  }
  double step_of(std::int64_t t) const {
    return has(Mistake::dt_limit_ignored) ? before_limit(t)
                                          : std::clamp(before_limit(t), limit_->low, limit_->high);
  }
  bool starts_sequence(std::int64_t t) const {
    if (!seq_idx_.given() || t == 0 || has(Mistake::seq_idx_ignored)) return false;
    const auto* index = seq_idx_.data<std::int32_t>();
    return index[seq_idx_.offset(b_, t)] != index[seq_idx_.offset(b_, t - 1)];
  }
  double skip(std::int64_t p) const { return !D_.given() ? 0 : D_.rank() == 2 ? D_(h_, p) : D_(h_); }
  double y_at(std::int64_t t, std::int64_t p) const {
    double y = skip(p) * x_(b_, t, h_, p);
    for (std::int64_t n = 0; n < dstate_; ++n) y += C_(b_, t, g_, n) * state(t, p, n);
    return y;
  }
  double gate_backward(std::int64_t t, std::int64_t p) const;

  const Call& call_;
  std::int64_t b_, h_;
  std::int64_t seqlen_ = call_.size("seqlen"), headdim_ = call_.size("headdim"),
               dstate_ = call_.size("dstate");
  std::int64_t g_ = h_ / (call_.size("nheads") / call_.size("groups"));
  const ssmbench_attribute* limit_ = ssmbench_attribute_of(&call_.problem, "dt_limit");
  Tensor x_{call_.problem, "x"}, dt_{call_.problem, "dt"}, A_{call_.problem, "A"}, B_{call_.problem, "B"};
  Tensor C_{call_.problem, "C"}, D_{call_.problem, "D"}, z_{call_.problem, "z"},
      bias_{call_.problem, "dt_bias"};
  Tensor initial_{call_.problem, "initial_states"}, seq_idx_{call_.problem, "seq_idx"};
  std::vector<double> states_ =
      std::vector<double>(static_cast<std::size_t>((seqlen_ + 1) * headdim_ * dstate_));
};

void Head::forward() {
  for (std::int64_t p = 0; p < headdim_; ++p)
    for (std::int64_t n = 0; n < dstate_; ++n)
      state(-1, p, n) = initial_.given() ? initial_(b_, h_, p, n) : 0;
  for (std::int64_t t = 0; t < seqlen_; ++t) {
    const double delta = step_of(t);
    // A state that comes from the chunk before has decayed in this chunk's first step too.
    const bool is_boundary = t > 0 && t % call_.size("chunk_size") == 0;
    double decay = std::exp(delta * A_(h_));
    if (is_boundary && has(Mistake::chunk_state_not_decayed)) decay = 1;
    if (starts_sequence(t)) decay = 0;
    for (std::int64_t p = 0; p < headdim_; ++p)
      for (std::int64_t n = 0; n < dstate_; ++n)
        state(t, p, n) = decay * state(t - 1, p, n) + delta * x_(b_, t, h_, p) * B_(b_, t, g_, n);
  }
}

void Head::forward_packed() const {
  const auto* borders = Tensor(call_.problem, "cu_seqlens").data<std::int32_t>();
  const Tensor out(call_.problem, "out");
  const Tensor final_states(call_.problem, "final_states");
  const std::int64_t sequences = call_.size("sequences");
  for (std::int64_t p = 0; p < headdim_; ++p) {
    std::vector<double> h(static_cast<std::size_t>(dstate_));
    for (std::int64_t m = 0; m < sequences; ++m) {
      const std::int64_t first = borders[m];
      // What has decayed since the chunk that the sequence begins in did.
      double before = 1;
      for (std::int64_t t = first - first % call_.size("chunk_size"); t < first; ++t)
        before *= std::exp(step_of(t) * A_(h_));
      if (!has(Mistake::decay_from_chunk) || first == borders[m + 1]) before = 1;
      const std::int64_t source = has(Mistake::first_initial_for_all) ? 0 : m;
      const bool carries_on = has(Mistake::state_crosses_border) && m > 0;
      for (std::int64_t n = 0; n < dstate_ && !carries_on; ++n)
        h[static_cast<std::size_t>(n)] = initial_.given() ? before * initial_(source, h_, p, n) : 0;
      for (std::int64_t t = first; t < borders[m + 1]; ++t) {
        if (has(Mistake::stop_before_step)) store_stops(t, t, p, h);
        const double delta = step_of(t);
        double y = skip(p) * x_(b_, t, h_, p);
        for (std::int64_t n = 0; n < dstate_; ++n) {
          double& state = h[static_cast<std::size_t>(n)];
          state = std::exp(delta * A_(h_)) * state + delta * x_(b_, t, h_, p) * B_(b_, t, g_, n);
          y += C_(b_, t, g_, n) * state;
        }
        const double z = z_.given() ? z_(b_, t, h_, p) : 0;
        out.set(z_.given() ? y * z * sigmoid(z) : y, b_, t, h_, p);
        const std::int64_t chunk = call_.size("chunk_size");
        const bool is_end = (t - first) % chunk == chunk - 1 || t + 1 == borders[m + 1];
        if (has(Mistake::stop_at_chunk_end)) {
          if (is_end) store_stops(first + (t - first) / chunk * chunk, t, p, h);
        } else if (!has(Mistake::stop_before_step)) {
          store_stops(t, t, p, h);
        }
      }
      const bool is_empty = first == borders[m + 1];
      for (std::int64_t n = 0; n < dstate_ && final_states.given(); ++n)
        final_states.set(is_empty && has(Mistake::empty_is_zero) ? 0 : h[static_cast<std::size_t>(n)], m, h_,
                         p, n);
    }
    const auto overwrite = [&](std::int64_t m) {
      for (std::int64_t n = 0; n < dstate_ && final_states.given(); ++n)
        final_states.set(h[static_cast<std::size_t>(n)], m, h_, p, n);
    };
    for (std::int64_t m = 0; m < sequences; ++m)
      if (has(Mistake::last_state_for_all) ||
          (has(Mistake::empty_takes_last) && borders[m] == borders[m + 1]))
        overwrite(m);
  }
}

void Head::store_outputs() const {
  const Tensor out(call_.problem, "out");
  const Tensor final_states(call_.problem, "final_states");
  for (std::int64_t p = 0; p < headdim_; ++p) {
    for (std::int64_t t = 0; t < seqlen_; ++t) {
      const double z = z_.given() ? z_(b_, t, h_, p) : 0;
      out.set(y_at(t, p) * (z_.given() ? z * sigmoid(z) : 1), b_, t, h_, p);
    }
    for (std::int64_t n = 0; n < dstate_ && final_states.given(); ++n)
      final_states.set(state(seqlen_ - 1, p, n), b_, h_, p, n);
  }
}

/// dz, and the gradient of what the gate multiplies.
double Head::gate_backward(std::int64_t t, std::int64_t p) const {
  const double dout = Tensor(call_.problem, "dout")(b_, t, h_, p);
  if (!z_.given()) return dout;
  const double z = z_(b_, t, h_, p);
  const double derivative = sigmoid(z) * (1 + z * (1 - sigmoid(z)));
  Tensor(call_.problem, "dz").set(dout * y_at(t, p) * derivative, b_, t, h_, p);
  return dout * z * sigmoid(z);
}

void Head::backward(GradientSums& sums) {
  const Tensor dx(call_.problem, "dx");
  const Tensor ddt(call_.problem, "ddt");
  const Tensor dfinal(call_.problem, "dfinal_states");
  const Tensor dinitial(call_.problem, "dinitial_states");
  std::vector<double> carried(
      static_cast<std::size_t>(headdim_ * dstate_));  // a(t+1)·λ_{t+1}, as in scan_backward.cpp
  const auto carried_at = [&](std::int64_t p, std::int64_t n) -> double& {
    return carried[static_cast<std::size_t>(p * dstate_ + n)];
  };
  if (dfinal.given() && !has(Mistake::dfinal_states_ignored))
    for (std::int64_t p = 0; p < headdim_; ++p)
      for (std::int64_t n = 0; n < dstate_; ++n) carried_at(p, n) = dfinal(b_, h_, p, n);

  for (std::int64_t t = seqlen_; t-- > 0;) {
    const double delta = step_of(t);
    const double decay = starts_sequence(t) ? 0 : std::exp(delta * A_(h_));
    double ddelta = 0;
    for (std::int64_t p = 0; p < headdim_; ++p) {
      const double x = x_(b_, t, h_, p);
      const double dy = gate_backward(t, p);
      double gradient_of_x = dy * skip(p);
      if (D_.given()) (D_.rank() == 2 ? sums.dD.at(h_, p) : sums.dD.at(h_)) += dy * x;
      for (std::int64_t n = 0; n < dstate_; ++n) {
        const double B = B_(b_, t, g_, n);
        const double adjoint = carried_at(p, n) + C_(b_, t, g_, n) * dy;
        const double of_exponent = adjoint * decay * state(t - 1, p, n);
        sums.dC.at(b_, t, g_, n) += dy * state(t, p, n);
        sums.dB.at(b_, t, g_, n) += adjoint * delta * x;
        sums.dA.at(h_) += of_exponent * delta;
        ddelta += of_exponent * A_(h_) + adjoint * B * x;
        gradient_of_x += adjoint * delta * B;
        carried_at(p, n) = decay * adjoint;
      }
      dx.set(gradient_of_x, b_, t, h_, p);
    }
    const bool is_cut = before_limit(t) < limit_->low || before_limit(t) > limit_->high;
    if (is_cut && !has(Mistake::dt_limit_gradient_not_cut)) ddelta = 0;
    if (call_.flag("dt_softplus")) ddelta *= sigmoid(dt_(b_, t, h_) + (bias_.given() ? bias_(h_) : 0));
    ddt.set(ddelta, b_, t, h_);
    if (sums.dbias.given()) sums.dbias.at(h_) += ddelta;
  }
  for (std::int64_t p = 0; p < headdim_ && dinitial.given(); ++p)
    for (std::int64_t n = 0; n < dstate_; ++n) dinitial.set(carried_at(p, n), b_, h_, p, n);
}

template <class Visit>
void for_each_head(const Call& call, const Visit& visit) {
  for (std::int64_t b = 0; b < call.size("batch"); ++b)
    for (std::int64_t h = 0; h < call.size("nheads"); ++h) {
      Head head(call, b, h);
      head.forward();
      visit(head);
    }
}

}  // namespace

void ssd_forward(const Call& call) {
  if (call.flag("cu_seqlens")) {
    for (std::int64_t h = 0; h < call.size("nheads"); ++h) Head(call, 0, h).forward_packed();
    return;
  }
  for_each_head(call, [](const Head& head) { head.store_outputs(); });
}

void ssd_backward(const Call& call) {
  GradientSums sums(call.problem);
  for_each_head(call, [&](Head& head) { head.backward(sums); });
  sums.store();
}

}  // namespace mutants
