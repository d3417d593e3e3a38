#include "ops/ssd_chunk_scan/inputs.h"

#include <algorithm>
#include <cmath>

#include "catch.h"
#include "inputs/inputs.h"
#include "support/input_values.h"
#include "support/ssd_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kBatch = 3, kSteps = 3000, kHeads = 40;

std::vector<double> values_of(const std::string& name, std::map<std::string, AxisValue> axes = {},
                              const InputSpec& spec = {}) {
  axes.merge(std::map<std::string, AxisValue>{{"batch", kBatch}, {"seqlen", kSteps}, {"nheads", kHeads}});
  return input_values(ssd_problem(axes), name, spec);
}

}  // namespace

TEST_CASE("decay rates of Mamba-2 are spread over [-16, -1], or over those of the distribution") {
  const auto A = values_of("A");
  CHECK(std::ranges::min(A) > -16);
  CHECK(std::ranges::min(A) < -14);
  CHECK(std::ranges::max(A) < -1);
  CHECK(std::ranges::max(A) > -3);
  CHECK(std::ranges::min(values_of("A", {}, {.distribution = "slow_decay"})) > -1.01e-2);
}

TEST_CASE("steps of Mamba-2 are the same however they are given, and within the distribution's range") {
  // E softplus(x + c) is within a factor of 1.3 of the step for x ~ N(0, 1/3); 1.6 leaves room for chance.
  const auto mean_steps = [](bool bias, bool softplus) {
    const auto dt = values_of("dt", {{"dt_bias", bias}, {"dt_softplus", softplus}});
    const auto biases = bias ? values_of("dt_bias", {{"dt_bias", true}, {"dt_softplus", softplus}})
                             : std::vector<double>(kHeads, 0.0);
    std::vector<double> means(kHeads);
    for (std::size_t i = 0; i < dt.size(); ++i) {
      const double x = dt[i] + biases[i % kHeads];
      const double delta = softplus ? std::log1p(std::exp(x)) : x;
      CHECK_FALSE(delta <= 0);
      means[i % kHeads] += delta / (kBatch * kSteps);
    }
    return means;
  };
  const auto means = mean_steps(true, true);
  CHECK(std::ranges::min(means) > 1e-3 / 1.6);
  CHECK(std::ranges::max(means) < 0.1 * 1.6);
  for (const auto& [bias, softplus] : {std::pair{false, true}, {true, false}, {false, false}}) {
    const auto others = mean_steps(bias, softplus);
    for (std::size_t h = 0; h < kHeads; ++h) CHECK(std::abs(others[h] / means[h] - 1) < 1e-4);
  }
}

TEST_CASE("packed sequences start at 0, count up by one, and one of them is a single step") {
  const auto packed = values_of("seq_idx", {{"seq_idx", true}, {"nheads", std::int64_t{1}}});
  std::vector<std::vector<std::int64_t>> starts(kBatch);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const double* row = packed.data() + b * kSteps;
    CHECK(row[0] == 0);
    for (std::int64_t t = 1; t < kSteps; ++t) {
      if (row[t] == row[t - 1]) continue;
      CHECK(row[t] == row[t - 1] + 1);
      starts[b].push_back(t);
    }
    CHECK(starts[b].size() >= 4);
    CHECK(std::ranges::any_of(starts[b], [](std::int64_t t) { return t % 32 != 0; }));
    CHECK(std::ranges::adjacent_find(starts[b], [](auto a, auto next) { return next == a + 1; }) !=
          starts[b].end());
  }
  CHECK(starts[0] != starts[1]);
  CHECK(values_of("seq_idx", {{"seq_idx", true}, {"seqlen", std::int64_t{1}}}) ==
        std::vector<double>(kBatch, 0.0));
}

TEST_CASE("values of a chunked scan can be shared by dtypes") {
  const InputSpec shared{.distribution = "mamba", .values = "shared"};
  for (const char* name : {"x", "dt", "B"})
    CHECK(values_of(name, {{"dtype", "f32"}}, shared) == values_of(name, {{"dtype", "bf16"}}, shared));
}
