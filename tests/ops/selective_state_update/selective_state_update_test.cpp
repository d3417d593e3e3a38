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
        "state_dtype must be one of f32, f16, bf16, i8, i16, e4m3, got f64");
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

TEST_CASE("slots, tokens and intermediate states add tensors and axes") {
  const Problem problem = mamba2_step({{"batch", size(2)},
                                       {"nheads", size(6)},
                                       {"headdim", size(4)},
                                       {"dstate", size(5)},
                                       {"dtype", "bf16"},
                                       {"dt_dtype", "f32"},
                                       {"z", true},
                                       {"tokens", size(3)},
                                       {"slots", size(7)},
                                       {"store", "each"},
                                       {"intermediate", true}});
  CHECK(tensor(problem, "state").shape == Shape{7, 6, 4, 5});
  CHECK(tensor(problem, "x").shape == Shape{2, 3, 6, 4});
  CHECK(tensor(problem, "z").shape == Shape{2, 3, 6, 4});
  CHECK(tensor(problem, "out").shape == Shape{2, 3, 6, 4});
  CHECK(tensor(problem, "dt").shape == Shape{2, 3, 6});
  CHECK(tensor(problem, "dt").dtype == DType::f32);
  CHECK(tensor(problem, "C").shape == Shape{2, 3, 1, 5});
  CHECK(tensor(problem, "source").shape == Shape{2});
  CHECK(tensor(problem, "destination").shape == Shape{2, 3});
  CHECK(tensor(problem, "destination").dtype == DType::i32);
  CHECK(tensor(problem, "intermediate").shape == Shape{2, 3, 6, 4, 5});
  CHECK(problem.id() ==
        "selective_state_update-mamba2-bf16-b2-h6-p4-n5-z-dtf32-t3-slots7-storeeach-intermediate");
  const Problem channels = mamba1_step({{"batch", size(2)}, {"tokens", size(3)}, {"dim", size(6)}});
  CHECK(tensor(channels, "B").shape == Shape{2, 3, 1});
  CHECK(tensor(channels, "state").shape == Shape{2, 6, 1});
}

TEST_CASE("states in integers and e4m3 have a scale for each row, stochastic rounding a seed") {
  const Problem heads = mamba2_step({{"batch", size(2)},
                                     {"nheads", size(6)},
                                     {"headdim", size(4)},
                                     {"dstate", size(5)},
                                     {"slots", size(7)},
                                     {"state_dtype", "i8"},
                                     {"rounding", "stochastic"}});
  CHECK(tensor(heads, "state").dtype == DType::i8);
  CHECK(tensor(heads, "state").scaled_by == "state_scale");
  CHECK(tensor(heads, "state_scale").shape == Shape{7, 6, 4});
  CHECK(tensor(heads, "state_scale").dtype == DType::f32);
  CHECK(tensor(heads, "seed").shape == Shape{1});
  CHECK(tensor(heads, "seed").dtype == DType::i64);
  CHECK(heads.id() == "selective_state_update-mamba2-f32-statei8-b2-h6-p4-n5-slots7-roundingstochastic");
  const Problem channels = mamba1_step({{"batch", size(2)}, {"dim", size(6)}, {"state_dtype", "e4m3"}});
  CHECK(tensor(channels, "state_scale").shape == Shape{2, 6});
  for (const auto& each : mamba1_step({{"state_dtype", "f16"}}).tensors()) CHECK(each.scaled_by.empty());
  CHECK(error_of(mamba1_step, {{"rounding", "stochastic"}}) ==
        "rounding stochastic of states in f32; it is for f16, i8, i16 and e4m3");
  CHECK(error_of(mamba1_step, {{"state_dtype", "i8"}, {"tokens", size(2)}, {"intermediate", true}}) ==
        "intermediate with states in i8, which have scales in the cache only");
}

TEST_CASE("the least work of a step counts states in their own dtype, with their scales") {
  const Axes axes{{"batch", size(2)}, {"dim", size(6)}, {"dstate", size(16)}};
  const auto bytes = [&](const char* state_dtype) {
    const Problem problem = mamba1_step(axes).with({{"state_dtype", state_dtype}});
    return problem.op().least_work(problem, Math::f32).bytes;
  };
  CHECK(bytes("f32") - bytes("i16") == 2 * 12 * (16 * 4 - (16 * 2 + 4)));
  CHECK(bytes("i16") - bytes("e4m3") == 2 * 12 * 16);
}

TEST_CASE("slots that contradict what is stored in them") {
  const auto error = [](Axes axes) {
    axes.merge(Axes{{"batch", size(3)}});
    return error_of(mamba1_step, std::move(axes));
  };
  CHECK(error({{"store", "each"}}) == "store each without slots");
  CHECK(error({{"pads", size(2)}}) == "pads 2 without slots");
  CHECK(error({{"slots", size(3)}, {"pads", size(1)}}) == "pads 1 leaves no row that is not padding");
  CHECK(error({{"intermediate", true}}) == "intermediate with one token, which is the last");
  CHECK(error({{"slots", size(2)}}) ==
        "slots 2 are fewer than the 3 that batch 3, tokens 1 and store last take");
  CHECK(error({{"slots", size(5)}, {"store", "apart"}}) ==
        "slots 5 are fewer than the 6 that batch 3, tokens 1 and store apart take");
  CHECK(error({{"slots", size(11)}, {"tokens", size(4)}, {"store", "each"}}) ==
        "slots 11 are fewer than the 12 that batch 3, tokens 4 and store each take");
  CHECK(error({{"slots", size(12)}, {"tokens", size(4)}, {"store", "each"}}) == "");
  CHECK(error({{"slots", size(3)}, {"pads", size(2)}}) == "");
}

TEST_CASE("the work of a state update has the slots that are read and written, and no others") {
  const Axes axes{{"batch", size(4)}, {"dim", size(6)}, {"dstate", size(5)}, {"tokens", size(3)}};
  const auto work_of = [&](const Axes& more) {
    Axes all = more;
    all.merge(Axes(axes));
    const Problem problem = mamba1_step(all);
    return problem.op().least_work(problem, Math::f32);
  };
  const double state = 6 * 5 * 4;                                     // of a slot
  const double others = 4 * (4 * 3 * 6 * 3 + 6 * 5 + 2 * 4 * 3 * 5);  // x, dt, out; A; B, C
  const double indices = 4 * (4 + 4 * 3);
  CHECK(work_of({}).bytes == others + 8 * state);
  CHECK(work_of({{"slots", size(100)}}).bytes == others + indices + 8 * state);
  CHECK(work_of({{"slots", size(100)}, {"pads", size(2)}}).bytes == others + indices + 4 * state);
  CHECK(work_of({{"slots", size(100)}, {"store", "none"}}).bytes == others + indices + 4 * state);
  CHECK(work_of({{"slots", size(100)}, {"store", "each"}}).bytes == others + indices + 16 * state);
  CHECK(work_of({}).fmas == 3 * 4 * 3 * 30);
  CHECK(work_of({{"slots", size(100)}, {"pads", size(2)}}).exponentials == 2 * 3 * 30);
}
