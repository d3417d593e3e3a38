// The check of distributions: honest roundings pass, always; what is a little wrong everywhere does not, also
// where each element stays within its tolerance. The scans here are f32 loops of their own.

#include "verify/distribution.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "catch.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "verify/compare.h"
#include "verify/describe.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

using Function = std::function<float(float)>;

float as_is(float x) {
  return x;
}
float exponential(float x) {
  return std::exp(x);
}
float toward_zero_bf16(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFFFF0000U);
}
float to_bf16(float x) {
  return bf16_to_float(float_to_bf16(x));
}
float to_f16(float x) {
  return f16_to_float(float_to_f16(x));
}

/// What a scan may do to its decays, its states after each step, its sums and its outputs.
struct Habits {
  Function decay = exponential;
  Function state = as_is;
  Function sum = as_is;
  Function output = as_is;
};

/// y = Σ C·h in f32, B and C variable, without options.
HostTensor scan(const Problem& problem, const std::vector<HostTensor>& inputs, const Habits& habits) {
  const TensorSet tensors = views_of(inputs);
  const auto at = [&](const char* name, const Shape& index) {
    const TensorView& view = tensors.at(name);
    return static_cast<float>(load_as_double(view.data, offset_of(index, view.strides), view.dtype));
  };
  HostTensor out(specs_of(problem, Role::output).front());
  const std::int64_t dim = problem.size("dim");
  const std::int64_t steps = problem.size("seqlen");
  for (std::int64_t d = 0; d < dim; ++d) {
    std::vector<float> h(problem.size("dstate"));
    for (std::int64_t t = 0; t < steps; ++t) {
      const float delta = at("delta", {0, d, t});
      const float u = at("u", {0, d, t});
      float y = 0;
      for (std::int64_t n = 0; n < std::ssize(h); ++n) {
        h[n] = habits.state(habits.decay(delta * at("A", {d, n})) * h[n] + delta * u * at("B", {0, 0, n, t}));
        y = habits.sum(y + at("C", {0, 0, n, t}) * h[n]);
      }
      store_from_double(out.buffer.data(), d * steps + t, out.spec.dtype, habits.output(y));
    }
  }
  return out;
}

struct Sizes {
  std::int64_t dim, seqlen, dstate;
};

OutputComparison judge(const Habits& habits, const char* dtype, const char* distribution, Sizes sizes,
                       std::int64_t seed) {
  const Problem problem = scan_problem({{"dtype", dtype},
                                        {"dim", size(sizes.dim)},
                                        {"seqlen", size(sizes.seqlen)},
                                        {"dstate", size(sizes.dstate)}});
  const auto inputs =
      generate_inputs(problem, {.distribution = distribution, .values = "native", .seed = seed}, never_stop);
  const auto expected = compute_reference(problem, views_of(inputs), never_stop);
  return compare_output(scan(problem, inputs, habits).view(), expected.at("out").expectation(), {});
}

constexpr Sizes kSmall{16, 512, 4};

}  // namespace

TEST_CASE("honest scans pass whatever they are given") {
  const char* dtypes[] = {"f32", "f16", "bf16"};
  const char* distributions[] = {"mamba", "slow_decay", "large_A", "tiny_delta"};
  double worst = 0;
  for (int draw = 0; draw < 1000; ++draw) {
    const Sizes sizes{1 + draw % 3, 1 + draw % 41, 1 + draw % 5};
    const auto result = judge({}, dtypes[draw % 3], distributions[draw % 4], sizes, draw);
    INFO(draw << " " << why_failed(result));
    CHECK(result.passed());
    worst = std::max({worst, result.rms_ratio, result.decay_bias_ratio});
  }
  CHECK(worst < 0.99);
}

TEST_CASE("decays that are biased by an ulp are within every element's tolerance and fail") {
  const auto next = [](float x) { return std::nextafter(std::exp(x), 2.0F); };
  const auto scaled = [](float x) { return std::exp(x) * (1 + 0x1p-23F); };
  for (const Function& decay : {Function(next), Function(scaled)}) {
    for (const char* distribution : {"mamba", "slow_decay"}) {
      const auto biased = judge({.decay = decay}, "f32", distribution, kSmall, 3);
      INFO(distribution << " " << why_failed(biased));
      CHECK(biased.tolerance_ratio < 1);
      CHECK(biased.decay_bias_ratio > 1);
      CHECK(biased.decay_bias.value_or(0) > 0.9);
      CHECK_FALSE(biased.passed());
      CHECK(cause_of_failure(biased) == Cause::distribution);
      CHECK(why_failed(biased).find("decay bias") != std::string::npos);
    }
  }
}

TEST_CASE("outputs that are truncated and not rounded fail") {
  const auto result = judge({.output = toward_zero_bf16}, "bf16", "mamba", kSmall, 4);
  CHECK(result.rms_ratio > 1.5);
  CHECK_FALSE(result.passed());
}

TEST_CASE("states in bf16 and sums in f16 fail where f32 is claimed") {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    CAPTURE(dtype);
    CHECK_FALSE(judge({.state = to_bf16}, dtype, "mamba", kSmall, 5).passed());
    CHECK_FALSE(judge({.sum = to_f16}, dtype, "mamba", kSmall, 6).passed());
  }
}

TEST_CASE("errors of half their tolerance pass one by one and not all together") {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(-1, 1);
  ErrorDistribution few;
  ErrorDistribution many;
  ErrorDistribution honest;
  const Tolerance allowed{1e-5, 1e-8};
  for (int i = 0; i < 10000; ++i) {
    const double error = (0.5 + 1e-9 * i) * allowed.total();
    const ExpectedElement expected{.value = 1.0 + i};
    if (i < 5) few.add(error, expected, allowed, DType::f32, {});
    many.add(error, expected, allowed, DType::f32, {});
    honest.add(0.25 * uniform(random) * allowed.total(), expected, allowed, DType::f32, {});
  }
  CHECK(few.rms_ratio() < 1);
  CHECK(many.rms_ratio() > 1);
  CHECK(honest.rms_ratio() < 0.7);
}

TEST_CASE("an error that repeats counts once") {
  const Tolerance allowed{1e-5, 1e-8};
  ErrorDistribution copies;
  ErrorDistribution different;
  for (int i = 0; i < 10000; ++i) {
    const ExpectedElement expected{.value = 1.0 + i};
    copies.add(0.5 * allowed.total(), expected, allowed, DType::f32, {});
    different.add((0.5 + 1e-9 * i) * allowed.total(), expected, allowed, DType::f32, {});
  }
  CHECK(copies.rms_ratio() < 1);
  CHECK(different.rms_ratio() > 1);
}

namespace {

/// The largest ratio of an output that is right but for roundings, of every kind of memory, from outputs that
/// change by many ulps a step to those that hardly do, which are exact but for their rounding to the dtype: the
/// largest errors that an honest kernel makes. Responses as a recurrence has them, t·y.
double largest_ratio_of_output(std::mt19937_64& random, DType dtype, int rows, int steps, bool has_response) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  const double roundoff = unit_roundoff(dtype);
  const double change = roundoff * std::exp(uniform(random) * 9 - 6);
  // In f32 a result has roundings beside the last one, in 16 bits it may have next to none.
  const double arithmetic =
      roundoff * std::exp(dtype == DType::f32 ? 3 * uniform(random) : -6 * uniform(random));
  ErrorDistribution errors;
  for (int row = 0; row < rows; ++row) {
    double y = normal(random);
    for (int t = 0; t < steps; ++t) {
      y *= 1 + change * normal(random);
      const Tolerance allowed{2 * arithmetic * std::abs(y), ulp_at(y, dtype) / 2};
      const double computed = y + 0.4 * arithmetic * std::abs(y) * (2 * uniform(random) - 1);
      const auto single = static_cast<float>(computed);
      const double stored = dtype == DType::f32    ? static_cast<double>(single)
                            : dtype == DType::bf16 ? to_bf16(single)
                                                   : to_f16(single);
      std::optional<float> response;
      if (has_response) response = static_cast<float>((t + 1) * y);
      errors.add(stored - y, {.value = y}, allowed, dtype, response);
    }
  }
  const auto bias = errors.decay_bias(unit_roundoff(Math::f32));
  return std::max(errors.rms_ratio(), bias ? bias->ratio : 0);
}

}  // namespace

TEST_CASE("roundings of honest outputs raise no false alarm in 100000 cases of all their checks") {
  // As many outputs as a case has at most, one of them with an estimate of decays; some have a single element.
  constexpr int kCases = 100000;
  constexpr int kOutputs = 9;
  constexpr std::array kDTypes{DType::f32, DType::f16, DType::bf16};
  std::mt19937_64 random(11);
  const auto below = [&](std::uint64_t count) { return static_cast<int>(random() % count); };
  int alarms = 0;
  double worst = 0;
  for (int number = 0; number < kCases; ++number) {
    const DType dtype = kDTypes.at(static_cast<std::size_t>(number) % kDTypes.size());
    double largest = largest_ratio_of_output(random, dtype, 1 + below(4), 1 + below(60), true);
    for (int output = 1; output < kOutputs; ++output)
      largest = std::max(largest, largest_ratio_of_output(random, dtype, 1, 1 + below(12), false));
    worst = std::max(worst, largest);
    alarms += largest > 1 ? 1 : 0;
  }
  INFO("largest " << worst);
  CHECK(alarms == 0);
}

TEST_CASE("neighbours that are rounded alike count as one") {
  const Tolerance allowed{1e-3, 1e-4};
  ErrorDistribution alike;
  ErrorDistribution apart;
  for (int i = 0; i < 10000; ++i) {
    const double error = (0.9 + 1e-6 * i) * allowed.total();
    alike.add(error, {.value = 1 + 1e-8 * i}, allowed, DType::f32, {});
    apart.add(error, {.value = 1.0 + i}, allowed, DType::f32, {});
  }
  CHECK(alike.rms_ratio() < 1);
  CHECK(apart.rms_ratio() > 1);
}

TEST_CASE("different numbers are counted") {
  for (const int count : {1, 30, 1000, 10000}) {
    DistinctNumbers numbers;
    for (int i = 0; i < 20000; ++i) numbers.add(1.5 * (i % count) - 7);
    CHECK(numbers.count() > 0.9 * count);
    CHECK(numbers.count() < 1.1 * count);
  }
}

TEST_CASE("an output without elements that were measured has no distribution") {
  const ErrorDistribution nothing;
  CHECK(nothing.rms_ratio() == 0);
  CHECK_FALSE(nothing.decay_bias(0x1p-24));
}
