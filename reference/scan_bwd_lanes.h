#pragma once

#include <complex>
#include <cstdint>

#include "reference/activations.h"
#include "reference/discretization_derivative.h"
#include "reference/rounded.h"

// The backward pass of one state over a tile of time steps, for a block of channels side by side. Everything
// lies lane by lane in arrays, so that loops over lanes of Rounded arithmetic become SIMD instructions. Lanes
// past the last channel hold zeros.

namespace ssmbench::scan_bwd {

/// Channels side by side: a vector of AVX-512.
inline constexpr std::int64_t kLanes = 8;

template <class T>
struct alignas(64) ValueLanes {
  double value[kLanes] = {};

  T get(std::int64_t lane) const { return value[lane]; }
  void set(std::int64_t lane, T x) { value[lane] = x; }
};
template <>
struct alignas(64) ValueLanes<std::complex<double>> {
  double real[kLanes] = {};
  double imag[kLanes] = {};

  std::complex<double> get(std::int64_t lane) const { return {real[lane], imag[lane]}; }
  void set(std::int64_t lane, std::complex<double> x) {
    real[lane] = x.real();
    imag[lane] = x.imag();
  }
};

/// Exact numbers.
template <class T>
struct ExactLanes {
  ValueLanes<T> value;
  double magnitude[kLanes] = {};

  Rounded<T> get(std::int64_t lane) const { return {value.get(lane), magnitude[lane], 0}; }
  void set(std::int64_t lane, T x) {
    value.set(lane, x);
    magnitude[lane] = std::abs(x);
  }
};

template <class T>
struct RoundedLanes {
  ValueLanes<T> value;
  double magnitude[kLanes] = {};
  double error[kLanes] = {};

  Rounded<T> get(std::int64_t lane) const { return {value.get(lane), magnitude[lane], error[lane]}; }
  void set(std::int64_t lane, const Rounded<T>& x) {
    value.set(lane, x.value);
    magnitude[lane] = x.magnitude;
    error[lane] = x.error;
  }
};

template <class T>
struct SumLanes {
  RoundedLanes<T> total;
  double squared_errors[kLanes] = {};

  Sum<T> get(std::int64_t lane) const { return {total.get(lane), squared_errors[lane]}; }
  void set(std::int64_t lane, const Sum<T>& sum) {
    total.set(lane, sum.total);
    squared_errors[lane] = sum.squared_errors;
  }
  void add(std::int64_t lane, const Rounded<T>& term) {
    Sum<T> sum = get(lane);
    sum.add(term);
    set(lane, sum);
  }
};

/// What a step needs and gathers over the states.
struct StepLanes {
  RoundedLanes<double> delta, slope;  ///< slope: of Δ by delta
  ExactLanes<double> u;
  RoundedLanes<double> dy, y_factor;  ///< y_factor: dz = y·y_factor
  SumLanes<double> y, du, ddelta;
};

template <class T>
struct CoefficientLanes {
  RoundedLanes<T> value, by_delta, by_A;
};

/// Discretization, lane by lane.
template <class T>
struct RuleLanes {
  CoefficientLanes<T> decay, input, previous_input;
};

/// Sums of one step over the channels of a group.
template <class T>
struct ProjectionSums {
  Sum<T> dB, dC;
};

/// One state of the block's channels. Arrays are by step of the tile.
template <class T>
struct LaneScan {
  std::int64_t count = 0;  ///< steps
  StepLanes* steps = nullptr;
  ExactLanes<T> A;
  const ExactLanes<T>*B = nullptr, *C = nullptr;
  const ExactLanes<T>* exponentials = nullptr;  ///< e^ΔA for method zoh: its value to fp64, and e^Re ΔA
  const RuleLanes<T>* rules = nullptr;          ///< for any other method
  bool two_samples = false;                     ///< of the method
  RoundedLanes<T>* states = nullptr;            ///< states[t + 1] is h at step t, states[0] before the tile
  RoundedLanes<T>* products = nullptr;          ///< B·u, likewise
  double output_factor = 1;                     ///< k of y = k·Re Σ C·h
  RoundedLanes<T> carry;                        ///< conj(Ā)·g of the step after
  RoundedLanes<T> previous_carry;               ///< conj(c')·g of the step after
  SumLanes<T> dA, dB, dC;                       ///< dB and dC where they are sums over time
  ProjectionSums<T>*sums_of_B = nullptr, *sums_of_C = nullptr;  ///< elsewhere, sums over channels, by step
};

/// Makes products and states from states[0] on; products[0] is given.
void go_forward(LaneScan<double>& scan);
void go_forward(LaneScan<std::complex<double>>& scan);

/// Goes back through the tile, adding to the sums.
void go_back(LaneScan<double>& scan);
void go_back(LaneScan<std::complex<double>>& scan);

}  // namespace ssmbench::scan_bwd
