// Time cut into segments, where there are few channels: the plan, and cuda-fused with it.

#include "kernels/selective_scan/segments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "kernels/selective_scan/fused/map.h"
#include "kernels/selective_scan/fused/step.cuh"
#include "kernels/selective_scan/fused_general/map.h"
#include "reference/reference.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("segments: whole tiles that cover all steps, as many as are resident at once") {
  for (const auto& costs : {SegmentCosts{34, 84, 4}, SegmentCosts{400, 450, 3}})
    for (const int tile : {8, 32, 64})
      for (const std::int64_t parts : {1, 2, 3, 7, 66, 132, 133, 264, 265, 1000})
        for (const std::int64_t seqlen : {1, 63, 64, 65, 130, 1000, 1001, 4096, 65536, 1000003}) {
          INFO(parts << " parts, " << seqlen << " steps, tiles of " << tile);
          const TimeSegments segments = cut_time(parts, seqlen, tile, costs);
          if (segments.count == 1) {
            CHECK(segments.steps == seqlen);
            continue;
          }
          CHECK(segments.steps % tile == 0);
          CHECK(segments.steps >= kShortestSegment);
          CHECK((segments.count - 1) * segments.steps < seqlen);
          CHECK(segments.count * segments.steps >= seqlen);
          CHECK(parts * segments.count <= h200::kMultiprocessors * costs.resident);
        }
}

TEST_CASE("segments: cut where channels are few and steps are many") {
  const SegmentCosts costs{34, 84, 4};
  CHECK(cut_time(2, 65536, 32, costs) == TimeSegments{256, 256});
  CHECK(cut_time(1, 65536, 32, costs) == TimeSegments{128, 512});
  CHECK(cut_time(2, 4096, 32, costs) == TimeSegments{64, 64});
  CHECK(cut_time(2, 512, 32, costs).count == 1);     // the launches would take longer
  CHECK(cut_time(64, 16384, 32, costs).count == 1);  // two passes would
  CHECK(cut_time(265, 1 << 20, 32, costs).count == 1);
}

TEST_CASE("segments: the shapes that time is cut with") {
  using fused::FastPlan;
  using fused::plan_for;
  using fused::ThreadShape;
  CHECK(plan_for(1, 64, 16, 65536, 2) == FastPlan{ThreadShape{4, 4, 4}, {256, 256}});
  CHECK(plan_for(1, 64, 16, 65536, 4) == FastPlan{ThreadShape{4, 4, 1}, {256, 256}});
  CHECK(plan_for(1, 256, 16, 65536, 4) == FastPlan{ThreadShape{4, 4, 4}, {1024, 64}});
  CHECK(plan_for(2, 8, 24, 8192, 2) == FastPlan{ThreadShape{4, 8, 1}, {64, 128}});
  CHECK(plan_for(1, 64, 16, 65536, 2, false) == FastPlan{ThreadShape{2, 8, 1}, {65536, 1}});
  CHECK(plan_for(8, 2048, 16, 2048, 2) == FastPlan{ThreadShape{4, 4, 4}, {2048, 1}});
  CHECK(plan_for(1, 64, 33, 65536, 2) == FastPlan{ThreadShape{4, 8, 1}, {1024, 64}});
  for (const std::size_t bytes : {2, 4})
    for (const std::int64_t dstate : {1, 16, 17, 32, 33, 256})
      for (std::int64_t channels = 1; channels <= 4096; channels = channels * 5 / 4 + 1) {
        const auto plan = plan_for(1, channels, dstate, 100000, bytes);
        CHECK((plan.segments.count == 1 || can_be_cut(plan.shape)));
      }
}

namespace {

/// The product of 300 decays, and what it is in double precision.
template <Family family>
void check_product(MethodId method, double (*decay)(double z)) {
  const MethodParameters parameters = fused::step_parameters(method);
  for (const float A : {-0.003F, -0.4F, -20.0F}) {
    using Step = fused::ScanStep<family>;
    fused::DecayProduct<family, 1> product;
    double expected = 1;
    for (int t = 0; t < 300; ++t) {
      const float delta = 0.001F * static_cast<float>(1 + t % 7);
      const Step step(parameters, delta, 0.0F);
      product.add(delta);
      product.multiply(0, step, Step::state(parameters, A));
      expected *= decay(static_cast<double>(delta) * A);
    }
    INFO("A " << A);
    CHECK(std::abs(product.of(0, A) - expected) <= 3e-5 * expected);
  }
}

}  // namespace

TEST_CASE("segments: the product of decays") {
  check_product<Family::zoh>(MethodId::zoh, [](double z) { return std::exp(z); });
  check_product<Family::bilinear>(MethodId::bilinear, [](double z) { return (1 + z / 2) / (1 - z / 2); });
}

namespace {

const Implementation& cuda_fused() {
  const auto& all = implementations();
  const auto found = std::ranges::find_if(all, [](const Implementation& implementation) {
    return implementation.name == "cuda-fused" && implementation.op == "selective_scan_fwd";
  });
  REQUIRE(found != all.end());
  return *found;
}

/// With slow decay: all segments before one count in it.
std::vector<HostTensor> slow_inputs(const Problem& problem) {
  return make_inputs(problem, [](const std::string& name, std::int64_t i) {
    if (name == "A") return -0.003 * static_cast<double>(1 + i % 7);
    const double spread = static_cast<double>(i * 37 % 101) / 101;
    if (name == "delta" || name == "delta_bias") return 0.2 * spread;
    return spread - 0.4;
  });
}

/// Against the reference, and twice the same.
void check_cut(Device& device, const Axes& axes) {
  const Problem problem = scan_problem(axes);
  INFO(problem.id());
  REQUIRE(!cuda_fused().unsupported(problem));
  CHECK(cuda_fused().workspace_bytes(problem) > 0);  // time is cut
  const auto inputs = slow_inputs(problem);
  const auto expected = compute_reference(problem, views_of(inputs), never_stop);
  const auto outputs = run_once(device, cuda_fused(), problem, inputs);
  const auto again = run_once(device, cuda_fused(), problem, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    INFO(outputs[i].spec.name);
    const auto comparison =
        compare_output(real_view(outputs[i].view()), expected.at(outputs[i].spec.name).expectation(),
                       cuda_fused().arithmetic(problem.dtype()));
    INFO("tolerance ratio " << comparison.tolerance_ratio);
    CHECK(comparison.passed());
    CHECK(std::memcmp(outputs[i].view().data, again[i].view().data, outputs[i].spec.bytes()) == 0);
  }
}

Axes with(Axes axes, Axes others) {
  axes.merge(others);
  return axes;
}

const Axes kEveryOption{
    {"D", true}, {"z", true}, {"delta_bias", true}, {"delta_softplus", true}, {"initial_state", true}};

}  // namespace

TEST_CASE("cuda-fused is right where the fast kernel cuts time", "[gpu]") {
  if (!gpu_or_skip()) return;
  const auto device = open_device(DeviceKind::cuda);
  // Channels: one; one and a half slices; of the widest blocks all slices. Steps: one over whole segments,
  // one short of them, segments longer than the shortest.
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const char* layout : {"bdl", "bld"}) {
      const Axes io{{"dtype", dtype}, {"layout", layout}};
      for (const auto& [dim, seqlen] : {std::pair{8, 1032}, std::pair{48, 1016}, std::pair{136, 1608}})
        check_cut(*device, with(with(io, kEveryOption),
                                {{"dim", size(dim)}, {"seqlen", size(seqlen)}, {"dstate", size(16)}}));
      for (const int dstate : {24, 72})
        check_cut(*device, with(io, {{"batch", size(3)},
                                     {"dim", size(48)},
                                     {"groups", size(2)},
                                     {"seqlen", size(1096)},
                                     {"dstate", size(dstate)}}));
    }
  check_cut(*device, {{"dim", size(1)}, {"seqlen", size(40008)}, {"dstate", size(3)}});
  for (const char* method : {"foh", "bilinear", "vim_highorder", "vim_foh"})
    for (const int dstate : {16, 32, 64})
      check_cut(
          *device,
          with(kEveryOption,
               {{"method", method}, {"dim", size(24)}, {"seqlen", size(1416)}, {"dstate", size(dstate)}}));
}

TEST_CASE("cuda-fused is right where the general kernel cuts time", "[gpu]") {
  if (!gpu_or_skip()) return;
  const auto device = open_device(DeviceKind::cuda);
  for (const char* dtype : {"f32", "bf16"})
    for (const char* layout : {"bdl", "bld"})
      for (const char* method : {"zoh", "trapezoidal", "foh_exact", "bilinear"})
        for (const char* A : {"real", "complex"})
          check_cut(*device, with(kEveryOption, {{"dtype", dtype},
                                                 {"layout", layout},
                                                 {"method", method},
                                                 {"A", A},
                                                 {"dim", size(5)},
                                                 {"seqlen", size(777)},
                                                 {"dstate", size(6)}}));
  for (const char* B : {"variable", "constant"})
    for (const char* C : {"variable", "constant"})
      for (const char* A : {"real", "complex"})
        check_cut(*device, {{"method", "foh_exact"},
                            {"A", A},
                            {"B", B},
                            {"C", C},
                            {"batch", size(2)},
                            {"dim", size(66)},
                            {"seqlen", size(513)},
                            {"dstate", size(4)}});
  check_cut(*device, {{"dim", size(3)}, {"seqlen", size(1025)}, {"dstate", size(200)}});
}
