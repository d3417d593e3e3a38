// The fp64 replay against values worked out by hand, and against decoding steps of its tokens.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "model/tensor_map.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/replay_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::int32_t* numbers(const std::vector<HostTensor>& inputs, const char* name) {
  return static_cast<std::int32_t*>(find_tensor(inputs, name)->buffer.data());
}

void set(const std::vector<HostTensor>& inputs, const char* name, std::int64_t i, double value) {
  const HostTensor& tensor = *find_tensor(inputs, name);
  store_from_double(tensor.buffer.data(), i, tensor.spec.dtype, value);
}

bool near(double got, double expected) {
  return std::abs(got - expected) <= 1e-14 * std::abs(expected);
}

/// One head, one state, two old tokens of which the second is past the end of the ring, one new one.
std::vector<HostTensor> by_hand(const Problem& problem) {
  auto inputs = generate_inputs(problem, {}, never_stop);
  const std::int64_t rows = 4;  // window 3
  numbers(inputs, "start")[0] = 3;
  numbers(inputs, "count")[0] = 2;
  set(inputs, "state", 0, 2);
  set(inputs, "A", 0, -2);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double nothing = 1e6;  // must not be read
    set(inputs, "ring_x", row, row == 3 ? 3 : row == 0 ? -1 : nothing);
    set(inputs, "ring_B", row, row == 3 ? 4 : row == 0 ? 2 : nothing);
    set(inputs, "ring_dt", row, row == 3 ? 0.5 : row == 0 ? 0.25 : nothing);
  }
  set(inputs, "x", 0, 7);
  set(inputs, "dt", 0, 1);
  set(inputs, "B", 0, 0.5);
  set(inputs, "C", 0, 5);
  return inputs;
}

}  // namespace

TEST_CASE("a replay by hand: old tokens in ring order, the checkpoint, then the new token") {
  for (const std::int64_t window : {3, 2}) {
    const Problem problem = replay_problem({{"window", size(3)}});
    auto inputs = by_hand(problem);
    if (window == 2) numbers(inputs, "count")[0] = 3;  // row 1 is the third old token: 3 + 1 > 3
    if (window == 2) {
      set(inputs, "ring_x", 1, 0);
      set(inputs, "ring_dt", 1, 0.125);
      set(inputs, "ring_B", 1, 1);
    }
    const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
    double h = (2 * std::exp(-1.0) + 6) * std::exp(-0.5) - 0.5;
    if (window == 2) h *= std::exp(-0.25);
    const double checkpoint = window == 2 ? h : 2;
    CHECK(near(outputs.at("state").expected.at(0), checkpoint));
    CHECK((outputs.at("state").bound.at(0) > 0) == (window == 2));
    h = h * std::exp(-2.0) + 3.5;
    CHECK(near(outputs.at("out").expected.at(0), 5 * h));
    const std::int64_t row = window == 2 ? 2 : 1;
    for (std::int64_t i = 0; i < 4; ++i) {
      const bool is_new = i == row;
      const auto before = [&](const char* name) {
        return load_as_double(find_tensor(inputs, name)->buffer.data(), i, DType::f32);
      };
      CHECK(outputs.at("ring_x").expected.at(i) == (is_new ? 7 : before("ring_x")));
      CHECK(outputs.at("ring_B").expected.at(i) == (is_new ? 0.5 : before("ring_B")));
      CHECK(outputs.at("ring_dt").expected.at(i) == (is_new ? 1 : before("ring_dt")));
      for (const char* name : {"ring_x", "ring_B"}) CHECK(outputs.at(name).bound.at(i) == 0);
    }
  }
}

TEST_CASE("replays in turn are decoding steps in turn: nothing is lost when the ring goes round") {
  const Axes axes{{"batch", size(2)},  {"nheads", size(4)}, {"headdim", size(3)},  {"dstate", size(5)},
                  {"groups", size(2)}, {"D", true},         {"dt_bias", true},     {"dt_softplus", true},
                  {"tokens", size(2)}, {"window", size(5)}, {"state_dtype", "f32"}};
  const Problem replay = replay_problem(axes);
  const Problem step = steps_of_replay(replay);
  auto inputs = generate_inputs(replay, {.seed = 3}, never_stop);
  for (std::int64_t slot = 0; slot < 2; ++slot) numbers(inputs, "count")[slot] = 0;
  auto steps = generate_inputs(step, {.seed = 3}, never_stop);
  for (std::int64_t turn = 0; turn < 6; ++turn) {
    CAPTURE(turn);
    for (const char* name : {"x", "dt", "B", "C"}) {
      const auto fresh = generate_inputs(step, {.seed = 100 + turn}, never_stop);
      for (const auto* tensors : {&inputs, &steps})
        std::memcpy(find_tensor(*tensors, name)->buffer.data(), find_tensor(fresh, name)->buffer.data(),
                    find_tensor(fresh, name)->spec.bytes());
    }
    const auto got = compute_reference(replay, views_of(inputs), never_stop);
    const auto expected = compute_reference(step, views_of(steps), never_stop);
    for (std::size_t i = 0; i < got.at("out").expected.size(); ++i)
      CHECK(std::abs(got.at("out").expected[i] - expected.at("out").expected[i]) < 1e-5);
    const auto carry = [](const ReferenceOutputs& from, const std::vector<HostTensor>& to, const char* name) {
      const HostTensor& tensor = *find_tensor(to, name);
      for (std::size_t i = 0; i < from.at(name).expected.size(); ++i)
        store_from_double(tensor.buffer.data(), static_cast<std::int64_t>(i), tensor.spec.dtype,
                          from.at(name).expected[i]);
    };
    for (const char* name : {"state", "ring_x", "ring_B", "ring_dt"}) carry(got, inputs, name);
    carry(expected, steps, "state");
    for (std::int64_t slot = 0; slot < 2; ++slot) {  // as whoever calls does
      std::int32_t& count = numbers(inputs, "count")[slot];
      std::int32_t& start = numbers(inputs, "start")[slot];
      const bool stored = count + 2 > 5;
      if (stored) start = (start + count) % 7;
      count = stored ? 2 : count + 2;
    }
  }
}

TEST_CASE("padding of a replay leaves everything as it was, and indices that are none are refused") {
  const Problem problem = replay_problem(
      {{"batch", size(3)}, {"dstate", size(2)}, {"slots", size(5)}, {"pads", size(3)}, {"flush", "all"}});
  auto inputs = generate_inputs(problem, {}, never_stop);
  const auto compute = [&] { return compute_reference(problem, views_of(inputs), never_stop); };
  const auto outputs = compute();
  CHECK(std::isinf(outputs.at("out").bound.at(2)));
  CHECK(std::isfinite(outputs.at("out").bound.at(1)));
  CHECK(std::ranges::count_if(outputs.at("state").bound, [](float bound) { return bound > 0; }) == 2 * 2);
  std::int32_t* const source = numbers(inputs, "source");
  const std::int32_t slot = source[0];
  source[0] = 5;
  CHECK_THROWS_WITH(compute(), "source 5: there are slots 0 to 4, and -1 is none");
  source[0] = source[1];
  CHECK_THROWS_AS(compute(), ContractError);
  source[0] = slot;
  numbers(inputs, "count")[slot] = 5;
  CHECK_THROWS_AS(compute(), ContractError);
  numbers(inputs, "count")[slot] = 4;
  numbers(inputs, "start")[slot] = 5;
  CHECK_THROWS_AS(compute(), ContractError);
}
