#include "ops/causal_conv1d/causal_conv1d.h"

#include <fmt/format.h>

#include "model/problem.h"
#include "ops/causal_conv1d/file_form.h"
#include "ops/causal_conv1d/inputs.h"
#include "ops/causal_conv1d/parts.h"
#include "ops/causal_conv1d/tensors.h"
#include "ops/causal_conv1d/work.h"

namespace ssmbench {
namespace {

std::optional<std::string> width_contradiction(std::int64_t width) {
  if (width >= kMinConvWidth && width <= kMaxConvWidth) return {};
  return fmt::format("width {} is not in {} to {}", width, kMinConvWidth, kMaxConvWidth);
}

std::optional<std::string> conv_contradiction(const Problem& problem) {
  const CausalConv1d conv(problem);
  if (conv.has_seq_idx && (conv.has_initial_states || conv.has_final_states))
    return "seq_idx does not go together with initial_states and final_states";
  return width_contradiction(conv.width);
}

std::optional<std::string> update_contradiction(const Problem& problem) {
  const ConvUpdate update(problem);
  if (update.state_len < update.taps())
    return fmt::format("state_len {} is less than the {} steps that a width of {} reaches back",
                       update.state_len, update.taps(), update.width);
  if (!update.has_indices()) {
    if (update.pads) return "pads without slots: store is own";
    if (problem.size("slots") != 1) return fmt::format("slots {} with store own", problem.size("slots"));
  }
  const std::int64_t least = update.store == ConvUpdate::Store::apart ? 2 * update.batch : update.batch;
  if (update.slots < least)
    return fmt::format("slots {} are too few: batch {} with store {} needs {}", update.slots, update.batch,
                       problem.choice("store"), least);
  if (update.slots > kMaxConvSlots)
    return fmt::format("slots {} is over the limit of {}", update.slots, kMaxConvSlots);
  return width_contradiction(update.width);
}

AxisSpec size(const char* name, const char* id_token, AxisRole role = AxisRole::none) {
  return {.name = name, .id_token = id_token, .role = role};
}

AxisSpec flag(const char* name, const char* id_token, bool fallback) {
  return {.name = name, .kind = AxisKind::flag, .id_token = id_token, .fallback = fallback};
}

AxisSpec layout(const std::vector<std::string>& choices) {
  return {.name = "layout",
          .kind = AxisKind::choice,
          .choices = choices,
          .fallback = choices.front(),
          .role = AxisRole::layout,
          .changes_values = false};
}

/// What all operations have.
std::vector<AxisSpec> common_axes(const std::vector<std::string>& layouts) {
  return {
      {.name = "dtype", .kind = AxisKind::choice, .choices = {"f32", "f16", "bf16"}, .role = AxisRole::dtype},
      {.name = "weight_dtype",
       .kind = AxisKind::choice,
       .id_token = "weight",
       .choices = {"io", "f32"},
       .fallback = "io"},
      layout(layouts),
      size("batch", "b", AxisRole::batch),
      {.name = "dim", .id_token = "d", .role = AxisRole::channel, .letter = 'd'},
      {.name = "width", .id_token = "w", .fallback = std::int64_t{4}},
      flag("bias", "bias", true),
      flag("silu", "silu", true)};
}

std::vector<AxisSpec> sequence_axes(bool backward) {
  std::vector<AxisSpec> axes = common_axes({"bdl", "bld"});
  axes.push_back(size("seqlen", "l", AxisRole::time));
  axes.push_back(flag("initial_states", "init", false));
  axes.push_back(flag("final_states", "final", false));
  axes.push_back(flag("seq_idx", "packed", false));
  if (backward)
    axes.push_back({.name = "dout_layout",
                    .kind = AxisKind::choice,
                    .id_token = "dout",
                    .choices = {"same", "other"},
                    .fallback = "same",
                    .changes_values = false});
  return axes;
}

std::vector<AxisSpec> update_axes() {
  std::vector<AxisSpec> axes = common_axes({"sdk", "skd"});
  axes.push_back({.name = "tokens", .id_token = "t", .fallback = std::int64_t{1}});
  axes.push_back({.name = "state_len", .id_token = "k", .fallback = std::int64_t{3}});
  axes.push_back({.name = "store",
                  .kind = AxisKind::choice,
                  .choices = {"own", "last", "apart", "none"},
                  .fallback = "own"});
  axes.push_back({.name = "slots", .id_token = "s", .fallback = std::int64_t{1}});
  axes.push_back(flag("pads", "pads", false));
  return axes;
}

InputFill conv_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(ConvInputs(problem, spec));
}

InputFill update_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(ConvUpdateInputs(problem, spec));
}

ConvUpdate::Store store_of(const std::string& word) {
  if (word == "own") return ConvUpdate::Store::own;
  if (word == "last") return ConvUpdate::Store::last;
  return word == "apart" ? ConvUpdate::Store::apart : ConvUpdate::Store::none;
}

const OpRegistration forward_op(causal_conv1d_fwd());
const OpRegistration backward_op(causal_conv1d_bwd());
const OpRegistration update_op(causal_conv1d_update());

}  // namespace

const OpSpec& causal_conv1d_fwd() {
  static const OpSpec spec{.name = "causal_conv1d_fwd",
                           .summary = "causal convolution of each channel with silu, forward",
                           .axes = sequence_axes(false),
                           .tensors = conv_fwd_tensors,
                           .contradiction = conv_contradiction,
                           .inputs = conv_inputs,
                           .least_work = conv_fwd_least_work,
                           .file = conv_fwd_file_form(),
                           .parts = {conv_in_steps(), conv_in_halves(), conv_then_steps(),
                                     conv_split_everywhere(), conv_in_sequences()}};
  return spec;
}

const OpSpec& causal_conv1d_bwd() {
  static const OpSpec spec{.name = "causal_conv1d_bwd",
                           .summary = "causal convolution of each channel with silu, all gradients",
                           .axes = sequence_axes(true),
                           .tensors = conv_bwd_tensors,
                           .contradiction = conv_contradiction,
                           .inputs = conv_inputs,
                           .least_work = conv_bwd_least_work,
                           .file = conv_bwd_file_form(),
                           .look_alikes = {{"x", "dout"}}};
  return spec;
}

const OpSpec& causal_conv1d_update() {
  static const OpSpec spec{.name = "causal_conv1d_update",
                           .summary = "decoding steps of the causal convolution, the state updated in place",
                           .axes = update_axes(),
                           .tensors = conv_update_tensors,
                           .contradiction = update_contradiction,
                           .inputs = update_inputs,
                           .least_work = conv_update_least_work,
                           .file = conv_update_file_form(),
                           .parts = {conv_token_by_token(), conv_in_slots()},
                           .look_alikes = {{"source", "destination"}}};
  return spec;
}

CausalConv1d::CausalConv1d(const Problem& problem)
    : batch(problem.size("batch")),
      dim(problem.size("dim")),
      seqlen(problem.size("seqlen")),
      width(problem.size("width")),
      has_bias(problem.flag("bias")),
      silu(problem.flag("silu")),
      has_initial_states(problem.flag("initial_states")),
      has_final_states(problem.flag("final_states")),
      has_seq_idx(problem.flag("seq_idx")),
      channels_last(problem.choice("layout") == "bld"),
      dout_channels_last(problem.has("dout_layout") &&
                         channels_last == (problem.choice("dout_layout") == "same")),
      weight_is_f32(problem.choice("weight_dtype") == "f32") {}

ConvUpdate::ConvUpdate(const Problem& problem)
    : batch(problem.size("batch")),
      dim(problem.size("dim")),
      tokens(problem.size("tokens")),
      width(problem.size("width")),
      state_len(problem.size("state_len")),
      slots(problem.choice("store") == "own" ? batch : problem.size("slots")),
      store(store_of(problem.choice("store"))),
      pads(problem.flag("pads")),
      has_bias(problem.flag("bias")),
      silu(problem.flag("silu")),
      channels_last(problem.choice("layout") == "skd"),
      weight_is_f32(problem.choice("weight_dtype") == "f32") {}

}  // namespace ssmbench
