#include "ops/selective_scan/work.h"

#include <stdexcept>

#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"

namespace ssmbench {
namespace {

/// Multiply-adds per pair that a method's c and c' take beyond zoh's, with powers of Δ shared by the states
/// and 1/A known per state.
int extra_fmas(MethodId method) {
  switch (method) {
    case MethodId::zoh:
      return 0;
    case MethodId::highorder:
    case MethodId::trapezoidal:  // one more term, inside the bracket that the decay multiplies
      return 1;
    case MethodId::foh:  // (e^z − 1)·(1/A)
    case MethodId::poly:
      return 2;
    case MethodId::rk4:
    case MethodId::vim_foh:
    case MethodId::vim_poly:
    case MethodId::vim_highorder:
      return 3;
    case MethodId::bilinear:  // 1 ± z/2 and two products with the reciprocal of one of them
    case MethodId::bilinear_flipped:
      return 4;
    case MethodId::foh_exact:  // φ1 as foh, (φ1 − 1)·(1/z), φ1 − φ2, and one more term
      return 6;
  }
  throw std::logic_error("not a method");
}

}  // namespace

Work scan_least_work(const Problem& problem, Math /*math*/) {
  const SelectiveScan scan(problem);
  const double pairs = scan.pairs();
  if (scan.dense) {
    const auto states = static_cast<double>(scan.dstate);
    // A·h; foh: terms of a series, none where Δ·A is small; bilinear: elimination and what follows it.
    const double products = scan.method == MethodId::foh ? states : 2 * states + (states * states - 1) / 3;
    return {.bytes = tensor_bytes(problem), .exponentials = 0, .fmas = pairs * (products + 2)};  // Δ·u·B, C·h
  }
  // z, h and C·h. Complex: z 2, e^z 2, h 4, C·h 2; what a method adds has a real factor at least.
  const int extra = extra_fmas(scan.method);
  const int fmas = scan.complex ? 10 + 2 * extra : 3 + extra;
  return {
      .bytes = tensor_bytes(problem), .exponentials = pairs * (scan.complex ? 3 : 1), .fmas = pairs * fmas};
}

Work scan_bwd_least_work(const Problem& problem, Math math) {
  const Work forward = scan_least_work(problem, math);
  return {.bytes = forward.bytes, .exponentials = forward.exponentials, .fmas = 4 * forward.fmas};
}

}  // namespace ssmbench
