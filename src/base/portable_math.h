#pragma once

#include <bit>
#include <cstdint>

// exp and log that give the same bits on every machine, which the C library's do not promise: built from IEEE
// + - * / on double and integer operations alone (the build forbids contraction into fused multiply-adds).
// Relative error below 1e-14 on the ranges named; no special values: arguments are finite.

namespace ssmbench::portable {

inline constexpr double kLn2High = 0x1.62e42feep-1;  // the top 32 bits, so that k·kLn2High is exact
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

/// 2^k for -1022 ≤ k ≤ 1023.
constexpr double power_of_two(int k) {
  return std::bit_cast<double>(static_cast<std::int64_t>(k + 1023) << 52);
}

/// e^x − 1 for |x| ≤ ln(2)/2. Taylor series: the first term left out is below 0.35^13/14! = 2e-17 of the
/// result.
constexpr double expm1_reduced(double x) {
  double sum = 1;
  for (int i = 13; i >= 2; --i) sum = 1 + sum * x / i;
  return sum * x;
}

/// e^x − 1, |x| ≤ 700. Keeps its relative accuracy near zero.
constexpr double expm1(double x) {
  const int k = static_cast<int>(x / (kLn2High + kLn2Low) + (x < 0 ? -0.5 : 0.5));
  const double reduced = (x - k * kLn2High) - k * kLn2Low;
  const double scale = power_of_two(k);
  return scale * expm1_reduced(reduced) + (scale - 1);
}

/// e^x, |x| ≤ 700.
constexpr double exp(double x) {
  const int k = static_cast<int>(x / (kLn2High + kLn2Low) + (x < 0 ? -0.5 : 0.5));
  const double reduced = (x - k * kLn2High) - k * kLn2Low;
  return power_of_two(k) * (1 + expm1_reduced(reduced));
}

/// 2·atanh(s) for |s| ≤ 0.1716: the first term left out is below 0.1716^20/21 = 3e-17 of the result.
constexpr double twice_atanh(double s) {
  const double square = s * s;
  double sum = 1.0 / 19;
  for (int odd = 17; odd >= 1; odd -= 2) sum = sum * square + 1.0 / odd;
  return 2 * s * sum;
}

/// ln(x) for normal x > 0: x = 2^k·m with m in [√½, √2), ln(m) = 2·atanh((m − 1)/(m + 1)).
constexpr double log(double x) {
  const auto bits = std::bit_cast<std::int64_t>(x);
  constexpr auto kSqrtHalf = std::bit_cast<std::int64_t>(0x1.6a09e667f3bcdp-1);
  const auto k = static_cast<int>((bits - kSqrtHalf) >> 52);
  const double m = std::bit_cast<double>(bits - (static_cast<std::int64_t>(k) << 52));
  return k * kLn2High + (k * kLn2Low + twice_atanh((m - 1) / (m + 1)));
}

/// ln(1 + x) for x ≥ 0. Keeps its relative accuracy near zero.
constexpr double log1p(double x) {
  return x < 0.4 ? twice_atanh(x / (2 + x)) : log(1 + x);
}

/// ln(1 + e^x), |x| ≤ 700.
constexpr double softplus(double x) {
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/// The x with softplus(x) = y, 1e-300 < y ≤ 700: y + ln(1 − e^−y), as mamba_ssm's mamba_simple.py has it.
constexpr double inverse_softplus(double y) {
  return y + log(-expm1(-y));
}

}  // namespace ssmbench::portable
