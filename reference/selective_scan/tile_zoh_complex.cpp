// Method zoh with complex A on SIMD lanes over channels, real and imaginary parts in vectors of their own;
// compiled for every instruction set that Highway knows and chosen at run time. The bound is the one of
// tile_by.cpp.

#include <cmath>
#include <limits>

#include "reference/common/lane_math.h"
#include "reference/common/rounded.h"
#include "reference/selective_scan/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/selective_scan/tile_zoh_complex.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#ifndef SSMBENCH_SCAN_TILE_ZOH_COMPLEX
#define SSMBENCH_SCAN_TILE_ZOH_COMPLEX
namespace ssmbench {

/// e^ΔA = size·(cosine + i·sine), [time][channel].
struct ComplexExponentials {
  double size[kTileSteps * kBlockChannels];
  double cosine[kTileSteps * kBlockChannels];
  double sine[kTileSteps * kBlockChannels];
  double exponent_size[kTileSteps * kBlockChannels];  ///< |ΔA|
};

}  // namespace ssmbench
#endif

HWY_BEFORE_NAMESPACE();
namespace ssmbench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ComplexLanes = hn::CappedTag<double, kBlockChannels>;
using Part = hn::Vec<ComplexLanes>;
using Complex = std::complex<double>;

struct ComplexParts {
  Part real, imag;
};

ComplexParts load_complex(const Complex* at) {
  const ComplexLanes lanes;
  ComplexParts parts;
  hn::LoadInterleaved2(lanes, reinterpret_cast<const double*>(at), parts.real, parts.imag);
  return parts;
}
void store_complex(const ComplexParts& parts, Complex* at) {
  hn::StoreInterleaved2(parts.real, parts.imag, ComplexLanes(), reinterpret_cast<double*>(at));
}

ComplexParts complex_coefficient(const Coefficients<Complex>& c, std::int64_t t, std::int64_t channel) {
  const ComplexLanes lanes;
  const Complex* at = c.data + t * c.time + channel * c.lane;
  if (c.lane != 0) return load_complex(at);
  return {hn::Set(lanes, at->real()), hn::Set(lanes, at->imag())};
}

ComplexParts product(const ComplexParts& a, const ComplexParts& b) {
  return {hn::NegMulAdd(a.imag, b.imag, hn::Mul(a.real, b.real)),
          hn::MulAdd(a.imag, b.real, hn::Mul(a.real, b.imag))};
}

Part size_of(const ComplexParts& a) {
  return hn::Sqrt(hn::MulAdd(a.imag, a.imag, hn::Mul(a.real, a.real)));
}

void add_scaled(double* sum, double factor, Part term) {
  const ComplexLanes lanes;
  hn::StoreU(hn::MulAdd(hn::Set(lanes, factor), term, hn::LoadU(lanes, sum)), lanes, sum);
}

Part real_of_product(const ComplexParts& a, const ComplexParts& b) {
  return hn::NegMulAdd(a.imag, b.imag, hn::Mul(a.real, b.real));
}

void scan_complex_tile(ScanTile& tile, ScanState<Complex>& state, const ComplexExponentials& exponentials,
                       Coefficients<Complex> B, Coefficients<Complex> C) {
  constexpr double kRounding = 3;
  constexpr double kShare = 2;  // y = 2·Re Σ C·h
  const ComplexLanes lanes;
  const auto one = hn::Set(lanes, 1.0);
  const auto rounding = hn::Set(lanes, kRounding);
  const auto underflow = hn::Set(lanes, kRounding * kUnderflowError);
  const auto two_roundings = hn::Set(lanes, 2 * kRounding);
  const auto largest = hn::Set(lanes, double{std::numeric_limits<float>::max()});
  const auto infinity = hn::Set(lanes, std::numeric_limits<double>::infinity());
  const auto within_tile = hn::Set(lanes, state.statistical.kWithinTile);
  double spreads[kBlockChannels];
  double decays[kBlockChannels];
  for (std::int64_t c = 0; c < kBlockChannels; c += static_cast<std::int64_t>(hn::Lanes(lanes))) {
    ComplexParts h = load_complex(state.h + c);
    ComplexParts response = load_complex(state.response + c);
    auto magnitude = hn::LoadU(lanes, state.magnitude + c);
    auto error = hn::LoadU(lanes, state.error + c);
    auto spread = hn::LoadU(lanes, state.statistical.start + c);
    auto tile_decay = one;
    for (std::int64_t t = 0; t < tile.steps; ++t) {
      const std::int64_t at = t * kBlockChannels + c;
      const auto size = hn::LoadU(lanes, exponentials.size + at);
      const ComplexParts decay{hn::Mul(size, hn::LoadU(lanes, exponentials.cosine + at)),
                               hn::Mul(size, hn::LoadU(lanes, exponentials.sine + at))};
      const auto delta_error = hn::LoadU(lanes, tile.delta_error + at);
      const auto delta_u = hn::LoadU(lanes, tile.delta_u + at);
      const ComplexParts b = complex_coefficient(B, t, c);
      const auto b_size = size_of(b);
      const auto term_magnitude = hn::Mul(hn::Abs(delta_u), b_size);
      const auto kept = hn::Mul(size, magnitude);

      response = product(decay, {hn::Add(response.real, h.real), hn::Add(response.imag, h.imag)});
      h = product(decay, h);
      const auto kept_size = size_of(h);
      h = {hn::MulAdd(delta_u, b.real, h.real), hn::MulAdd(delta_u, b.imag, h.imag)};
      const auto magnitude_before = magnitude;
      magnitude = hn::Add(kept, term_magnitude);
      const auto z_size = hn::LoadU(lanes, exponentials.exponent_size + at);
      const auto decay_error = hn::Mul(rounding, hn::MulAdd(z_size, hn::Add(delta_error, one), one));
      const auto factors = hn::Add(hn::Abs(hn::LoadU(lanes, tile.delta + at)), b_size);
      const auto added = hn::MulAdd(hn::Add(delta_error, two_roundings), term_magnitude,
                                    hn::Mul(underflow, hn::Add(magnitude_before, factors)));
      const auto rounded = hn::MulAdd(rounding, kept, hn::MulAdd(two_roundings, magnitude, added));
      error = hn::MulAdd(size, error, hn::MulAdd(decay_error, kept, rounded));
      error = hn::IfThenElse(hn::Le(magnitude, largest), error, infinity);
      spread = hn::MulAdd(size, spread, hn::MulAdd(decay_error, kept_size, added));
      tile_decay = hn::Mul(tile_decay, size);
      const auto bound =
          hn::IfThenElse(hn::Eq(error, infinity), error, hn::Min(error, hn::Mul(within_tile, spread)));

      const ComplexParts c_value = complex_coefficient(C, t, c);
      const auto c_size = size_of(c_value);
      add_scaled(tile.y + at, kShare, real_of_product(c_value, h));
      add_scaled(tile.y_response + at, kShare, real_of_product(c_value, response));
      add_scaled(tile.y_magnitude + at, kShare * kRounding, hn::Mul(c_size, magnitude));
      add_scaled(tile.y_error + at, kShare, hn::Mul(c_size, bound));
    }
    store_complex(h, state.h + c);
    store_complex(response, state.response + c);
    hn::StoreU(magnitude, lanes, state.magnitude + c);
    hn::StoreU(error, lanes, state.error + c);
    hn::StoreU(spread, lanes, spreads + c);
    hn::StoreU(tile_decay, lanes, decays + c);
  }
  state.statistical.end_tile(spreads, decays);
}

}  // namespace ssmbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ssmbench {

HWY_EXPORT(scan_complex_tile);

void scan_tile_zoh(ScanTile& tile, ScanState<std::complex<double>>& state, const std::complex<double>* A,
                   Coefficients<std::complex<double>> B, Coefficients<std::complex<double>> C) {
  ComplexExponentials exponentials;
  double z[kTileSteps * kBlockChannels] = {};
  double size_of_A[kBlockChannels];
  const std::int64_t count = tile.steps * kBlockChannels;
  for (std::int64_t c = 0; c < kBlockChannels; ++c) size_of_A[c] = std::abs(A[c]);
  for (std::int64_t at = 0; at < count; ++at) {
    exponentials.exponent_size[at] = std::abs(tile.delta[at]) * size_of_A[at % kBlockChannels];
    z[at] = tile.delta[at] * A[at % kBlockChannels].real();
  }
  exp_of(z, count, exponentials.size);
  for (std::int64_t at = 0; at < count; ++at) z[at] = tile.delta[at] * A[at % kBlockChannels].imag();
  cosine_of(z, count, exponentials.cosine);
  sine_of(z, count, exponentials.sine);
  HWY_DYNAMIC_DISPATCH(scan_complex_tile)(tile, state, exponentials, B, C);
}

}  // namespace ssmbench
#endif
