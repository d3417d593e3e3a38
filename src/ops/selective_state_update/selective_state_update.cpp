#include "ops/selective_state_update/selective_state_update.h"

#include <fmt/format.h>

#include "model/problem.h"
#include "ops/selective_state_update/file_form.h"
#include "ops/selective_state_update/inputs.h"
#include "ops/selective_state_update/parts.h"

namespace ssmbench {
namespace {

constexpr const char* kMamba1 = "mamba1";
constexpr const char* kMamba2 = "mamba2";

std::vector<int> in_order(const Shape& shape) {
  std::vector<int> order;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) order.push_back(static_cast<int>(axis));
  return order;
}

TensorSpec plain(const char* name, Role role, DType dtype, const Shape& shape, const std::string& axes) {
  return {name, role, dtype, shape, in_order(shape), axes};
}

std::vector<TensorSpec> state_update_tensors(const Problem& problem) {
  const StateUpdate update(problem);
  const DType io = problem.dtype();
  const bool mamba1 = update.rate_per_state;
  const Shape row =
      mamba1 ? Shape{update.batch, update.heads} : Shape{update.batch, update.heads, update.headdim};
  Shape state = row;
  state.push_back(update.dstate);
  const Shape projection = mamba1 && update.groups == 1 ? Shape{update.batch, update.dstate}
                                                        : Shape{update.batch, update.groups, update.dstate};
  const std::string row_axes = mamba1 ? "bd" : "bhp";
  const std::string projection_axes = projection.size() == 2 ? "bn" : "bgn";
  const std::string head_axis = mamba1 ? "d" : "h";
  const Shape rate = mamba1 ? Shape{update.heads, update.dstate} : Shape{update.heads};

  std::vector<TensorSpec> all{plain("state", Role::input, update.state_dtype, state, row_axes + "n"),
                              plain("x", Role::input, io, row, row_axes),
                              plain("dt", Role::input, io, {update.batch, update.heads}, "b" + head_axis),
                              plain("A", Role::input, DType::f32, rate, mamba1 ? "dn" : "h"),
                              plain("B", Role::input, io, projection, projection_axes),
                              plain("C", Role::input, io, projection, projection_axes)};
  if (update.has_D) all.push_back(plain("D", Role::input, DType::f32, {update.heads}, head_axis));
  if (update.has_z) all.push_back(plain("z", Role::input, io, row, row_axes));
  if (update.has_dt_bias) all.push_back(plain("dt_bias", Role::input, DType::f32, {update.heads}, head_axis));
  all.push_back(plain("out", Role::output, io, row, row_axes));
  all.push_back(plain("state", Role::output, update.state_dtype, state, row_axes + "n"));
  return all;
}

std::optional<std::string> state_update_contradiction(const Problem& problem) {
  const StateUpdate update(problem);
  if (update.dstate > kMaxStepDState)
    return fmt::format("dstate {} is over the limit of {}", update.dstate, kMaxStepDState);
  if (update.headdim > kMaxHeadDim)
    return fmt::format("headdim {} is over the limit of {}", update.headdim, kMaxHeadDim);
  if (update.heads % update.groups != 0)
    return fmt::format("{} {} is not a multiple of groups {}", update.rate_per_state ? "dim" : "nheads",
                       update.heads, update.groups);
  return {};
}

/// One exponential a state in form mamba1, one a head in form mamba2; decay, input and output are a
/// multiply-add each.
Work state_update_work(const Problem& problem, Math /*math*/) {
  const StateUpdate update(problem);
  const double heads = static_cast<double>(update.batch) * static_cast<double>(update.heads);
  return {.bytes = tensor_bytes(problem),
          .exponentials = update.rate_per_state ? update.states() : heads,
          .fmas = 3 * update.states()};
}

InputFill state_update_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(StateUpdateInputs(problem, spec));
}

AxisSpec flag(const char* name, const char* id_token) {
  return {.name = name, .kind = AxisKind::flag, .id_token = id_token, .fallback = true};
}

std::vector<AxisSpec> state_update_axes() {
  const std::vector<std::string> dtypes{"f32", "f16", "bf16"};
  return {{.name = "form", .kind = AxisKind::choice, .choices = {kMamba1, kMamba2}},
          {.name = "method",
           .kind = AxisKind::choice,
           .choices = {"zoh"},
           .fallback = "zoh",
           .role = AxisRole::method},
          {.name = "dtype", .kind = AxisKind::choice, .choices = dtypes, .role = AxisRole::dtype},
          {.name = "state_dtype",
           .kind = AxisKind::choice,
           .id_token = "state",
           .choices = dtypes,
           .fallback = "f32"},
          {.name = "layout",
           .kind = AxisKind::choice,
           .choices = {"bd"},
           .fallback = "bd",
           .role = AxisRole::layout,
           .changes_values = false},
          {.name = "batch", .id_token = "b", .role = AxisRole::batch},
          {.name = "dim",
           .id_token = "d",
           .only_with = {{"form", kMamba1}},
           .role = AxisRole::channel,
           .letter = 'd'},
          {.name = "nheads",
           .id_token = "h",
           .only_with = {{"form", kMamba2}},
           .role = AxisRole::channel,
           .letter = 'h'},
          {.name = "headdim", .id_token = "p", .only_with = {{"form", kMamba2}}},
          {.name = "dstate", .id_token = "n"},
          {.name = "groups", .id_token = "g", .fallback = std::int64_t{1}, .role = AxisRole::groups},
          flag("D", "D"),
          flag("z", "z"),
          flag("dt_bias", "bias"),
          flag("dt_softplus", "softplus")};
}

const OpRegistration registration(selective_state_update());

}  // namespace

const OpSpec& selective_state_update() {
  static const OpSpec spec{.name = "selective_state_update",
                           .summary = "one decoding step of Mamba-1 or Mamba-2, the state updated in place",
                           .axes = state_update_axes(),
                           .tensors = state_update_tensors,
                           .contradiction = state_update_contradiction,
                           .inputs = state_update_inputs,
                           .least_work = state_update_work,
                           .file = state_update_file_form(),
                           .parts = {heads_as_channels()},
                           .look_alikes = {{"B", "C"}}};
  return spec;
}

StateUpdate::StateUpdate(const Problem& problem)
    : rate_per_state(problem.choice("form") == kMamba1),
      batch(problem.size("batch")),
      heads(problem.size(rate_per_state ? "dim" : "nheads")),
      headdim(rate_per_state ? 1 : problem.size("headdim")),
      dstate(problem.size("dstate")),
      groups(problem.size("groups")),
      has_z(problem.flag("z")),
      has_D(problem.flag("D")),
      has_dt_bias(problem.flag("dt_bias")),
      dt_softplus(problem.flag("dt_softplus")),
      state_dtype(*parse_dtype(problem.choice("state_dtype"))) {}

}  // namespace ssmbench
