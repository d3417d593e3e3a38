// The fp64 reference on sequences that cu_seqlens packs: each is as if it were alone.

#include <cmath>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "model/tensor_map.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kSteps = 150;
constexpr std::int64_t kSequences = 6;
constexpr std::int64_t kDim = 5;
constexpr std::int64_t kStates = 3;

Problem scan_of(const Axes& options, const Axes& more) {
  Axes axes = more;
  axes.merge(Axes(options));
  axes.merge(Axes{{"dim", size(kDim)},
                  {"dstate", size(kStates)},
                  {"D", true},
                  {"z", true},
                  {"delta_bias", true},
                  {"delta_softplus", true},
                  {"initial_state", true}});
  return scan_problem(std::move(axes));
}

/// Inputs of the sequence of `steps` steps from `begin` on.
std::vector<HostTensor> inputs_of(const Problem& alone, const std::vector<HostTensor>& packed,
                                  std::int64_t sequence, std::int64_t begin) {
  std::vector<HostTensor> part;
  for (const auto& spec : specs_of(alone, Role::input))
    part.push_back(gathered(spec, *find_tensor(packed, spec.name), [&](const Shape& here, Shape& there) {
      there = here;
      if (spec.name == "initial_state") there[0] = sequence;
      if (spec.axes == "bdl" || spec.axes == "bgnl") there.back() += begin;
    }));
  return part;
}

void check_each_alone(const Axes& options) {
  const Problem whole = scan_of(options, {{"seqlen", size(kSteps)},
                                          {"cu_seqlens", true},
                                          {"sequences", size(kSequences)},
                                          {"lengths", "with-empty"}});
  INFO(whole.id());
  const auto inputs = generate_inputs(whole, {}, never_stop);
  const auto packed = compute_reference(whole, views_of(inputs), never_stop);
  const auto* borders = static_cast<const std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  const auto& last = packed.at("last_state");
  const std::int64_t parts = whole.choice("A") == "complex" ? 2 : 1;
  const std::int64_t of_state = kDim * kStates * parts;
  REQUIRE(std::ssize(last.expected) == kSequences * of_state);
  int empty = 0;
  for (std::int64_t m = 0; m < kSequences; ++m) {
    const std::int64_t steps = borders[m + 1] - borders[m];
    if (steps == 0) {
      ++empty;
      const auto* given = static_cast<const float*>(find_tensor(inputs, "initial_state")->buffer.data());
      for (std::int64_t i = m * of_state; i < (m + 1) * of_state; ++i) {
        CHECK(last.expected[i] == given[i]);
        CHECK(last.bound[i] == 0);
      }
      continue;
    }
    const Problem alone = scan_of(options, {{"seqlen", steps}});
    const auto part = inputs_of(alone, inputs, m, borders[m]);
    const auto separate = compute_reference(alone, views_of(part), never_stop);
    for (std::int64_t i = 0; i < of_state; ++i) {
      REQUIRE(last.expected[m * of_state + i] == separate.at("last_state").expected[i]);
      REQUIRE(last.bound[m * of_state + i] == separate.at("last_state").bound[i]);
    }
    for (std::int64_t d = 0; d < kDim; ++d)
      for (std::int64_t t = 0; t < steps; ++t) {
        const std::int64_t at = d * kSteps + borders[m] + t;
        REQUIRE(packed.at("out").expected[at] == separate.at("out").expected[d * steps + t]);
        REQUIRE(packed.at("out").bound[at] == separate.at("out").bound[d * steps + t]);
      }
  }
  CHECK(empty > 0);
}

}  // namespace

TEST_CASE("packed sequences of a selective scan are each as if alone, and empty ones keep their state") {
  for (const char* layout : {"bdl", "bld"}) {
    check_each_alone({{"layout", layout}});
    check_each_alone({{"layout", layout}, {"A", "complex"}, {"C", "constant"}});
    check_each_alone({{"layout", layout}, {"A", "dense"}, {"method", "foh"}, {"B", "constant"}});
  }
  check_each_alone({{"method", "foh_exact"}});
  check_each_alone({{"method", "trapezoidal"}, {"B", "constant"}, {"C", "constant"}});
}

TEST_CASE("packed sequences without initial_state start from zeros, and empty ones end there") {
  const Problem whole = scan_of({}, {{"seqlen", size(kSteps)},
                                     {"cu_seqlens", true},
                                     {"sequences", size(kSequences)},
                                     {"lengths", "with-empty"},
                                     {"initial_state", false}});
  const auto inputs = generate_inputs(whole, {}, never_stop);
  const auto* borders = static_cast<const std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  const auto last = compute_reference(whole, views_of(inputs), never_stop).at("last_state");
  for (std::int64_t m = 0; m < kSequences; ++m)
    for (std::int64_t i = m * kDim * kStates; i < (m + 1) * kDim * kStates; ++i)
      CHECK((last.expected[i] == 0) == (borders[m] == borders[m + 1]));
}

TEST_CASE("a dense scan without a solution ends its own sequence alone") {
  const Problem problem = scan_problem({{"A", "dense"},
                                        {"method", "bilinear"},
                                        {"seqlen", size(6)},
                                        {"cu_seqlens", true},
                                        {"sequences", size(2)}});
  // I − Δ·A/2 = 1 − 2·1/2 = 0 in step 1 alone; sequences are steps 0 to 2 and 3 to 5.
  const auto inputs = generate_inputs(problem, {}, never_stop);
  for (const auto& input : inputs)
    for (std::int64_t i = 0; i < element_count(input.spec.shape); ++i)
      if (input.spec.name == "cu_seqlens")
        static_cast<std::int32_t*>(input.buffer.data())[i] = static_cast<std::int32_t>(3 * i);
      else
        static_cast<float*>(input.buffer.data())[i] = input.spec.name != "delta" ? 1.0F
                                                      : i == 1                   ? 2.0F
                                                                                 : 0.5F;
  const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
  for (std::int64_t t = 0; t < 6; ++t) CHECK(std::isnan(outputs.at("out").expected[t]) == (t == 1 || t == 2));
  CHECK(std::isnan(outputs.at("last_state").expected[0]));
  CHECK_FALSE(std::isnan(outputs.at("last_state").expected[1]));
  CHECK(outputs.at("out").note.find("(0, 0, 1)") != std::string::npos);
}

TEST_CASE("cu_seqlens that does not end with the steps of a selective scan is refused by the reference") {
  const Problem whole = scan_problem({{"seqlen", size(9)}, {"cu_seqlens", true}, {"sequences", size(2)}});
  const auto inputs = generate_inputs(whole, {}, never_stop);
  auto* borders = static_cast<std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  borders[2] = 8;
  CHECK_THROWS_WITH(compute_reference(whole, views_of(inputs), never_stop),
                    "cu_seqlens does not go from 0 to 9");
  borders[2] = 9;
  borders[1] = 10;
  CHECK_THROWS_WITH(compute_reference(whole, views_of(inputs), never_stop), "cu_seqlens decreases");
}
