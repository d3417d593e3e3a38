// The causal convolution, its gradients and its steps, in f64.

#include "mutants.h"

namespace mutants {
namespace {

double silu(double s) {
  return s * sigmoid(s);
}
double silu_slope(double s) {
  return sigmoid(s) * (1 + s * (1 - sigmoid(s)));
}

/// The tensors that the forward pass and the gradients share.
struct Convolution {
  explicit Convolution(const Call& of)
      : call(of),
        x(of.problem, "x"),
        weight(of.problem, "weight"),
        bias(of.problem, "bias"),
        initial(of.problem, "initial_states"),
        seq_idx(of.problem, "seq_idx"),
        steps(of.size("seqlen")),
        width(of.size("width")) {}

  const Call& call;
  Tensor x, weight, bias, initial, seq_idx;
  std::int64_t steps, width;

  std::int32_t number(std::int64_t b, std::int64_t t) const {
    return seq_idx.given() ? seq_idx.data<std::int32_t>()[b * steps + t] : 0;
  }
  bool is_padding(std::int64_t b, std::int64_t t) const { return number(b, t) < 0; }
  double step(std::int64_t b, std::int64_t d, std::int64_t t) const {
    if (t >= 0) return x(b, d, t);
    return initial.given() ? initial(b, d, t + width - 1) : 0;
  }
  bool reaches(std::int64_t b, std::int64_t t, std::int64_t from) const {
    if (!seq_idx.given() || call.has(Mistake::taps_cross_borders)) return true;
    return from >= 0 && number(b, from) == number(b, t);
  }
  double convolve(std::int64_t b, std::int64_t d, std::int64_t t) const {
    double s = bias.given() ? bias(d) : 0;
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t from = t - width + 1 + j;
      const std::int64_t tap = call.has(Mistake::taps_reversed) ? width - 1 - j : j;
      if (reaches(b, t, from)) s += weight(d, tap) * step(b, d, from);
    }
    return s;
  }
};

}  // namespace

void conv_forward(const Call& call) {
  const Convolution conv(call);
  const Tensor out(call.problem, "out");
  const Tensor final(call.problem, "final_states");
  for (std::int64_t b = 0; b < call.size("batch"); ++b)
    for (std::int64_t d = 0; d < call.size("dim"); ++d) {
      for (std::int64_t t = 0; t < conv.steps; ++t) {
        double s = conv.convolve(b, d, t);
        if (conv.is_padding(b, t))
          s = call.has(Mistake::padding_has_bias) && conv.bias.given() ? conv.bias(d) : 0;
        out.set(call.flag("silu") ? silu(s) : s, b, d, t);
      }
      for (std::int64_t i = 0; final.given() && i < conv.width - 1; ++i) {
        const std::int64_t t = conv.steps - conv.width + 1 + i;
        final.set(t < 0 && call.has(Mistake::final_states_from_zero) ? 0 : conv.step(b, d, t), b, d, i);
      }
    }
}

void conv_backward(const Call& call) {
  const Convolution conv(call);
  const Tensor dout(call.problem, "dout");
  const Tensor dfinal(call.problem, "dfinal_states");
  const Tensor dx(call.problem, "dx");
  const Tensor dinitial(call.problem, "dinitial_states");
  Sums dweight(call.problem, "dweight");
  Sums dbias(call.problem, "dbias");
  const std::int64_t taps = conv.width - 1;
  for (std::int64_t b = 0; b < call.size("batch"); ++b)
    for (std::int64_t d = 0; d < call.size("dim"); ++d) {
      std::vector<double> gradient(static_cast<std::size_t>(taps + conv.steps));  // from step −(W−1) on
      const auto at = [&](std::int64_t t) -> double& { return gradient[static_cast<std::size_t>(t + taps)]; };
      for (std::int64_t i = 0; dfinal.given() && i < taps; ++i)
        if (const std::int64_t t = conv.steps - taps + i; t >= 0 || !call.has(Mistake::dfinal_cut_at_start))
          at(t) += dfinal(b, d, i);
      for (std::int64_t t = 0; t < conv.steps; ++t) {
        if (conv.is_padding(b, t)) continue;
        const double slope = call.flag("silu") ? silu_slope(conv.convolve(b, d, t)) : 1;
        const double g = slope * dout(b, d, t);
        if (dbias.given()) dbias.at(d) += g;
        for (std::int64_t j = 0; j < conv.width; ++j) {
          const std::int64_t from = t - taps + j;
          if (!conv.reaches(b, t, from)) continue;
          at(from) += conv.weight(d, j) * g;
          if (from >= 0 || !call.has(Mistake::dweight_without_states))
            dweight.at(d, j) += g * conv.step(b, d, from);
        }
      }
      for (std::int64_t t = 0; t < conv.steps; ++t) dx.set(at(t), b, d, t);
      for (std::int64_t i = 0; dinitial.given() && i < taps; ++i) dinitial.set(at(i - taps), b, d, i);
    }
  dweight.store();
  if (dbias.given()) dbias.store();
}

void conv_update(const Call& call) {
  const Tensor x(call.problem, "x");
  const Tensor weight(call.problem, "weight");
  const Tensor bias(call.problem, "bias");
  const Tensor state(call.problem, "conv_state");
  const Tensor source(call.problem, "source");
  const Tensor destination(call.problem, "destination");
  const Tensor out(call.problem, "out");
  const std::int64_t tokens = call.size("tokens");
  const std::int64_t kept = call.size("state_len");
  const std::int64_t taps = call.size("width") - 1;
  const auto slot_of = [](const Tensor& slots, std::int64_t b) -> std::int64_t {
    return slots.given() ? slots.data<std::int32_t>()[b] : b;
  };
  for (std::int64_t b = 0; b < call.size("batch"); ++b) {
    const std::int64_t from = slot_of(source, b);
    std::int64_t to = slot_of(destination, b);
    if (call.has(Mistake::destination_ignored)) to = from;
    if (from < 0 && call.has(Mistake::pads_written)) to = 0;
    for (std::int64_t d = 0; d < call.size("dim"); ++d) {
      std::vector<double> all;  // conv_state ++ x
      for (std::int64_t k = 0; k < kept; ++k) all.push_back(from < 0 ? 0 : state(from, d, k));
      for (std::int64_t t = 0; t < tokens; ++t) all.push_back(tokens == 1 ? x(b, d) : x(b, t, d));
      for (std::int64_t t = 0; t < tokens; ++t) {
        double s = bias.given() ? bias(d) : 0;
        for (std::int64_t j = 0; j <= taps; ++j)
          s += weight(d, j) * all[static_cast<std::size_t>(kept - taps + t + j)];
        if (from < 0) s = 0;
        const double value = call.flag("silu") ? silu(s) : s;
        tokens == 1 ? out.set(value, b, d) : out.set(value, b, t, d);
      }
      const std::int64_t shift = call.has(Mistake::shifted_by_one) ? 1 : tokens;
      for (std::int64_t k = 0; to >= 0 && k < kept; ++k)
        state.set(all[static_cast<std::size_t>(k + shift)], to, d, k);
    }
  }
}

}  // namespace mutants
