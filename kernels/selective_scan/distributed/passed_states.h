#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/common/complex.h"
#include "kernels/common/host_device.h"
#include "kernels/distributed/local_scan.h"
#include "model/method_id.h"

// What states and gradients of states become as they pass shards: products of decays, in doubles, rounded once
// where they become a state. Host and device.
//
// The summary of a shard is made of its steps Δ: the decays of all methods but the bilinear ones are e^(Δ·A),
// whose product over a shard is e^(A·ΣΔ). The sum is kept as two floats, of each channel, since A multiplies
// its error. The bilinear methods keep the product of decays itself, one per state.

namespace ssmbench::scan_shards {

constexpr bool is_bilinear(MethodId method) {
  return method == MethodId::bilinear || method == MethodId::bilinear_flipped;
}

/// std::complex does not work in device code.
struct WideComplex {
  double re, im;
};

template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, Complex>, WideComplex, double>;

SSMBENCH_HD inline double widen(float x) {
  return x;
}
SSMBENCH_HD inline WideComplex widen(Complex x) {
  return {x.re, x.im};
}
SSMBENCH_HD inline void narrow(double x, float& to) {
  to = static_cast<float>(x);
}
SSMBENCH_HD inline void narrow(WideComplex x, Complex& to) {
  to = {static_cast<float>(x.re), static_cast<float>(x.im)};
}
SSMBENCH_HD inline double conjugate_of(double x) {
  return x;
}
SSMBENCH_HD inline WideComplex conjugate_of(WideComplex x) {
  return {x.re, -x.im};
}
SSMBENCH_HD inline WideComplex operator+(WideComplex a, WideComplex b) {
  return {a.re + b.re, a.im + b.im};
}
SSMBENCH_HD inline double product(double a, double b) {
  return a * b;
}
SSMBENCH_HD inline WideComplex product(WideComplex a, WideComplex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
SSMBENCH_HD inline bool is_zero(double x) {
  return x == 0;
}
SSMBENCH_HD inline bool is_zero(WideComplex x) {
  return x.re == 0 && x.im == 0;
}
/// e^(delta·A)
SSMBENCH_HD inline double decay_over(double delta, double A) {
  return exp(delta * A);
}
SSMBENCH_HD inline WideComplex decay_over(double delta, WideComplex A) {
  const double size = exp(delta * A.re);
  return {size * cos(delta * A.im), size * sin(delta * A.im)};
}

/// What the payloads of all ranks hold.
template <class Value>
struct PassedStates {
  const float* A;
  std::int64_t dim, dstate;
  bool has_products;        ///< of decays, in place of sums of steps
  std::int64_t summary_at;  ///< in a payload, in floats
  Payloads payloads;

  SSMBENCH_HD Wide<Value> state_of(int rank, std::int64_t at, std::int64_t i) const {
    return widen(reinterpret_cast<const Value*>(payloads.of(rank) + at)[i]);
  }
  /// The product of a shard's decays of state i.
  SSMBENCH_HD Wide<Value> decay_of(int rank, std::int64_t i) const {
    const float* summary = payloads.of(rank) + summary_at;
    if (has_products) return widen(reinterpret_cast<const Value*>(summary)[i]);
    const float* sum = summary + i / dstate * 2;
    const double delta = static_cast<double>(sum[0]) + static_cast<double>(sum[1]);
    return decay_over(delta,
                      widen(reinterpret_cast<const Value*>(A)[i / dstate % dim * dstate + i % dstate]));
  }
  /// A state that is 0 stays so, and is not multiplied by a decay that overflows.
  SSMBENCH_HD static Wide<Value> passed(Wide<Value> state, Wide<Value> decay) {
    return is_zero(state) ? state : product(decay, state);
  }

  /// LocalScan::enter of state i.
  SSMBENCH_HD void enter(int rank, std::int64_t i, float* states) const {
    Wide<Value> h = state_of(0, 0, i);
    for (int q = 1; q < rank; ++q) h = passed(h, decay_of(q, i)) + state_of(q, 0, i);
    narrow(h, reinterpret_cast<Value*>(states)[i]);
  }
  /// LocalScan::enter_from_after of state i.
  SSMBENCH_HD void enter_from_after(std::int64_t carries, int rank, int ranks, std::int64_t i,
                                    float* gradients) const {
    Wide<Value> g = state_of(ranks - 1, carries, i);
    for (int q = ranks - 2; q > rank; --q)
      g = passed(g, conjugate_of(decay_of(q, i))) + state_of(q, carries, i);
    narrow(g, reinterpret_cast<Value*>(gradients)[i]);
  }
};

}  // namespace ssmbench::scan_shards
