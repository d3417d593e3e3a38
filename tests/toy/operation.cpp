#include "operation.h"

#include "base/random.h"
#include "model/problem.h"

namespace ssmbench {
namespace {

std::vector<TensorSpec> tensors(const Problem& problem) {
  const Shape sequence{problem.size("sequences"), problem.size("steps"), problem.size("lanes")};
  std::vector<TensorSpec> all{{"x", Role::input, problem.dtype(), sequence, {0, 1, 2}, "blc"}};
  if (problem.flag("gain"))
    all.push_back({"gain", Role::input, DType::f32, {problem.size("lanes")}, {0}, "c"});
  all.push_back({"sums", Role::output, problem.dtype(), sequence, {0, 1, 2}, "blc"});
  return all;
}

std::optional<std::string> contradiction(const Problem& problem) {
  if (problem.size("lanes") > 64) return "lanes are over the limit of 64";
  return {};
}

InputFill inputs(const Problem& /*problem*/, const InputSpec& spec) {
  return [seed = spec.seed](std::string_view tensor, std::int64_t first, std::span<double> values) {
    Stream(seed, tensor).normals(first, values);
  };
}

/// An addition a step, and with a gain a multiplication.
Work least_work(const Problem& problem, Math /*math*/) {
  const auto elements = static_cast<double>(element_count(problem.tensors().front().shape));
  return {.bytes = tensor_bytes(problem), .fmas = elements};
}

void infer(const StoredInputs& stored, Axes& axes) {
  const Shape& x = stored.shape("x", 3);
  axes["sequences"] = x[0];
  axes["steps"] = x[1];
  axes["lanes"] = x[2];
  axes["gain"] = stored.has("gain");
}

std::optional<std::string> warning(const Problem& problem) {
  if (problem.size("steps") < 1000) return {};
  return "sums of a thousand steps are long";
}

const OpRegistration registration(running_sum());

}  // namespace

const OpSpec& running_sum() {
  static const OpSpec spec{
      .name = "running_sum",
      .summary = "sums of all steps so far",
      .axes =
          {{.name = "dtype", .kind = AxisKind::choice, .choices = {"f32", "bf16"}, .role = AxisRole::dtype},
           {.name = "sequences", .id_token = "b", .role = AxisRole::batch},
           {.name = "steps", .id_token = "l", .role = AxisRole::time},
           {.name = "lanes", .id_token = "c", .role = AxisRole::channel, .letter = 'c'},
           {.name = "tile", .id_token = "tile", .fallback = std::int64_t{8}, .changes_values = false},
           {.name = "gain", .kind = AxisKind::flag, .id_token = "gain", .fallback = true}},
      .tensors = tensors,
      .contradiction = contradiction,
      .inputs = inputs,
      .least_work = least_work,
      .file = {.attributes = {"dtype", "tile"}, .infer = infer},
      .warning = warning};
  return spec;
}

}  // namespace ssmbench
