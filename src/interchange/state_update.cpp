#include "model/state_update.h"

#include <fmt/format.h>

#include "interchange/format.h"

namespace ssmbench {
namespace {

/// The state is (B, D, N) in form mamba1 and (B, H, P, N) in form mamba2; B and C have an axis of groups, or
/// none, in form mamba1, for one group.
void infer(const StoredInputs& inputs, Axes& axes) {
  const Shape& state = inputs.at("state").shape;
  if (state.size() != 3 && state.size() != 4)
    inputs.reject("state", fmt::format("expected 3 axes (mamba1) or 4 (mamba2), found {}", state.size()));
  const bool mamba1 = state.size() == 3;
  axes["form"] = mamba1 ? "mamba1" : "mamba2";
  axes["batch"] = state[0];
  axes[mamba1 ? "dim" : "nheads"] = state[1];
  if (!mamba1) axes["headdim"] = state[2];
  axes["dstate"] = state.back();
  const bool ungrouped = mamba1 && inputs.at("B").shape.size() == 2;
  axes["groups"] = ungrouped ? 1 : inputs.shape("B", 3)[1];
  for (const char* name : {"D", "z", "dt_bias"}) axes[name] = inputs.has(name);
}

}  // namespace

const OpFormat& selective_state_update_format() {
  static const OpFormat format{selective_state_update(), {"method", "dtype", "layout", "dt_softplus"}, infer};
  return format;
}

}  // namespace ssmbench
