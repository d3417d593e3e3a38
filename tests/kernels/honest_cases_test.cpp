// Cases on which an honest implementation once failed, by no fault of its own.

#include "catch.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void check_all_pass(const std::string& id, const OpSpec& op, const Axes& axes,
                    const std::string& distribution, std::int64_t seed) {
  Case one = make_case(scan_problem(axes, op), distribution);
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
      selective_scan_fwd(),
      {{"dtype", "bf16"},
       {"batch", size(5)},
       {"dim", size(2)},
       {"seqlen", size(100)},
       {"dstate", size(8)},
       {"groups", size(2)},
       {"C", "constant"},
       {"delta_bias", true},
       {"delta_softplus", true},
       {"initial_state", true}},
      "tiny_delta", 1541);
}

TEST_CASE("a state that others hardly drive has what a series leaves out by its norm") {
  // A series of e^(ΔA) that ends when its rest is below half a roundoff of all states together: 2.5 times the
  // tolerance of state 1 of channel 6 where that takes each state for itself.
  check_all_pass("selective_scan_fwd-foh-f32-b5-d31-l2-n2-Adense-Bconstant-D-z-trained-native-s22894",
                 selective_scan_fwd(),
                 {{"method", "foh"},
                  {"A", "dense"},
                  {"batch", size(5)},
                  {"dim", size(31)},
                  {"seqlen", size(2)},
                  {"dstate", size(2)},
                  {"B", "constant"},
                  {"D", true},
                  {"z", true}},
                 "trained", 22894);
}

TEST_CASE("gradients of the bilinear rule with complex A can be judged") {
  const Axes complex{{"method", "bilinear"}, {"A", "complex"}, {"delta_softplus", true}};
  const auto with = [&](Axes axes) {
    axes.insert(complex.begin(), complex.end());
    return axes;
  };
  check_all_pass(
      "selective_scan_bwd-bilinear-f32-b2-d2-l513-n13-Acomplex-D-z-bias-softplus-large_A-native-s897847",
      selective_scan_bwd(),
      with({{"batch", size(2)},
            {"dim", size(2)},
            {"seqlen", size(513)},
            {"dstate", size(13)},
            {"D", true},
            {"z", true},
            {"delta_bias", true}}),
      "large_A", 897847);
  check_all_pass(
      "selective_scan_bwd-bilinear-f32-b2-d6-l1000-n31-g2-Acomplex-D-bias-softplus-large_A-native-s166426",
      selective_scan_bwd(),
      with({{"batch", size(2)},
            {"dim", size(6)},
            {"seqlen", size(1000)},
            {"dstate", size(31)},
            {"groups", size(2)},
            {"D", true},
            {"delta_bias", true}}),
      "large_A", 166426);
  check_all_pass(
      "selective_scan_bwd-bilinear-f32-b1-d1-l513-n16-Acomplex-Bconstant-z-softplus-slow_decay-native-"
      "s598430",
      selective_scan_bwd(),
      with({{"seqlen", size(513)}, {"dstate", size(16)}, {"B", "constant"}, {"z", true}}), "slow_decay",
      598430);
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
