// The inner loop of the fp64 scan, on SIMD lanes over channels, compiled for every instruction set that
// Highway knows and chosen at run time.
//
// Beside h it carries a running error bound (Wilkinson's running error analysis; Higham, "Accuracy and
// Stability of Numerical Algorithms", 2nd ed., section 3.3). Let u be the roundoff of an implementation and
// let each of its operations have relative error at most u. To first order, with the magnitude m_t =
// |Ā|·m_{t-1} + |Δ·u·B|:
//   z = Δ·A            has relative error  e_Δ + 1               (e_Δ: that of Δ)
//   Ā = e^z            has relative error  |z|·(e_Δ + 1) + 2     (2: the exponential itself, as GPUs do it)
//   Δ·u·B              has relative error  e_Δ + 2
//   h = Ā·h + Δ·u·B    adds one rounding of each product and of the sum, at most m_t + m_t
// so that
//   e_t = Ā·e_{t-1} + (|z|·(e_Δ + 1) + 2)·Ā·m_{t-1} + (e_Δ + 2)·|Δ·u·B| + 2·m_t
// The bound grows with the memory of the recurrence and not with L, and holds for re-associated (chunked,
// parallel) scans too: a product of k decays has k times the relative error of one, which is what the
// recurrence adds up. The bound of statistical_bound.h takes its place where it is smaller, with
//   δ = |z|·(e_Δ + 1) + 1   and   β = e_Δ + 2

#include "reference/common/rounded.h"
#include "reference/selective_scan/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/selective_scan/tile_zoh.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ssmbench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<double, kBlockChannels>;
using Vector = hn::Vec<Lanes>;

Vector coefficient(Lanes lanes, const Coefficients<double>& c, std::int64_t t, std::int64_t channel) {
  const double* at = c.data + t * c.time + channel * c.lane;
  return c.lane == 0 ? hn::Set(lanes, *at) : hn::LoadU(lanes, at);
}

void accumulate(Lanes lanes, double* sum, Vector a, Vector b) {
  hn::StoreU(hn::MulAdd(a, b, hn::LoadU(lanes, sum)), lanes, sum);
}

void scan_tile(ScanTile& tile, ScanState<double>& state, const double* A, Coefficients<double> B,
               Coefficients<double> C) {
  const Lanes lanes;
  const auto one = hn::Set(lanes, 1.0);
  const auto two = hn::Set(lanes, 2.0);
  const auto underflow = hn::Set(lanes, kUnderflowError);
  const auto within_tile = hn::Set(lanes, state.statistical.kWithinTile);
  double spreads[kBlockChannels];
  double decays[kBlockChannels];
  for (std::int64_t c = 0; c < kBlockChannels; c += static_cast<std::int64_t>(hn::Lanes(lanes))) {
    const auto a = hn::LoadU(lanes, A + c);
    auto h = hn::LoadU(lanes, state.h + c);
    h = hn::IfThenElse(hn::IsNaN(a), a, h);  // which Exp does not keep
    auto magnitude = hn::LoadU(lanes, state.magnitude + c);
    auto error = hn::LoadU(lanes, state.error + c);
    auto response = hn::LoadU(lanes, state.response + c);
    auto spread = hn::LoadU(lanes, state.statistical.start + c);
    auto tile_decay = one;
    for (std::int64_t t = 0; t < tile.steps; ++t) {
      const std::int64_t at = t * kBlockChannels + c;
      const auto delta_error = hn::LoadU(lanes, tile.delta_error + at);
      const auto delta = hn::LoadU(lanes, tile.delta + at);
      const auto z = hn::Mul(delta, a);
      const auto decay = hn::Exp(lanes, z);
      const auto b = coefficient(lanes, B, t, c);
      const auto term = hn::Mul(hn::LoadU(lanes, tile.delta_u + at), b);
      const auto term_magnitude = hn::Abs(term);
      const auto kept = hn::Mul(decay, magnitude);

      response = hn::Mul(decay, hn::Add(response, h));
      const auto kept_value = hn::Mul(decay, h);
      h = hn::Add(kept_value, term);
      const auto magnitude_before = magnitude;
      magnitude = hn::Add(kept, term_magnitude);
      const auto decay_error = hn::MulAdd(hn::Abs(z), hn::Add(delta_error, one), one);
      const auto factors = hn::Add(hn::Abs(delta), hn::Abs(b));
      const auto added = hn::MulAdd(hn::Add(delta_error, two), term_magnitude,
                                    hn::Mul(underflow, hn::Add(magnitude_before, factors)));
      const auto rounded = hn::Add(kept, hn::MulAdd(two, magnitude, added));
      error = hn::MulAdd(decay, error, hn::MulAdd(decay_error, kept, rounded));
      spread = hn::MulAdd(decay, spread, hn::MulAdd(decay_error, hn::Abs(kept_value), added));
      tile_decay = hn::Mul(tile_decay, decay);
      const auto bound = hn::Min(error, hn::Mul(within_tile, spread));

      const auto c_value = coefficient(lanes, C, t, c);
      const auto c_magnitude = hn::Abs(c_value);
      accumulate(lanes, tile.y + at, c_value, h);
      accumulate(lanes, tile.y_magnitude + at, c_magnitude, magnitude);
      accumulate(lanes, tile.y_error + at, c_magnitude, bound);
      accumulate(lanes, tile.y_response + at, c_value, response);
    }
    hn::StoreU(h, lanes, state.h + c);
    hn::StoreU(magnitude, lanes, state.magnitude + c);
    hn::StoreU(error, lanes, state.error + c);
    hn::StoreU(response, lanes, state.response + c);
    hn::StoreU(spread, lanes, spreads + c);
    hn::StoreU(tile_decay, lanes, decays + c);
  }
  state.statistical.end_tile(spreads, decays);
}

}  // namespace ssmbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ssmbench {

HWY_EXPORT(scan_tile);

void scan_tile_zoh(ScanTile& tile, ScanState<double>& state, const double* A, Coefficients<double> B,
                   Coefficients<double> C) {
  HWY_DYNAMIC_DISPATCH(scan_tile)(tile, state, A, B, C);
}

}  // namespace ssmbench
#endif
