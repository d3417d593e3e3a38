#include "model/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("16-bit types round-trip through float, every bit pattern") {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float from_f16 = f16_to_float(pattern);
    const float from_bf16 = bf16_to_float(pattern);
    if (std::isnan(from_f16))
      CHECK(std::isnan(f16_to_float(float_to_f16(from_f16))));
    else if (float_to_f16(from_f16) != pattern)
      FAIL("f16 pattern " << bits);
    if (std::isnan(from_bf16))
      CHECK(std::isnan(bf16_to_float(float_to_bf16(from_bf16))));
    else if (float_to_bf16(from_bf16) != pattern)
      FAIL("bf16 pattern " << bits);
  }
}

TEST_CASE("f16 values known by definition") {
  CHECK(f16_to_float(0x3C00) == 1.0F);
  CHECK(f16_to_float(0xC000) == -2.0F);
  CHECK(f16_to_float(0x7BFF) == 65504.0F);
  CHECK(f16_to_float(0x0001) == std::ldexp(1.0F, -24));
  CHECK(f16_to_float(0x0400) == std::ldexp(1.0F, -14));
  CHECK(std::isinf(f16_to_float(0x7C00)));
}

TEST_CASE("conversion to 16 bits picks the nearest neighbour, even on ties") {
  // Midpoints between neighbours, and one float step to either side of them, over all positive finite
  // patterns.
  for (std::uint16_t pattern = 0; pattern < 0x7BFF; ++pattern) {
    const float low = f16_to_float(pattern);
    const float high = f16_to_float(static_cast<std::uint16_t>(pattern + 1));
    const float middle = low + (high - low) / 2;
    const auto even = static_cast<std::uint16_t>((pattern & 1) == 0 ? pattern : pattern + 1);
    const bool right = float_to_f16(middle) == even &&
                       float_to_f16(std::nextafter(middle, 0.0F)) == pattern &&
                       float_to_f16(std::nextafter(middle, 1e9F)) == pattern + 1;
    if (!right) FAIL("f16 pattern " << pattern);
  }
  for (std::uint16_t pattern = 0; pattern < 0x7F7F; ++pattern) {
    const float middle = std::bit_cast<float>((static_cast<std::uint32_t>(pattern) << 16U) + 0x8000U);
    const auto even = static_cast<std::uint16_t>((pattern & 1) == 0 ? pattern : pattern + 1);
    const bool right =
        float_to_bf16(middle) == even && float_to_bf16(std::nextafter(middle, 0.0F)) == pattern &&
        float_to_bf16(std::nextafter(middle, std::numeric_limits<float>::max())) == pattern + 1;
    if (!right) FAIL("bf16 pattern " << pattern);
  }
}

TEST_CASE("f16 overflow starts at the midpoint past the largest finite value") {
  CHECK(float_to_f16(65519.996F) == 0x7BFF);
  CHECK(float_to_f16(65520.0F) == 0x7C00);
  CHECK(float_to_f16(-std::numeric_limits<float>::infinity()) == 0xFC00);
}

TEST_CASE("e4m3 values are those of the definition and survive a round trip") {
  CHECK(e4m3_to_float(0x38) == 1.0F);
  CHECK(e4m3_to_float(0xC0) == -2.0F);
  CHECK(e4m3_to_float(0x7E) == 448.0F);
  CHECK(e4m3_to_float(0x01) == std::ldexp(1.0F, -9));
  CHECK(e4m3_to_float(0x08) == std::ldexp(1.0F, -6));
  CHECK(std::isnan(e4m3_to_float(0x7F)));
  CHECK(std::isnan(e4m3_to_float(float_to_e4m3(std::numeric_limits<float>::quiet_NaN()))));
  for (unsigned bits = 0; bits <= 0xFF; ++bits) {
    const auto pattern = static_cast<std::uint8_t>(bits);
    if ((bits & 0x7FU) != 0x7F) CHECK(float_to_e4m3(e4m3_to_float(pattern)) == pattern);
  }
}

TEST_CASE("conversion to e4m3 picks the nearest neighbour, even on ties, and stops at 448") {
  for (std::uint8_t pattern = 0; pattern < 0x7E; ++pattern) {
    const float low = e4m3_to_float(pattern);
    const float high = e4m3_to_float(static_cast<std::uint8_t>(pattern + 1));
    const float middle = low + (high - low) / 2;
    CHECK(high - low == ulp_at(low, DType::e4m3));
    CHECK(float_to_e4m3(middle) == (pattern % 2 == 0 ? pattern : pattern + 1));
    CHECK(float_to_e4m3(std::nextafter(middle, 0.0F)) == pattern);
    CHECK(float_to_e4m3(std::nextafter(-middle, -1e9F)) == 0x80 + pattern + 1);
  }
  CHECK(float_to_e4m3(1e30F) == 0x7E);
  CHECK(float_to_e4m3(-std::numeric_limits<float>::infinity()) == 0xFE);
}

TEST_CASE("integers in units of a scale are rounded to even and stop at the largest") {
  std::int8_t small = 0;
  std::int16_t large = 0;
  const auto as_i8 = [&](double value) {
    store_from_double(&small, 0, DType::i8, value);
    return load_as_double(&small, 0, DType::i8);
  };
  const auto as_i16 = [&](double value) {
    store_from_double(&large, 0, DType::i16, value);
    return load_as_double(&large, 0, DType::i16);
  };
  CHECK(as_i8(2.5) == 2);
  CHECK(as_i8(-3.5) == -4);
  CHECK(as_i8(-1e9) == -127);
  CHECK(as_i16(32766.6) == 32767);
  CHECK(as_i16(-40000) == -32767);
  CHECK(ulp_at(100, DType::i8) == 1);
}

TEST_CASE("ulp and unit roundoff follow the significand") {
  CHECK(ulp_at(1.0, DType::f32) == std::ldexp(1.0, -23));
  CHECK(ulp_at(1.0, DType::f16) == std::ldexp(1.0, -10));
  CHECK(ulp_at(1.0, DType::bf16) == std::ldexp(1.0, -7));
  CHECK(ulp_at(0.0, DType::f16) == std::ldexp(1.0, -24));
  CHECK(ulp_at(-3.0, DType::f32) == std::ldexp(1.0, -22));
  CHECK(unit_roundoff(DType::bf16) == std::ldexp(1.0, -8));
}
