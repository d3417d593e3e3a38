// A = 0 and Δ = 0, which no input distribution draws: every implementation against the reference.

#include <fmt/format.h>

#include "catch.h"
#include "device/device.h"
#include "inputs/inputs.h"
#include "model/selective_scan.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Mamba's inputs with every other A, every third Δ and all Δ of the second channel 0.
std::vector<HostTensor> inputs_with_zeros(const Problem& problem) {
  auto inputs = generate_inputs(problem, {}, never_stop);
  const std::int64_t seqlen = problem.size("seqlen");
  for (const HostTensor& tensor : inputs) {
    const TensorView view = tensor.view();
    const bool complex = view.dtype == DType::c64;
    const TensorView parts = real_view(view);
    for (std::int64_t i = 0; i < element_count(parts.shape); ++i) {
      const std::int64_t element = complex ? i / 2 : i;
      const bool zero =
          (tensor.spec.name == "A" && element % 2 == 0) ||
          (tensor.spec.name == "delta" && (element % 3 == 0 || element / seqlen % problem.size("dim") == 1));
      if (zero) store_from_double(parts.data, offset_in(parts, i), parts.dtype, 0);
    }
  }
  return inputs;
}

/// Failures of every implementation of the device that supports the problem, a line each.
std::string failures(const Problem& problem, Device& device, int& ran) {
  const auto inputs = inputs_with_zeros(problem);
  const auto reference = compute_reference(problem, views_of(inputs), never_stop);
  std::vector<Device::Buffer> memory;
  TensorSet tensors;
  for (const auto& spec : problem.tensors()) {
    memory.push_back(device.allocate(spec.bytes()));
    tensors.add(spec.name, TensorView(memory.back().get(), spec));
  }
  for (const HostTensor& input : inputs)
    device.copy_in(tensors.at(input.spec.name).data, input.buffer.data(), input.spec.bytes());

  std::string text;
  for (const Implementation& implementation : implementations()) {
    if (implementation.op != problem.op().name || implementation.device != device.info().kind) continue;
    if (implementation.unsupported(problem) || !implementation.known_failure.empty()) continue;
    for (const auto& spec : specs_of(problem, Role::output))
      device.fill(tensors.at(spec.name).data, 0xFF, spec.bytes());
    const auto workspace = device.allocate(implementation.workspace_bytes(problem));
    implementation.bind(problem, tensors, workspace.get())(device.stream());
    device.synchronize();
    ++ran;
    for (const auto& spec : specs_of(problem, Role::output)) {
      const HostTensor got(spec);
      device.copy_out(got.buffer.data(), tensors.at(spec.name).data, spec.bytes());
      const auto& expected = reference.at(spec.name);
      const auto judged =
          compare_output(got.view(), expected.expected.data(), expected.bound.data(), implementation.math);
      if (!judged.passed() || judged.judged != element_count(real_view(got.view()).shape))
        text += fmt::format("{} {} {}: {} x tolerance, {} not finite\n", implementation.name, problem.id(),
                            spec.name, judged.tolerance_ratio, judged.nonfinite);
    }
  }
  return text;
}

void check_device(const DeviceInfo& info) {
  const auto device = open_device(info.kind, info.index);
  int ran = 0;
  for (const auto& method : methods())
    for (const char* A : {"real", "complex"})
      for (const std::int64_t dstate : {1, 6})
        for (const char* projection : {"variable", "constant"}) {
          const Problem problem(selective_scan_fwd(), {{"batch", std::int64_t{2}},
                                                       {"dim", std::int64_t{3}},
                                                       {"seqlen", std::int64_t{37}},
                                                       {"dstate", dstate},
                                                       {"method", method.name},
                                                       {"A", A},
                                                       {"B", projection},
                                                       {"C", projection},
                                                       {"delta_bias", false},
                                                       {"delta_softplus", false},
                                                       {"dtype", "f32"}});
          CHECK(failures(problem, *device, ran) == "");
        }
  CHECK(ran >= 12 * 8);  // one implementation at least does all
}

}  // namespace

TEST_CASE("CPU implementations are right where A and steps are 0") {
  check_device(list_devices().front());
}

TEST_CASE("CUDA implementations are right where A and steps are 0", "[gpu]") {
  for (const auto& device : list_devices())
    if (device.kind == DeviceKind::cuda) return check_device(device);
  WARN("skipped: no CUDA device");
}
