// The fast gradients of selective_scan where most of a block has no channels, and of states in rounds.

#include <algorithm>
#include <string>
#include <utility>

#include "catch.h"
#include "device/device.h"
#include "kernels/selective_scan/fused_bwd/map.h"
#include "reference/reference.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const Implementation& cuda_fused() {
  const auto& all = implementations();
  const auto found = std::ranges::find_if(all, [](const Implementation& implementation) {
    return implementation.name == "cuda-fused" && implementation.op == "selective_scan_bwd";
  });
  REQUIRE(found != all.end());
  return *found;
}

void check(Device& device, Axes axes) {
  axes.merge(
      Axes{{"dstate", size(16)}, {"D", true}, {"z", true}, {"delta_bias", true}, {"delta_softplus", true}});
  const Problem problem = scan_problem(axes, selective_scan_bwd());
  INFO(problem.id());
  REQUIRE(fused_bwd::applies(SelectiveScan(problem), tensor_bytes(problem)));
  // Slow decay, so that all segments count in one another.
  const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
    if (name == "A") return -0.003 * static_cast<double>(1 + i % 7);
    const double spread = static_cast<double>(i * 37 % 101) / 101;
    return name == "delta_bias" ? -2.5 + spread : spread - 0.4;
  });
  const auto expected = compute_reference(problem, views_of(inputs), never_stop);
  for (const auto& output : run_once(device, cuda_fused(), problem, inputs)) {
    INFO(output.spec.name);
    const auto comparison =
        compare_output(real_view(output.view()), expected.at(output.spec.name).expectation(),
                       cuda_fused().arithmetic(problem.dtype()));
    INFO("tolerance ratio " << comparison.tolerance_ratio);
    CHECK(comparison.passed());
  }
}

}  // namespace

TEST_CASE("fast gradients of few channels and of many states are right", "[gpu]") {
  if (!gpu_or_skip()) return;
  const auto device = open_device(DeviceKind::cuda);
  // One channel, half a warp, one over a warp, a half of a block, one over it.
  for (const std::int64_t dim : {1, 8, 17, 64, 65})
    for (const char* layout : {"bdl", "bld"})
      for (const char* dtype : {"f32", "bf16"})
        check(*device, {{"dim", size(dim)},
                        {"seqlen", size(dim % 2 == 0 ? 520 : 333)},
                        {"layout", layout},
                        {"dtype", dtype},
                        {"initial_state", true},
                        {"dlast_state", dim % 3 != 0}});
  check(*device, {{"batch", size(3)},
                  {"dim", size(6)},
                  {"groups", size(2)},
                  {"seqlen", size(200)},
                  {"dstate", size(9)}});
  check(*device, {{"dim", size(1)}, {"seqlen", size(50)}});
  for (const std::int64_t dstate : {1, 3, 8})
    for (const std::int64_t seqlen : {40, 1000})
      check(*device, {{"dim", size(40)},
                      {"seqlen", size(seqlen)},
                      {"dstate", size(dstate)},
                      {"dlast_state", seqlen == 1000}});
  // Several spans; the same with states that are given.
  for (const bool x : {false, true})
    check(*device, {{"dim", size(2)}, {"seqlen", size(200000)}, {"dtype", "bf16"}, {"x", x}});
  // Two rounds of states and more: the last of one, of all; of segments side by side, in turn, of several
  // spans.
  for (const std::int64_t dstate : {17, 32, 33, 80})
    for (const char* layout : {"bdl", "bld"})
      for (const char* dtype : {"f32", "f16", "bf16"})
        check(*device, {{"dim", size(dstate + 7)},
                        {"seqlen", size(dstate % 2 == 0 ? 520 : 333)},
                        {"dstate", size(dstate)},
                        {"layout", layout},
                        {"dtype", dtype},
                        {"initial_state", true},
                        {"dlast_state", dstate % 3 != 0}});
  for (const bool options : {true, false})
    check(*device, {{"batch", size(120)},
                    {"dim", size(16)},
                    {"seqlen", size(200)},
                    {"dstate", size(40)},
                    {"z", options},
                    {"D", options},
                    {"delta_bias", options},
                    {"initial_state", options},
                    {"dtype", options ? "bf16" : "f32"}});
  check(*device, {{"batch", size(2)},
                  {"dim", size(64)},
                  {"groups", size(2)},
                  {"seqlen", size(80)},
                  {"dstate", size(250)}});
  check(*device, {{"dim", size(1)}, {"seqlen", size(100000)}, {"dstate", size(48)}, {"dtype", "bf16"}});
}
