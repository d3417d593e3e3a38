// Every implementation on inputs that no distribution has: those of the golden files,
// and A, Δ or everything 0.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "interchange/reader.h"
#include "model/method.h"
#include "reference/reference.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

struct Inputs {
  Problem problem;
  std::vector<HostTensor> tensors;
};

/// All implementations that take the problem; returns how many these are.
int check(const Inputs& inputs, Device& device) {
  const auto expected = compute_reference(inputs.problem, views_of(inputs.tensors), never_stop);
  int count = 0;
  for (const auto& implementation : implementations()) {
    if (implementation.op != inputs.problem.op().name || implementation.device != device.info().kind ||
        implementation.unsupported(inputs.problem) || !implementation.known_failure.empty())
      continue;
    ++count;
    for (const auto& output : run_once(device, implementation, inputs.problem, inputs.tensors)) {
      INFO(implementation.name << " " << inputs.problem.id() << " " << output.spec.name);
      const auto comparison =
          compare_output(real_view(output.view()), expected.at(output.spec.name).expectation(),
                         implementation.arithmetic(inputs.problem.dtype()));
      INFO("tolerance ratio " << comparison.tolerance_ratio);
      CHECK(comparison.passed());
    }
  }
  return count;
}

void check_golden(Device& device) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(SSMBENCH_SOURCE_DIR) + "/tests/golden")) {
    if (entry.path().extension() != ".h5") continue;
    const InterchangeFile file(entry.path());
    auto the_case = file.read_case(file.case_ids().front());
    count += check({the_case.problem, std::move(the_case.inputs)}, device);
  }
  CHECK(count >= 9);
}

/// Some tensors 0, others of both signs; Δ ≥ 0.
void check_zeros(Device& device) {
  const std::vector<std::vector<std::string>> zeros{
      {"A"}, {"delta"}, {"A", "delta"}, {"B"}, {"C"}, {"A", "delta", "u", "B", "C", "dout", "initial_state"}};
  int count = 0;
  std::int64_t turn = 0;
  for (const OpSpec* op : {&selective_scan_fwd(), &selective_scan_bwd()})
    for (const auto& method : methods())
      for (const char* A : {"real", "complex"})
        for (const auto& names : zeros) {
          const Problem problem = scan_problem({{"method", method.name},
                                                {"A", A},
                                                {"dim", size(3)},
                                                {"seqlen", size(35)},
                                                {"dstate", size(turn % 3 == 0 ? 1 : 5)},
                                                {"B", turn % 4 == 1 ? "constant" : "variable"},
                                                {"C", turn % 5 == 1 ? "constant" : "variable"},
                                                {"initial_state", true}},
                                               *op);
          const auto value = [&](const std::string& name, std::int64_t i) {
            if (std::ranges::find(names, name) != names.end()) return 0.0;
            if (name == "A") return -0.25 * static_cast<double>(1 + i % 7);
            const double spread = static_cast<double>(i * 37 % 101) / 101;
            return name == "delta" ? 0.5 * spread : spread - 0.4;
          };
          count += check({problem, make_inputs(problem, value)}, device);
          ++turn;
        }
  CHECK(count > 0);
}

}  // namespace

TEST_CASE("CPU implementations are right on the inputs of the golden files") {
  check_golden(*open_device(DeviceKind::cpu));
}

TEST_CASE("CPU implementations are right where A, delta or all inputs are 0") {
  check_zeros(*open_device(DeviceKind::cpu));
}

TEST_CASE("CUDA implementations are right on the inputs of the golden files and where inputs are 0",
          "[gpu]") {
  if (!gpu_or_skip()) return;
  const auto device = open_device(DeviceKind::cuda);
  check_golden(*device);
  check_zeros(*device);
}
