// The fp64 recurrence against closed forms that are worked out by hand.

#include <cmath>

#include "base/errors.h"
#include "catch.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"
#include "reference/reference.h"
#include "support/host_tensors.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem problem(std::int64_t batch, std::int64_t seqlen, std::int64_t dim, const char* dtype = "f32") {
  return {linear_scan(), {{"dtype", dtype}, {"batch", batch}, {"seqlen", seqlen}, {"dim", dim}}};
}

ReferenceOutput reference_of(const Problem& of,
                             const std::function<double(const std::string&, std::int64_t)>& value) {
  return compute_reference(of, views_of(make_inputs(of, value)), never_stop).at("out");
}

}  // namespace

TEST_CASE("a linear scan with a = 1 is a cumulative sum, for each batch and channel apart") {
  // 65 channels: one more than the reference takes at once.
  const std::int64_t kBatch = 2, kSteps = 5, kDim = 65;
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    const auto out = reference_of(problem(kBatch, kSteps, kDim, dtype),
                                  [&](const std::string& name, std::int64_t i) -> double {
                                    if (name == "a") return 1;
                                    const std::int64_t batch = i / (kSteps * kDim);
                                    return static_cast<double>(i % kDim + 100 * batch);
                                  });
    REQUIRE(out.shape == Shape{kBatch, kSteps, kDim});
    for (std::int64_t b = 0; b < kBatch; ++b)
      for (std::int64_t t = 0; t < kSteps; ++t)
        for (std::int64_t d = 0; d < kDim; ++d)
          REQUIRE(out.expected[(b * kSteps + t) * kDim + d] == static_cast<double>((t + 1) * (d + 100 * b)));
  }
}

TEST_CASE("a linear scan with constant a and b is a geometric series") {
  const std::int64_t kSteps = 40;
  for (const double a : {0.5, -0.75, 0.0}) {
    const auto out = reference_of(
        problem(1, kSteps, 1), [&](const std::string& name, std::int64_t) { return name == "a" ? a : 3.0; });
    for (std::int64_t t = 0; t < kSteps; ++t) {
      const double expected = 3 * (1 - std::pow(a, static_cast<double>(t + 1))) / (1 - a);
      REQUIRE(std::abs(out.expected[t] - expected) <= 1e-15 * std::abs(expected));
    }
  }
}

TEST_CASE("the error bound of a linear scan follows its recurrence on magnitudes") {
  // b alternates in sign and a is negative, so that a bound from values instead of magnitudes would be
  // smaller.
  const auto out = reference_of(problem(1, 3, 1), [](const std::string& name, std::int64_t i) {
    if (name == "a") return -0.5;
    return i % 2 == 0 ? 1.0 : -1.0;
  });
  // m = 1, 1.5, 1.75; e_t = e_{t-1}/2 + m_{t-1}/2 + 2·m_t.
  CHECK(out.bound == std::vector<float>{2.0F, 1.0F + 0.5F + 3.0F, 2.25F + 0.75F + 3.5F});
}

TEST_CASE("the linear scan's reference stops when it is told to") {
  const Problem one = problem(1, 4, 1);
  const auto inputs = make_inputs(one, [](const std::string&, std::int64_t) { return 1.0; });
  const std::atomic<bool> stop{true};
  CHECK_THROWS_AS(compute_reference(one, views_of(inputs), stop), Interrupted);
}
