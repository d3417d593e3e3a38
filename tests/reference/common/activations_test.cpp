#include "reference/common/activations.h"

#include <cmath>

#include "catch.h"

using namespace ssmbench;

namespace {

/// Error of a gate over what it may be, in f32.
double ratio(double z, float got) {
  const Rounded<double> gate = gate_of(z).value;
  return std::abs(got - gate.value) / (2 * 0x1p-24 * gate.error);
}

}  // namespace

TEST_CASE("z/(1 + e^-z) in f32 is within the gate's error where e^-z overflows") {
  for (float z = -60; z > -200; z -= 0.125F) {
    INFO(z);
    CHECK(ratio(z, z / (1 + std::exp(-z))) <= 1);
    // A reciprocal that is 0 beyond 2^126, as fast ones are.
    const float power = std::exp(-z);
    CHECK(ratio(z, power > 0x1p126F ? 0 : z / (1 + power)) <= 1);
  }
}

TEST_CASE("a gate that is 0 before e^-z overflows is not within its error") {
  for (const float z : {-20.0F, -60.0F, -80.0F}) CHECK(ratio(z, 0) > 1);
}

TEST_CASE("softplus in f32 is within its error where e^x underflows") {
  for (float x = -80; x > -120; x -= 0.125F) {
    INFO(x);
    const Rounded<double> delta = step_of(x, 0, false, true).delta;
    const float power = std::exp(x);
    const float flushed = power < 0x1p-126F ? 0 : power;
    CHECK(std::abs(flushed - delta.value) <= 2 * 0x1p-24 * delta.error);
  }
}
