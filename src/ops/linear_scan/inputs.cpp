#include "ops/linear_scan/inputs.h"

#include <algorithm>

#include "base/portable_math.h"
#include "base/random.h"

namespace ssmbench {
namespace {

constexpr std::int64_t kMambaDState = 16;

// portable::exp ends here; e^-700 is 0 in every dtype that a can have.
constexpr double kLargestExponent = 700;

}  // namespace

LinearScanInputs::LinearScanInputs(const Problem& problem, const InputSpec& spec)
    : dim_(problem.size("dim")), seed_(spec.seed), centre_(dim_), rate_(dim_) {
  const DistributionInfo& distribution = find_distribution(spec.distribution);
  fill_log_uniform(Stream(seed_, "dt"), distribution.dt, 0, centre_);
  for (double& value : centre_) value = portable::inverse_softplus(value);
  if (distribution.decay_rate)
    fill_log_uniform(Stream(seed_, "rate"), *distribution.decay_rate, 0, rate_);
  else
    for (std::int64_t d = 0; d < dim_; ++d) rate_[d] = static_cast<double>(d % kMambaDState + 1);
}

void LinearScanInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  Stream(seed_, tensor).normals(first, values);
  if (tensor != "a") return;
  std::int64_t channel = first % dim_;
  for (double& value : values) {
    const double step = portable::softplus(centre_[channel] + kDeltaDeviation * value);
    value = portable::exp(-std::min(step * rate_[channel], kLargestExponent));
    ++channel;
  }
}

}  // namespace ssmbench
