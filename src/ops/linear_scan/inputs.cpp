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
    : dim_(problem.size("dim")),
      seed_(spec.seed),
      distribution_(&find_distribution(spec.distribution)),
      centre_(dim_),
      rate_(dim_) {
  fill_log_uniform(Stream(seed_, "dt"), distribution_->dt, 0, centre_);
  for (double& value : centre_) value = portable::inverse_softplus(value);
  if (distribution_->decay_rate)
    fill_log_uniform(Stream(seed_, "rate"), *distribution_->decay_rate, 0, rate_);
  else
    for (std::int64_t d = 0; d < dim_; ++d) rate_[d] = static_cast<double>(d % kMambaDState + 1);
}

void LinearScanInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor != "a") return fill_projected(*distribution_, seed_, tensor, first, values);
  Stream(seed_, tensor).normals(first, values);
  const auto channel = static_cast<std::size_t>(first % dim_);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = centre_[channel + i] + kDeltaDeviation * values[i];
  add_large_steps(*distribution_, seed_, tensor, first, values, [](std::size_t) { return 0.0; });
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        portable::exp(-std::min(portable::softplus(values[i]) * rate_[channel + i], kLargestExponent));
}

}  // namespace ssmbench
