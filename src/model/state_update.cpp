#include "model/state_update.h"

#include <fmt/format.h>

#include "model/selective_scan.h"

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
  if (update.dstate > kMaxDState)
    return fmt::format("dstate {} is over the limit of {}", update.dstate, kMaxDState);
  if (update.headdim > kMaxHeadDim)
    return fmt::format("headdim {} is over the limit of {}", update.headdim, kMaxHeadDim);
  if (update.heads % update.groups != 0)
    return fmt::format("{} {} is not a multiple of groups {}", update.rate_per_state ? "dim" : "nheads",
                       update.heads, update.groups);
  return {};
}

}  // namespace

const OpSpec& selective_state_update() {
  static const OpSpec spec{"selective_state_update",
                           "one decoding step of Mamba-1 or Mamba-2, the state updated in place",
                           {{"form", AxisKind::choice, "", {kMamba1, kMamba2}, {}},
                            {"method", AxisKind::choice, "", {"zoh"}, "zoh"},
                            {"dtype", AxisKind::choice, "", {"f32", "f16", "bf16"}, {}},
                            {"state_dtype", AxisKind::choice, "state", {"f32", "f16", "bf16"}, "f32"},
                            {"layout", AxisKind::choice, "", {"bd"}, "bd"},
                            {"batch", AxisKind::size, "b", {}, {}},
                            {"dim", AxisKind::size, "d", {}, {}, {{"form", kMamba1}}},
                            {"nheads", AxisKind::size, "h", {}, {}, {{"form", kMamba2}}},
                            {"headdim", AxisKind::size, "p", {}, {}, {{"form", kMamba2}}},
                            {"dstate", AxisKind::size, "n", {}, {}},
                            {"groups", AxisKind::size, "g", {}, std::int64_t{1}},
                            {"D", AxisKind::flag, "D", {}, true},
                            {"z", AxisKind::flag, "z", {}, true},
                            {"dt_bias", AxisKind::flag, "bias", {}, true},
                            {"dt_softplus", AxisKind::flag, "softplus", {}, true}},
                           state_update_tensors,
                           state_update_contradiction};
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
