// The fp64 convolution against values worked out by hand, its gradients against dual numbers, its bounds
// against their formula, and steps against the whole.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "reference/dual.h"
#include "reference/reference.h"
#include "support/conv_problem.h"
#include "support/host_tensors.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

using Values = std::map<std::string, std::vector<double>>;

/// Inputs of these values, row-major; integers are stored as such.
std::vector<HostTensor> inputs_of(const Problem& problem, const Values& values) {
  std::vector<HostTensor> inputs;
  for (const auto& spec : specs_of(problem, Role::input)) {
    const HostTensor& tensor = inputs.emplace_back(spec);
    const auto& wanted = values.at(spec.name);
    REQUIRE(std::ssize(wanted) == element_count(spec.shape));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (spec.dtype == DType::i32)
        static_cast<std::int32_t*>(tensor.buffer.data())[i] = static_cast<std::int32_t>(wanted[i]);
      else
        store_from_double(tensor.buffer.data(), offset_in(tensor.view(), static_cast<std::int64_t>(i)),
                          spec.dtype, wanted[i]);
  }
  return inputs;
}

ReferenceOutputs reference_of(const Problem& problem, const Values& values) {
  return compute_reference(problem, views_of(inputs_of(problem, values)), never_stop);
}

/// The values of generated inputs, in f64.
Values drawn_values(const Problem& problem) {
  Values values;
  for (const auto& tensor :
       generate_inputs(problem, {.distribution = "mamba", .values = "native", .seed = 3}, never_stop))
    for (std::int64_t i = 0; i < element_count(tensor.spec.shape); ++i)
      values[tensor.spec.name].push_back(
          tensor.spec.dtype == DType::i32
              ? static_cast<const std::int32_t*>(tensor.buffer.data())[i]
              : load_as_double(tensor.buffer.data(), offset_in(tensor.view(), i), tensor.spec.dtype));
  return values;
}

double silu_of(double s) {
  return s / (1 + std::exp(-s));
}
Dual silu_of(Dual s) {
  return s / (Dual(1) + exp(Dual(0) - s));
}

/// One value of an input as a dual number with slope 1.
struct Variable {
  std::string tensor;
  std::int64_t index;
};

/// The loss Σ dout·out + Σ dfinal·final by the definition, and its derivative by one value.
Dual loss(const CausalConv1d& conv, const Values& values, const Variable& by) {
  const auto at = [&](const std::string& name, std::int64_t i) {
    const double value = values.at(name).at(static_cast<std::size_t>(i));
    return Dual(value, by.tensor == name && by.index == i ? 1 : 0);
  };
  Dual sum;
  for (std::int64_t row = 0; row < conv.batch * conv.dim; ++row) {
    const std::int64_t d = row % conv.dim;
    const auto x = [&](std::int64_t t) -> Dual {
      if (t >= 0) return at("x", row * conv.seqlen + t);
      return conv.has_initial_states ? at("initial_states", row * conv.taps() + conv.taps() + t) : Dual(0);
    };
    const auto number = [&](std::int64_t t) {
      return t < 0 ? -9.0
                   : values.at("seq_idx").at(static_cast<std::size_t>(row / conv.dim * conv.seqlen + t));
    };
    for (std::int64_t t = 0; t < conv.seqlen; ++t) {
      if (conv.has_seq_idx && number(t) < 0) continue;
      Dual s = conv.has_bias ? at("bias", d) : Dual(0);
      for (std::int64_t j = 0; j < conv.width; ++j) {
        const std::int64_t from = t - conv.taps() + j;
        if (conv.has_seq_idx && number(from) != number(t)) continue;
        s = s + at("weight", d * conv.width + j) * x(from);
      }
      sum = sum + at("dout", row * conv.seqlen + t) * (conv.silu ? silu_of(s) : s);
    }
    for (std::int64_t i = 0; conv.has_final_states && i < conv.taps(); ++i)
      sum = sum + at("dfinal_states", row * conv.taps() + i) * x(conv.seqlen - conv.taps() + i);
  }
  return sum;
}

/// Every gradient against the derivative of the loss.
void check_gradients(const Problem& problem) {
  INFO(problem.id());
  const CausalConv1d conv(problem);
  const Values values = drawn_values(problem);
  const auto gradients = reference_of(problem, values);
  for (const auto& [name, gradient] : gradients)
    for (std::int64_t i = 0; i < std::ssize(gradient.expected); ++i) {
      const double expected = loss(conv, values, {name.substr(1), i}).slope;
      CAPTURE(name, i);
      REQUIRE(std::abs(gradient.expected[i] - expected) <= 1e-13 * (1 + std::abs(expected)));
    }
}

}  // namespace

TEST_CASE("a convolution by hand: taps from the oldest to the newest, states in front, the bias first") {
  const Axes axes{{"seqlen", size(2)},
                  {"width", size(3)},
                  {"bias", true},
                  {"initial_states", true},
                  {"final_states", true}};
  const Values values{{"x", {2, -1}}, {"weight", {0.5, 3, -2}}, {"bias", {0.25}}, {"initial_states", {8, 4}}};
  // 0.25 + 0.5·8 + 3·4 − 2·2, 0.25 + 0.5·4 + 3·2 − 2·(−1)
  const auto plain = reference_of(conv_problem(axes), values);
  CHECK(plain.at("out").expected == std::vector<double>{12.25, 10.25});
  CHECK(plain.at("final_states").expected == std::vector<double>{2, -1});
  // (W + 1)·(|bias| + Σ|weight·x̃|), and what may underflow
  CHECK(std::abs(plain.at("out").bound[0] - 4 * 20.25F) < 1e-5F);
  CHECK(std::abs(plain.at("out").bound[1] - 4 * 10.25F) < 1e-5F);
  CHECK(plain.at("final_states").bound == std::vector<float>{0, 0});
  Axes gated = axes;
  gated["silu"] = true;
  const auto silu = reference_of(conv_problem(gated), values).at("out");
  CHECK(std::abs(silu.expected[1] - silu_of(10.25)) < 1e-14);
  CHECK(silu.bound[1] > 4 * 10.25F);
}

TEST_CASE("final states reach into the initial ones where the sequence is shorter than the filter") {
  const Problem problem =
      conv_problem({{"width", size(4)}, {"initial_states", true}, {"final_states", true}});
  const auto outputs =
      reference_of(problem, {{"x", {7}}, {"weight", {1, 10, 100, 1000}}, {"initial_states", {2, 3, 5}}});
  CHECK(outputs.at("out").expected == std::vector<double>{2 + 30 + 500 + 7000});
  CHECK(outputs.at("final_states").expected == std::vector<double>{3, 5, 7});
}

TEST_CASE("taps of another sequence count 0, and padding is 0 without the bias") {
  const Problem problem =
      conv_problem({{"seqlen", size(6)}, {"width", size(3)}, {"bias", true}, {"seq_idx", true}});
  const auto out = reference_of(problem, {{"x", {1, 2, 3, 4, 5, 6}},
                                          {"weight", {100, 10, 1}},
                                          {"bias", {0.5}},
                                          {"seq_idx", {0, 0, 7, 0, -1, -1}}})
                       .at("out");
  CHECK(out.expected == std::vector<double>{1.5, 12.5, 3.5, 204.5, 0, 0});
  CHECK(out.bound[4] == 0);
}

TEST_CASE("gradients of the convolution are the derivatives of its definition") {
  for (const std::int64_t width : {2, 3, 4, 8})
    for (const std::int64_t seqlen : {1, 2, 5, 11})
      for (const bool options : {false, true})
        for (const bool packed : {false, true}) {
          const Axes axes{{"batch", size(2)},
                          {"dim", size(3)},
                          {"seqlen", seqlen},
                          {"width", width},
                          {"bias", options},
                          {"silu", options || packed},
                          {"seq_idx", packed},
                          {"initial_states", options && !packed},
                          {"layout", options ? "bdl" : "bld"},
                          {"final_states", options && !packed}};
          check_gradients(conv_problem(axes, causal_conv1d_bwd()));
        }
}

TEST_CASE("gradients of the convolution do not depend on the layouts of x and dout") {
  const Axes axes{{"batch", size(2)}, {"dim", size(5)}, {"seqlen", size(9)}, {"bias", true}, {"silu", true}};
  const Values values = drawn_values(conv_problem(axes, causal_conv1d_bwd()));
  const auto expected = reference_of(conv_problem(axes, causal_conv1d_bwd()), values);
  for (const char* layout : {"bdl", "bld"})
    for (const char* dout : {"same", "other"}) {
      Axes other = axes;
      other["layout"] = layout;
      other["dout_layout"] = dout;
      for (const auto& [name, output] : reference_of(conv_problem(other, causal_conv1d_bwd()), values))
        CHECK(output.expected == expected.at(name).expected);
    }
}

TEST_CASE("a step by hand: slots, a longer state, several tokens, padding, and slots that nobody names") {
  const Problem problem = conv_update_problem({{"batch", size(2)},
                                               {"width", size(2)},
                                               {"tokens", size(2)},
                                               {"state_len", size(3)},
                                               {"store", "apart"},
                                               {"slots", size(4)}});
  const auto outputs = reference_of(problem, {{"x", {7, 8, 9, 10}},
                                              {"conv_state", {1, 2, 3, 11, 12, 13, 21, 22, 23, 31, 32, 33}},
                                              {"weight", {100, 1}},
                                              {"source", {2, -1}},
                                              {"destination", {0, -1}}});
  const auto& out = outputs.at("out");
  CHECK(out.expected[0] == 2307);
  CHECK(out.expected[1] == 708);
  CHECK(std::isfinite(out.bound[1]));
  CHECK(std::isinf(out.bound[2]));
  CHECK(outputs.at("conv_state").expected ==
        std::vector<double>{23, 7, 8, 11, 12, 13, 21, 22, 23, 31, 32, 33});
  CHECK(outputs.at("conv_state").bound == std::vector<float>(12, 0));
}

TEST_CASE("slots that mean nothing are refused") {
  const Problem problem = conv_update_problem({{"batch", size(2)}, {"store", "last"}, {"slots", size(3)}});
  const auto complaint = [&](std::vector<double> source, std::vector<double> destination) {
    try {
      reference_of(problem, {{"x", {0, 0}},
                             {"conv_state", std::vector<double>(9, 0)},
                             {"weight", {0, 0, 0, 0}},
                             {"source", std::move(source)},
                             {"destination", std::move(destination)}});
    } catch (const ContractError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(complaint({0, 1}, {0, 1}) == "");
  CHECK(complaint({0, 3}, {0, 1}) == "source of row 1 is 3, not one of 3 slots");
  CHECK(complaint({-2, 1}, {0, 1}) == "source of row 0 is -2, not one of 3 slots");
  CHECK(complaint({0, 1}, {0, 0}) == "rows 0 and 1 have the same destination, 0");
  CHECK(complaint({0, 1}, {1, -1}) == "the source of row 1, 1, is the destination of row 0");
  CHECK(complaint({0, -1}, {0, 1}) == "row 1 has a destination, 1, but no source");
}

TEST_CASE("the convolution's reference stops when it is told to") {
  const std::atomic<bool> stop{true};
  for (const Problem& problem :
       {conv_problem({}), conv_problem({}, causal_conv1d_bwd()), conv_update_problem({})}) {
    const auto inputs = generate_inputs(problem, {}, never_stop);
    CHECK_THROWS_AS(compute_reference(problem, views_of(inputs), stop), Interrupted);
  }
}
