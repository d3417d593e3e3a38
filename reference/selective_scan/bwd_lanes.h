#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>

#include "reference/common/activations.h"
#include "reference/common/discretization_derivative.h"
#include "reference/common/rounded.h"
#include "reference/common/statistical_bound.h"

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

  Unrounded<T> get(std::int64_t lane) const { return {value.get(lane), magnitude[lane]}; }
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
  void add(std::int64_t lane, const Rounded<T>& term, double weight = 1) {
    Sum<T> sum = get(lane);
    sum.add(term, weight);
    set(lane, sum);
  }
};

/// What the bound of statistical_bound.h takes from the steps of a tile.
struct SpreadLanes {
  double spread[kLanes] = {};
  double decay[kLanes] = {};  ///< Π|Ā|

  /// At the start of a tile.
  void start_from(const double* bound) {
    std::copy_n(bound, kLanes, spread);
    std::fill_n(decay, kLanes, 1.0);
  }
};

/// By lane, how far errors of what a recurrence gives are alike.
struct alignas(64) MemoryLanes {
  double is_long[kLanes] = {};  ///< 1 where the bound of statistical_bound.h is the smaller one
  double alike[kLanes] = {};    ///< weight_over_time() there
};

/// Both bounds of the error of a recurrence, from tile to tile. The smaller one at the end of a tile is what
/// the next tile's running error analysis starts from; likewise its magnitude, which is what partial sums
/// reach: an implementation has no others than h(a→b) = h_b − Π|Ā|·h_a of contiguous steps. With R the largest
/// |h| so far, decayed, and a run's part within the tile, two of such runs and their sum are within 3·R.
/// docs/tolerances.md: "Long memories".
template <class T>
class LongMemoryLanes {
 public:
  SpreadLanes tile;

  void start_from(const RoundedLanes<T>& state);
  /// After `steps` of all steps, with what `tile` says of them.
  void end_tile(std::int64_t steps, std::int64_t of_all, RoundedLanes<T>& state);
  const MemoryLanes& memory() const { return memory_; }

 private:
  StatisticalBound<kLanes> statistical_;
  MemoryLanes memory_;
  double run_[kLanes] = {};                                        // R
  double start_size_[kLanes] = {}, start_magnitude_[kLanes] = {};  // of the tile
};

/// What a step needs and gathers over the states.
struct StepLanes {
  RoundedLanes<double> delta, slope;  ///< slope: of Δ by delta
  ExactLanes<double> u;
  RoundedLanes<double> dy, y_factor;  ///< y_factor: dz = y·y_factor
  SumLanes<double> y, du, ddelta;  ///< the gradients themselves once finish_steps is done, dz in place of y
};

/// Numbers of a tile, [step][lane], and what they are made from; null where the scan has none. Lanes past the
/// last channel hold zeros.
struct StepNumbers {
  const double* x = nullptr;      ///< delta and its bias; or dout
  const double* exp = nullptr;    ///< e^-|x|, with softplus; or e^-|z|
  const double* log1p = nullptr;  ///< log(1 + e^-|x|)
  const double* z = nullptr;
};

/// How the sums of a step become gradients.
struct StepFinish {
  ExactLanes<double> D;
  SumLanes<double> dD, ddelta_bias;  ///< to which the steps are added
  const double* alike;               ///< weight_over_time() of errors of ddelta, by lane
  std::int64_t dstate;
  double output_factor;  ///< k of y = k·Re Σ C·h
  double saved_error;    ///< of a y that the forward pass saved, relative
  bool has_D, has_z;
};

/// Makes the steps: u, and all that comes of delta.
void make_steps(const double* u, const StepNumbers& numbers, bool has_bias, std::int64_t count,
                StepLanes* steps);
/// dy and y_factor, of dout and z.
void make_gradients(const StepNumbers& numbers, std::int64_t count, StepLanes* steps);
void finish_steps(StepFinish& finish, std::int64_t count, StepLanes* steps);

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

/// B or C of one state over a tile: one value a step for all channels, or one a channel for all steps.
template <class T>
struct ProjectionLanes {
  const Unrounded<T>* by_step = nullptr;  ///< null where by_lane holds
  ExactLanes<T> by_lane;
};

/// e^ΔA = size·(cosine + i·sine), [step][lane]; without the latter for real A.
struct ExponentialLanes {
  const double *size = nullptr, *cosine = nullptr, *sine = nullptr;
};

/// What one state of the block's channels takes from tile to tile, last to first.
template <class T>
struct AdjointLanes {
  RoundedLanes<T> carry;           ///< conj(Ā)·g of the step after
  RoundedLanes<T> previous_carry;  ///< conj(c')·g of the step after
  LongMemoryLanes<T> long_memory;  ///< of carry
  SumLanes<T> dA, dB, dC;          ///< dB and dC where they are sums over time
};

/// One state of the block's channels. Arrays are by step of the tile.
template <class T>
struct LaneScan {
  ExactLanes<T> A;
  ProjectionLanes<T> B, C;
  std::int64_t first = 0, last = 0;  ///< steps [first, last) of the tile are done
  StepLanes* steps = nullptr;
  ExponentialLanes exponentials;        ///< for method zoh
  const RuleLanes<T>* rules = nullptr;  ///< for any other method
  RoundedLanes<T>* states = nullptr;    ///< states[t + 1] is h at step t, states[0] before the tile
  RoundedLanes<T> product_before;       ///< B·u of the step before the tile, for methods of two samples
  MemoryLanes memory;                   ///< of states and adjoint, for go_back
  SpreadLanes* spread = nullptr;        ///< of states, for pass_through
  AdjointLanes<T>* adjoint = nullptr;   ///< for go_back
  ProjectionSums<T>*sums_of_B = nullptr, *sums_of_C = nullptr;  ///< where these are over channels
  double output_factor = 1;                                     ///< k of y = k·Re Σ C·h
  bool two_samples = false;                                     ///< of the method
};

/// Δ·A of every step and lane, [step][lane]; A has one value a lane.
void scale_steps(const StepLanes* steps, std::int64_t count, const double* A, double* to);

/// Takes states[first] through the steps, to the state after them.
void pass_through(LaneScan<double>& scan);
void pass_through(LaneScan<std::complex<double>>& scan);

/// Makes states of the steps, from states[first] on.
void go_forward(LaneScan<double>& scan);
void go_forward(LaneScan<std::complex<double>>& scan);

/// Goes back through the steps, adding to the sums.
void go_back(LaneScan<double>& scan);
void go_back(LaneScan<std::complex<double>>& scan);

}  // namespace ssmbench::scan_bwd
