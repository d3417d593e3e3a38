#include "ops/selective_state_update/selective_state_update.h"

#include <algorithm>

#include "base/errors.h"
#include "catch.h"
#include "model/problem.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::string error_of(const std::function<Problem(Axes)>& form, Axes axes) {
  try {
    form(std::move(axes));
  } catch (const ContractError& error) {
    return error.what();
  }
  return "";
}

TensorSpec tensor(const Problem& problem, const std::string& name) {
  const auto all = problem.tensors();
  return *std::ranges::find(all, name, &TensorSpec::name);
}

}  // namespace

TEST_CASE("a state update refuses sizes beyond its limits and heads that groups do not divide") {
  CHECK(error_of(mamba1_step, {{"dstate", size(257)}}) == "dstate 257 is over the limit of 256");
  CHECK(error_of(mamba2_step, {{"headdim", size(257)}}) == "headdim 257 is over the limit of 256");
  CHECK(error_of(mamba2_step, {{"nheads", size(6)}, {"groups", size(4)}}) ==
        "nheads 6 is not a multiple of groups 4");
  CHECK(error_of(mamba1_step, {{"dim", size(6)}, {"groups", size(4)}}) ==
        "dim 6 is not a multiple of groups 4");
  CHECK(error_of(mamba2_step, {{"dstate", size(256)}, {"headdim", size(256)}}) == "");
  CHECK(error_of(mamba1_step, {{"dim", size(5120)}}) == "");
}

TEST_CASE("each form has its own axes") {
  CHECK(error_of(mamba2_step, {{"dim", size(6)}}) ==
        "selective_state_update has no axis 'dim' with form mamba2");
  CHECK(error_of(mamba1_step, {{"nheads", size(1)}}) ==
        "selective_state_update has no axis 'nheads' with form mamba1");
  CHECK_THROWS_WITH(
      Problem(selective_state_update(), {{"form", "mamba2"}, {"dtype", "f32"}, {"batch", size(1)}}),
      "selective_state_update needs the axis 'nheads'");
  CHECK_THROWS_WITH(Problem(selective_state_update(), {{"dtype", "f32"}}),
                    "selective_state_update needs the axis 'form'");
  CHECK(mamba1_step({{"dim", size(6)}, {"z", true}}).id() == "selective_state_update-mamba1-f32-b1-d6-n1-z");
  CHECK(mamba2_step({{"nheads", size(6)}, {"headdim", size(3)}}).id() ==
        "selective_state_update-mamba2-f32-b1-h6-p3-n1");
  CHECK(mamba2_step({{"dtype", "bf16"}, {"state_dtype", "bf16"}}).id() ==
        "selective_state_update-mamba2-bf16-statebf16-b1-h1-p1-n1");
}

TEST_CASE("the state is an input and an output of the same name, shape and dtype, its own") {
  CHECK(error_of(mamba1_step, {{"state_dtype", "f64"}}) ==
        "state_dtype must be one of f32, f16, bf16, got f64");
  for (const auto& problem : {mamba1_step({{"dim", size(6)}, {"dtype", "bf16"}, {"state_dtype", "f16"}}),
                              mamba2_step({{"nheads", size(6)}, {"state_dtype", "f16"}})}) {
    std::vector<TensorSpec> states;
    for (const auto& each : problem.tensors())
      if (each.name == "state") states.push_back(each);
    REQUIRE(states.size() == 2);
    CHECK(states[0].role == Role::input);
    CHECK(states[1].role == Role::output);
    CHECK(states[0].shape == states[1].shape);
    CHECK(states[0].dtype == DType::f16);
    CHECK(states[1].dtype == DType::f16);
    CHECK(tensor(problem, "x").dtype == problem.dtype());
  }
}

TEST_CASE("tensors of a state update have the shapes of the definition") {
  const Problem one_group = mamba1_step({{"batch", size(2)},
                                         {"dim", size(6)},
                                         {"dstate", size(5)},
                                         {"D", true},
                                         {"dt_bias", true},
                                         {"z", true}});
  CHECK(tensor(one_group, "state").shape == Shape{2, 6, 5});
  CHECK(tensor(one_group, "x").shape == Shape{2, 6});
  CHECK(tensor(one_group, "A").shape == Shape{6, 5});
  CHECK(tensor(one_group, "B").shape == Shape{2, 5});
  CHECK(tensor(one_group, "D").shape == Shape{6});
  CHECK(tensor(one_group.with({{"groups", size(3)}}), "C").shape == Shape{2, 3, 5});
  const Problem heads = mamba2_step({{"batch", size(2)},
                                     {"nheads", size(6)},
                                     {"headdim", size(4)},
                                     {"dstate", size(5)},
                                     {"dtype", "bf16"},
                                     {"z", true},
                                     {"D", true},
                                     {"dt_bias", true}});
  CHECK(tensor(heads, "state").shape == Shape{2, 6, 4, 5});
  CHECK(tensor(heads, "z").shape == Shape{2, 6, 4});
  CHECK(tensor(heads, "dt").shape == Shape{2, 6});
  CHECK(tensor(heads, "A").shape == Shape{6});
  CHECK(tensor(heads, "B").shape == Shape{2, 1, 5});
  CHECK(tensor(heads, "D").shape == Shape{6});
  CHECK(tensor(heads, "dt_bias").shape == Shape{6});
  CHECK(tensor(heads, "state").dtype == DType::f32);
  CHECK(tensor(heads, "dt").dtype == DType::bf16);
  CHECK(tensor(heads, "D").dtype == DType::f32);
}
