// Plain loops that the compiler puts on SIMD lanes, compiled for every instruction set that Highway knows
// and chosen at run time.

#include "reference/selective_scan/bwd_lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/selective_scan/bwd_lanes.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace ssmbench::scan_bwd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Complex = std::complex<double>;

// The compiler makes SIMD instructions of a loop over lanes only where nothing that its stores might change
// leads to what it loads: so all that a step touches is found before its loop.

/// A step's coefficients for method zoh, Ā = e^z and c = Δ, with the errors that discretize() gives them.
template <class T>
struct ZohRule {
  static constexpr bool kTwoSamples = false;
  static constexpr bool kInputByA = false;  // c does not depend on A

  const RoundedLanes<double>& delta;
  const ExactLanes<T>& A;
  const double *size, *cosine, *sine;

  ZohRule(const LaneScan<T>& scan, std::int64_t t)
      : delta(scan.steps[t].delta),
        A(scan.A),
        size(scan.exponentials.size + t * kLanes),
        cosine(scan.exponentials.cosine + t * kLanes),
        sine(scan.exponentials.sine + t * kLanes) {}

  Rounded<T> decay(std::int64_t lane) const {
    const double z_error = (delta.get(lane) * A.get(lane)).error;
    const double error = size[lane] * (z_error + kExpError) + kUnderflowError;
    if constexpr (is_complex<T>)
      return {{size[lane] * cosine[lane], size[lane] * sine[lane]}, size[lane], error};
    else
      return {size[lane], size[lane], error};
  }
  /// Of the decay, for the bound of statistical_bound.h: an exponential's roundings are alike by 1 at most.
  double shared_error(std::int64_t lane) const { return decay(lane).error - size[lane]; }
  Rounded<T> input(std::int64_t lane) const {
    const auto step = delta.get(lane);
    return {T(step.value), step.magnitude, step.error + 4 * step.magnitude};
  }
  Discretization<T> all(std::int64_t lane) const {
    return {.decay = {decay(lane), A.get(lane) * decay(lane), delta.get(lane) * decay(lane)},
            .input = {.value = input(lane), .by_delta = {1.0, 1, 3}, .by_A = {}},
            .previous_input = {}};
  }
};

template <class T, bool two_samples>
struct StoredRule {
  static constexpr bool kTwoSamples = two_samples;
  static constexpr bool kInputByA = true;

  const RuleLanes<T>& rule;

  StoredRule(const LaneScan<T>& scan, std::int64_t t) : rule(scan.rules[t]) {}

  Rounded<T> decay(std::int64_t lane) const { return rule.decay.value.get(lane); }
  double shared_error(std::int64_t lane) const { return rule.decay.value.error[lane]; }
  Rounded<T> input(std::int64_t lane) const { return rule.input.value.get(lane); }
  Rounded<T> previous_input(std::int64_t lane) const { return rule.previous_input.value.get(lane); }
  Discretization<T> all(std::int64_t lane) const {
    const auto of = [lane](const CoefficientLanes<T>& c) {
      return Coefficient<T>{c.value.get(lane), c.by_delta.get(lane), c.by_A.get(lane)};
    };
    return {of(rule.decay), of(rule.input), of(rule.previous_input)};
  }
};

template <class T>
HWY_INLINE ExactLanes<T> lanes_at(const ProjectionLanes<T>& projection, std::int64_t t) {
  if (projection.by_step == nullptr) return projection.by_lane;
  const Unrounded<T>& same = projection.by_step[t];
  ExactLanes<T> lanes;
#pragma omp simd
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    lanes.value.set(lane, same.value);
    lanes.magnitude[lane] = same.magnitude;
  }
  return lanes;
}

/// B·u, which takes less to make again than to keep.
template <class T>
HWY_INLINE RoundedLanes<T> product_at(const LaneScan<T>& scan, std::int64_t t) {
  if (t < 0) return scan.product_before;
  const ExactLanes<double>& u = scan.steps[t].u;
  const ExactLanes<T> B = lanes_at(scan.B, t);
  RoundedLanes<T> product;
#pragma omp simd
  for (std::int64_t lane = 0; lane < kLanes; ++lane) product.set(lane, u.get(lane) * B.get(lane));
  return product;
}

/// Roundings of a product of complex numbers and a sum, in those of real ones (tile_by.cpp).
template <class T>
inline constexpr double kSpreadRoundings = is_complex<T> ? 3 : 1;

/// Keeps the states of all steps, or only the one after the last, in the place of the first.
template <class Rule, bool keep, class T>
void forward_by(LaneScan<T>& scan) {
  RoundedLanes<T> state = scan.states[scan.first];
  RoundedLanes<T> product_before;
  if constexpr (Rule::kTwoSamples) product_before = product_at(scan, scan.first - 1);
  SpreadLanes spread;
  if constexpr (!keep) spread = *scan.spread;
  for (std::int64_t t = scan.first; t < scan.last; ++t) {
    const Rule rule(scan, t);
    const ExactLanes<double>& u = scan.steps[t].u;
    const ExactLanes<T> B = lanes_at(scan.B, t);
    RoundedLanes<T>& after = scan.states[t + 1];
    const auto advance = [&](std::int64_t lane) HWY_ATTR __attribute__((always_inline)) {
      const auto product = u.get(lane) * B.get(lane);
      const auto decay = rule.decay(lane);
      const auto term = rule.input(lane) * product;
      auto next = decay * state.get(lane) + term;
      double term_error = term.error;
      if constexpr (Rule::kTwoSamples) {
        const auto previous_term = rule.previous_input(lane) * product_before.get(lane);
        next = next + previous_term;
        term_error += previous_term.error;
        product_before.set(lane, product);
      }
      if constexpr (!keep) {
        spread.spread[lane] =
            decay.magnitude * spread.spread[lane] +
            kSpreadRoundings<T> * (rule.shared_error(lane) * size_of(state.get(lane).value) + term_error);
        spread.decay[lane] *= decay.magnitude;
      }
      next = within_f32(next);
      state.set(lane, next);
      if constexpr (keep) after.set(lane, next);
    };
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) advance(lane);
  }
  if constexpr (!keep) {
    scan.states[scan.first] = state;
    *scan.spread = spread;
  }
}

/// Adds the lanes of each row to a number of its own: to[i] += Σ rows[i·kLanes + lane].
HWY_INLINE void add_lane_sums(const double* rows, std::int64_t count, double* to) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // which has no vectors of 2
  const hn::FixedTag<double, 2> two;
  for (; i + 2 <= count; i += 2) {
    auto a = hn::Load(two, rows + i * kLanes);
    auto b = hn::Load(two, rows + (i + 1) * kLanes);
    for (std::int64_t lane = 2; lane < kLanes; lane += 2) {
      a = hn::Add(a, hn::Load(two, rows + i * kLanes + lane));
      b = hn::Add(b, hn::Load(two, rows + (i + 1) * kLanes + lane));
    }
    const auto sums = hn::Add(hn::InterleaveLower(two, a, b), hn::InterleaveUpper(two, a, b));
    hn::StoreU(hn::Add(hn::LoadU(two, to + i), sums), two, to + i);
  }
#endif
  for (; i < count; ++i)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) to[i] += rows[i * kLanes + lane];
}

/// Weights of squared errors in sums. What a tolerance lets a term of a long memory have is 8 times what half
/// a roundoff in all of its decays does, or 9 standard deviations: λ = 1 in place of kSpread leaves
/// independent terms as many.
struct SumWeights {
  double side_by_side[kLanes];  ///< over states or channels
  double over_time[kLanes];

  explicit SumWeights(const MemoryLanes& memory) {
    constexpr double kIndependent = 1 / (kSpread * kSpread);
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const bool is_long = memory.is_long[lane] != 0;
      side_by_side[lane] = is_long ? kIndependent : 1;
      over_time[lane] = is_long ? memory.alike[lane] : 1;
    }
  }
};

/// g·h, whose errors count with the other factor. Charged are sums of absolute values, or, where the memory is
/// long, the values: whatever parts of a factor an implementation multiplies, their errors add up to its own.
template <class T>
HWY_INLINE Rounded<T> product_of_states(const Rounded<T>& g, const Rounded<T>& h, bool is_long) {
  const double g_size = is_long ? size_of(g.value) : g.magnitude;
  const double h_size = is_long ? size_of(h.value) : h.magnitude;
  const double magnitude = g.magnitude * h.magnitude;
  return {g.value * h.value, magnitude,
          g.error * h_size + g_size * h.error + kProductError<T> * magnitude + kUnderflowError};
}

/// Adds the terms of a step, one a lane, to a sum over channels or to the lanes' own.
template <class T>
HWY_INLINE void add_terms(const RoundedLanes<T>& terms, const SumWeights& weights, Sum<T>* over_lanes,
                          SumLanes<T>& by_lane) {
  if (over_lanes == nullptr) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      by_lane.add(lane, terms.get(lane), weights.over_time[lane]);
    return;
  }
  static_assert(sizeof(SumLanes<T>) == kLanes * sizeof(Sum<T>));
  SumLanes<T> rows;  // a row for each number of a Sum, in the same order
  rows.total = terms;
#pragma omp simd
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    rows.squared_errors[lane] = weights.side_by_side[lane] * terms.error[lane] * terms.error[lane];
  add_lane_sums(reinterpret_cast<const double*>(&rows), sizeof(Sum<T>) / sizeof(double),
                reinterpret_cast<double*>(over_lanes));
}

template <class Rule, class T>
void back_by(LaneScan<T>& scan) {
  RoundedLanes<T> carry = scan.adjoint->carry;
  RoundedLanes<T> previous_carry = scan.adjoint->previous_carry;
  SumLanes<T> dA = scan.adjoint->dA;
  RoundedLanes<T> dB;
  RoundedLanes<T> dC;
  SpreadLanes spread = scan.adjoint->long_memory.tile;
  const MemoryLanes memory = scan.memory;
  const SumWeights weights(memory);
  const double output_factor = scan.output_factor;
  for (std::int64_t t = scan.last - 1; t >= scan.first; --t) {
    const Rule rule_lanes(scan, t);
    StepLanes& step = scan.steps[t];
    const ExactLanes<T> B = lanes_at(scan.B, t);
    const ExactLanes<T> C_lanes = lanes_at(scan.C, t);
    const RoundedLanes<T>& state_before = scan.states[t];
    const RoundedLanes<T>& state_now = scan.states[t + 1];
    RoundedLanes<T> product_before;
    if constexpr (Rule::kTwoSamples) product_before = product_at(scan, t - 1);
    const auto go_back = [&](std::int64_t lane) HWY_ATTR __attribute__((always_inline)) {
      const Discretization<T> rule = rule_lanes.all(lane);
      const auto C = C_lanes.get(lane);
      const auto dy = scaled(output_factor, step.dy.get(lane));
      const auto state = state_now.get(lane);

      const auto added = dy * conj(C);
      const auto g = within_f32(added + carry.get(lane));
      const bool is_long = memory.is_long[lane] != 0;
      const auto of_decay = within_f32(product_of_states(g, conj(state_before.get(lane)), is_long));
      const auto of_input = within_f32(g * conj(step.u.get(lane) * B.get(lane)));
      const double over_time = weights.over_time[lane];
      const double over_states = weights.side_by_side[lane];
      dA.add(lane, of_decay * conj(rule.decay.by_A), over_time);
      step.ddelta.add(lane, real(of_decay * conj(rule.decay.by_delta)), over_states);
      step.ddelta.add(lane, real(of_input * conj(rule.input.by_delta)), over_states);
      if constexpr (Rule::kInputByA) dA.add(lane, of_input * conj(rule.input.by_A), over_time);
      auto of_product = within_f32(conj(rule.input.value) * g);
      if constexpr (Rule::kTwoSamples) {
        const auto of_previous = within_f32(g * conj(product_before.get(lane)));
        dA.add(lane, of_previous * conj(rule.previous_input.by_A), over_time);
        step.ddelta.add(lane, real(of_previous * conj(rule.previous_input.by_delta)), over_states);
        of_product = of_product + previous_carry.get(lane);
        previous_carry.set(lane, within_f32(conj(rule.previous_input.value) * g));
      }
      carry.set(lane, conj(rule.decay.value) * g);
      const double decay = rule.decay.value.magnitude;
      spread.spread[lane] = decay * (spread.spread[lane] + kSpreadRoundings<T> * added.error) +
                            kSpreadRoundings<T> * rule_lanes.shared_error(lane) * size_of(g.value);
      spread.decay[lane] *= decay;

      step.y.add(lane, real(C * state), over_states);
      step.du.add(lane, real(of_product * conj(B.get(lane))), over_states);
      dB.set(lane, step.u.get(lane) * of_product);
      dC.set(lane, dy * conj(state));
    };
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) go_back(lane);
    add_terms(dB, weights, scan.sums_of_B == nullptr ? nullptr : &scan.sums_of_B[t].dB, scan.adjoint->dB);
    add_terms(dC, weights, scan.sums_of_C == nullptr ? nullptr : &scan.sums_of_C[t].dC, scan.adjoint->dC);
  }
  scan.adjoint->carry = carry;
  scan.adjoint->previous_carry = previous_carry;
  scan.adjoint->dA = dA;
  scan.adjoint->long_memory.tile = spread;
}

template <bool keep, class T>
void forward_lanes(LaneScan<T>& scan) {
  if (scan.rules == nullptr)
    forward_by<ZohRule<T>, keep>(scan);
  else if (scan.two_samples)
    forward_by<StoredRule<T, true>, keep>(scan);
  else
    forward_by<StoredRule<T, false>, keep>(scan);
}

template <class T>
void back_lanes(LaneScan<T>& scan) {
  if (scan.rules == nullptr)
    back_by<ZohRule<T>>(scan);
  else if (scan.two_samples)
    back_by<StoredRule<T, true>>(scan);
  else
    back_by<StoredRule<T, false>>(scan);
}

void make_all_steps(const double* u, const StepNumbers& numbers, bool has_bias, std::int64_t count,
                    StepLanes* steps) {
  const bool has_softplus = numbers.exp != nullptr;
  for (std::int64_t t = 0; t < count; ++t) {
    StepLanes& step = steps[t];
    const double* u_now = u + t * kLanes;
    const double* x = numbers.x + t * kLanes;
    const double* e = has_softplus ? numbers.exp + t * kLanes : x;
    const double* log1p_e = has_softplus ? numbers.log1p + t * kLanes : x;
    const auto with_softplus = [&](std::int64_t lane) HWY_ATTR __attribute__((always_inline)) {
      const Step made = softplus_of(x[lane], has_bias, e[lane], log1p_e[lane]);
      step.delta.set(lane, made.delta);
      step.slope.set(lane, made.slope);
    };
    const auto without = [&](std::int64_t lane) HWY_ATTR __attribute__((always_inline)) {
      step.delta.set(lane, {x[lane], std::abs(x[lane]), has_bias ? std::abs(x[lane]) : 0});
      step.slope.set(lane, {1, 1, 0});
    };
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) step.u.set(lane, u_now[lane]);
    if (has_softplus) {
#pragma omp simd
      for (std::int64_t lane = 0; lane < kLanes; ++lane) with_softplus(lane);
    } else {
#pragma omp simd
      for (std::int64_t lane = 0; lane < kLanes; ++lane) without(lane);
    }
  }
}

void make_all_gradients(const StepNumbers& numbers, std::int64_t count, StepLanes* steps) {
  for (std::int64_t t = 0; t < count; ++t) {
    StepLanes& step = steps[t];
    step.y = step.du = step.ddelta = {};
    const double* dout = numbers.x + t * kLanes;
    if (numbers.z == nullptr) {
#pragma omp simd
      for (std::int64_t lane = 0; lane < kLanes; ++lane) step.dy.set(lane, exactly(dout[lane]));
      continue;
    }
    const double* z = numbers.z + t * kLanes;
    const double* e = numbers.exp + t * kLanes;
    const auto gated = [&](std::int64_t lane) HWY_ATTR __attribute__((always_inline)) {
      const Gate gate = gate_of(z[lane], e[lane]);
      step.y_factor.set(lane, exactly(dout[lane]) * gate.slope);
      step.dy.set(lane, exactly(dout[lane]) * gate.value);
    };
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) gated(lane);
  }
}

void finish_all_steps(StepFinish& finish, std::int64_t count, StepLanes* steps) {
  const std::int64_t dstate = finish.dstate;
  const double output_factor = finish.output_factor;
  const double saved_error = finish.saved_error;
  const bool has_D = finish.has_D;
  const ExactLanes<double> D_lanes = finish.D;
  double alike[kLanes];
  std::copy_n(finish.alike, kLanes, alike);
  SumLanes<double> dD = finish.dD;
  SumLanes<double> ddelta_bias = finish.ddelta_bias;
  for (std::int64_t t = 0; t < count; ++t) {
    StepLanes& step = steps[t];
    const auto inputs = [&](std::int64_t lane) HWY_ATTR __attribute__((always_inline)) {
      const auto u = step.u.get(lane);
      const auto dy = step.dy.get(lane);
      // Every state gives three terms at most.
      const auto ddelta = step.ddelta.get(lane).over(3 * dstate) * step.slope.get(lane);
      step.ddelta.total.set(lane, ddelta);
      ddelta_bias.add(lane, ddelta, alike[lane]);
      dD.add(lane, dy * u);
      Sum<double> du = step.du.get(lane);
      if (has_D) du.add(D_lanes.get(lane) * dy);
      step.du.total.set(lane, du.over(2 * dstate + 1));
    };
    const auto gate = [&](std::int64_t lane) HWY_ATTR __attribute__((always_inline)) {
      Sum<double> sum;
      sum.add(scaled(output_factor, step.y.get(lane).over(dstate)));
      if (has_D) sum.add(D_lanes.get(lane) * step.u.get(lane));
      auto y = sum.over(2);
      y.error += saved_error * std::abs(y.value);
      step.y.total.set(lane, y * step.y_factor.get(lane));
    };
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) inputs(lane);
    if (!finish.has_z) continue;
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) gate(lane);
  }
  finish.dD = dD;
  finish.ddelta_bias = ddelta_bias;
}

void scale_all(const StepLanes* steps, std::int64_t count, const double* A, double* to) {
  for (std::int64_t t = 0; t < count; ++t) {
    const double* delta = steps[t].delta.value.value;
    double* z = to + t * kLanes;
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) z[lane] = delta[lane] * A[lane];
  }
}

void pass_real(LaneScan<double>& scan) {
  forward_lanes<false>(scan);
}
void pass_complex(LaneScan<Complex>& scan) {
  forward_lanes<false>(scan);
}
void forward_real(LaneScan<double>& scan) {
  forward_lanes<true>(scan);
}
void forward_complex(LaneScan<Complex>& scan) {
  forward_lanes<true>(scan);
}
void back_real(LaneScan<double>& scan) {
  back_lanes(scan);
}
void back_complex(LaneScan<Complex>& scan) {
  back_lanes(scan);
}

}  // namespace ssmbench::scan_bwd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ssmbench::scan_bwd {

template <class T>
void LongMemoryLanes<T>::start_from(const RoundedLanes<T>& state) {
  tile.start_from(statistical_.start);
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    start_size_[lane] = run_[lane] = size_of(state.get(lane).value);
    start_magnitude_[lane] = state.magnitude[lane];
  }
}

template <class T>
void LongMemoryLanes<T>::end_tile(std::int64_t steps, std::int64_t of_all, RoundedLanes<T>& state) {
  statistical_.end_tile(tile.spread, tile.decay);
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    const double decay = tile.decay[lane];
    const double size = size_of(state.get(lane).value);
    const double of_tile = std::max(state.magnitude[lane] - decay * start_magnitude_[lane], 0.0);
    run_[lane] = std::max(decay * run_[lane], std::min(size, decay * start_size_[lane]) + of_tile);
    const double bound = smaller_bound(state.error[lane], statistical_.bound(lane));
    if (bound < state.error[lane]) memory_.is_long[lane] = 1;  // and stays so
    memory_.alike[lane] =
        weight_over_time(2 * static_cast<double>(steps) / (1 - std::min(decay, 1 - 1e-9)), of_all);
    state.error[lane] = bound;
    state.magnitude[lane] = std::min(state.magnitude[lane], 3 * run_[lane]);
    start_size_[lane] = size;
    start_magnitude_[lane] = state.magnitude[lane];
  }
  tile.start_from(statistical_.start);
}

template class LongMemoryLanes<double>;
template class LongMemoryLanes<std::complex<double>>;

HWY_EXPORT(make_all_steps);
HWY_EXPORT(make_all_gradients);
HWY_EXPORT(finish_all_steps);
HWY_EXPORT(scale_all);
HWY_EXPORT(pass_real);
HWY_EXPORT(pass_complex);
HWY_EXPORT(forward_real);
HWY_EXPORT(forward_complex);
HWY_EXPORT(back_real);
HWY_EXPORT(back_complex);

void make_steps(const double* u, const StepNumbers& numbers, bool has_bias, std::int64_t count,
                StepLanes* steps) {
  HWY_DYNAMIC_DISPATCH(make_all_steps)(u, numbers, has_bias, count, steps);
}
void make_gradients(const StepNumbers& numbers, std::int64_t count, StepLanes* steps) {
  HWY_DYNAMIC_DISPATCH(make_all_gradients)(numbers, count, steps);
}
void finish_steps(StepFinish& finish, std::int64_t count, StepLanes* steps) {
  HWY_DYNAMIC_DISPATCH(finish_all_steps)(finish, count, steps);
}
void scale_steps(const StepLanes* steps, std::int64_t count, const double* A, double* to) {
  HWY_DYNAMIC_DISPATCH(scale_all)(steps, count, A, to);
}
void pass_through(LaneScan<double>& scan) {
  HWY_DYNAMIC_DISPATCH(pass_real)(scan);
}
void pass_through(LaneScan<std::complex<double>>& scan) {
  HWY_DYNAMIC_DISPATCH(pass_complex)(scan);
}
void go_forward(LaneScan<double>& scan) {
  HWY_DYNAMIC_DISPATCH(forward_real)(scan);
}
void go_forward(LaneScan<std::complex<double>>& scan) {
  HWY_DYNAMIC_DISPATCH(forward_complex)(scan);
}
void go_back(LaneScan<double>& scan) {
  HWY_DYNAMIC_DISPATCH(back_real)(scan);
}
void go_back(LaneScan<std::complex<double>>& scan) {
  HWY_DYNAMIC_DISPATCH(back_complex)(scan);
}

}  // namespace ssmbench::scan_bwd
#endif
