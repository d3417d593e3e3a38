#include "model/linear_scan.h"

namespace ssmbench {
namespace {

std::vector<TensorSpec> linear_scan_tensors(const Problem& problem) {
  const LinearScan scan(problem);
  const auto sequence = [&](const char* name, Role role) {
    return TensorSpec{name, role, problem.dtype(), {scan.batch, scan.seqlen, scan.dim}, {0, 1, 2}, "bld"};
  };
  return {sequence("a", Role::input), sequence("b", Role::input), sequence("out", Role::output)};
}

}  // namespace

const OpSpec& linear_scan() {
  static const OpSpec spec{"linear_scan",
                           "bare first-order recurrence h = a·h + b",
                           {{"dtype", AxisKind::choice, "", {"f32", "f16", "bf16"}, {}},
                            {"batch", AxisKind::size, "b", {}, {}},
                            {"seqlen", AxisKind::size, "l", {}, {}},
                            {"dim", AxisKind::size, "d", {}, {}}},
                           linear_scan_tensors,
                           [](const Problem&) { return std::optional<std::string>(); }};
  return spec;
}

LinearScan::LinearScan(const Problem& problem)
    : batch(problem.size("batch")), seqlen(problem.size("seqlen")), dim(problem.size("dim")) {}

}  // namespace ssmbench
