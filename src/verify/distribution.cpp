#include "verify/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace ssmbench {
namespace {

/// Standard deviations that a statistic may be off by: one of 1e9 outputs is.
constexpr double kDeviations = 6;
constexpr double kPriorElements = 64;

double rounded_to(double value, DType dtype) {
  std::array<std::byte, sizeof(double)> bits{};
  store_from_double(bits.data(), 0, dtype, value);
  return load_as_double(bits.data(), 0, dtype);
}

/// The expected size of the final rounding's error.
double stored_error(double expected, const Tolerance& tolerance, DType dtype) {
  // Uniform over the ulp, where the result may be anywhere in it.
  if (tolerance.arithmetic >= tolerance.storage) return tolerance.storage / std::sqrt(3.0);
  // Else the result is the expected value rounded, unless that is about as near to the next number.
  const double residual = std::abs(rounded_to(expected, dtype) - expected);
  return residual + tolerance.arithmetic < tolerance.storage ? residual : tolerance.storage;
}

}  // namespace

void DistinctNumbers::add(double number) {
  // The finalizer of splitmix64 (Steele, Lea & Flood, 2014); its upper 12 bits choose one of 4096.
  auto hash = std::bit_cast<std::uint64_t>(number);
  hash = (hash ^ (hash >> 30U)) * 0xBF58476D1CE4E5B9U;
  hash = (hash ^ (hash >> 27U)) * 0x94D049BB133111EBU;
  hash ^= hash >> 31U;
  bits_.at(hash >> 58U) |= std::uint64_t{1} << ((hash >> 52U) & 63U);
}

void DistinctNumbers::add(const DistinctNumbers& other) {
  for (std::size_t i = 0; i < bits_.size(); ++i) bits_.at(i) |= other.bits_.at(i);
}

double DistinctNumbers::count() const {
  constexpr double kBits = 4096;
  double set = 0;
  for (const auto word : bits_) set += std::popcount(word);
  return -kBits * std::log1p(-set / kBits);
}

void ErrorDistribution::add(double error, double expected, const Tolerance& tolerance, DType dtype,
                            std::optional<float> response) {
  const double scale = stored_error(expected, tolerance, dtype) + kExpectedShare * tolerance.arithmetic;
  const double e = error / scale;
  ++count_;
  squares_ += e * e;
  distinct_.add(error);
  if (!response) return;
  const double r = static_cast<double>(*response) / scale;
  const double x = expected / scale;
  rr_ += r * r;
  rx_ += r * x;
  xx_ += x * x;
  re_ += r * e;
  xe_ += x * e;
}

void ErrorDistribution::add(const ErrorDistribution& part) {
  count_ += part.count_;
  squares_ += part.squares_;
  distinct_.add(part.distinct_);
  rr_ += part.rr_;
  rx_ += part.rx_;
  xx_ += part.xx_;
  re_ += part.re_;
  xe_ += part.xe_;
}

double ErrorDistribution::independent() const {
  return std::min(static_cast<double>(count_), distinct_.count());
}

double ErrorDistribution::rms_ratio() const {
  if (count_ == 0) return 0;
  return std::sqrt(squares_ / static_cast<double>(count_)) / (1 + kDeviations / std::sqrt(independent()));
}

std::optional<ErrorDistribution::DecayBias> ErrorDistribution::decay_bias(double roundoff) const {
  const double determinant = rr_ * xx_ - rx_ * rx_;
  if (!std::isfinite(determinant) || !(determinant > 1e-9 * rr_ * xx_)) return {};
  const double mean = (xx_ * re_ - rx_ * xe_) / determinant;
  // As if beside the errors there were some as large as may be, so that few elements show little.
  const double copies = static_cast<double>(count_) / independent();
  const double variance = (squares_ / copies + kPriorElements) / (independent() + kPriorElements);
  const double deviation = std::sqrt(copies * variance * xx_ / determinant);
  return DecayBias{mean / roundoff, std::abs(mean) / (kDecayBias * roundoff + kDeviations * deviation)};
}

}  // namespace ssmbench
