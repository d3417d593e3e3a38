#include "ops/linear_scan/linear_scan.h"

#include "model/problem.h"
#include "ops/linear_scan/inputs.h"

namespace ssmbench {
namespace {

std::vector<TensorSpec> linear_scan_tensors(const Problem& problem) {
  const LinearScan scan(problem);
  const auto sequence = [&](const char* name, Role role) {
    return TensorSpec{name, role, problem.dtype(), {scan.batch, scan.seqlen, scan.dim}, {0, 1, 2}, "bld"};
  };
  return {sequence("a", Role::input), sequence("b", Role::input), sequence("out", Role::output)};
}

/// One multiply-add an element.
Work linear_scan_work(const Problem& problem, Math /*math*/) {
  return {.bytes = tensor_bytes(problem), .fmas = LinearScan(problem).elements()};
}

void infer_linear_scan(const StoredInputs& inputs, Axes& axes) {
  const Shape& a = inputs.shape("a", 3);
  axes["batch"] = a[0];
  axes["seqlen"] = a[1];
  axes["dim"] = a[2];
}

InputFill linear_scan_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(LinearScanInputs(problem, spec));
}

const OpRegistration registration(linear_scan());

}  // namespace

const OpSpec& linear_scan() {
  static const OpSpec spec{
      .name = "linear_scan",
      .summary = "bare first-order recurrence h = a·h + b",
      .axes = {{.name = "dtype",
                .kind = AxisKind::choice,
                .choices = {"f32", "f16", "bf16"},
                .role = AxisRole::dtype},
               {.name = "batch", .id_token = "b", .role = AxisRole::batch},
               {.name = "seqlen", .id_token = "l", .role = AxisRole::time},
               {.name = "dim", .id_token = "d", .role = AxisRole::channel, .letter = 'd'}},
      .tensors = linear_scan_tensors,
      .contradiction = [](const Problem&) { return std::optional<std::string>(); },
      .inputs = linear_scan_inputs,
      .least_work = linear_scan_work,
      .file = {.attributes = {"dtype"}, .infer = infer_linear_scan}};
  return spec;
}

LinearScan::LinearScan(const Problem& problem)
    : batch(problem.size("batch")), seqlen(problem.size("seqlen")), dim(problem.size("dim")) {}

}  // namespace ssmbench
