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

TEST_CASE("states with a scale are drawn like others, as far as the scale of their row goes") {
  for (const char* dtype : {"i8", "i16", "e4m3"}) {
    CAPTURE(dtype);
    const Problem problem = heads(true, true).with({{"state_dtype", dtype}});
    const double most = largest_in_scale(*parse_dtype(dtype));
    const auto state = values_of(problem, "state");
    const auto scale = values_of(problem, "state_scale");
    const auto in_f32 = values_of(heads(true, true), "state");
    REQUIRE(scale.size() * kStates == state.size());
    CHECK(std::ranges::max(state) == most);
    CHECK(std::ranges::min(state) == -most);
    for (std::size_t i = 0; i < state.size(); ++i) {
      const double unit = scale[i / kStates];
      CHECK(unit * most > 0.999);
      CHECK(unit * most < 4.001);
      if (std::abs(in_f32[i]) > most * unit) continue;
      const double step = unit * ulp_at(std::abs(in_f32[i]) / unit, *parse_dtype(dtype));
      REQUIRE(std::abs(state[i] * unit - in_f32[i]) <= 0.51 * step);
    }
  }
}

TEST_CASE("an unknown distribution of a state update is a usage error") {
  CHECK_THROWS_AS(values_of(heads(true, true), "x", {.distribution = "nonsense"}), UsageError);
}

namespace {

constexpr std::int64_t kRows = 7, kTokens = 3, kSlots = 40;

struct Indices {
  std::vector<double> source, destination;
};

Indices indices_of(const char* store, std::int64_t pads, std::int64_t seed = 0) {
  const Problem problem = mamba1_step(
      {{"batch", kRows}, {"tokens", kTokens}, {"slots", kSlots}, {"store", store}, {"pads", pads}});
  Indices indices;
  for (const auto& tensor : generate_inputs(problem, {.seed = seed}, never_stop)) {
    const auto* values = static_cast<const std::int32_t*>(tensor.buffer.data());
    const auto count = element_count(tensor.spec.shape);
    if (tensor.spec.name == "source") indices.source.assign(values, values + count);
    if (tensor.spec.name == "destination") indices.destination.assign(values, values + count);
  }
  return indices;
}

/// Those that are slots, in order.
std::vector<double> slots_in(std::vector<double> values) {
  std::erase(values, -1);
  std::ranges::sort(values);
  return values;
}

bool are_different_slots(const std::vector<double>& values) {
  const auto slots = slots_in(values);
  return std::ranges::adjacent_find(slots) == slots.end() && slots.front() >= 0 && slots.back() < kSlots;
}

}  // namespace

TEST_CASE("slots are different ones in a random order, and padding has none") {
  for (const char* store : {"last", "apart", "each", "none"}) {
    CAPTURE(store);
    const auto [source, destination] = indices_of(store, 3);
    CHECK(are_different_slots(source));
    CHECK(!std::ranges::is_sorted(source));
    CHECK(indices_of(store, 3, 1).source != source);
    for (std::int64_t b = 0; b < kRows; ++b) {
      CHECK((source[b] == -1) == (b % 3 == 2));
      if (b % 3 != 2) continue;
      for (std::int64_t t = 0; t < kTokens; ++t) CHECK(destination[b * kTokens + t] == -1);
    }
    if (store != std::string("none")) CHECK(are_different_slots(destination));
  }
}

TEST_CASE("states are stored where the axis says") {
  const auto last_of = [](const std::vector<double>& destination) {
    std::vector<double> last;
    for (std::int64_t b = 0; b < kRows; ++b) last.push_back(destination[b * kTokens + kTokens - 1]);
    return last;
  };
  const auto [last_source, last] = indices_of("last", 0);
  CHECK(last_of(last) == last_source);
  CHECK(slots_in(last).size() == kRows);
  const auto [apart_source, apart] = indices_of("apart", 0);
  CHECK(slots_in(apart).size() == kRows);
  std::vector<double> both = last_of(apart);
  both.insert(both.end(), apart_source.begin(), apart_source.end());
  CHECK(are_different_slots(both));
  const auto [each_source, each] = indices_of("each", 0);
  CHECK(slots_in(each).size() == kRows * kTokens);
  for (std::int64_t b = 0; b < kRows; ++b) CHECK(each[b * kTokens + b % kTokens] == each_source[b]);
  CHECK(slots_in(indices_of("none", 0).destination).empty());
}
