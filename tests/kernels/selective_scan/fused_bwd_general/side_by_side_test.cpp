// The general gradients of selective_scan where segments of time are done side by side.

#include <string>

#include "catch.h"
#include "device/device.h"
#include "kernels/selective_scan/fused_bwd/map.h"
#include "kernels/selective_scan/fused_bwd_general/map.h"
#include "reference/reference.h"
#include "support/find_implementation.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Slow decay, so that all segments count in one another.
double slow_input(const std::string& name, std::int64_t i) {
  if (name == "A") return -0.003 * static_cast<double>(1 + i % 7);
  const double spread = static_cast<double>(i * 37 % 101) / 101;
  return name == "delta_bias" ? -2.5 + spread : spread - 0.4;
}

void check_side_by_side(Device& device, Axes axes) {
  axes.merge(Axes{{"D", true},
                  {"z", true},
                  {"delta_bias", true},
                  {"delta_softplus", true},
                  {"initial_state", true},
                  {"dlast_state", true}});
  const Problem problem = scan_problem(axes, selective_scan_bwd());
  INFO(problem.id());
  REQUIRE_FALSE(fused_bwd::applies(SelectiveScan(problem), tensor_bytes(problem)));
  REQUIRE(
      fused_bwd_general::plan_general_backward(SelectiveScan(problem), false, tensor_bytes(problem)).cut());
  const Implementation& implementation = find_implementation("selective_scan_bwd", "cuda-fused");
  const auto inputs = make_inputs(problem, slow_input);
  const auto expected = compute_reference(problem, views_of(inputs), never_stop);
  for (const auto& output : run_once(device, implementation, problem, inputs)) {
    INFO(output.spec.name);
    const auto comparison =
        compare_output(real_view(output.view()), expected.at(output.spec.name).expectation(),
                       implementation.arithmetic(problem.dtype()));
    INFO("tolerance ratio " << comparison.tolerance_ratio);
    CHECK(comparison.passed());
  }
}

}  // namespace

TEST_CASE("general gradients of segments side by side are right", "[gpu]") {
  if (!gpu_or_skip()) return;
  const auto device = open_device(DeviceKind::cuda);
  for (const char* A : {"real", "complex"})
    for (const char* layout : {"bdl", "bld"})
      for (const std::int64_t dstate : {17, 130})
        for (const std::int64_t seqlen : {1000, 1025})
          check_side_by_side(*device, {{"A", A},
                                       {"C", std::string(A) == "real" ? "constant" : "variable"},
                                       {"layout", layout},
                                       {"dim", size(seqlen % 2 == 0 ? 3 : 40)},
                                       {"dstate", size(dstate)},
                                       {"seqlen", size(seqlen)},
                                       {"dtype", dstate == 17 ? "f32" : "bf16"}});
  for (const char* method : {"foh", "bilinear", "rk4"})
    check_side_by_side(*device, {{"method", method}, {"dim", size(35)}, {"seqlen", size(2000)}});
  for (const char* projections : {"constant", "variable"})
    check_side_by_side(*device, {{"B", projections},
                                 {"C", "constant"},
                                 {"batch", size(2)},
                                 {"dim", size(5)},
                                 {"seqlen", size(1500)}});
  check_side_by_side(*device, {{"dim", size(300)},
                               {"dstate", size(64)},
                               {"seqlen", size(20000)},
                               {"C", "constant"},
                               {"dtype", "bf16"}});  // several spans
}
