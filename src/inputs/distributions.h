#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace ssmbench {

/// Both ends positive; values are drawn log-uniformly between them.
struct LogRange {
  double low, high;
};

/// How the inputs of a scan are drawn. All distributions share:
///   u, z, B, C, initial_state ~ N(0, 1); D = 1 + N(0, 0.1²), Mamba's 1 made to differ between channels so
///   that a mix-up of channels shows; Δ = softplus(x + softplus⁻¹(dt)) with x ~ N(0, 1/3) per element, the
///   variance of dt_proj's output for unit inputs, and dt per channel. A < 0 always, and every value fits
///   f16.
/// With complex A, the real and imaginary parts of B, C and initial_state are each ~ N(0, 1/2), which makes
/// |B|² 1 on average, and A[d][n] = −rate + iπn. Where the distribution draws rates it draws those of real A;
/// where it does not, the rate is 1/2: S4D-Lin. Source: Gu, Gupta, Goel, Ré, "On the Parameterization and
/// Initialization of Diagonal State Space Models" (2022), section 4.
/// Dense A of a channel is √R·(−I + G/√N)·√R, R the diagonal matrix of the rates that real A has, G = K +
/// 0.1·W zero on its diagonal, K antisymmetric and W not, entries N(0, 1). So A[n][n] = −rate; and since the
/// symmetric part is −R but for a tenth, states turn into one another while |h| only falls, at about the
/// rates of real A: the memory is as long.
struct DistributionInfo {
  std::string name;
  std::string summary;
  LogRange dt;
  std::optional<LogRange> decay_rate;  ///< −Re A per (channel, state); none: A[d][n] = −(n + 1), or S4D-Lin
  bool has_extremes = false;           ///< fill_projected draws some values from the ends of what may occur
};

/// The standard deviation of x.
extern const double kDeltaDeviation;

/// The standard deviation of D.
inline constexpr double kSkipDeviation = 0.1;

/// The share of dt that the bias of Δ is without softplus, where x + bias has to be Δ itself. A bias of dt/64
/// is below the smallest Δ that can be drawn, about dt·e^(−6.4·0.58) = dt/40, so x is never negative and Δ
/// stays positive when x is rounded.
inline constexpr double kPlainBiasShare = 1.0 / 64;

/// Values first, first + 1, … of the stream, log-uniform on the range.
void fill_log_uniform(const Stream& stream, LogRange range, std::int64_t first, std::span<double> values);

/// What a network's layers hand to the recurrence (u or x, z, B, C, gradients): values first, first + 1, … of
/// tensor `name`, normal. Where the distribution has extremes, of 64 values one is 0 and one tiny, ±
/// log-uniform over [1e-42, 1e-4], which has the subnormals of every dtype; and in u, x, V and z four are large,
/// ± log-uniform over [4, 100].
void fill_projected(const DistributionInfo& distribution, std::int64_t seed, std::string_view name,
                    std::int64_t first, std::span<double> values);

/// For steps, as arguments of softplus less the bias, which is a tensor of its own: where the distribution has
/// extremes, one of 64 becomes uniform over [20, 100], whatever its neighbours are. `bias` returns that of
/// element first + i for i.
void add_large_steps(const DistributionInfo& distribution, std::int64_t seed, std::string_view name,
                     std::int64_t first, std::span<double> values,
                     const std::function<double(std::size_t)>& bias);

/// 0 … count − 1 in an order that depends on the seed alone: where in a cache of states those of a batch are.
std::vector<std::int64_t> shuffled_slots(std::int64_t count, std::int64_t seed);

/// Every distribution, the default first.
const std::vector<DistributionInfo>& distributions();

/// Throws UsageError that lists the names there are.
const DistributionInfo& find_distribution(std::string_view name);

}  // namespace ssmbench
