#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"
#include "ops/selective_scan/selective_scan.h"
#include "reference/dual.h"
#include "support/host_tensors.h"

// The definition of the selective scan, word for word and slowly, over any kind of real number R, so that its
// derivatives come from R (dual numbers) or from differences.

namespace ssmbench::test {

/// Tensors by name in logical order; complex ones as (real, imaginary) pairs, which are the components that
/// derivatives are taken by.
template <class R>
using Values = std::map<std::string, std::vector<R>>;

inline Values<double> values_of_inputs(const std::vector<HostTensor>& inputs) {
  Values<double> all;
  for (const auto& tensor : inputs) {
    const TensorView view = real_view(tensor.view());
    auto& values = all[tensor.spec.name];
    for (std::int64_t i = 0; i < element_count(view.shape); ++i)
      values.push_back(load_as_double(view.data, offset_in(view, i), view.dtype));
  }
  return all;
}

/// Σ_{k ≥ 0} z^k/(k + order)!: φ of that order, for |z| up to 4.
template <class R>
Complex<R> phi_series(Complex<R> z, int order) {
  R factorial(1);
  for (int k = 2; k <= order; ++k) factorial = factorial * R(k);
  Complex<R> term(R(1) / factorial);
  Complex<R> sum = term;
  for (int k = 1; k < 36; ++k) {
    term = term * z * Complex<R>(R(1) / R(k + order));
    sum = sum + term;
  }
  return sum;
}

template <class R>
struct Rule {
  Complex<R> decay, input, previous_input;
};

template <class R>
Rule<R> rule_of(MethodId method, R delta, Complex<R> A) {
  using C = Complex<R>;
  const auto over = [](double denominator) { return C(R(1) / R(denominator)); };
  const C step(delta);
  const C z = step * A;
  const C one(R(1));
  const C zero;
  const C half = over(2);
  const C s2 = step * step;
  const C s3 = s2 * step;
  const C s4 = s3 * step;
  switch (method) {
    case MethodId::zoh:
      return {exp(z), step, zero};
    case MethodId::foh:
      return {exp(z), step * phi_series(z, 1), zero};
    case MethodId::bilinear:
      return {(one + half * z) / (one - half * z), step / (one - half * z), zero};
    case MethodId::bilinear_flipped:
      return {(one - half * z) / (one + half * z), step / (one + half * z), zero};
    case MethodId::poly:
      return {exp(z), step * (one + half * z + over(6) * z * z), zero};
    case MethodId::highorder:
      return {exp(z), step * (one + half * z), zero};
    case MethodId::rk4:
      return {exp(z), step * (one + half * z + over(6) * z * z + over(24) * z * z * z), zero};
    case MethodId::vim_foh:
      return {exp(z), s2 * (half + over(6) * z + over(24) * z * z + over(120) * z * z * z), zero};
    case MethodId::vim_poly:
      return {exp(z),
              step + (half * A + over(4)) * s2 + (over(6) * A * A + over(12) * A) * s3 +
                  (over(24) * A * A * A + over(48) * A * A) * s4,
              zero};
    case MethodId::vim_highorder:
      return {exp(z),
              step + (half * A + half) * s2 + (over(6) * A * A + over(6) * A + over(12)) * s3 +
                  (over(24) * A * A * A + over(24) * A * A + over(48) * A) * s4,
              zero};
    case MethodId::foh_exact:
      return {exp(z), step * phi_series(z, 2), step * (phi_series(z, 1) - phi_series(z, 2))};
    case MethodId::trapezoidal:
      return {exp(z), half * step, half * step * exp(z)};
  }
  throw std::logic_error("unreachable");
}

template <class R>
class ScanLoss {
 public:
  ScanLoss(const Problem& problem, const Values<R>& values) : s_(problem), values_(values) {}

  R out(std::int64_t b, std::int64_t d, std::int64_t t) const {
    using std::exp;
    R result = y_[static_cast<std::size_t>((b * s_.dim + d) * s_.seqlen + t)];
    if (s_.has_D) result = result + real("D", d) * real("u", (b * s_.dim + d) * s_.seqlen + t);
    if (s_.has_z) {
      const R z = real("z", (b * s_.dim + d) * s_.seqlen + t);
      result = result * z / (R(1) + exp(R(0) - z));
    }
    return result;
  }

  /// Computes y of every element, and the last states.
  void run() {
    y_.assign(static_cast<std::size_t>(s_.batch * s_.dim * s_.seqlen), R(0));
    last_state_.clear();
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t d = 0; d < s_.dim; ++d)
        for (std::int64_t n = 0; n < s_.dstate; ++n) scan(b, d, n);
  }

  /// Σ dout·out + Σ dlast_state·last_state, over both components of complex states.
  R loss() const {
    R sum(0);
    if (const auto given = values_.find("dlast_state"); given != values_.end())
      for (std::size_t i = 0; i < given->second.size(); ++i) sum = sum + given->second[i] * last_state_[i];
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t d = 0; d < s_.dim; ++d)
        for (std::int64_t t = 0; t < s_.seqlen; ++t)
          sum = sum + real("dout", (b * s_.dim + d) * s_.seqlen + t) * out(b, d, t);
    return sum;
  }

 private:
  R real(const char* name, std::int64_t i) const { return values_.at(name)[static_cast<std::size_t>(i)]; }
  Complex<R> field(const char* name, std::int64_t i) const {
    if (!s_.complex) return {real(name, i)};
    return {real(name, 2 * i), real(name, 2 * i + 1)};
  }
  Complex<R> projection(const char* name, bool variable, std::int64_t b, std::int64_t d, std::int64_t n,
                        std::int64_t t) const {
    const std::int64_t g = d / s_.channels_per_group();
    return field(name, variable ? ((b * s_.groups + g) * s_.dstate + n) * s_.seqlen + t : d * s_.dstate + n);
  }

  void scan(std::int64_t b, std::int64_t d, std::int64_t n) {
    using std::exp;
    using std::log;
    Complex<R> h;
    if (s_.has_initial_state) h = field("initial_state", (b * s_.dim + d) * s_.dstate + n);
    Complex<R> before;
    for (std::int64_t t = 0; t < s_.seqlen; ++t) {
      const std::int64_t at = (b * s_.dim + d) * s_.seqlen + t;
      R delta = real("delta", at);
      if (s_.has_delta_bias) delta = delta + real("delta_bias", d);
      if (s_.delta_softplus) delta = log(R(1) + exp(delta));
      const Rule<R> rule = rule_of(s_.method, delta, field("A", d * s_.dstate + n));
      const Complex<R> product = projection("B", s_.variable_b, b, d, n, t) * Complex<R>(real("u", at));
      h = rule.decay * h + rule.input * product + rule.previous_input * before;
      before = product;
      const Complex<R> term = projection("C", s_.variable_c, b, d, n, t) * h;
      y_[static_cast<std::size_t>(at)] = y_[static_cast<std::size_t>(at)] + R(s_.complex ? 2 : 1) * term.re;
    }
    last_state_.push_back(h.re);
    if (s_.complex) last_state_.push_back(h.im);
  }

  SelectiveScan s_;
  const Values<R>& values_;
  std::vector<R> y_, last_state_;
};

}  // namespace ssmbench::test
