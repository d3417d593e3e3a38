// Checks of what is computed at once against what is computed in parts: honest implementations pass, and the
// mistakes that the checks are there for do not.

#include "study/consistency.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "catch.h"
#include "inputs/inputs.h"
#include "model/problem.h"
#include "model/tensor_map.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/find_implementation.h"
#include "support/host_tensors.h"
#include "support/mamba3_problem.h"
#include "support/replay_problem.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/step_problem.h"
#include "sweep/prepared_run.h"
#include "verify/compare_pair.h"
#include "verify/dequantized.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const Problem& small_scan() {
  static const Problem problem = scan_problem({{"batch", size(2)},
                                               {"dim", size(6)},
                                               {"seqlen", size(9)},
                                               {"dstate", size(3)},
                                               {"groups", size(2)},
                                               {"D", true},
                                               {"z", true},
                                               {"delta_bias", true},
                                               {"delta_softplus", true},
                                               {"initial_state", true}});
  return problem;
}

const Problem& small_ssd() {
  static const Problem problem(ssd_chunk_scan_fwd(), {{"dtype", "f32"},
                                                      {"batch", size(2)},
                                                      {"seqlen", size(9)},
                                                      {"nheads", size(4)},
                                                      {"headdim", size(3)},
                                                      {"dstate", size(5)},
                                                      {"groups", size(2)},
                                                      {"initial_states", true},
                                                      {"final_states", true}});
  return problem;
}

const Problem& small_heads() {
  static const Problem problem = mamba2_step({{"batch", size(2)},
                                              {"nheads", size(4)},
                                              {"headdim", size(3)},
                                              {"dstate", size(5)},
                                              {"groups", size(2)},
                                              {"D", true},
                                              {"dt_bias", true},
                                              {"dt_softplus", true},
                                              {"z", true}});
  return problem;
}

std::vector<ConsistencyResult> measure(const std::string& check, const Problem& problem) {
  const ConsistencyStudy study{{problem.op().find_parts(check)}, {make_case(problem)}};
  std::vector<ConsistencyResult> results;
  measure_consistency(study, {list_devices().front()}, {}, never_stop, [&](const ConsistencyResult& result) {
    // Other tests register implementations of their own.
    if (!result.at_once.impl.starts_with("test-") && !result.parts.starts_with("test-"))
      results.push_back(result);
  });
  return results;
}

void spoil(std::vector<HostTensor>& inputs, const char* name) {
  for (auto& tensor : inputs)
    if (tensor.spec.name == name) std::memset(tensor.buffer.data(), 0, tensor.spec.bytes());
}

/// What an output stands for.
HostTensor meant(const std::vector<HostTensor>& outputs, std::size_t i) {
  if (auto values = dequantized(outputs[i], outputs)) return std::move(*values);
  HostTensor copy(outputs[i].spec);
  std::memcpy(copy.buffer.data(), outputs[i].buffer.data(), copy.spec.bytes());
  return copy;
}

/// Whether a run in parts whose inputs `change` has changed still agrees with the reference of the whole.
bool agrees(const char* check, const Problem& whole, const char* parts,
            const std::function<void(std::vector<HostTensor>&)>& change) {
  const PartwiseComputation& computation = *whole.op().find_parts(check);
  const auto implementation_of = [&](const Problem& part) -> const Implementation& {
    return part.op().name == computation.parts_op ? find_implementation(computation.parts_op, parts)
                                                  : find_implementation(part.op().name, "cpu-scalar");
  };
  const auto device = open_device(DeviceKind::cpu);
  const auto inputs = generate_inputs(whole, {}, never_stop);
  const auto expected = compute_reference(whole, views_of(inputs), never_stop);
  const auto at_once =
      run_once(*device,
               find_implementation(whole.op().name,
                                   whole.op().name == "selective_state_update" ? "cpu-step" : "cpu-scalar"),
               whole, inputs);
  const auto in_parts =
      computation.compute(whole, inputs, [&](const Problem& part, const std::vector<HostTensor>& given) {
        std::vector<HostTensor> changed;
        for (const auto& tensor : given) {
          changed.emplace_back(tensor.spec);
          std::memcpy(changed.back().buffer.data(), tensor.buffer.data(), tensor.spec.bytes());
        }
        change(changed);
        return run_once(*device, implementation_of(part), part, changed);
      });
  bool all = true;
  for (std::size_t i = 0; i < at_once.size(); ++i)
    all &= compare_pair(meant(at_once, i).view(), meant(in_parts, i).view(),
                        expected.at(at_once[i].spec.name).expectation(), {}, {})
               .passed();
  return all;
}

}  // namespace

TEST_CASE("a scan agrees with decoding steps, for every implementation on the CPU") {
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const char* layout : {"bdl", "bld"})
      for (const bool initial : {false, true}) {
        const auto results = measure(
            "steps", small_scan().with({{"dtype", dtype}, {"layout", layout}, {"initial_state", initial}}));
        REQUIRE(results.size() >= 2);  // cpu-scalar, cpu-simd; cpu-step
        for (const auto& result : results) {
          INFO(result.at_once.impl << " " << result.parts << " " << result.at_once.reason);
          CHECK(result.at_once.status == Status::pass);
          CHECK(result.parts == "cpu-step");
          CHECK(result.at_once.outputs.size() == 2);
        }
      }
}

TEST_CASE("a scan agrees with its halves, also of odd length, real and complex, B and C of both kinds") {
  std::vector<Problem> problems{small_scan().with({{"seqlen", size(2)}}),
                                small_scan().with({{"layout", "bld"}, {"initial_state", false}}),
                                small_scan().with({{"A", "complex"}}), small_scan().with({{"B", "constant"}}),
                                small_scan().with({{"C", "constant"}, {"layout", "bld"}, {"A", "complex"}})};
  for (const auto& problem : problems)
    for (const auto& result : measure("halves", problem)) {
      INFO(problem.id() << " " << result.at_once.impl << " " << result.at_once.reason);
      CHECK(result.parts == result.at_once.impl);
      if (result.at_once.impl == "cpu-scalar") CHECK(result.at_once.status == Status::pass);
      CHECK(result.at_once.status != Status::fail);
      CHECK(result.at_once.status != Status::error);
    }
}

TEST_CASE("a Mamba-2 step agrees with a Mamba-1 step of repeated heads") {
  for (const std::int64_t groups : {1, 2, 4})
    for (const char* dtype : {"f32", "bf16"}) {
      const auto results = measure("mamba1", small_heads().with({{"groups", groups}, {"dtype", dtype}}));
      REQUIRE(results.size() == 1);
      INFO(results[0].at_once.reason);
      CHECK(results[0].at_once.status == Status::pass);
    }
}

TEST_CASE("tokens agree with steps, and states in slots with states of their own") {
  const auto check = [](const char* name, const Problem& problem) {
    const auto results = measure(name, problem);
    REQUIRE(results.size() == 1);
    INFO(problem.id() << " " << results[0].at_once.reason);
    CHECK(results[0].at_once.status == Status::pass);
  };
  for (const char* dtype : {"f32", "bf16"})
    for (const char* store : {"last", "apart", "each", "none"})
      for (const std::int64_t tokens : {1, 3}) {
        const Axes axes{{"tokens", tokens}, {"slots", size(9)}, {"store", store},
                        {"dtype", dtype},   {"pads", size(2)},  {"dt_dtype", "f32"}};
        check("steps", small_heads().with(axes));
        check("mamba1", small_heads().with(axes));
        Axes channels{{"batch", size(3)}, {"dim", size(4)}, {"dstate", size(5)}, {"groups", size(2)}};
        channels.merge(Axes(axes));
        check("steps", mamba1_step(channels));
      }
  check("steps", small_heads().with({{"tokens", size(4)}, {"intermediate", true}}));
}

TEST_CASE("a Mamba-2 scan agrees with its steps, halves, sequences and Mamba-1's scan") {
  const auto check = [](const char* name, const Problem& problem) {
    const auto results = measure(name, problem);
    REQUIRE_FALSE(results.empty());
    for (const auto& result : results) {
      INFO(name << " " << problem.id() << " " << result.at_once.impl << " " << result.parts << " "
                << result.at_once.reason);
      CHECK(result.at_once.status == Status::pass);
      CHECK(result.at_once.outputs.size() == (problem.flag("final_states") ? 2U : 1U));
    }
  };
  for (const char* dtype : {"f32", "bf16"})
    for (const std::int64_t groups : {1, 2, 4})
      for (const bool states : {false, true}) {
        const Problem problem = small_ssd().with(
            {{"dtype", dtype}, {"groups", groups}, {"initial_states", states}, {"final_states", states}});
        for (const char* name : {"steps", "halves", "mamba1"}) check(name, problem);
        check("packed", problem.with({{"seq_idx", true}, {"seqlen", size(40)}}));
      }
  check("mamba1", small_ssd().with({{"D", "headdim"}}));
  check("steps", small_ssd().with({{"D", "none"}}));
  check("halves", small_ssd().with({{"dt_limit", "0.001..0.05"}}));
}

TEST_CASE("what does not add up is skipped, with the reason") {
  const auto skipped = [](const std::string& check, const Problem& problem) {
    const auto results = measure(check, problem);
    for (const auto& result : results)
      if (result.at_once.status == Status::skip && result.at_once.impl == "cpu-scalar") {
        CHECK((result.at_once.cause == Cause::inapplicable || result.at_once.cause == Cause::unsupported));
        return result.at_once.reason;
      }
    return std::string();
  };
  CHECK(skipped("halves", small_scan().with({{"seqlen", size(1)}})) == "one step has no halves");
  CHECK(skipped("halves", small_scan().with({{"method", "trapezoidal"}})).find("two samples") !=
        std::string::npos);
  CHECK(skipped("steps", small_scan().with({{"method", "foh"}})) == "a decoding step has method zoh only");
  CHECK(skipped("steps", small_scan().with({{"A", "complex"}})) == "a decoding step has real A only");
  CHECK_FALSE(skipped("steps", small_scan().with({{"B", "constant"}})).empty());
  CHECK_FALSE(skipped("halves", small_ssd().with({{"seq_idx", true}})).empty());
  CHECK_FALSE(skipped("packed", small_ssd()).empty());
  for (const char* check : {"steps", "mamba1"}) {
    CHECK_FALSE(skipped(check, small_ssd().with({{"seq_idx", true}})).empty());
    CHECK_FALSE(skipped(check, small_ssd().with({{"dt_limit", "0..0.1"}})).empty());
  }
  CHECK_FALSE(skipped("steps", small_ssd().with({{"D", "headdim"}})).empty());
  for (const auto& [check, problem] :
       {std::pair{"mamba1", mamba1_step({})},
        {"steps", mamba1_step({})},
        {"steps", mamba1_step({{"tokens", size(2)}, {"state_dtype", "bf16"}})}}) {
    const auto results = measure(check, problem);
    REQUIRE(results.size() == 1);
    CHECK(results[0].at_once.status == Status::skip);
  }
}

TEST_CASE("a state that is not carried, or a tensor that is lost on the way, is found") {
  const auto nothing = [](std::vector<HostTensor>&) {};
  CHECK(agrees("steps", small_scan(), "cpu-step", nothing));
  CHECK(agrees("halves", small_scan(), "cpu-scalar", nothing));
  CHECK(agrees("mamba1", small_heads(), "cpu-step", nothing));
  for (const char* lost : {"state", "x", "dt", "A", "B", "C", "D", "z", "dt_bias"}) {
    INFO(lost);
    CHECK_FALSE(agrees("steps", small_scan(), "cpu-step",
                       [&](std::vector<HostTensor>& inputs) { spoil(inputs, lost); }));
    CHECK_FALSE(agrees("mamba1", small_heads(), "cpu-step",
                       [&](std::vector<HostTensor>& inputs) { spoil(inputs, lost); }));
  }
  const Problem tokens = small_heads().with({{"tokens", size(3)}, {"slots", size(9)}, {"store", "each"}});
  CHECK(agrees("steps", tokens, "cpu-step", nothing));
  for (const char* lost : {"state", "dt", "B"}) {
    INFO(lost);
    CHECK_FALSE(
        agrees("steps", tokens, "cpu-step", [&](std::vector<HostTensor>& inputs) { spoil(inputs, lost); }));
  }
  CHECK_FALSE(agrees("halves", small_scan(), "cpu-scalar",
                     [](std::vector<HostTensor>& inputs) { spoil(inputs, "initial_state"); }));
  const Problem packed = small_ssd().with({{"seq_idx", true}, {"seqlen", size(40)}});
  for (const auto& [check, problem] : {std::pair{"steps", small_ssd()},
                                       {"halves", small_ssd()},
                                       {"packed", packed},
                                       {"mamba1", small_ssd()}}) {
    INFO(check);
    const char* parts = check == std::string("steps") ? "cpu-step" : "cpu-scalar";
    CHECK(agrees(check, problem, parts, nothing));
    const char* state = check == std::string("steps")    ? "state"
                        : check == std::string("mamba1") ? "initial_state"
                                                         : "initial_states";
    CHECK_FALSE(
        agrees(check, problem, parts, [&](std::vector<HostTensor>& inputs) { spoil(inputs, state); }));
    CHECK_FALSE(agrees(check, problem, parts, [](std::vector<HostTensor>& inputs) { spoil(inputs, "B"); }));
  }
}

TEST_CASE("Mamba-3 agrees with itself mirrored, and SISO with one rank of MIMO", "[mamba3]") {
  std::vector<std::pair<const char*, Problem>> studies;
  for (const Problem& scan : mamba3_scans(mamba3_siso_fwd(), mamba3_mimo_fwd())) {
    studies.emplace_back("mirrored", scan);
    if (&scan.op() == &mamba3_siso_fwd()) studies.emplace_back("one-rank", scan);
  }
  for (const Problem& gradients : mamba3_scans(mamba3_siso_bwd(), mamba3_mimo_bwd())) {
    studies.emplace_back("mirrored", gradients);
    if (&gradients.op() == &mamba3_siso_bwd()) studies.emplace_back("one-rank", gradients);
  }
  for (const auto& [check, problem] : studies) {
    const auto results = measure(check, problem);
    REQUIRE(results.size() >= 2);  // cpu-scalar, cpu-simd
    for (const auto& result : results) {
      INFO(check << " " << result.at_once.impl << " " << result.parts << " " << result.at_once.reason);
      CHECK(result.at_once.status == Status::pass);
    }
  }

  const Problem whole = mamba3_scans(mamba3_siso_bwd(), mamba3_mimo_bwd()).front();
  const Problem states = whole.with({{"initial_states", true}});
  for (const char* check : {"mirrored", "one-rank"}) {
    CHECK(agrees(check, states, "cpu-simd", [](std::vector<HostTensor>&) {}));
    for (const char* lost : {"Q", "K_bias", "Angles", "Input_Angle_State", "Input_K_State"}) {
      INFO(check << " " << lost);
      CHECK_FALSE(
          agrees(check, states, "cpu-simd", [&](std::vector<HostTensor>& inputs) { spoil(inputs, lost); }));
    }
  }
  for (const char* lost : {"MIMO_V", "MIMO_Z", "MIMO_Out"})
    CHECK_FALSE(agrees("one-rank", states, "cpu-simd",
                       [&](std::vector<HostTensor>& inputs) { spoil(inputs, lost); }));
}

TEST_CASE("decoding goes on from a prefill of any length, and a state that is not handed over is found") {
  for (const Problem& problem :
       {small_scan(), small_scan().with({{"layout", "bld"}, {"initial_state", false}}), small_ssd(),
        small_ssd().with({{"dtype", "bf16"}, {"final_states", false}})}) {
    const auto results = measure("prefill", problem);
    REQUIRE(results.size() == 2);  // cpu-scalar and cpu-simd, each before cpu-step
    for (const auto& result : results) {
      INFO(problem.id() << " " << result.at_once.impl << " " << result.at_once.reason);
      CHECK(result.at_once.status == Status::pass);
      CHECK(result.parts == "cpu-step");
    }
    CHECK(agrees("prefill", problem, "cpu-step", [](std::vector<HostTensor>&) {}));
    for (const char* lost : {"state", "B", "dt"})
      CHECK_FALSE(agrees("prefill", problem, "cpu-step",
                         [&](std::vector<HostTensor>& inputs) { spoil(inputs, lost); }));
  }
  // What the scan itself leaves is in it: without C there is no out, but there is a state.
  CHECK(agrees("prefill", small_scan(), "cpu-step", [](std::vector<HostTensor>& inputs) {
    if (find_tensor(inputs, "u") != nullptr) spoil(inputs, "C");
  }));
  CHECK_FALSE(agrees("prefill", small_scan(), "cpu-step", [](std::vector<HostTensor>& inputs) {
    if (find_tensor(inputs, "u") != nullptr) spoil(inputs, "A");
  }));
}

TEST_CASE("steps of the convolution go on from a prefill of any length") {
  const Problem conv(
      *find_op("causal_conv1d_fwd"),
      {{"dtype", "bf16"}, {"batch", size(2)}, {"dim", size(5)}, {"seqlen", size(9)}, {"final_states", true}});
  for (const char* layout : {"bdl", "bld"})
    for (const bool initial : {false, true}) {
      const auto results = measure("prefill", conv.with({{"layout", layout}, {"initial_states", initial}}));
      REQUIRE(results.size() == 4);  // two convolutions, each before two steps
      for (const auto& result : results) CHECK(result.at_once.status == Status::pass);
    }
  CHECK(agrees("prefill", conv, "cpu-scalar", [](std::vector<HostTensor>&) {}));
  for (const char* lost : {"conv_state", "x"})
    CHECK_FALSE(
        agrees("prefill", conv, "cpu-scalar", [&](std::vector<HostTensor>& inputs) { spoil(inputs, lost); }));
}

TEST_CASE("packed sequences of Mamba-1 and Mamba-2 agree with each on its own, and with one another") {
  const Axes packed{{"batch", size(1)}, {"seqlen", size(70)}, {"cu_seqlens", true}, {"sequences", size(5)}};
  for (const char* lengths : {"ragged", "equal", "with-empty"})
    for (const bool has_states : {false, true}) {
      const Problem scan =
          small_scan().with(packed).with({{"lengths", lengths}, {"initial_state", has_states}});
      const Problem ssd =
          small_ssd().with(packed).with({{"lengths", lengths}, {"initial_states", has_states}});
      for (const auto& [check, problem] : {std::pair{"packed", scan}, {"packed", ssd}, {"mamba1", ssd}}) {
        const auto results = measure(check, problem);
        REQUIRE(results.size() >= 2);
        for (const auto& result : results) {
          INFO(problem.id() << " " << result.at_once.impl << " " << result.at_once.reason);
          CHECK(result.at_once.status == Status::pass);
        }
        CHECK(agrees(check, problem, "cpu-scalar", [](std::vector<HostTensor>&) {}));
        CHECK_FALSE(agrees(check, problem, "cpu-scalar",
                           [](std::vector<HostTensor>& inputs) { spoil(inputs, "B"); }));
        if (!has_states) continue;
        const bool is_scan = check == std::string("mamba1") || &problem.op() == &selective_scan_fwd();
        CHECK_FALSE(agrees(check, problem, "cpu-scalar", [&](std::vector<HostTensor>& inputs) {
          spoil(inputs, is_scan ? "initial_state" : "initial_states");
        }));
      }
    }
}

TEST_CASE("slots that nobody names keep garbage, and one that is written is found") {
  const Problem update = small_heads().with({{"slots", size(9)}, {"store", "apart"}, {"pads", size(2)}});
  const Problem scaled = update.with({{"state_dtype", "i8"}});
  const Problem conv(*find_op("causal_conv1d_update"), {{"dtype", "bf16"},
                                                        {"batch", size(3)},
                                                        {"dim", size(5)},
                                                        {"state_len", size(4)},
                                                        {"layout", "skd"},
                                                        {"store", "apart"},
                                                        {"slots", size(9)}});
  const Problem replay = replay_problem({{"slots", size(9)}, {"batch", size(3)}});
  for (const Problem& problem : {update, scaled, conv, replay}) {
    const auto results = measure("slots", problem);
    REQUIRE_FALSE(results.empty());
    for (const auto& result : results) {
      INFO(problem.id() << " " << result.at_once.impl << " " << result.at_once.reason);
      CHECK(result.at_once.status == Status::pass);
    }
    // A kernel that writes a slot too many: the last byte of one that has garbage.
    const PartwiseComputation& check = *problem.op().find_parts("slots");
    const auto device = open_device(DeviceKind::cpu);
    const auto inputs = generate_inputs(problem, {}, never_stop);
    const Implementation& kernel = find_implementation(problem.op().name, results[0].at_once.impl);
    CHECK_THROWS_WITH(check.compute(problem, inputs,
                                    [&](const Problem& part, const std::vector<HostTensor>& given) {
                                      auto outputs = run_once(*device, kernel, part, given);
                                      for (auto& output : outputs) {
                                        if (output.spec.name == "out") continue;
                                        auto* bytes = static_cast<unsigned char*>(output.buffer.data());
                                        for (std::size_t i = output.spec.bytes(); i-- > 0;)
                                          if (bytes[i] == 0xFF && bytes[i - 1] == 0xFF) {
                                            bytes[i] = 0;
                                            break;
                                          }
                                      }
                                      return outputs;
                                    }),
                      Catch::Matchers::EndsWith(", which is unused, does not keep its bits"));
  }
  CHECK(measure("slots", small_heads())[0].at_once.reason == "states are those of the batch, without slots");
}

TEST_CASE("another seed rounds otherwise, and a kernel that does not look at it is found") {
  for (const char* state_dtype : {"f16", "i8", "i16", "e4m3"}) {
    const Problem problem = small_heads().with({{"state_dtype", state_dtype}, {"rounding", "stochastic"}});
    CAPTURE(state_dtype);
    for (const auto& result : measure("seeds", problem)) {
      INFO(result.at_once.reason);
      CHECK(result.at_once.status == Status::pass);
    }
    CHECK(agrees("seeds", problem, "cpu-step", [](std::vector<HostTensor>&) {}));
    CHECK_THROWS_WITH(
        agrees("seeds", problem, "cpu-step", [](std::vector<HostTensor>& inputs) { spoil(inputs, "seed"); }),
        "another seed gives the same bits");
  }
  for (const auto& result : measure("seeds", small_heads()))
    CHECK(result.at_once.reason == "states are rounded to nearest");
}

TEST_CASE("two outputs may differ by the sum of their tolerances") {
  const TensorSpec spec{"out", Role::output, DType::f32, {2}, {0}};
  const ReferenceOutput reference{{2}, {1.0, 1.0}, {8.0F, 8.0F}};
  const HostTensor a(spec), b(spec);
  auto* of_a = static_cast<float*>(a.buffer.data());
  auto* of_b = static_cast<float*>(b.buffer.data());
  const auto compare = [&] { return compare_pair(a.view(), b.view(), reference.expectation(), {}, {}); };
  // 2·(2·8·2^-24 + half an ulp of 1, 2^-24): 34·2^-24.
  const float unit = std::ldexp(1.0F, -24);
  of_a[0] = of_a[1] = of_b[0] = 1;
  of_b[1] = 1 + 32 * unit;
  CHECK(compare().passed());
  CHECK(compare().tolerance_ratio > 0.9);
  of_b[1] = 1 + 36 * unit;
  CHECK_FALSE(compare().passed());
  CHECK(compare().worst_index == Shape{1});
  CHECK(compare().worst_got == of_b[1]);
  of_b[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(compare().passed());
  CHECK(compare().nonfinite == 1);
  of_a[1] = std::numeric_limits<float>::quiet_NaN();  // equally wrong is wrong
  CHECK_FALSE(compare().passed());
}

TEST_CASE("gathering and scattering follow the map whatever the layout") {
  const TensorSpec rows{"a", Role::input, DType::bf16, {2, 3}, {0, 1}};
  const TensorSpec columns{"b", Role::input, DType::bf16, {3, 2}, {1, 0}};
  const HostTensor from(rows);
  for (std::int64_t i = 0; i < 6; ++i)
    static_cast<std::uint16_t*>(from.buffer.data())[i] = static_cast<std::uint16_t>(i);
  const auto transposed = [](const Shape& here, Shape& there) { there = {here[1], here[0]}; };
  const HostTensor to = gathered(columns, from, transposed);
  // Its storage is column by column, and so the rows of `from`.
  CHECK(std::memcmp(to.buffer.data(), from.buffer.data(), rows.bytes()) == 0);
  HostTensor back(rows);
  scatter(to, back, transposed);
  CHECK(std::memcmp(back.buffer.data(), from.buffer.data(), rows.bytes()) == 0);
}
