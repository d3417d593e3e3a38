#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/common/exact_methods.h"
#include "model/problem.h"
#include "model/tensor.h"
#include "ops/selective_scan/selective_scan.h"

namespace ssmbench::test {

/// Inputs of any problem, complex ones too: from a simple sequence, decays and steps of moderate size.
inline std::vector<HostTensor> moderate_inputs(const Problem& problem) {
  std::vector<HostTensor> tensors;
  std::uint64_t draw = 1;
  // The one unstable method grows past f16's range unless A is small; so do Taylor's sums from |A| = 3 on.
  const double a_scale = SelectiveScan(problem).method == MethodId::bilinear_flipped ? 0.02 : 1;
  for (auto& spec : problem.tensors()) {
    if (spec.role != Role::input) continue;
    HostTensor tensor(spec);
    const bool complex = spec.dtype == DType::c64;
    const DType part = complex ? DType::f32 : spec.dtype;
    const std::int64_t count = static_cast<std::int64_t>(spec.bytes() / size_of(part));
    for (std::int64_t i = 0; i < count; ++i) {
      draw = draw * 6364136223846793005U + 1442695040888963407U;
      const double unit = static_cast<double>(draw >> 40) / (1 << 24);
      double value = 2 * unit - 1;
      // Steps and so their bias are positive: e^(Δ·A) is to decay.
      if (spec.name == "delta") value = 1.5 * unit;
      if (spec.name == "delta_bias") value = unit;
      if (spec.name == "A") value = a_scale * (complex && i % 2 == 1 ? 3 * unit - 1.5 : -0.05 - 1.5 * unit);
      store_from_double(tensor.buffer.data(), i, part, value);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// A value and what an f32 implementation may be off by.
struct Allowed {
  Exact value;
  long double error = 0;
};

struct ScanOutputs {
  std::vector<Allowed> out;         ///< (B, D, L)
  std::vector<Allowed> last_state;  ///< (B, D, N)
};

/// The definition for every method, real and complex: the plain loop in long double, with a running bound in
/// which an operation on complex numbers has at most 4 roundoffs and a method's coefficients have at most 40
/// + 4|z|.
class MethodScan {
 public:
  MethodScan(const Problem& problem, const TensorSet& tensors) : scan_(problem), tensors_(tensors) {}

  ScanOutputs run() const {
    ScanOutputs all;
    for (std::int64_t b = 0; b < scan_.batch; ++b)
      for (std::int64_t d = 0; d < scan_.dim; ++d) {
        std::vector<State> states(scan_.dstate);
        for (std::int64_t n = 0; n < scan_.dstate; ++n)
          if (scan_.has_initial_state) states[n].h = at("initial_state", {b, d, n});
        for (auto& state : states) state.magnitude = std::abs(state.h);
        for (std::int64_t t = 0; t < scan_.seqlen; ++t) all.out.push_back(step(b, d, t, states));
        for (const auto& state : states) all.last_state.push_back({state.h, state.error * kUnit});
      }
    return all;
  }

 private:
  static constexpr long double kUnit = 0x1p-24L;

  struct State {
    Exact h = 0, input_before = 0;
    long double magnitude = 0, error = 0;
  };

  Exact at(const char* name, const Shape& index) const {
    const TensorView& view = tensors_.at(name);
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * view.strides[axis];
    if (view.dtype != DType::c64) return load_as_double(view.data, offset, view.dtype);
    const float* pair = static_cast<const float*>(view.data) + 2 * offset;
    return {pair[0], pair[1]};
  }
  long double real_at(const char* name, const Shape& index) const { return at(name, index).real(); }

  Exact projection(const char* name, bool variable, std::int64_t b, std::int64_t d, std::int64_t n,
                   std::int64_t t) const {
    return variable ? at(name, {b, d / (scan_.dim / scan_.groups), n, t}) : at(name, {d, n});
  }

  Allowed step(std::int64_t b, std::int64_t d, std::int64_t t, std::vector<State>& states) const {
    long double delta = real_at("delta", {b, d, t});
    if (scan_.has_delta_bias) delta += real_at("delta_bias", {d});
    if (scan_.delta_softplus) delta = std::log1p(std::exp(delta));
    const long double u = real_at("u", {b, d, t});

    Allowed y;
    long double sum = 0;
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      State& state = states[n];
      const Exact A = at("A", {d, n});
      const ExactStep method = exact_step(scan_.method, delta, A);
      const Exact now = u * projection("B", scan_.variable_b, b, d, n, t);
      state.h = method.decay * state.h + method.input * now + method.previous * state.input_before;
      const long double decay = std::abs(method.decay);
      const long double input = std::max(std::abs(method.input), method.input_scale) * std::abs(now) +
                                std::abs(method.previous) * std::abs(state.input_before);
      state.error = decay * state.error + (40 + 10 * std::abs(delta * A)) *
                                              (std::max(decay, method.decay_scale) * state.magnitude + input);
      state.magnitude = decay * state.magnitude + input;
      state.input_before = now;

      const Exact C = projection("C", scan_.variable_c, b, d, n, t);
      y.value += scan_.complex ? 2 * (C * state.h).real() : (C * state.h).real();
      y.error += 2 * std::abs(C) * state.error;
      sum += 2 * std::abs(C) * state.magnitude;
    }
    const long double skip = scan_.has_D ? real_at("D", {d}) * u : 0;
    y.value += skip;
    y.error += (sum + std::abs(skip)) * static_cast<long double>(scan_.dstate + 4);
    if (scan_.has_z) {
      const long double z = real_at("z", {b, d, t});
      const long double gate = z / (1 + std::exp(-z));
      y.error = std::abs(gate) * (y.error + 8 * std::abs(y.value));
      y.value *= gate;
    }
    y.error *= kUnit;
    return y;
  }

  SelectiveScan scan_;
  const TensorSet& tensors_;
};

/// Largest |error| / (allowed + half an ulp of the output's dtype) of a run's out and last_state; infinite if
/// an element is not a number.
inline double worst_ratio(const TensorSet& tensors, const ScanOutputs& expected) {
  double worst = 0;
  const auto check = [&](const TensorView& view, const std::vector<Allowed>& all) {
    std::size_t i = 0;
    for (std::int64_t x = 0; x < view.shape[0]; ++x)
      for (std::int64_t y = 0; y < view.shape[1]; ++y)
        for (std::int64_t z = 0; z < view.shape[2]; ++z) {
          const Allowed& e = all[i++];
          const std::int64_t offset = x * view.strides[0] + y * view.strides[1] + z * view.strides[2];
          Exact got;
          if (view.dtype == DType::c64) {
            const float* pair = static_cast<const float*>(view.data) + 2 * offset;
            got = {pair[0], pair[1]};
          } else {
            got = load_as_double(view.data, offset, view.dtype);
          }
          const DType part = view.dtype == DType::c64 ? DType::f32 : view.dtype;
          const double allowed = static_cast<double>(e.error) +
                                 0.5 * ulp_at(static_cast<double>(std::abs(e.value)), part) * (1 + 1e-6);
          const double ratio = static_cast<double>(std::abs(got - e.value)) / allowed;
          worst = std::isnan(ratio) ? HUGE_VAL : std::max(worst, ratio);
        }
  };
  check(tensors.at("out"), expected.out);
  check(tensors.at("last_state"), expected.last_state);
  return worst;
}

}  // namespace ssmbench::test
