#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "catch.h"
#include "inputs/distributions.h"
#include "inputs/inputs.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"
#include "support/host_tensors.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kBatch = 2, kSteps = 500, kDim = 40;

/// Values of a or b.
std::vector<double> values_of(const char* name, const InputSpec& spec, const char* dtype = "f32") {
  const Problem problem(linear_scan(),
                        {{"dtype", dtype}, {"batch", kBatch}, {"seqlen", kSteps}, {"dim", kDim}});
  std::vector<double> values(kBatch * kSteps * kDim);
  for (const auto& tensor : generate_inputs(problem, spec, never_stop))
    if (tensor.spec.name == name)
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = load_as_double(tensor.buffer.data(), static_cast<std::int64_t>(i), tensor.spec.dtype);
  return values;
}

/// Mean of −ln a over a channel.
double mean_exponent(const std::vector<double>& a, std::int64_t channel) {
  double sum = 0;
  for (std::int64_t i = channel; i < kBatch * kSteps * kDim; i += kDim) sum -= std::log(a[i]);
  return sum / (kBatch * kSteps);
}

}  // namespace

TEST_CASE("decays of a linear scan lie in [0, 1] and b is standard normal") {
  for (const auto& distribution : distributions()) {
    INFO(distribution.name);
    const InputSpec spec{.distribution = distribution.name};
    const auto a = values_of("a", spec);
    CHECK(*std::ranges::min_element(a) >= 0);
    CHECK(*std::ranges::max_element(a) <= 1);
    double sum = 0, squares = 0;
    for (const double b : values_of("b", spec)) {
      sum += b;
      squares += b * b;
    }
    const double count = kBatch * kSteps * kDim;  // deviations: 1/√40000 = 0.005 and √(2/40000) = 0.007
    CHECK(std::abs(sum / count) < 0.025);
    CHECK(std::abs(squares / count - 1) < 0.035);
  }
}

TEST_CASE("decays of a linear scan are those that the distribution asks of a selective scan") {
  // E softplus(x + c) is within a factor of 1.3 of dt for x ~ N(0, 1/3) and small dt; 1.6 leaves room for
  // chance.
  const double kRoom = 1.6;
  const auto mamba = values_of("a", {});
  const auto slow = values_of("a", {.distribution = "slow_decay"});
  const auto large = values_of("a", {.distribution = "large_A"});
  double fastest = 0;
  for (std::int64_t d = 0; d < kDim; ++d) {
    const auto rate = static_cast<double>(d % 16 + 1);
    CHECK(mean_exponent(mamba, d) > 1e-3 / kRoom * rate);
    CHECK(mean_exponent(mamba, d) < 0.1 * kRoom * rate);
    CHECK(mean_exponent(slow, d) < 2e-2 * 1e-2 * kRoom);
    fastest = std::max(fastest, mean_exponent(large, d));
  }
  CHECK(fastest > 1.6);  // past what mamba's 0.1·16 reaches
}

TEST_CASE("shared values of a linear scan are the same in every dtype") {
  const InputSpec shared{.distribution = "mamba", .values = "shared", .seed = 3};
  for (const char* name : {"a", "b"}) {
    CHECK(values_of(name, shared) == values_of(name, shared, "bf16"));
    CHECK(values_of(name, shared) == values_of(name, shared, "f16"));
  }
  CHECK(values_of("a", {}) != values_of("a", {}, "bf16"));
  CHECK(values_of("a", {}) != values_of("a", {.distribution = "mamba", .values = "native", .seed = 1}));
}

TEST_CASE("an unknown distribution of a linear scan is a usage error") {
  CHECK_THROWS_AS(values_of("a", {.distribution = "nonsense"}), UsageError);
}
