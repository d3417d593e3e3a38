#include "verify/rounding_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "verify/tolerance.h"

namespace ssmbench {
namespace {

/// ln(2/p) of the probability p = 1e-9 that an honest sum is over its limit.
const double kLogOdds = std::log(2e9);
constexpr int kLeastBinade = -48;
constexpr int kBinades = 64;

/// Of elements that have something in common.
struct Sum {
  double error = 0;     // Σ(u − f)
  double away = 0;      // the same away from zero
  double variance = 0;  // Σ f·(1 − f)
  double shift = 0;     // what errors on the way may do to it
  double count = 0;

  void add(double signed_error, double sign, double f, double shift_of_f) {
    error += signed_error;
    away += sign * signed_error;
    variance += f * (1 - f);
    shift += shift_of_f;
    ++count;
  }

  void add(const Sum& more) {
    error += more.error;
    away += more.away;
    variance += more.variance;
    shift += more.shift;
    count += more.count;
  }

  /// Bernstein's inequality: independent terms of at most 1 exceed this with probability p.
  double limit() const {
    const double third = kLogOdds / 3;
    return shift + third + std::sqrt(third * third + 2 * kLogOdds * (variance + shift));
  }

  OutputComparison::RoundingBias bias(std::string among) const {
    const double largest = std::abs(error) > std::abs(away) ? error : away;
    return {.mean = largest / count, .ratio = std::abs(largest) / limit(), .among = std::move(among)};
  }
};

struct Sums {
  explicit Sums(std::int64_t columns) : by_column(static_cast<std::size_t>(columns)) {}

  Sum all;
  std::array<Sum, kBinades> by_binade{};
  std::vector<Sum> by_column;

  void add(const Sums& more) {
    all.add(more.all);
    for (std::size_t i = 0; i < by_binade.size(); ++i) by_binade.at(i).add(more.by_binade.at(i));
    for (std::size_t i = 0; i < by_column.size(); ++i) by_column[i].add(more.by_column[i]);
  }
};

void add(Sums& sums, const ExpectedElement& element, double got, std::int64_t column, DType dtype,
         const Arithmetic& arithmetic) {
  const double distance = spacing(element, dtype);
  const double shift = tolerance_of(element, dtype, arithmetic).arithmetic / distance;
  if (!std::isfinite(got) || !std::isfinite(element.value) || !std::isfinite(shift)) return;
  const double steps = std::abs(element.value) / distance;
  const double f = steps - std::floor(steps);
  const double error = (got - element.value) / distance;
  const double sign = std::copysign(1.0, element.value);
  sums.all.add(error, sign, f, shift);
  sums.by_column[static_cast<std::size_t>(column)].add(error, sign, f, shift);
  const double scaled = dtype == DType::f64 ? steps : element.value;  // f64: values that had a scale
  if (scaled == 0) return;
  const int binade = std::clamp(std::ilogb(scaled) - kLeastBinade, 0, kBinades - 1);
  sums.by_binade.at(static_cast<std::size_t>(binade)).add(error, sign, f, shift);
}

/// Elements `begin` to `end` in row-major order.
Sums sums_of(const TensorView& got, const Expectation& expected, const Arithmetic& arithmetic,
             std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = got.shape.back();
  Sums sums(columns);
  std::int64_t offset = 0;
  for (std::int64_t position = begin; position < end; ++position) {
    const std::int64_t column = position % columns;
    if (position == begin || column == 0) offset = offset_of(index_of(position, got.shape), got.strides);
    add(sums, expected.at(position), load_as_double(got.data, offset, got.dtype), column, got.dtype,
        arithmetic);
    offset += got.strides.back();
  }
  return sums;
}

}  // namespace

std::optional<OutputComparison::RoundingBias> rounding_bias(const TensorView& output,
                                                            const Expectation& expected,
                                                            const Arithmetic& arithmetic) {
  const std::int64_t count = element_count(output.shape);
  // Fixed ranges, added up in order: sums do not depend on who computed them.
  constexpr std::int64_t kRanges = 64;
  constexpr std::int64_t kWorthThreads = 1 << 16;
  const std::int64_t columns = output.shape.back();
  std::vector<Sums> parts(kRanges, Sums(columns));
#pragma omp parallel for schedule(dynamic) if (count > kWorthThreads)
  for (std::int64_t i = 0; i < kRanges; ++i)
    parts[i] = sums_of(output, expected, arithmetic, count * i / kRanges, count * (i + 1) / kRanges);
  Sums sums(columns);
  for (const auto& part : parts) sums.add(part);

  if (sums.all.count == 0) return {};
  auto worst = sums.all.bias("all");
  const auto take = [&](const Sum& sum, const std::string& among) {
    if (sum.count == 0) return;
    auto bias = sum.bias(among);
    if (bias.ratio > worst.ratio) worst = std::move(bias);
  };
  for (int i = 0; i < kBinades; ++i)
    take(sums.by_binade.at(static_cast<std::size_t>(i)),
         fmt::format("values around 2^{}{}", i + kLeastBinade, output.dtype == DType::f64 ? " steps" : ""));
  for (std::int64_t n = 0; n < columns; ++n)
    take(sums.by_column[static_cast<std::size_t>(n)], fmt::format("index {} of the last axis", n));
  return worst;
}

}  // namespace ssmbench
