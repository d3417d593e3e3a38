// The fp64 step against values worked out by hand, against one step of the selective scan's reference, and
// one form against the other.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "model/tensor_map.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "support/step_problem.h"
#include "verify/tolerance.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

ReferenceOutputs reference_of(const Problem& problem, const std::map<std::string, double>& values) {
  return compute_reference(
      problem,
      views_of(make_inputs(problem, [&](const std::string& name, std::int64_t) { return values.at(name); })),
      never_stop);
}

bool near(double got, double expected) {
  return std::abs(got - expected) <= 1e-15 * std::abs(expected);
}

/// Inputs of `to` that hold the same numbers, in the same order, as those of another problem under
/// names[name].
std::vector<HostTensor> same_values(const Problem& to, const std::vector<HostTensor>& from,
                                    const std::map<std::string, std::string>& names) {
  return make_inputs(to, [&](const std::string& name, std::int64_t i) {
    const std::string wanted = names.contains(name) ? names.at(name) : name;
    const auto source =
        std::ranges::find(from, wanted, [](const HostTensor& tensor) { return tensor.spec.name; });
    return load_as_double(source->buffer.data(), i, source->spec.dtype);
  });
}

/// The same values; the same bounds, or none smaller.
void check_equal(const ReferenceOutput& got, const ReferenceOutput& expected, bool same_bounds = true) {
  REQUIRE(got.expected.size() == expected.expected.size());
  for (std::size_t i = 0; i < got.expected.size(); ++i) {
    REQUIRE(std::abs(got.expected[i] - expected.expected[i]) <= 1e-13 * std::abs(expected.expected[i]));
    if (same_bounds) REQUIRE(std::abs(got.bound[i] - expected.bound[i]) <= 1e-6F * expected.bound[i]);
    REQUIRE(got.bound[i] >= expected.bound[i] * (1 - 1e-6F));
  }
}

}  // namespace

TEST_CASE("a state update by hand, without and with its options") {
  // e^(0.5·−2)·2 + 0.5·3·4, times 5
  const std::map<std::string, double> values{{"state", 2}, {"x", 3},  {"dt", 0.5},
                                             {"A", -2},    {"B", 4},  {"C", 5},
                                             {"D", 0.5},   {"z", -1}, {"dt_bias", 0.25}};
  const double state = 2 * std::exp(-1.0) + 6;
  const Axes options{{"D", true}, {"z", true}, {"dt_bias", true}, {"dt_softplus", true}};
  for (const auto form : {mamba1_step, mamba2_step}) {
    const auto plain = reference_of(form({}), values);
    CHECK(near(plain.at("state").expected.at(0), state));
    CHECK(near(plain.at("out").expected.at(0), 5 * state));

    const auto full = reference_of(form(options), values);
    const double delta = std::log1p(std::exp(0.75));
    const double after = std::exp(-2 * delta) * 2 + delta * 12;
    CHECK(near(full.at("state").expected.at(0), after));
    CHECK(near(full.at("out").expected.at(0), (5 * after + 1.5) * -1 / (1 + std::exp(1.0))));
  }
}

TEST_CASE("the bound of a state update charges what cancels at its size") {
  // Kept e^-1·2, added −6: the error counts their sizes, |z| = 1 and no error of Δ.
  const auto outputs =
      reference_of(mamba1_step({}), {{"state", 2}, {"x", -3}, {"dt", 0.5}, {"A", -2}, {"B", 4}, {"C", 5}});
  const double kept = 2 * std::exp(-1.0), added = 6;
  const double state_error = 3 * kept + 2 * added + 2 * (kept + added);
  CHECK(std::abs(outputs.at("state").bound.at(0) - state_error) < 1e-5);
  CHECK(std::abs(outputs.at("out").bound.at(0) - (5 * state_error + 3 * 5 * (kept + added))) < 1e-4);
}

TEST_CASE("with softplus, a step may be off by one rounding of 1 in the step size") {
  const std::map<std::string, double> values{{"state", 0}, {"x", 1}, {"dt", -10},
                                             {"A", -2},    {"B", 1}, {"C", 1}};
  const auto outputs = reference_of(mamba1_step({{"dt_softplus", true}}), values);
  // Δ = 4.5e-5; no other error of the state comes near it.
  CHECK(outputs.at("state").bound.at(0) > 1);
  CHECK(outputs.at("state").bound.at(0) < 1.01);
}

TEST_CASE("form mamba1 is a selective scan of one step, values and bounds") {
  for (const bool options : {false, true}) {
    const Axes shape{{"batch", size(2)},  {"dim", size(12)}, {"dstate", size(5)},
                     {"groups", size(3)}, {"D", options},    {"z", options}};
    Axes scan_axes = shape;
    scan_axes.merge(Axes{{"initial_state", true}, {"delta_bias", options}, {"delta_softplus", options}});
    Axes step_axes = shape;
    step_axes.merge(Axes{{"dt_bias", options}, {"dt_softplus", options}});
    const Problem scan = scan_problem(scan_axes);
    const Problem step = mamba1_step(step_axes);
    const auto inputs = generate_inputs(step, {.seed = 4}, never_stop);
    const auto scan_inputs = same_values(
        scan, inputs, {{"u", "x"}, {"delta", "dt"}, {"delta_bias", "dt_bias"}, {"initial_state", "state"}});
    const auto expected = compute_reference(scan, views_of(scan_inputs), never_stop);
    const auto got = compute_reference(step, views_of(inputs), never_stop);
    // With softplus a step is granted the rounding of 1 + e^x.
    check_equal(got.at("out"), expected.at("out"), !options);
    check_equal(got.at("state"), expected.at("last_state"), !options);
  }
}

TEST_CASE("form mamba2 is form mamba1 with dt, A, D and dt_bias repeated over the head") {
  const std::int64_t kBatch = 2, kHeads = 6, kHeadDim = 4, kStates = 5;
  const Axes options{{"batch", kBatch}, {"dstate", kStates}, {"groups", size(3)},  {"D", true},
                     {"z", true},       {"dt_bias", true},   {"dt_softplus", true}};
  Axes heads = options;
  heads.merge(Axes{{"nheads", kHeads}, {"headdim", kHeadDim}});
  Axes channels = options;
  channels.merge(Axes{{"dim", kHeads * kHeadDim}});
  const Problem mamba2 = mamba2_step(heads);
  const Problem mamba1 = mamba1_step(channels);
  const auto inputs = generate_inputs(mamba2, {.seed = 5}, never_stop);
  const auto repeated = make_inputs(mamba1, [&](const std::string& name, std::int64_t i) {
    const auto source =
        std::ranges::find(inputs, name, [](const HostTensor& tensor) { return tensor.spec.name; });
    std::int64_t from = i;
    if (name == "dt" || name == "D" || name == "dt_bias") from = i / kHeadDim;
    if (name == "A") from = i / (kHeadDim * kStates);
    return load_as_double(source->buffer.data(), from, source->spec.dtype);
  });
  const auto expected = compute_reference(mamba1, views_of(repeated), never_stop);
  const auto got = compute_reference(mamba2, views_of(inputs), never_stop);
  for (const char* name : {"out", "state"}) check_equal(got.at(name), expected.at(name));
  CHECK(got.at("state").shape == Shape{kBatch, kHeads, kHeadDim, kStates});
  CHECK(expected.at("state").shape == Shape{kBatch, kHeads * kHeadDim, kStates});
}

namespace {

/// Two rows in five slots, two tokens each; both forms.
std::vector<Problem> slot_problems() {
  const Axes axes{{"batch", size(2)},  {"dstate", size(3)},    {"tokens", size(2)},     {"slots", size(5)},
                  {"store", "each"},   {"intermediate", true}, {"state_dtype", "bf16"}, {"D", true},
                  {"groups", size(2)}, {"dt_softplus", true}};
  Axes channels{{"dim", size(4)}};
  channels.merge(Axes(axes));
  Axes heads{{"nheads", size(2)}, {"headdim", size(2)}};
  heads.merge(Axes(axes));
  return {mamba1_step(channels), mamba2_step(heads)};
}

std::int32_t* indices(std::vector<HostTensor>& inputs, const char* name) {
  return static_cast<std::int32_t*>(std::ranges::find(inputs, name, [](const HostTensor& tensor) {
                                      return tensor.spec.name;
                                    })->buffer.data());
}

std::vector<double> part(const ReferenceOutput& output, std::int64_t first, std::int64_t count) {
  return {output.expected.begin() + first, output.expected.begin() + first + count};
}

}  // namespace

TEST_CASE("two tokens by hand: the state is decayed twice and is not rounded in between") {
  const std::map<std::string, double> values{{"state", 1}, {"x", 3}, {"dt", 0.5}, {"A", -2},
                                             {"B", 4},     {"C", 5}, {"D", 0.5},  {"z", -1}};
  for (const auto form : {mamba1_step, mamba2_step}) {
    const auto outputs =
        reference_of(form({{"tokens", size(2)}, {"state_dtype", "bf16"}, {"intermediate", true}}), values);
    const double first = std::exp(-1.0) + 6;
    const double second = std::exp(-1.0) * first + 6;
    CHECK(near(outputs.at("state").expected.at(0), second));
    CHECK(near(outputs.at("out").expected.at(0), 5 * first));
    CHECK(near(outputs.at("out").expected.at(1), 5 * second));
    CHECK(near(outputs.at("intermediate").expected.at(0), first));
    CHECK(near(outputs.at("intermediate").expected.at(1), second));
    // As in a step, of |z| = 1 and exact Δ, and then the same again on top of what has decayed.
    const double error = 3 * std::exp(-1.0) + 2 * 6 + 2 * first;
    const double error_after = std::exp(-1.0) * error + 3 * std::exp(-1.0) * first + 2 * 6 + 2 * second;
    CHECK(std::abs(outputs.at("intermediate").bound.at(0) - error) < 1e-4);
    CHECK(std::abs(outputs.at("state").bound.at(0) - error_after) < 1e-4);
  }
}

TEST_CASE("states start in their slots and go where destination says, other slots keep their bits") {
  for (const auto& problem : slot_problems()) {
    CAPTURE(problem.id());
    constexpr std::int64_t kCount = 4 * 3;  // of a slot
    auto inputs = generate_inputs(problem, {.seed = 6}, never_stop);
    const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
    const ReferenceOutput& state = outputs.at("state");
    const auto* destination = indices(inputs, "destination");
    std::vector<bool> stored(5, false);
    for (std::int64_t i = 0; i < 4; ++i) {
      stored[destination[i]] = true;
      CHECK(part(state, destination[i] * kCount, kCount) ==
            part(outputs.at("intermediate"), i * kCount, kCount));
    }
    const auto& before = *std::ranges::find(inputs, "state", [](const auto& each) { return each.spec.name; });
    CHECK(std::ranges::count(stored, false) == 1);
    for (std::int64_t at = 0; at < 5 * kCount; ++at) {
      if (stored[at / kCount]) continue;
      CHECK(state.expected[at] == load_as_double(before.buffer.data(), at, DType::bf16));
      CHECK(state.bound[at] == 0);
    }
    // The same without slots, from states that are those of the sources.
    const auto* source = indices(inputs, "source");
    const Problem plain = problem.with({{"slots", size(0)}, {"store", "last"}});
    const auto own = make_inputs(plain, [&](const std::string& name, std::int64_t i) {
      const auto& from = *std::ranges::find(inputs, name, [](const auto& each) { return each.spec.name; });
      if (name == "state") i = source[i / kCount] * kCount + i % kCount;
      return load_as_double(from.buffer.data(), i, from.spec.dtype);
    });
    const auto expected = compute_reference(plain, views_of(own), never_stop);
    check_equal(outputs.at("out"), expected.at("out"));
    check_equal(outputs.at("intermediate"), expected.at("intermediate"));
  }
}

TEST_CASE("what padding leaves behind has no bound, and padding stores nothing") {
  for (const auto& problem : slot_problems()) {
    auto inputs = generate_inputs(problem, {.seed = 6}, never_stop);
    const std::int32_t was = indices(inputs, "source")[1];
    indices(inputs, "source")[1] = -1;
    indices(inputs, "destination")[2] = indices(inputs, "destination")[3] = -1;
    const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
    for (std::int64_t at = 0; at < 16; ++at) CHECK(std::isfinite(outputs.at("out").bound[at]) == (at < 8));
    for (std::int64_t at = 0; at < 48; ++at)
      CHECK(std::isfinite(outputs.at("intermediate").bound[at]) == (at < 24));
    for (std::int64_t at = was * 12; at < (was + 1) * 12; ++at) CHECK(outputs.at("state").bound[at] == 0);
  }
}

TEST_CASE("states with a scale by hand: what they stand for, the new scale, and the steps between them") {
  const auto steps_of = [](const char* dtype) {
    const double most = largest_in_scale(*parse_dtype(dtype));
    const Problem problem = mamba1_step({{"dstate", size(2)}, {"state_dtype", dtype}});
    const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
      const std::map<std::string, double> values{{"x", 3}, {"dt", 0.5}, {"A", -2}, {"B", 4}, {"C", 5}};
      if (name == "state") return i == 0 ? 96.0 : -64.0;
      return name == "state_scale" ? 0.25 : values.at(name);
    });
    const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
    const double first = 24 * std::exp(-1.0) + 6, second = -16 * std::exp(-1.0) + 6;
    const ReferenceOutput& state = outputs.at("state");
    const ReferenceOutput& scale = outputs.at("state_scale");
    CHECK(near(outputs.at("out").expected.at(0), 5 * (first + second)));
    CHECK(near(state.expected.at(0), first));
    CHECK(std::abs(state.expected.at(1) - second) < 1e-14);
    CHECK(near(scale.expected.at(0), first / most));
    // |z| = 1 and exact Δ, as without a scale; and the product with the scale is rounded.
    const double kept = 24 * std::exp(-1.0), added = 6;
    const double error = kept + 3 * kept + 2 * added + 2 * (kept + added);
    CHECK(std::abs(scale.bound.at(0) - (error / most + 3 * first / most)) < 1e-5 * scale.bound.at(0));
    return std::pair{state.step, scale.expected.at(0)};
  };
  const auto [of_i8, scale_of_i8] = steps_of("i8");
  CHECK(std::abs(of_i8.at(0) - scale_of_i8) < 1e-6 * scale_of_i8);
  CHECK(of_i8.at(1) == of_i8.at(0));
  const auto [of_e4m3, scale_of_e4m3] = steps_of("e4m3");
  CHECK(std::abs(of_e4m3.at(0) - 32 * scale_of_e4m3) < 1e-6 * 32 * scale_of_e4m3);  // at 448
  CHECK(std::abs(of_e4m3.at(1) - scale_of_e4m3 / 4) < 1e-6 * scale_of_e4m3);        // at 3.4
}

TEST_CASE(
    "a row of zeros has the scale 1, one that is not a number has any, and slots nobody names are kept") {
  const Problem problem = mamba1_step(
      {{"batch", size(2)}, {"dim", size(1)}, {"dstate", size(2)}, {"state_dtype", "i8"}, {"slots", size(3)}});
  auto inputs = generate_inputs(problem, {}, never_stop);
  const auto set = [&](const char* name, std::int64_t i, double value) {
    const HostTensor& tensor = *find_tensor(inputs, name);
    store_from_double(tensor.buffer.data(), i, tensor.spec.dtype, value);
  };
  for (std::int64_t i = 0; i < 6; ++i) set("state", i, i < 2 ? 0 : 100);
  for (std::int64_t slot = 0; slot < 3; ++slot) set("state_scale", slot, 0.5);
  set("x", 0, 0);
  set("x", 1, std::numeric_limits<double>::infinity());
  indices(inputs, "source")[0] = indices(inputs, "destination")[0] = 0;
  indices(inputs, "source")[1] = indices(inputs, "destination")[1] = 2;
  const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
  const ReferenceOutput& scale = outputs.at("state_scale");
  const ReferenceOutput& state = outputs.at("state");
  CHECK(scale.expected.at(0) == 1);
  CHECK(scale.bound.at(0) == 0);
  CHECK(state.expected.at(1) == 0);
  CHECK(scale.expected.at(1) == 0.5);
  CHECK(scale.bound.at(1) == 0);
  CHECK(state.expected.at(2) == 50);
  CHECK(state.bound.at(2) == 0);
  CHECK(state.step.at(2) == 0.5F);
  CHECK(std::isinf(scale.bound.at(2)));
  CHECK(std::isinf(state.bound.at(4)));
}

TEST_CASE("with stochastic rounding half a step is all that a state may be off by that is kept") {
  for (const char* dtype : {"f16", "i8"}) {
    const Problem problem = mamba1_step({{"batch", size(2)},
                                         {"dstate", size(2)},
                                         {"state_dtype", dtype},
                                         {"slots", size(3)},
                                         {"rounding", "stochastic"}});
    const auto inputs = generate_inputs(problem, {}, never_stop);
    const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
    const ReferenceOutput& state = outputs.at("state");
    CHECK(state.stochastic);
    int kept = 0;
    for (std::int64_t i = 0; i < 6; ++i) {
      const ExpectedElement element = state.expectation().at(i);
      const double step = dtype == std::string("i8") ? outputs.at("state_scale").expected.at(i / 2)
                                                     : ulp_at(element.value, DType::f16);
      const bool is_kept = element.bound == 0;
      kept += is_kept ? 1 : 0;
      CHECK(std::abs(tolerance_of(element, DType::f64, {}).storage / step - (is_kept ? 0.5 : 1)) < 1e-5);
    }
    CHECK(kept == 2);
  }
}

TEST_CASE("the state update's reference stops when it is told to") {
  const Problem one = mamba1_step({});
  const auto inputs = make_inputs(one, [](const std::string&, std::int64_t) { return 1.0; });
  const std::atomic<bool> stop{true};
  CHECK_THROWS_AS(compute_reference(one, views_of(inputs), stop), Interrupted);
}
