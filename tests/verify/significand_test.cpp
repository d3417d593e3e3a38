#include "verify/significand.h"

#include <cmath>
#include <random>

#include "catch.h"
#include "model/dtype.h"

using namespace ssmbench;

namespace {

constexpr double kOfF32 = 0x1p-24;

double through_bf16(double value) {
  return bf16_to_float(float_to_bf16(static_cast<float>(value)));
}
double through_f16(double value) {
  return f16_to_float(float_to_f16(static_cast<float>(value)));
}

/// `count` numbers whose errors are some roundoffs of f32; all of them changed by `change`.
template <class Change>
ShortNumbers numbers(int count, Change change) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  ShortNumbers numbers;
  for (int i = 0; i < count; ++i) {
    const double expected = normal(random);
    numbers.add(static_cast<float>(change(expected * (1 + 1e-5 * normal(random)))), expected);
  }
  return numbers;
}

}  // namespace

TEST_CASE("numbers that went through a shorter format are known by their bits") {
  CHECK(numbers(100, through_bf16).bits(kOfF32) == 8);
  CHECK(numbers(100, through_f16).bits(kOfF32) == 11);
  CHECK_FALSE(numbers(100, [](double x) { return x; }).bits(kOfF32));
  CHECK_FALSE(numbers(100000, [](double x) { return x; }).bits(kOfF32));
}

TEST_CASE("a claim of the format is believed, and of a shorter one too") {
  CHECK_FALSE(numbers(100, through_bf16).bits(unit_roundoff(DType::bf16)));
  CHECK_FALSE(numbers(100, through_f16).bits(unit_roundoff(DType::f16)));
  CHECK_FALSE(numbers(100, through_f16).bits(unit_roundoff(DType::bf16)));
  CHECK(numbers(100, through_bf16).bits(unit_roundoff(DType::f16)) == 8);
}

TEST_CASE("few numbers, copies and short expected values show nothing") {
  CHECK_FALSE(numbers(12, through_bf16).bits(kOfF32));
  ShortNumbers copies;
  ShortNumbers exact;
  for (int i = 0; i < 1000; ++i) {
    copies.add(1.0, 1.003);
    const double value = 1 + i / 128.0;
    exact.add(through_bf16(value), through_bf16(value) * (1 + 1e-6));
  }
  CHECK_FALSE(copies.bits(kOfF32));
  CHECK_FALSE(exact.bits(kOfF32));
}

TEST_CASE("parts of an output count together") {
  ShortNumbers all;
  for (int part = 0; part < 10; ++part) {
    ShortNumbers some;
    for (int i = 0; i < 3; ++i) some.add(1 + (10.0 * part + i) / 128, 1.003 + (10.0 * part + i) / 128);
    all.add(some);
  }
  CHECK(all.bits(kOfF32) == 8);
}
