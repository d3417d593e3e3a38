#include "kernels/mamba3/phase.h"

#include <cmath>
#include <numbers>

#include "catch.h"
#include "kernels/mamba3/sequential/map.h"
#include "kernels/mamba3/step/map.h"

using namespace ssmbench;

TEST_CASE("phases are angles modulo whole turns, to a 2^-32 of one", "[mamba3]") {
  const double step = 2 * std::numbers::pi * 0x1p-32;
  for (const float angle : {0.0F, 1e-6F, 0.75F, 3.0F, -2.0F, 6.28F, 100.0F, -870.0F}) {
    const double error =
        std::remainder(radians_of_phase(phase_of_radians(angle)) - double{angle}, 2 * std::numbers::pi);
    INFO(angle);
    CHECK(std::abs(error) <= step + 0x1p-22 * std::max(6.3, std::abs(double{angle})));
    CHECK(std::abs(
              std::remainder(2 * std::numbers::pi * turns_of_phase(phase_of_radians(angle)) - double{angle},
                             2 * std::numbers::pi)) <= step + 0x1p-23 * std::abs(double{angle}));
  }
  CHECK(phase_of_turns(0.5F) == 0x80000000U);
  CHECK(phase_of_turns(-0.5F) == 0x80000000U);
  CHECK(phase_of_turns(0.25F) == 0x40000000U);
  CHECK(phase_of_turns(-0.25F) == 0xC0000000U);
  CHECK(phase_step(1.0F, 20.0F) == 0x80000000U);  // tanh = 1: half a turn
  CHECK(phase_step(0.5F, -20.0F) == 0xC0000000U);
}

TEST_CASE("sums of phases do not lose digits and do not depend on their order", "[mamba3]") {
  std::uint32_t forward = 0;
  std::uint32_t backward = 0;
  double exact = 0;
  constexpr int kSteps = 16384;
  for (int t = 0; t < kSteps; ++t) {
    const float dt = 0.02F + 1e-6F * static_cast<float>(t % 97);
    forward += phase_step(dt, 1.5F);
    exact += 0.5 * dt * std::tanh(1.5);
  }
  for (int t = kSteps - 1; t >= 0; --t)
    backward += phase_step(0.02F + 1e-6F * static_cast<float>(t % 97), 1.5F);
  CHECK(forward == backward);
  CHECK(exact > 100);  // turns
  CHECK(std::abs(std::remainder(turns_of_phase(forward) - exact, 1)) < 1e-5);
}

TEST_CASE("the lanes of Mamba-3's kernels hold every state of a row once", "[mamba3]") {
  for (const std::int64_t dstate : {2, 32, 34, 64, 128, 130, 256}) {
    const int states = mamba3::states_of_thread(dstate);
    std::vector<int> held(static_cast<std::size_t>(states * mamba3::kLanes));
    CHECK(std::ssize(held) >= dstate);
    for (int lane = 0; lane < mamba3::kLanes; ++lane)
      for (int j = 0; j < states; ++j) ++held.at(static_cast<std::size_t>(mamba3::state_of(lane, j)));
    CHECK(std::ranges::all_of(held, [](int count) { return count == 1; }));

    const mamba3::RowShape shape = mamba3::kRowShapes[mamba3::row_shape_of(dstate)];
    CHECK(shape.padded() >= dstate);
    CHECK(dstate % shape.width == 0);
    std::vector<int> of_step(static_cast<std::size_t>(shape.padded()));
    for (int lane = 0; lane < shape.lanes; ++lane)
      for (int j = 0; j < shape.states(); ++j)
        ++of_step.at(static_cast<std::size_t>(mamba3::state_of(shape, lane, j)));
    CHECK(std::ranges::all_of(of_step, [](int count) { return count == 1; }));
  }
}
