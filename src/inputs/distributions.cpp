#include "inputs/distributions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/errors.h"
#include "base/portable_math.h"

namespace ssmbench {

// dt_proj draws its weights from U(±1/√dt_rank), variance 1/(3·dt_rank), and sums dt_rank products: variance
// 1/3 for inputs of variance 1 (mamba_ssm's mamba_simple.py, dt_init = "random").
const double kDeltaDeviation = std::sqrt(1.0 / 3.0);

void fill_log_uniform(const Stream& stream, LogRange range, std::int64_t first, std::span<double> values) {
  const double low = portable::log(range.low);
  const double width = portable::log(range.high) - low;
  stream.uniforms(first, values);
  for (double& value : values) value = portable::exp(low + value * width);
}

namespace {

constexpr double kShare = 1.0 / 64;
constexpr LogRange kTiny{1e-42, 1e-4};
constexpr LogRange kLarge{4, 100};

/// Puts extremes in the place of some of the normal values. A uniform number says what becomes of a value,
/// and where it is within its share how large.
void add_extremes(const Stream& stream, bool has_large, std::int64_t first, std::span<double> values) {
  std::vector<double> draws(values.size());
  stream.uniforms(first, draws);
  const auto of = [](LogRange range, double share) {
    const double low = portable::log(range.low);
    return portable::exp(low + share * (portable::log(range.high) - low));
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double place = draws[i] / kShare;
    if (place < 1)
      values[i] = 0;
    else if (place < 2)
      values[i] = std::copysign(of(kTiny, place - 1), values[i]);
    else if (has_large && place < 6)
      values[i] = std::copysign(of(kLarge, (place - 2) / 4), values[i]);
  }
}

}  // namespace

void fill_projected(const DistributionInfo& distribution, std::int64_t seed, std::string_view name,
                    std::int64_t first, std::span<double> values) {
  Stream(seed, name).normals(first, values);
  if (!distribution.has_extremes) return;
  const bool has_large = name == "u" || name == "x" || name == "z" || name == "V" || name == "Z";
  add_extremes(Stream(seed, std::string(name) + " extremes"), has_large, first, values);
}

void add_large_steps(const DistributionInfo& distribution, std::int64_t seed, std::string_view name,
                     std::int64_t first, std::span<double> values,
                     const std::function<double(std::size_t)>& bias) {
  if (!distribution.has_extremes) return;
  std::vector<double> draws(values.size());
  Stream(seed, std::string(name) + " extremes").uniforms(first, draws);
  constexpr double kLeast = 20;
  constexpr double kMost = 100;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (draws[i] < kShare) values[i] = kLeast + (kMost - kLeast) * draws[i] / kShare - bias(i);
}

std::vector<std::int64_t> shuffled_slots(std::int64_t count, std::int64_t seed) {
  std::vector<double> keys(static_cast<std::size_t>(count));
  Stream(seed, "slots").uniforms(0, keys);
  std::vector<std::int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int64_t i) { return keys[static_cast<std::size_t>(i)]; });
  return order;
}

const std::vector<DistributionInfo>& distributions() {
  static const std::vector<DistributionInfo> all{
      // Gu & Dao, "Mamba" (2023), section 3.6, and mamba_ssm's mamba_simple.py: A is S4D-real, dt_min =
      // 0.001, dt_max = 0.1.
      {"mamba", "as Mamba initialises them: A = -(n+1), dt log-uniform in [1e-3, 0.1]", {1e-3, 0.1}, {}},
      // The state remembers 1/(Δ|A|) steps: rounding errors add up over all of them.
      {"slow_decay",
       "|A| in [1e-4, 1e-2]: a memory of about 1e4 to 1e6 steps",
       {5e-3, 2e-2},
       LogRange{1e-4, 1e-2}},
      // Δ·A past -104 underflows in f32; dividing by a product of decays would overflow.
      {"large_A", "|A| in [1, 1e3]: decays that underflow to 0", {1e-3, 0.1}, LogRange{1.0, 1e3}},
      // softplus of about -16, where log(1 + e^x) without log1p has no correct digit in f32.
      {"tiny_delta", "dt log-uniform in [1e-7, 1e-5]: decays next to 1", {1e-7, 1e-5}, {}},
      // What trained layers give at times: softplus far beyond its threshold, gates where e^-z overflows.
      {"trained",
       "dt in [1e-3, 100], |A| in [1e-3, 16]; zeros, subnormals and |u|, |z| up to 100",
       {1e-3, 100},
       LogRange{1e-3, 16},
       true}};
  return all;
}

const DistributionInfo& find_distribution(std::string_view name) {
  const auto& all = distributions();
  const auto found = std::ranges::find(all, name, &DistributionInfo::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const auto& each : all) names.push_back(each.name);
  throw UsageError(
      fmt::format("there is no input distribution '{}'; there are {}", name, fmt::join(names, ", ")));
}

}  // namespace ssmbench
