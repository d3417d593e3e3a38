// cuda-dense and cpu-scalar where their code changes path: rows that need pivoting, many parts of a step or
// doublings, or that have no solution at all, beside rows that do not.

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "kernels/selective_scan/dense/map.h"
#include "reference/reference.h"
#include "support/find_implementation.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kChannels = 9;  // two warps and a channel at 8 lanes each, and one
constexpr std::int64_t kOdd = 2;       // the channel with the matrix under test
constexpr std::int64_t kSteps = 11;

Problem problem_of(const std::string& method) {
  return scan_problem({{"A", "dense"},
                       {"method", method},
                       {"dim", size(kChannels)},
                       {"seqlen", size(kSteps)},
                       {"dstate", size(3)}});
}

/// Mild matrices and steps, but for A of channel kOdd, and Δ = 1 there from step 5 on.
std::vector<HostTensor> inputs_with(const Problem& problem, const std::vector<double>& odd) {
  return make_inputs(problem, [&](const std::string& name, std::int64_t i) {
    const double varied = static_cast<double>(i * 37 % 19) / 19;
    if (name == "A") return i / 9 == kOdd ? odd[i % 9] : (i % 9 % 4 == 0 ? -1.0 : 0.5) * (0.5 + varied);
    if (name == "delta") return i / kSteps == kOdd && i % kSteps >= 5 ? 1.0 : 0.25 + 0.25 * varied;
    return varied - 0.4;
  });
}

/// out, then last_state.
std::vector<HostTensor> run_on(DeviceKind kind, const Problem& problem,
                               const std::vector<HostTensor>& inputs) {
  const auto device = open_device(kind);
  std::vector<Device::Buffer> buffers;
  TensorSet views;
  const auto allocate = [&](const TensorSpec& spec) {
    buffers.push_back(device->allocate(spec.bytes()));
    views.add(spec.name, TensorView(buffers.back().get(), spec));
    return buffers.back().get();
  };
  for (const auto& input : inputs)
    device->copy_in(allocate(input.spec), input.buffer.data(), input.spec.bytes());
  std::vector<HostTensor> outputs;
  for (const auto& spec : specs_of(problem, Role::output)) {
    allocate(spec);
    outputs.emplace_back(spec);
  }
  const char* name = kind == DeviceKind::cpu ? "cpu-scalar" : "cuda-dense";
  find_implementation("selective_scan_fwd", name).bind(problem, views, nullptr)(device->stream());
  device->synchronize();
  for (const auto& output : outputs)
    device->copy_out(output.buffer.data(), views.at(output.spec.name).data, output.spec.bytes());
  return outputs;
}

/// The values of channel d.
std::vector<float> channel(const HostTensor& output, std::int64_t d) {
  const std::int64_t row = output.spec.shape[2];
  const auto* values = static_cast<const float*>(output.buffer.data()) + d * row;
  return {values, values + row};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const std::vector<double> kMild{-1, 0.5, 0, 0, -2, 0.5, 0.25, 0, -1};

std::vector<double> mild_times(double factor) {
  std::vector<double> matrix = kMild;
  for (double& value : matrix) value *= factor;
  return matrix;
}

void check_odd_rows(DeviceKind kind) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  struct Odd {
    const char* what;
    std::vector<double> A;
    bool has_solution = true;
  };
  for (const std::string method : {"bilinear", "foh"}) {
    const Problem problem = problem_of(method);
    const auto usual = run_on(kind, problem, inputs_with(problem, kMild));
    for (const auto& [what, A, has_solution] :
         std::vector<Odd>{{"zero", std::vector<double>(9)},
                          {"many parts", mild_times(12)},
                          {"doublings", mild_times(40)},
                          {"many doublings", mild_times(1e6)},
                          // I − A/2 is a permutation: every first candidate for a pivot is 0.
                          {"pivots", {2, -2, 0, 0, 2, -2, -2, 0, 2}},
                          {"singular", {2, 0, 0, 0, -1, 0, 0, 0, -1}, method == "foh"},
                          {"infinite", {-kInfinite, 0, 0, 0, -1, 0, 0, 0, -1}, false},
                          {"NaN", {std::nan(""), 0, 0, 0, -1, 0, 0, 0, -1}, false}}) {
      CAPTURE(method, what);
      const auto inputs = inputs_with(problem, A);
      const auto outputs = run_on(kind, problem, inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        for (std::int64_t d = 0; d < kChannels; ++d)
          if (d != kOdd) CHECK(same_bits(channel(outputs[i], d), channel(usual[i], d)));
      const auto odd_out = channel(outputs[0], kOdd);
      if (!has_solution) {
        for (std::int64_t t = 5; t < kSteps; ++t) CHECK_FALSE(std::isfinite(odd_out[t]));
        continue;
      }
      const auto reference = compute_reference(problem, views_of(inputs), never_stop);
      for (const auto& output : outputs) {
        const ReferenceOutput& expected = reference.at(output.spec.name);
        const auto result = compare_output(output.view(), expected.expectation(), {});
        CHECK(expected.note == "");
        CHECK(result.judged == element_count(expected.shape));
        CHECK(result.nonfinite == 0);
        CHECK(result.tolerance_ratio < 1);
      }
    }
  }
}

}  // namespace

TEST_CASE("cpu-scalar: odd matrices are right, or not finite, and touch no other row") {
  check_odd_rows(DeviceKind::cpu);
}

TEST_CASE("cuda-dense: odd matrices are right, or not finite, and touch no other row", "[gpu]") {
  if (!gpu_or_skip()) return;
  check_odd_rows(DeviceKind::cuda);
}

TEST_CASE("a step is cut into parts of a norm of at most 1") {
  for (const float norm : {0.0F, 1e-30F, 0.5F, 1.0F, 1.001F, 7.5F, 32.0F, 32.5F, 64.0F, 1e6F, 3e38F}) {
    CAPTURE(norm);
    const auto [parts, doublings] = plan_hold(norm);
    CHECK(parts >= 1);
    CHECK(parts <= 32);
    CHECK((parts == 1 || doublings == 0));
    CHECK(std::ldexp(norm / static_cast<float>(parts), -doublings) <= 1.0F);
  }
  for (const float norm : {HUGE_VALF, std::nanf("")}) {
    CHECK(plan_hold(norm).parts == 1);
    CHECK(plan_hold(norm).doublings == 0);
  }
  CHECK(dense_lanes(1) == 8);
  CHECK(dense_lanes(8) == 8);
  CHECK(dense_lanes(9) == 16);
  CHECK(dense_lanes(17) == 32);
  CHECK(dense_lanes(32) == 32);
}
