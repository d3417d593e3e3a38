#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <vector>

#include "model/method.h"
#include "record/study_result.h"

namespace ssmbench {

/// What a method does to h' = A·h + sin(t), h(0) = 0, from t = 0 to the horizon. The solution is known in
/// closed form and the input is smooth, so that the error is the method's own; u = 0 before the first step is
/// true of sin(0), so that methods of two samples start without an error.
struct ConvergenceStudy {
  std::vector<std::complex<double>> A;  ///< Re A < 0
  std::vector<const Method*> methods;
  double horizon = 0;
  std::vector<std::int64_t> steps;  ///< how many steps the horizon is divided into: two or more, increasing
};

/// One method, one A.
MethodConvergence measure_convergence(const ConvergenceStudy& study, const Method& method,
                                      std::complex<double> A);

/// The power of Δ that the error of the method falls with, derived beside its definition in convergence.cpp.
int expected_order(MethodId method);

/// The largest Δ·|A| at which no solution of h' = A·h, Re A < 0, grows; infinite for a method without a
/// limit.
double expected_stability_limit(MethodId method);

/// The same, found by trying: the first step size at which a thousand steps of h ← decay(z)·h grow, z =
/// size·direction, |direction| = 1, sizes from 1e-6 to 1e6. 0 when they grow at 1e-6, infinite when they grow
/// nowhere. Four sizes per decade are tried and the limit bisected between them: a narrower gap would be
/// missed.
double measured_stability_limit(const std::function<std::complex<double>(std::complex<double>)>& decay,
                                std::complex<double> direction);

/// h(t) of the study's equation.
std::complex<double> exact_solution(std::complex<double> A, double t);

}  // namespace ssmbench
