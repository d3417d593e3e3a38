// Outputs that mamba_ssm's own CUDA and Triton kernels made on an H200, and the Vision-Mamba fork's Python
// (tests/golden), judged as `run` would judge them: the reference has to be what those kernels approximate,
// and the tolerance has to let an honest kernel pass.

#include <filesystem>
#include <string>

#include "catch.h"
#include "interchange/reader.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "verify/compare.h"

using namespace ssmbench;

namespace {

struct Golden {
  const char* file;
  double rel_l2;  ///< what the file's arithmetic allows: f32 4e-7, complex 1e-6, f16 and bf16 their output
                  ///< rounding, tf32 operands 2e-3
};

constexpr Golden kGolden[] = {
    {"m1_fwd_f32.h5", 4e-7},
    {"m1_fwd_f16.h5", 3e-4},
    {"m1_fwd_bf16.h5", 2e-3},
    {"m1_fwd_f32_const_bc.h5", 4e-7},
    {"m1_fwd_f32_groups2_noz.h5", 4e-7},
    {"m1_fwd_c64_const_bc.h5", 1e-6},
    {"m1_fwd_c64_var_bc.h5", 1e-6},
    {"vim_bilinear.h5", 4e-7},
    {"vim_foh.h5", 4e-7},
    {"m1_bwd_f32.h5", 1e-6},
    {"m1_bwd_bf16.h5", 4e-3},
    {"m1_bwd_c64.h5", 3e-6},
    {"step_m1_f32.h5", 4e-7},
    {"step_m1_bf16.h5", 2e-3},
    {"ssd_fwd_f32.h5", 2e-3},
    {"ssd_fwd_bf16.h5", 6e-3},
    {"ssd_bwd_f32.h5", 4e-3},  // dA: four sums that cancel
    {"m3_siso_fwd_f32.h5", 2e-3},
    {"m3_siso_fwd_f32_plain.h5", 2e-3},
    {"m3_siso_fwd_f32_varlen.h5", 2e-3},
    {"m3_siso_fwd_bf16.h5", 6e-3},  // angles in bf16
    {"m3_siso_fwd_bf16_groups.h5", 6e-3},
    {"m3_mimo_fwd_bf16.h5", 5e-3},
    {"m3_mimo_fwd_bf16_norank.h5", 5e-3},
    {"m3_siso_bwd_f32.h5", 2e-3},
    {"m3_siso_bwd_f32_plain.h5", 2e-3},
    {"m3_siso_bwd_bf16.h5", 2e-2},  // dAngles: angles in bf16, and dθ
    {"m3_siso_bwd_bf16_states.h5", 2e-2},
    {"m3_mimo_bwd_bf16.h5", 1e-2},
    {"m3_step_f32.h5", 3e-3},  // S·q in bf16
    {"m3_step_bf16.h5", 4e-3},
};

}  // namespace

TEST_CASE("outputs and gradients of mamba_ssm and of the Vision-Mamba fork agree with the reference") {
  for (const auto& [file, rel_l2] : kGolden) {
    INFO(file);
    const InterchangeFile golden(std::filesystem::path(SSMBENCH_SOURCE_DIR) / "tests/golden" / file);
    REQUIRE(golden.case_ids().size() == 1);
    const auto the_case = golden.read_case(golden.case_ids().front());
    const auto expected = compute_reference(the_case.problem, views_of(the_case.inputs), test::never_stop);
    REQUIRE_FALSE(the_case.outputs.empty());
    for (const auto& output : the_case.outputs) {
      INFO(output.spec.name);
      const auto comparison = compare_output(
          real_view(output.view()), expected.at(output.spec.name).expectation(), the_case.arithmetic);
      INFO("rel_l2 " << comparison.rel_l2 << ", tolerance ratio " << comparison.tolerance_ratio);
      CHECK(comparison.passed());
      CHECK(comparison.rel_l2 < rel_l2);
    }
  }
}
