// Cases on which an honest implementation once failed, by no fault of its own.

#include "catch.h"
#include "ops/mamba3/mamba3.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void check_all_pass(const std::string& id, Problem problem, const std::string& distribution,
                    std::int64_t seed, const std::string& values = "native") {
  Case one = make_case(std::move(problem), distribution);
  one.inputs.values = values;
  one.inputs.seed = seed;
  REQUIRE(one.id() == id);
  int passed = 0;
  for (const auto& result : run_cases({one})) {
    INFO(result.impl << " " << result.reason);
    CHECK((result.status == Status::pass || result.status == Status::skip));
    passed += result.status == Status::pass ? 1 : 0;
    for (const auto& [name, output] : result.outputs) CHECK(output.decay_bias_ratio < 0.5);
  }
  CHECK(passed > 0);
}

}  // namespace

TEST_CASE("outputs that hardly change over time are rounded alike, which shows nothing of their decays") {
  check_all_pass(
      "selective_scan_fwd-bf16-b5-d2-l100-n8-g2-Cconstant-bias-softplus-init-tiny_delta-native-s1541",
      scan_problem({{"dtype", "bf16"},
                    {"batch", size(5)},
                    {"dim", size(2)},
                    {"seqlen", size(100)},
                    {"dstate", size(8)},
                    {"groups", size(2)},
                    {"C", "constant"},
                    {"delta_bias", true},
                    {"delta_softplus", true},
                    {"initial_state", true}},
                   selective_scan_fwd()),
      "tiny_delta", 1541);
}

TEST_CASE("a state that others hardly drive has what a series leaves out by its norm") {
  // A series of e^(ΔA) that ends when its rest is below half a roundoff of all states together: 2.5 times the
  // tolerance of state 1 of channel 6 where that takes each state for itself.
  check_all_pass("selective_scan_fwd-foh-f32-b5-d31-l2-n2-Adense-Bconstant-D-z-trained-native-s22894",
                 scan_problem({{"method", "foh"},
                               {"A", "dense"},
                               {"batch", size(5)},
                               {"dim", size(31)},
                               {"seqlen", size(2)},
                               {"dstate", size(2)},
                               {"B", "constant"},
                               {"D", true},
                               {"z", true}},
                              selective_scan_fwd()),
                 "trained", 22894);
}

TEST_CASE("a decay over some steps may be 0 where a large input would have brought it back into range") {
  check_all_pass(
      "ssd_chunk_scan_fwd-f32-b1-l28-h32-p1-n1-g4-c96-Dheaddim-varlen-m2-with-empty-at8-trained-native-"
      "s695613",
      Problem(ssd_chunk_scan_fwd(), {{"dtype", "f32"},
                                     {"batch", size(1)},
                                     {"seqlen", size(28)},
                                     {"nheads", size(32)},
                                     {"headdim", size(1)},
                                     {"dstate", size(1)},
                                     {"groups", size(4)},
                                     {"chunk_size", size(96)},
                                     {"D", "headdim"},
                                     {"z", false},
                                     {"dt_bias", false},
                                     {"dt_softplus", false},
                                     {"cu_seqlens", true},
                                     {"sequences", size(2)},
                                     {"lengths", "with-empty"},
                                     {"states_at", size(8)}}),
      "trained", 695613);
}

TEST_CASE("a product of gradients may be 0 before it meets what would have brought it back into range") {
  check_all_pass("ssd_chunk_scan_bwd-bf16-b1-l17-h11-p30-n1-Dheaddim-z-init-final-trained-shared-s165188",
                 Problem(ssd_chunk_scan_bwd(), {{"dtype", "bf16"},
                                                {"batch", size(1)},
                                                {"seqlen", size(17)},
                                                {"nheads", size(11)},
                                                {"headdim", size(30)},
                                                {"dstate", size(1)},
                                                {"D", "headdim"},
                                                {"dt_bias", false},
                                                {"dt_softplus", false},
                                                {"initial_states", true},
                                                {"final_states", true}}),
                 "trained", 165188, "shared");
}

TEST_CASE("a step's own share of a gradient may be summed over head dims and states at once") {
  // Its sum over head dims cancels, and so does that over states: 1.16 times the tolerance where that is made
  // of the one and the other.
  check_all_pass("mamba3_siso_bwd-f16-b1-l65-h32-p3-n4-s2-final-trained-native-s727439",
                 Problem(mamba3_siso_bwd(), {{"dtype", "f16"},
                                             {"batch", size(1)},
                                             {"seqlen", size(65)},
                                             {"nheads", size(32)},
                                             {"headdim", size(3)},
                                             {"dstate", size(4)},
                                             {"rope_angles", size(2)},
                                             {"z", false},
                                             {"D", false},
                                             {"final_states", true}}),
                 "trained", 727439);
}

TEST_CASE("gradients of the bilinear rule with complex A can be judged") {
  const Axes complex{{"method", "bilinear"}, {"A", "complex"}, {"delta_softplus", true}};
  const auto with = [&](Axes axes) {
    axes.insert(complex.begin(), complex.end());
    return axes;
  };
  check_all_pass(
      "selective_scan_bwd-bilinear-f32-b2-d2-l513-n13-Acomplex-D-z-bias-softplus-large_A-native-s897847",
      scan_problem(with({{"batch", size(2)},
                         {"dim", size(2)},
                         {"seqlen", size(513)},
                         {"dstate", size(13)},
                         {"D", true},
                         {"z", true},
                         {"delta_bias", true}}),
                   selective_scan_bwd()),
      "large_A", 897847);
  check_all_pass(
      "selective_scan_bwd-bilinear-f32-b2-d6-l1000-n31-g2-Acomplex-D-bias-softplus-large_A-native-s166426",
      scan_problem(with({{"batch", size(2)},
                         {"dim", size(6)},
                         {"seqlen", size(1000)},
                         {"dstate", size(31)},
                         {"groups", size(2)},
                         {"D", true},
                         {"delta_bias", true}}),
                   selective_scan_bwd()),
      "large_A", 166426);
  check_all_pass(
      "selective_scan_bwd-bilinear-f32-b1-d1-l513-n16-Acomplex-Bconstant-z-softplus-slow_decay-native-"
      "s598430",
      scan_problem(with({{"seqlen", size(513)}, {"dstate", size(16)}, {"B", "constant"}, {"z", true}}),
                   selective_scan_bwd()),
      "slow_decay", 598430);
}

TEST_CASE("a case of which an output may overflow everywhere is unverified, with a cause") {
  const Case unstable =
      make_case(scan_problem({{"method", "bilinear_flipped"}, {"seqlen", size(4000)}}), "large_A");
  for (const auto& result : run_cases({unstable})) {
    if (result.status == Status::skip) continue;
    INFO(result.impl << " " << result.reason);
    CHECK(result.status == Status::unverified);
    CHECK(result.cause == Cause::not_judged);
    CHECK(result.outputs.at("last_state").judged == 0);
    CHECK(result.outputs.at("out").passed());
    CHECK(result.reason.starts_with("last_state: "));
  }
}
