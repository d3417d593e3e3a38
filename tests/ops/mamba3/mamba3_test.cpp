#include "ops/mamba3/mamba3.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "model/work.h"
#include "support/input_values.h"
#include "support/mamba3_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::string error_of(Axes axes, const OpSpec& op = mamba3_siso_fwd()) {
  try {
    mamba3_problem(std::move(axes), op);
  } catch (const ContractError& error) {
    return error.what();
  }
  return "";
}

std::string names_of(const Problem& problem) {
  std::string names;
  for (const auto& tensor : problem.tensors())
    names += (names.empty() ? "" : " ") + tensor.name + (tensor.role == Role::output ? ">" : "");
  return names;
}

std::map<std::string, std::string> shapes_of(const Problem& problem, Role role) {
  std::map<std::string, std::string> shapes;
  for (const auto& tensor : specs_of(problem, role)) {
    CHECK(tensor.stored_shape() == tensor.shape);
    shapes[tensor.name] = std::string(name_of(tensor.dtype)) + " " + to_string(tensor.shape);
  }
  return shapes;
}

Axes sizes() {
  return {{"dtype", "bf16"},        {"batch", size(2)},  {"nheads", size(8)},
          {"headdim", size(5)},     {"dstate", size(6)}, {"groups", size(4)},
          {"rope_angles", size(3)}, {"z", true},         {"D", true}};
}

std::vector<double> values_of(const std::string& name, Axes axes, const InputSpec& spec = {}) {
  axes.merge(Axes{{"seqlen", size(400)}, {"nheads", size(12)}, {"headdim", size(16)}, {"dstate", size(32)}});
  return input_values(mamba3_problem(axes), name, spec);
}

}  // namespace

TEST_CASE("Mamba-3's operations check their axes", "[mamba3]") {
  CHECK(error_of({{"headdim", size(257)}}) == "headdim 257 is over the limit of 256");
  CHECK(error_of({{"dstate", size(258)}}) == "dstate 258 is over the limit of 256");
  CHECK(error_of({{"dstate", size(256)}, {"headdim", size(256)}, {"rope_angles", size(128)}}) == "");
  CHECK(error_of({{"dstate", size(7)}}) == "dstate 7 is odd: states are rotated in pairs");
  CHECK(error_of({{"dstate", size(6)}, {"rope_angles", size(4)}}) ==
        "rope_angles 4 is more than the 3 pairs of dstate 6");
  CHECK(error_of({{"nheads", size(10)}, {"groups", size(4)}}) == "nheads 10 is not a multiple of groups 4");
  CHECK(error_of({{"chunk_size", size(257)}}) == "chunk_size 257 is over the limit of 256");
  CHECK(error_of({{"mimo_rank", size(2)}}) == "mamba3_siso_fwd has no axis 'mimo_rank'");
  CHECK(error_of({{"mimo_rank", size(9)}}, mamba3_mimo_fwd()) == "mimo_rank 9 is over the limit of 8");
  CHECK(error_of({{"outproj_norm", true}}, mamba3_mimo_fwd()) == "outproj_norm without z and out_reduce");
  CHECK(error_of({{"outproj_norm", true}, {"z", true}}, mamba3_mimo_fwd()) == "");
  CHECK(error_of({{"cu_seqlens", true}, {"batch", size(2)}}) ==
        "batch 2 with cu_seqlens, which packs sequences into a batch of 1");
  CHECK(error_of({{"sequences", size(3)}}) == "sequences 3 without cu_seqlens");
  CHECK(error_of({{"form", "siso"}, {"mimo_rank", size(2)}}, mamba3_step()) ==
        "mamba3_step has no axis 'mimo_rank' with form siso");
}

TEST_CASE("pairs of states are those of the operation unless the axis says otherwise", "[mamba3]") {
  CHECK(Mamba3(mamba3_problem({})).interleaved);
  CHECK_FALSE(Mamba3(mamba3_problem({}, mamba3_mimo_fwd())).interleaved);
  CHECK(Mamba3(mamba3_problem({{"form", "mimo"}}, mamba3_step())).interleaved);
  CHECK_FALSE(Mamba3(mamba3_problem({{"rotary_pairing", "halves"}})).interleaved);
}

TEST_CASE("the tensors of Mamba-3's operations", "[mamba3]") {
  CHECK(names_of(mamba3_problem({})) == "Q K V ADT DT Trap Angles Q_bias K_bias out>");
  CHECK(names_of(mamba3_problem({{"z", true},
                                 {"D", true},
                                 {"initial_states", true},
                                 {"final_states", true},
                                 {"cu_seqlens", true}})) ==
        "Q K V ADT DT Trap Angles Q_bias K_bias D Z cu_seqlens Input_Angle_State Input_SSM_State "
        "Input_K_State Input_V_State out> Final_Angle_State> Final_SSM_State> Final_K_State> Final_V_State>");
  CHECK(names_of(mamba3_problem({{"z", true}, {"outproj_norm", true}}, mamba3_mimo_fwd())) ==
        "Q K V ADT DT Trap Angles Q_bias K_bias MIMO_V MIMO_Z MIMO_Out Z outproj_norm_weight out>");
  CHECK(names_of(mamba3_problem({{"form", "mimo"}, {"out_reduce", false}}, mamba3_step())) ==
        "Angle_State SSM_State K_State V_State Q K V ADT DT Trap Angles Q_bias K_bias MIMO_V out> "
        "Angle_State> SSM_State> K_State> V_State>");
}

TEST_CASE("shapes and dtypes of Mamba-3's tensors", "[mamba3]") {
  Axes axes = sizes();
  axes.merge(Axes{{"seqlen", size(3)}, {"initial_states", true}, {"final_states", true}});
  const auto siso = shapes_of(mamba3_problem(axes), Role::input);
  const std::map<std::string, std::string> wanted{{"Q", "bf16 2×3×4×6"},
                                                  {"K", "bf16 2×3×4×6"},
                                                  {"V", "bf16 2×3×8×5"},
                                                  {"Z", "bf16 2×3×8×5"},
                                                  {"ADT", "f32 2×8×3"},
                                                  {"DT", "f32 2×8×3"},
                                                  {"Trap", "bf16 2×8×3"},
                                                  {"Angles", "bf16 2×3×8×3"},
                                                  {"Q_bias", "f32 8×6"},
                                                  {"K_bias", "f32 8×6"},
                                                  {"D", "f32 8"},
                                                  {"Input_Angle_State", "f32 2×8×3"},
                                                  {"Input_SSM_State", "f32 2×8×5×6"},
                                                  {"Input_K_State", "f32 2×8×6"},
                                                  {"Input_V_State", "f32 2×8×5"}};
  CHECK(siso == wanted);
  const auto outputs = shapes_of(mamba3_problem(axes), Role::output);
  CHECK(outputs.at("out") == "bf16 2×3×8×5");
  CHECK(outputs.at("Final_SSM_State") == "f32 2×8×5×6");
  CHECK(outputs.at("Final_V_State") == "bf16 2×8×5");

  axes["mimo_rank"] = size(7);
  const auto mimo = shapes_of(mamba3_problem(axes, mamba3_mimo_fwd()), Role::input);
  CHECK(mimo.at("Q") == "bf16 2×3×7×4×6");
  CHECK(mimo.at("Angles") == "f32 2×3×8×3");
  CHECK(mimo.at("K_bias") == "f32 8×7×6");
  CHECK(mimo.at("MIMO_Out") == "f32 8×7×5");
  CHECK(mimo.at("Input_K_State") == "f32 2×7×8×6");
  axes["out_reduce"] = false;
  CHECK(shapes_of(mamba3_problem(axes, mamba3_mimo_fwd()), Role::output).at("out") == "bf16 2×3×7×8×5");

  Axes step = sizes();
  step.merge(Axes{{"form", "mimo"}, {"mimo_rank", size(7)}});
  const auto of_step = shapes_of(mamba3_problem(step, mamba3_step()), Role::input);
  CHECK(of_step.at("Q") == "bf16 2×7×4×6");
  CHECK(of_step.at("ADT") == "f32 2×8");
  CHECK(of_step.at("Angles") == "f32 2×8×3");
  CHECK(of_step.at("V_State") == "f32 2×8×5");
}

TEST_CASE("Mamba-3's inputs are as its module makes them", "[mamba3]") {
  const auto Q = values_of("Q", {});
  for (std::size_t row = 0; row < Q.size(); row += 32) {
    double squares = 0;
    for (std::size_t n = 0; n < 32; ++n) squares += Q[row + n] * Q[row + n];
    CHECK(squares / 32 == Approx(1).epsilon(1e-4));
  }
  const auto dt = values_of("DT", {});
  CHECK(std::ranges::min(dt) > 1e-4);
  CHECK(std::ranges::max(dt) < 1);
  const auto adt = values_of("ADT", {});
  CHECK(std::ranges::max(adt) < 0);
  double sum = 0;  // of the decay rates: the mean of 1 + x above 0 and of 1/(1 − x) below is 1.23
  for (std::size_t i = 0; i < adt.size(); ++i) sum -= adt[i] / dt[i];
  CHECK(sum / static_cast<double>(adt.size()) == Approx(1.23).epsilon(0.05));
  const auto slow = values_of("ADT", {}, {.distribution = "slow_decay"});
  CHECK(std::ranges::min(slow) > -2e-3);
}

TEST_CASE("packed sequences are drawn with one of a single step and an empty one", "[mamba3]") {
  for (const std::int64_t seqlen : {1, 2, 400}) {
    const auto borders =
        values_of("cu_seqlens", {{"seqlen", seqlen}, {"cu_seqlens", true}, {"sequences", size(6)}});
    REQUIRE(borders.size() == 7);
    CHECK(borders.front() == 0);
    CHECK(borders.back() == static_cast<double>(seqlen));
    CHECK(std::ranges::is_sorted(borders));
    CHECK(borders[1] == 1);
    CHECK(std::ranges::adjacent_find(borders) != borders.end());
  }
}

TEST_CASE("the least work of Mamba-3's operations", "[mamba3]") {
  const auto work = [](Axes axes, const OpSpec& op, Math math) {
    axes.merge(Axes{{"batch", size(2)}, {"nheads", size(3)}, {"headdim", size(64)}, {"dstate", size(128)}});
    const Problem problem = mamba3_problem(std::move(axes), op);
    return op.least_work(problem, math);
  };
  // One step: α·S + v·k and S·q for each of 2·3·64·128 elements; decay, σ, tanh, sine and cosine.
  const Work step = work({{"form", "siso"}}, mamba3_step(), Math::f32);
  CHECK(step.fmas == 3.0 * 2 * 3 * 64 * 128);
  CHECK(step.exponentials == 2.0 * 3 * (2 + 3));
  CHECK(step.tensor_flops == 0);
  // One chunk of 64 steps: triangles of 64·65/2 pairs, a row of 128 and one of 64.
  const Work chunk = work({{"seqlen", size(64)}}, mamba3_siso_fwd(), Math::bf16);
  CHECK(chunk.tensor_flops == 2.0 * 2 * 3 * (64 * 65 / 2) * (128 + 64));
  CHECK(chunk.fmas == 0);
  // With states before and behind it, each of 2·3·64·64·128 updates takes one more for either.
  const Work states = work({{"seqlen", size(64)}, {"initial_states", true}, {"final_states", true}},
                           mamba3_siso_fwd(), Math::bf16);
  CHECK(states.tensor_flops - chunk.tensor_flops == 2.0 * 2 * (2.0 * 64 * 3 * 64 * 128));
}
