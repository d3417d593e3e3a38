#include "study/convergence.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/common/discretization.h"

namespace ssmbench {
namespace {

using Complex = std::complex<double>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// One method's recurrence in the arithmetic of Real, step by step.
template <class Real>
class Recurrence {
 public:
  explicit Recurrence(const Discretized<Complex>& step)
      : decay_(step.decay), input_(step.input), previous_input_(step.previous_input) {}

  std::complex<Real> advance(double sample) {
    const auto u = static_cast<Real>(sample);
    h_ = decay_ * h_ + (input_ * u + previous_input_ * previous_sample_);
    previous_sample_ = u;
    return h_;
  }

 private:
  std::complex<Real> decay_, input_, previous_input_, h_ = 0;
  Real previous_sample_ = 0;
};

/// A maximum that is NaN once a value was.
void raise(double& largest, double value) {
  if (std::isnan(value) || value > largest) largest = value;
}

StepErrors run(const Method& method, Complex A, double horizon, std::int64_t steps) {
  const double delta = horizon / static_cast<double>(steps);
  const auto step = discretize(method.id, delta, A);
  Recurrence<double> in_f64(step);
  Recurrence<float> in_f32(step);
  double largest = 0, discretization = 0, rounding = 0;
  for (std::int64_t k = 1; k <= steps; ++k) {
    const double t = horizon * static_cast<double>(k) / static_cast<double>(steps);
    const Complex h = in_f64.advance(std::sin(t));
    const Complex exact = exact_solution(A, t);
    raise(largest, std::abs(exact));
    raise(discretization, std::abs(h - exact));
    raise(rounding, std::abs(Complex(in_f32.advance(std::sin(t))) - h));
  }
  return {steps, delta, discretization / largest, rounding / largest};
}

double order_between(const StepErrors& coarse, const StepErrors& fine) {
  return std::log(coarse.discretization / fine.discretization) / std::log(coarse.delta / fine.delta);
}

bool grows(Complex decay) {
  constexpr int kSteps = 1000;
  Complex h = 1;
  for (int i = 0; i < kSteps; ++i) h *= decay;
  return !(std::abs(h) <= 1);  // what overflowed into NaN grew too
}

}  // namespace

MethodConvergence measure_convergence(const ConvergenceStudy& study, const Method& method, Complex A) {
  MethodConvergence result{.method = &method,
                           .A = A,
                           .horizon = study.horizon,
                           .order = expected_order(method.id),
                           .measured_order = 0,
                           .stability_limit = expected_stability_limit(method.id),
                           .measured_stability_limit = 0,
                           .errors = {}};
  for (const std::int64_t steps : study.steps) result.errors.push_back(run(method, A, study.horizon, steps));
  const std::size_t runs = result.errors.size();
  result.measured_order = order_between(result.errors.at(runs - 2), result.errors.at(runs - 1));
  const Complex direction = A / std::abs(A);
  result.measured_stability_limit = measured_stability_limit(
      [&](Complex z) { return discretize(method.id, std::abs(z), direction).decay; }, direction);
  return result;
}

int expected_order(MethodId method) {
  // Exactly, h(t) = e^z·h(t − Δ) + ∫ e^{A(t−s)}·u(s) ds over the last step. Every step makes its own error
  // and the 1/Δ steps add them up, so a method is of order p when it is right to Δ^p inclusive in one step.
  switch (method) {
    case MethodId::zoh:
    case MethodId::foh:
    case MethodId::bilinear:
    case MethodId::poly:
    case MethodId::highorder:
    case MethodId::rk4:
    case MethodId::vim_poly:
    case MethodId::vim_highorder:
      // c = Δ + O(Δ²) and u(s) = u_t + O(Δ): the integral is Δ·u_t to first order, and no c can make one
      // sample say more, because the next term is −Δ²/2·u'(t). A better c only helps a constant u.
      return 1;
    case MethodId::foh_exact:    // exact for u linear in the step: u is that to O(Δ²)
    case MethodId::trapezoidal:  // the trapezoidal rule for the integral, error −Δ³/12·f''
      return 2;
    case MethodId::vim_foh:           // c = Δ²/2: the input fades out as Δ goes to 0
    case MethodId::bilinear_flipped:  // Ā = 1 − z + …: it solves h' = −A·h + u
      return 0;
  }
  throw std::logic_error("unreachable");
}

double expected_stability_limit(MethodId method) {
  // |e^z| < 1, and |1 + z/2| < |1 − z/2|, wherever Re z < 0; the flipped rule has the inverse of the latter.
  return method == MethodId::bilinear_flipped ? 0 : kInfinite;
}

double measured_stability_limit(const std::function<Complex(Complex)>& decay, Complex direction) {
  constexpr int kPerDecade = 4;
  constexpr int kDecades = 12;
  const auto size = [](double place) { return 1e-6 * std::pow(10, place / kPerDecade); };
  const auto grows_at = [&](double place) { return grows(decay(size(place) * direction)); };
  if (grows_at(0)) return 0;
  int first = 1;
  while (first <= kPerDecade * kDecades && !grows_at(first)) ++first;
  if (first > kPerDecade * kDecades) return kInfinite;
  double stable = first - 1;
  double growing = first;
  constexpr int kHalvings = 40;  // more than the accuracy of a growth over a thousand steps
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (stable + growing) / 2;
    (grows_at(middle) ? growing : stable) = middle;
  }
  return size(stable);
}

Complex exact_solution(Complex A, double t) {
  // sin(t) = (e^{it} − e^{−it})/(2i), and ∫ e^{A(t−s)}·e^{ws} ds = t·e^{wt}·φ1((A − w)·t), also where A = w.
  const auto forced = [&](Complex w) { return t * std::exp(w * t) * phi1((A - w) * t); };
  constexpr Complex i(0, 1);
  return (forced(i) - forced(-i)) / (2.0 * i);
}

}  // namespace ssmbench
