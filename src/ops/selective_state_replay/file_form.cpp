#include "ops/selective_state_replay/file_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/selective_state_replay/selective_state_replay.h"

namespace ssmbench {
namespace {

/// The state is (S, H, P, N); x has an axis of tokens behind that of the batch, or none for one token; what
/// the ring has beyond the new tokens is the window. Axes that only say how indices are drawn stay at their
/// fallbacks.
void infer_state_replay(const StoredInputs& inputs, Axes& axes) {
  const Shape& state = inputs.shape("state", 4);
  const Shape& x = inputs.at("x").shape;
  if (x.size() != 3 && x.size() != 4)
    inputs.reject("x", fmt::format("expected 3 axes, or 4 with tokens, found {}", x.size()));
  const bool has_tokens = x.size() == 4;
  const std::int64_t tokens = has_tokens ? x[1] : 1;
  const std::int64_t rows = inputs.shape("ring_dt", 3)[2];
  if (rows <= tokens)
    inputs.reject("ring_dt",
                  fmt::format("{} rows for {} new tokens leave none for those before", rows, tokens));
  axes["batch"] = x[0];
  axes["tokens"] = tokens;
  axes["window"] = rows - tokens;
  if (inputs.has("source")) axes["slots"] = state[0];
  axes["nheads"] = state[1];
  axes["headdim"] = state[2];
  axes["dstate"] = state[3];
  axes["groups"] = inputs.shape("ring_B", 4)[1];
  const std::vector<std::string>& dtypes = selective_state_replay().find_axis("state_dtype")->choices;
  const std::string& found = inputs.at("state").dtype;
  axes["state_dtype"] = std::ranges::find(dtypes, found) == dtypes.end() ? "f32" : found;
  axes["dt_dtype"] = inputs.at("dt").dtype == "f32" && inputs.at("x").dtype != "f32" ? "f32" : "io";
  for (const char* name : {"D", "z", "dt_bias"}) axes[name] = inputs.has(name);
}

std::optional<std::string> wrong_indices(const HostTensor& input) {
  const std::string& name = input.spec.name;
  if (name != "source" && name != "start" && name != "count") return {};
  const std::int32_t least = name == "source" ? -1 : 0;
  const auto* values = static_cast<const std::int32_t*>(input.buffer.data());
  for (std::int64_t i = 0; i < element_count(input.spec.shape); ++i)
    if (values[i] < least)
      return fmt::format("{} at {}: {} is at least {}", values[i],
                         index_text(index_of(i, input.spec.shape), input.spec.axes), name, least);
  return {};
}

}  // namespace

FileForm state_replay_file_form() {
  return {.attributes = {"method", "dtype", "layout", "dt_softplus"},
          .infer = infer_state_replay,
          .wrong_values = wrong_indices,
          .repeated_attributes = {"state_dtype"}};
}

}  // namespace ssmbench
