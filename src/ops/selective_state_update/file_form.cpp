#include "ops/selective_state_update/file_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

/// The state is (B, D, N) in form mamba1 and (B, H, P, N) in form mamba2, with slots in place of B where there
/// is a source or a destination; x has an axis of tokens behind that of the batch, or none for one token; B
/// and C have an axis of groups, or none, in form mamba1, for one group. Any output may be missing, so that
/// several tokens are read as having intermediate states: they are judged where they are. Axes that only say
/// how indices are drawn stay at their fallbacks.
void infer_state_update(const StoredInputs& inputs, Axes& axes) {
  const Shape& state = inputs.at("state").shape;
  if (state.size() != 3 && state.size() != 4)
    inputs.reject("state", fmt::format("expected 3 axes (mamba1) or 4 (mamba2), found {}", state.size()));
  const bool mamba1 = state.size() == 3;
  const Shape& x = inputs.at("x").shape;
  const bool has_tokens = x.size() == state.size();
  if (!has_tokens && x.size() != state.size() - 1)
    inputs.reject(
        "x", fmt::format("expected {} axes, or one more with tokens, found {}", state.size() - 1, x.size()));
  axes["form"] = mamba1 ? "mamba1" : "mamba2";
  axes["batch"] = x[0];
  axes["tokens"] = has_tokens ? x[1] : 1;
  const bool has_scale = largest_in_scale(*parse_dtype(state_dtype_of(inputs))) > 0;
  axes["intermediate"] = has_tokens && x[1] > 1 && !has_scale;  // which the cache alone has
  if (inputs.has("source") || inputs.has("destination")) axes["slots"] = state[0];
  axes[mamba1 ? "dim" : "nheads"] = state[1];
  if (!mamba1) axes["headdim"] = state[2];
  axes["dstate"] = state.back();
  axes["state_dtype"] = state_dtype_of(inputs);
  axes["dt_dtype"] = inputs.at("dt").dtype == "f32" && inputs.at("x").dtype != "f32" ? "f32" : "io";
  const std::size_t rank = has_tokens ? 3 : 2;  // of B without an axis of groups
  const bool ungrouped = mamba1 && inputs.at("B").shape.size() == rank;
  axes["groups"] = ungrouped ? 1 : inputs.shape("B", rank + 1)[rank - 1];
  axes["rounding"] = inputs.has("seed") ? "stochastic" : "nearest";
  for (const char* name : {"D", "z", "dt_bias"}) axes[name] = inputs.has(name);
}

/// Axes of one may be there or not: groups of B and C in form mamba1, tokens.
std::optional<Shape> with_axis_of_one(const TensorSpec& spec) {
  if (spec.name == "destination" && spec.shape.back() == 1) return Shape{spec.shape[0]};
  if ((spec.name != "B" && spec.name != "C") || spec.axes.find('g') != std::string::npos) return {};
  Shape shape = spec.shape;
  shape.insert(shape.end() - 1, 1);
  return shape;
}

/// Rows of zeros may have a scale of 0: those of a cache that has just been cleared.
std::optional<std::string> wrong_scales(const HostTensor& input) {
  const auto* values = static_cast<const float*>(input.buffer.data());
  const std::int64_t count = element_count(input.spec.shape);
  for (std::int64_t i = 0; i < count; ++i)
    if (!(values[i] >= 0) || std::isinf(values[i]))
      return fmt::format("{} at {}: a scale is finite and not negative", values[i],
                         index_text(index_of(i, input.spec.shape), input.spec.axes));
  return {};
}

std::optional<std::string> wrong_values(const HostTensor& input) {
  const std::string& name = input.spec.name;
  if (name == "state_scale") return wrong_scales(input);
  if (name != "source" && name != "destination") return {};
  const auto* values = static_cast<const std::int32_t*>(input.buffer.data());
  const std::int64_t count = element_count(input.spec.shape);
  for (std::int64_t i = 0; i < count; ++i)
    if (values[i] < -1)
      return fmt::format("{} at {}: a slot is at least 0, and -1 is none", values[i],
                         index_text(index_of(i, input.spec.shape), input.spec.axes));
  return {};
}

}  // namespace

FileForm state_update_file_form() {
  return {.attributes = {"method", "dtype", "layout", "dt_softplus"},
          .infer = infer_state_update,
          .wrong_values = wrong_values,
          .repeated_attributes = {"state_dtype"},
          .other_shape = with_axis_of_one};
}

}  // namespace ssmbench
