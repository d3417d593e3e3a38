#include "ops/causal_conv1d/file_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ssmbench {
namespace {

/// x is stored as (B, D, L), or as (B, L, D) in layout bld.
void infer_sequence(const StoredInputs& inputs, Axes& axes) {
  const Shape& x = inputs.shape("x", 3);
  const bool channels_last = axes.at("layout") == AxisValue("bld");
  axes["batch"] = x[0];
  axes["dim"] = x[channels_last ? 2 : 1];
  axes["seqlen"] = x[channels_last ? 1 : 2];
  axes["width"] = inputs.shape("weight", 2)[1];
  for (const char* name : {"bias", "initial_states", "seq_idx"}) axes[name] = inputs.has(name);
}

/// Any output may be missing from a file, so the problem is read as having final_states where it may have
/// them: they are judged where they are.
void infer_fwd(const StoredInputs& inputs, Axes& axes) {
  infer_sequence(inputs, axes);
  axes["final_states"] = !inputs.has("seq_idx");
}

void infer_bwd(const StoredInputs& inputs, Axes& axes) {
  infer_sequence(inputs, axes);
  axes["final_states"] = inputs.has("dfinal_states");
}

/// x is (B, D) or (B, T, D), the state stored as (S, D, K) or, in layout skd, as (S, K, D).
void infer_update(const StoredInputs& inputs, Axes& axes) {
  const Shape& x = inputs.at("x").shape;
  if (x.size() != 2 && x.size() != 3)
    inputs.reject("x", fmt::format("expected 2 axes (one token) or 3 (several), found {}", x.size()));
  const Shape& state = inputs.shape("conv_state", 3);
  axes["batch"] = x[0];
  axes["dim"] = x.back();
  axes["tokens"] = x.size() == 3 ? x[1] : std::int64_t{1};
  axes["state_len"] = state[axes.at("layout") == AxisValue("skd") ? 1 : 2];
  axes["width"] = inputs.shape("weight", 2)[1];
  axes["bias"] = inputs.has("bias");
  axes["slots"] = axes.at("store") == AxisValue("own") ? std::int64_t{1} : state[0];
}

/// A single token may come with its axis.
std::optional<Shape> with_token_axis(const TensorSpec& spec) {
  if ((spec.name != "x" && spec.name != "out") || spec.shape.size() != 2) return {};
  return Shape{spec.shape[0], 1, spec.shape[1]};
}

/// Indices below -1, and slots that two rows read or write. Those beyond the cache, and pairs of source and
/// destination, are the concern of the reference, which sees all tensors.
std::optional<std::string> wrong_values(const HostTensor& input) {
  if (input.spec.name != "source" && input.spec.name != "destination") return {};
  const auto* slots = static_cast<const std::int32_t*>(input.buffer.data());
  std::set<std::int32_t> seen;
  for (std::int64_t b = 0; b < input.spec.shape[0]; ++b) {
    if (slots[b] < -1) return fmt::format("row {} has slot {}", b, slots[b]);
    if (slots[b] >= 0 && input.spec.name == "destination" && !seen.insert(slots[b]).second)
      return fmt::format("row {} has slot {}, which an earlier row has", b, slots[b]);
  }
  return {};
}

}  // namespace

FileForm conv_fwd_file_form() {
  return {.attributes = {"dtype", "weight_dtype", "layout", "silu"}, .infer = infer_fwd};
}

FileForm conv_bwd_file_form() {
  return {.attributes = {"dtype", "weight_dtype", "layout", "silu", "dout_layout"}, .infer = infer_bwd};
}

FileForm conv_update_file_form() {
  return {.attributes = {"dtype", "weight_dtype", "layout", "silu", "store", "pads"},
          .infer = infer_update,
          .wrong_values = wrong_values,
          .other_shape = with_token_axis};
}

}  // namespace ssmbench
