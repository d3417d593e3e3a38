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
double stored_error(const ExpectedElement& element, const Tolerance& tolerance, DType dtype) {
  if (element.stochastic) return tolerance.storage / 2;  // √(f·(1 − f)), where f may be anything
  const double expected = element.value;
  if (element.step > 0) {  // a scale that is off by a little moves the neighbours
    const double steps = expected / element.step;
    return std::max(std::abs(steps - std::nearbyint(steps)) * element.step,
                    tolerance.storage / std::sqrt(3.0));
  }
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
  constexpr double kBitsInAll = 4096;
  double set = 0;
  for (const auto word : bits_) set += std::popcount(word);
  return -kBitsInAll * std::log1p(-set / kBitsInAll);
}

void ErrorDistribution::Squares::add(const Squares& more, double weight) {
  rr += weight * more.rr;
  rx += weight * more.rx;
  xx += weight * more.xx;
}

void ErrorDistribution::add(double error, const ExpectedElement& element, const Tolerance& tolerance,
                            DType dtype, std::optional<float> response) {
  const double expected = element.value;
  const double scale = stored_error(element, tolerance, dtype) + kExpectedShare * tolerance.arithmetic;
  const double e = error / scale;
  ++count_;
  squares_ += e * e;
  distinct_.add(error);
  if (run_.count == 0 || !(std::abs(expected - run_.first) <= 2 * tolerance.storage)) {
    end_run();
    run_.first = expected;
  }
  ++run_.count;
  if (!response) return;
  const double r = static_cast<double>(*response) / scale;
  const double x = expected / scale;
  const Squares squares{r * r, r * x, x * x};
  normal_.add(squares);
  run_.squares.add(squares);
  re_ += r * e;
  xe_ += x * e;
}

void ErrorDistribution::end_run() {
  squared_runs_ += run_.count * run_.count;
  by_run_.add(run_.squares, run_.count);
  run_ = {};
}

void ErrorDistribution::add(const ErrorDistribution& part) {
  const ErrorDistribution other = part.ended();
  end_run();
  count_ += other.count_;
  squares_ += other.squares_;
  distinct_.add(other.distinct_);
  normal_.add(other.normal_);
  by_run_.add(other.by_run_);
  squared_runs_ += other.squared_runs_;
  re_ += other.re_;
  xe_ += other.xe_;
}

ErrorDistribution ErrorDistribution::ended() const {
  ErrorDistribution copy = *this;
  copy.end_run();
  return copy;
}

double ErrorDistribution::independent() const {
  const auto count = static_cast<double>(count_);
  return std::min(count * count / ended().squared_runs_, distinct_.count());
}

double ErrorDistribution::rms_ratio() const {
  if (count_ == 0) return 0;
  return std::sqrt(squares_ / static_cast<double>(count_)) / (1 + kDeviations / std::sqrt(independent()));
}

std::optional<ErrorDistribution::DecayBias> ErrorDistribution::decay_bias(double roundoff) const {
  const auto& [rr, rx, xx] = normal_;
  const double determinant = normal_.determinant();
  if (!std::isfinite(determinant) || !(determinant > 1e-9 * rr * xx)) return {};
  const double mean = (xx * re_ - rx * xe_) / determinant;
  // As if beside the errors there were some as large as may be, so that few elements show little.
  const auto count = static_cast<double>(count_);
  const double copies = count / independent();
  const double variance = (squares_ / copies + kPriorElements) / (independent() + kPriorElements);
  // A sum with weights w of errors that are alike within runs of n has: Σ (Σ |w|)² ≤ Σ n·w² of each run, w
  // being (xx·r − rx·x)/determinant. Copies that are no neighbours count as if all errors had as many.
  const Squares& of_runs = ended().by_run_;
  const double alike = (xx * xx * of_runs.rr - 2 * xx * rx * of_runs.rx + rx * rx * of_runs.xx) / determinant;
  const double copied = count / distinct_.count() * xx;
  const double deviation = std::sqrt(variance * std::max(alike, copied) / determinant);
  return DecayBias{mean / roundoff, std::abs(mean) / (kDecayBias * roundoff + kDeviations * deviation)};
}

}  // namespace ssmbench
