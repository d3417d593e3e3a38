#include "ops/selective_state_update/file_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/problem.h"
#include "ops/selective_state_update/selective_state_update.h"

namespace ssmbench {
namespace {

/// What is not a dtype that states can have is left to the reader, which compares it with the fallback.
std::string state_dtype_of(const StoredInputs& inputs) {
  const AxisSpec& axis = *selective_state_update().find_axis("state_dtype");
  const std::string& found = inputs.at("state").dtype;
  return std::ranges::find(axis.choices, found) == axis.choices.end() ? to_string(*axis.fallback) : found;
}

/// The state is (B, D, N) in form mamba1 and (B, H, P, N) in form mamba2; B and C have an axis of groups, or
/// none, in form mamba1, for one group.
void infer_state_update(const StoredInputs& inputs, Axes& axes) {
  const Shape& state = inputs.at("state").shape;
  if (state.size() != 3 && state.size() != 4)
    inputs.reject("state", fmt::format("expected 3 axes (mamba1) or 4 (mamba2), found {}", state.size()));
  const bool mamba1 = state.size() == 3;
  axes["form"] = mamba1 ? "mamba1" : "mamba2";
  axes["batch"] = state[0];
  axes[mamba1 ? "dim" : "nheads"] = state[1];
  if (!mamba1) axes["headdim"] = state[2];
  axes["dstate"] = state.back();
  axes["state_dtype"] = state_dtype_of(inputs);
  const bool ungrouped = mamba1 && inputs.at("B").shape.size() == 2;
  axes["groups"] = ungrouped ? 1 : inputs.shape("B", 3)[1];
  for (const char* name : {"D", "z", "dt_bias"}) axes[name] = inputs.has(name);
}

/// B and C (B, N) of form mamba1 may come with their one group as an axis.
std::optional<Shape> with_group_axis(const TensorSpec& spec) {
  if ((spec.name != "B" && spec.name != "C") || spec.shape.size() != 2) return {};
  return Shape{spec.shape[0], 1, spec.shape[1]};
}

}  // namespace

FileForm state_update_file_form() {
  return {.attributes = {"method", "dtype", "layout", "dt_softplus"},
          .infer = infer_state_update,
          .repeated_attributes = {"state_dtype"},
          .other_shape = with_group_axis};
}

}  // namespace ssmbench
