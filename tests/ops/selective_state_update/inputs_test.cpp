#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "catch.h"
#include "inputs/distributions.h"
#include "inputs/inputs.h"
#include "support/host_tensors.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kBatch = 200, kHeads = 24, kStates = 16;

Problem heads(bool softplus, bool bias, const char* dtype = "f32") {
  return mamba2_step({{"dtype", dtype},
                      {"batch", kBatch},
                      {"nheads", kHeads},
                      {"headdim", size(2)},
                      {"dstate", kStates},
                      {"dt_bias", bias},
                      {"dt_softplus", softplus}});
}

std::vector<double> values_of(const Problem& problem, const char* name, const InputSpec& spec = {}) {
  for (const auto& tensor : generate_inputs(problem, spec, never_stop))
    if (tensor.spec.name == name) {
      std::vector<double> values(element_count(tensor.spec.shape));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = load_as_double(tensor.buffer.data(), static_cast<std::int64_t>(i), tensor.spec.dtype);
      return values;
    }
  return {};
}

/// Mean Δ of each head.
std::vector<double> mean_steps(bool softplus, bool bias, const InputSpec& spec) {
  const Problem problem = heads(softplus, bias);
  const auto dt = values_of(problem, "dt", spec);
  const auto dt_bias = values_of(problem, "dt_bias", spec);
  std::vector<double> mean(kHeads, 0);
  for (std::int64_t i = 0; i < kBatch * kHeads; ++i) {
    const double x = dt[i] + (bias ? dt_bias[i % kHeads] : 0);
    mean[i % kHeads] += (softplus ? std::log1p(std::exp(x)) : x) / kBatch;
  }
  return mean;
}

}  // namespace

TEST_CASE("steps of a state update are those of the distribution, whichever options make them") {
  // E softplus(x + c) is within a factor of 1.3 of dt for x ~ N(0, 1/3) and small dt; 1.6 leaves room for
  // chance.
  const double kRoom = 1.6;
  for (const auto& distribution : distributions()) {
    const InputSpec spec{.distribution = distribution.name};
    for (const bool softplus : {false, true})
      for (const bool bias : {false, true})
        for (const double step : mean_steps(softplus, bias, spec)) {
          CHECK(step > distribution.dt.low / kRoom);
          CHECK(step < distribution.dt.high * kRoom);
        }
  }
}

TEST_CASE(
    "decay rates of a state update are negative, per head from 1 to 16 or as the distribution has them") {
  const auto mamba = values_of(heads(true, true), "A");
  REQUIRE(mamba.size() == kHeads);
  CHECK(*std::ranges::max_element(mamba) < -1);
  CHECK(*std::ranges::min_element(mamba) > -16);
  CHECK(std::abs(*std::ranges::max_element(mamba) - *std::ranges::min_element(mamba)) > 7);
  const auto slow = values_of(heads(true, true), "A", {.distribution = "slow_decay"});
  CHECK(*std::ranges::max_element(slow) <= -1e-4 * 0.999);
  CHECK(*std::ranges::min_element(slow) >= -1e-2 * 1.001);
  const auto per_state = values_of(mamba1_step({{"dim", size(3)}, {"dstate", kStates}}), "A");
  for (std::int64_t i = 0; i < 3 * kStates; ++i) CHECK(per_state[i] == -static_cast<double>(i % kStates + 1));
}

TEST_CASE("the state is standard normal and the same in every dtype, rounded to its own") {
  const auto state = values_of(heads(true, true), "state");
  double sum = 0, squares = 0;
  for (const double value : state) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(state.size());  // deviations: 1/√153600 = 0.003
  CHECK(std::abs(sum / count) < 0.015);
  CHECK(std::abs(squares / count - 1) < 0.02);
  CHECK(state == values_of(heads(true, true, "bf16"), "state"));
  const auto halves =
      values_of(heads(true, true, "bf16").with({{"state_dtype", "bf16"}}), "state", {.values = "native"});
  for (std::size_t i = 0; i < state.size(); ++i)
    REQUIRE(halves[i] == bf16_to_float(float_to_bf16(static_cast<float>(state[i]))));
  const InputSpec shared{.distribution = "mamba", .values = "shared"};
  CHECK(state == values_of(heads(true, true, "bf16"), "state", shared));
  for (const char* name : {"x", "dt", "B", "C"})
    CHECK(values_of(heads(true, true), name, shared) == values_of(heads(true, true, "f16"), name, shared));
}

TEST_CASE("an unknown distribution of a state update is a usage error") {
  CHECK_THROWS_AS(values_of(heads(true, true), "x", {.distribution = "nonsense"}), UsageError);
}
