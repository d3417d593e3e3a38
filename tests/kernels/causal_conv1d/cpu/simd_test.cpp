// cpu-simd of the causal convolution beyond what holds for every implementation: each instruction set, and any
// number of threads.

#include <omp.h>

#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "support/conv_problem.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "support/simd_output_bytes.h"
#include "support/simd_targets.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Several tiles with a tail, channels beside the lanes of each instruction set.
Problem sequence_problem(const OpSpec& op, const char* dtype, const char* layout, bool packed) {
  return conv_problem({{"dtype", dtype},
                       {"layout", layout},
                       {"batch", size(2)},
                       {"dim", size(layout == std::string("bld") ? 71 : 3)},
                       {"seqlen", size(layout == std::string("bld") ? 75 : 2077)},
                       {"bias", true},
                       {"silu", true},
                       {"initial_states", !packed},
                       {"final_states", !packed},
                       {"seq_idx", packed}},
                      op);
}

}  // namespace

TEST_CASE("cpu-simd of the causal convolution agrees with the reference on every instruction set") {
  std::vector<Case> cases;
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const bool packed : {false, true}) {
      for (const OpSpec* op : {&causal_conv1d_fwd(), &causal_conv1d_bwd()})
        for (const char* layout : {"bdl", "bld"})
          cases.push_back(make_case(sequence_problem(*op, dtype, layout, packed)));
      cases.push_back(make_case(conv_update_problem({{"dtype", dtype},
                                                     {"layout", packed ? "skd" : "sdk"},
                                                     {"batch", size(20)},
                                                     {"dim", size(71)},
                                                     {"tokens", size(2)},
                                                     {"silu", true}})));
    }
  Selection selection;
  selection.impl = "cpu-simd";
  on_every_target([&](const char* target) {
    const auto results = run_cases(cases, selection);
    CHECK(results.size() == cases.size());
    for (const auto& result : results) {
      INFO(target << " " << result.the_case.id() << ": " << result.reason);
      CHECK(result.status == Status::pass);
    }
  });
}

TEST_CASE("cpu-simd's gradients of the causal convolution have the same bits for any number of threads") {
  for (const char* layout : {"bdl", "bld"}) {
    const Problem problem = sequence_problem(causal_conv1d_bwd(), "f32", layout, false);
    const auto inputs = generate_inputs(problem, {}, never_stop);
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const auto alone = simd_output_bytes(problem, inputs);
    for (const int count : {2, 3, 12}) {
      omp_set_num_threads(count);
      CHECK(simd_output_bytes(problem, inputs) == alone);
    }
    omp_set_num_threads(threads);
  }
}
