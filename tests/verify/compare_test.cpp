#include "verify/compare.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "catch.h"
#include "verify/tolerance.h"

using namespace ssmbench;

namespace {

/// An output of the given dtype in storage order, with what it should be.
struct Output {
  HostTensor tensor;
  std::vector<double> expected;
  std::vector<float> bound;

  Output(DType dtype, Shape shape, std::vector<int> order = {0, 1, 2})
      : tensor(TensorSpec{"out", Role::output, dtype, std::move(shape), std::move(order)}),
        expected(element_count(tensor.spec.shape)),
        bound(expected.size()) {
    // Values that every dtype holds exactly, so that the untouched tensor is right to the last bit.
    const Shape strides = tensor.spec.strides();
    const Shape& s = tensor.spec.shape;
    for (std::int64_t i = 0; i < s[0] * s[1] * s[2]; ++i) {
      expected[i] = 1.0 + 0.0625 * static_cast<double>(i % 16);
      bound[i] = 10.0F;
      set(i / (s[1] * s[2]), i / s[2] % s[1], i % s[2], expected[i]);
    }
  }
  void set(std::int64_t a, std::int64_t b, std::int64_t c, double value) {
    const Shape strides = tensor.spec.strides();
    store_from_double(tensor.buffer.data(), a * strides[0] + b * strides[1] + c * strides[2],
                      tensor.spec.dtype, value);
  }
  OutputComparison judge(Math math = Math::f32) const {
    return compare_output(tensor.view(), {expected.data(), bound.data()}, {math});
  }
};

}  // namespace

TEST_CASE("an exact output has no error, in any layout and dtype") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const auto& order : {std::vector{0, 1, 2}, std::vector{0, 2, 1}}) {
      const auto result = Output(dtype, {2, 3, 50}, order).judge();
      CHECK(result.passed());
      CHECK(result.max_abs == 0);
      CHECK(result.rel_l2 == 0);
      CHECK(result.tolerance_ratio == 0);
    }
  }
}

TEST_CASE("on a circle a value is right whichever way round, and errors are the shorter way") {
  Output output(DType::f32, {2, 3, 50});
  const auto judged = [&](double period) {
    const Expectation expected{
        .values = output.expected.data(), .bound = output.bound.data(), .period = period};
    return compare_output(output.tensor.view(), expected, {});
  };
  output.set(1, 2, 3, output.expected[(1 * 3 + 2) * 50 + 3] - 8);
  CHECK_FALSE(judged(0).passed());
  CHECK(judged(4).passed());
  CHECK(judged(4).max_abs == 0);
  CHECK_FALSE(judged(5).passed());
  CHECK(judged(5).max_abs == 2);
  CHECK(judged(5).worst_index == Shape{1, 2, 3});
}

TEST_CASE("one wrong element fails, is located and measured") {
  for (const auto& order : {std::vector{0, 1, 2}, std::vector{0, 2, 1}}) {
    // More than one range of 65536 elements, the wrong one in the second.
    Output output(DType::f32, {2, 3, 20000}, order);
    output.set(1, 2, 777, 1.5 + 0.25);
    const double right = output.expected[(1 * 3 + 2) * 20000 + 777];
    const auto result = output.judge();
    CHECK_FALSE(result.passed());
    CHECK(result.worst_index == Shape{1, 2, 777});
    CHECK(result.worst_expected == right);
    CHECK(result.worst_got == 1.75);
    CHECK(result.max_abs == 1.75 - right);
    CHECK(result.max_ulp == (1.75 - right) / std::ldexp(1.0, -23));
    double norm = 0;
    for (const double v : output.expected) norm += v * v;
    CHECK(std::abs(result.rel_l2 - (1.75 - right) / std::sqrt(norm)) < 1e-15);
  }
}

TEST_CASE("the tolerance is c·u·bound and half an ulp of the output, to either side") {
  Output output(DType::f32, {1, 1, 4});
  const double limit = kToleranceConstant * std::ldexp(1.0, -24) * 10 + std::ldexp(1.0, -24);
  output.set(0, 0, 1, output.expected[1] + 0.9 * limit);
  CHECK(output.judge().passed());
  output.set(0, 0, 1, output.expected[1] + 1.2 * limit);
  CHECK_FALSE(output.judge().passed());
  output.set(0, 0, 1, output.expected[1] - 1.2 * limit);
  CHECK_FALSE(output.judge().passed());
  CHECK(output.judge(Math::bf16).passed());  // a claim of less accurate arithmetic is held to less
}

TEST_CASE("NaN, Inf and elements never written are counted and never pass") {
  Output output(DType::bf16, {1, 2, 100});
  output.set(0, 1, 42, std::numeric_limits<double>::quiet_NaN());
  output.set(0, 1, 50, std::numeric_limits<double>::infinity());
  const auto result = output.judge();
  CHECK_FALSE(result.passed());
  CHECK(result.nonfinite == 2);
  CHECK(result.worst_index == Shape{0, 1, 42});
  CHECK(std::isnan(result.worst_got));
}

TEST_CASE("an element that may overflow on the way is left out, and if all may, nothing passes") {
  Output output(DType::f32, {1, 1, 10});
  output.bound[3] = std::numeric_limits<float>::infinity();
  output.set(0, 0, 3, std::numeric_limits<double>::quiet_NaN());
  CHECK(output.judge().passed());
  CHECK(output.judge().judged == 9);
  output.bound.assign(10, std::numeric_limits<float>::infinity());
  CHECK_FALSE(output.judge().passed());
}

TEST_CASE("complex outputs are judged part by part") {
  HostTensor tensor({"last_state", Role::output, DType::c64, {2, 3}, {0, 1}});
  std::vector<double> expected(12);
  for (int i = 0; i < 12; ++i)
    static_cast<float*>(tensor.buffer.data())[i] = static_cast<float>(expected[i] = i);
  const std::vector<float> bound(12, 1.0F);
  CHECK(compare_output(tensor.view(), {expected.data(), bound.data()}, {}).passed());
  static_cast<float*>(tensor.buffer.data())[9] = 8;  // the imaginary part of (1, 1)
  const auto result = compare_output(tensor.view(), {expected.data(), bound.data()}, {});
  CHECK_FALSE(result.passed());
  CHECK(result.worst_index == Shape{1, 1, 1});
}

TEST_CASE("a NaN in the reference fails every finite answer") {
  Output output(DType::f32, {1, 1, 10});
  output.expected[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(output.judge().passed());
}

TEST_CASE("a value beyond the dtype's range may only be the infinity that it rounds to") {
  Output output(DType::f16, {1, 1, 3});
  output.expected = {70000, -70000, 65504};
  output.set(0, 0, 0, std::numeric_limits<double>::infinity());
  output.set(0, 0, 1, -std::numeric_limits<double>::infinity());
  output.set(0, 0, 2, 65504);
  CHECK(output.judge().passed());
  output.set(0, 0, 1, std::numeric_limits<double>::infinity());  // wrong sign
  CHECK(output.judge().nonfinite == 1);
  output.set(0, 0, 1, -60000);  // finite, but far off
  CHECK_FALSE(output.judge().passed());
}

TEST_CASE("a user's tolerance takes the place of the derived one, and may be nothing at all") {
  Output output(DType::f32, {1, 1, 100});
  const auto judge = [&](UserTolerance user) {
    return compare_output(output.tensor.view(), {output.expected.data(), output.bound.data()}, {}, &user);
  };
  output.expected[5] = 0;
  output.set(0, 0, 5, 0);
  CHECK(judge({0, 0}).passed());
  for (int i = 0; i < 100; ++i) output.set(0, 0, i, output.expected[i] + 0.25);
  CHECK(judge({0.3, 0}).passed());
  CHECK(judge({0.3, 0}).user_tolerance.has_value());
  CHECK(std::abs(judge({0.5, 0}).tolerance_ratio - 0.5) < 1e-6);
  CHECK_FALSE(judge({0.2, 0}).passed());
  CHECK_FALSE(judge({0, 0.5}).passed());  // of the expected 0 nothing is allowed
  CHECK(judge({0, 0.5}).worst_index == Shape{0, 0, 5});
}

TEST_CASE("errors over time are those of each sixteenth of the steps") {
  for (const auto& order : {std::vector{0, 1, 2}, std::vector{0, 2, 1}}) {
    Output output(DType::f32, {2, 3, 50}, order);
    const double step = 1e-5;
    output.set(1, 2, 25, output.expected[5 * 50 + 25] + step);
    const auto judge = [&](std::optional<std::size_t> axis) {
      return compare_output(output.tensor.view(), {output.expected.data(), output.bound.data()}, {}, nullptr,
                            axis);
    };
    const auto spans = judge(2).over_time;
    REQUIRE(spans.size() == 16);
    std::int64_t next = 0;
    for (const auto& span : spans) {
      CHECK(span.first == next);
      CHECK(span.last - span.first <= 3);
      const bool has_error = span.first <= 25 && 25 <= span.last;
      const auto elements = static_cast<double>(2 * 3 * (span.last - span.first + 1));
      CHECK(std::abs(span.rms - (has_error ? judge(2).max_abs / std::sqrt(elements) : 0)) < 1e-15);
      CHECK(span.worst_ratio == (has_error ? judge(2).tolerance_ratio : 0));
      next = span.last + 1;
    }
    CHECK(next == 50);

    const auto few = judge(1).over_time;  // as if the middle axis were time
    REQUIRE(few.size() == 3);
    CHECK(few[2].first == 2);
    CHECK(few[2].last == 2);
    CHECK(few[1].worst_ratio == 0);
    CHECK(few[2].worst_ratio == judge(1).tolerance_ratio);
    CHECK(judge({}).over_time.empty());
  }
}
