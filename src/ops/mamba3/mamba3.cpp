#include "ops/mamba3/mamba3.h"

#include <fmt/format.h>

#include "ops/mamba3/file_form.h"
#include "ops/mamba3/inputs.h"
#include "ops/mamba3/parts.h"
#include "ops/mamba3/tensors.h"
#include "ops/mamba3/work.h"

namespace ssmbench {
namespace {

constexpr const char* kInterleaved = "interleaved";
constexpr const char* kHalves = "halves";

std::optional<std::string> over_the_limit(const char* name, std::int64_t value, std::int64_t limit) {
  if (value <= limit) return {};
  return fmt::format("{} {} is over the limit of {}", name, value, limit);
}

std::optional<std::string> contradiction(const Problem& problem) {
  const Mamba3 scan(problem);
  if (auto over = over_the_limit("headdim", scan.headdim, kMaxMamba3Dim)) return over;
  if (auto over = over_the_limit("dstate", scan.dstate, kMaxMamba3Dim)) return over;
  if (auto over = over_the_limit("mimo_rank", scan.rank, kMaxMamba3Rank)) return over;
  if (auto over = over_the_limit("chunk_size", scan.chunk_size, kMaxMamba3Chunk)) return over;
  if (scan.dstate % 2 != 0) return fmt::format("dstate {} is odd: states are rotated in pairs", scan.dstate);
  if (scan.angles > scan.dstate / 2)
    return fmt::format("rope_angles {} is more than the {} pairs of dstate {}", scan.angles, scan.dstate / 2,
                       scan.dstate);
  if (scan.nheads % scan.groups != 0)
    return fmt::format("nheads {} is not a multiple of groups {}", scan.nheads, scan.groups);
  if (scan.has_cu_seqlens && scan.batch != 1)
    return fmt::format("batch {} with cu_seqlens, which packs sequences into a batch of 1", scan.batch);
  if (!scan.is_step && !scan.has_cu_seqlens && problem.size("sequences") != 1)
    return fmt::format("sequences {} without cu_seqlens", problem.size("sequences"));
  if (scan.has_norm && (!scan.has_z || !scan.reduces_ranks)) return "outproj_norm without z and out_reduce";
  return {};
}

AxisSpec size(const char* name, const char* id_token, AxisRole role = AxisRole::none) {
  return {.name = name, .id_token = id_token, .role = role};
}

AxisSpec flag(const char* name, const char* id_token, bool fallback) {
  return {.name = name, .kind = AxisKind::flag, .id_token = id_token, .fallback = fallback};
}

AxisSpec layout(const char* only) {
  return {.name = "layout",
          .kind = AxisKind::choice,
          .choices = {only},
          .fallback = only,
          .role = AxisRole::layout,
          .changes_values = false};
}

/// Axes of tensors that all operations have, after those of dtype, layout and time.
std::vector<AxisSpec> common_axes(const char* pairing) {
  return {{.name = "nheads", .id_token = "h", .role = AxisRole::channel, .letter = 'h'},
          size("headdim", "p"),
          size("dstate", "n"),
          {.name = "groups", .id_token = "g", .fallback = std::int64_t{1}, .role = AxisRole::groups},
          size("rope_angles", "s"),
          {.name = "rotary_pairing",
           .kind = AxisKind::choice,
           .choices = {kInterleaved, kHalves},
           .fallback = pairing},
          {.name = "angle_dtype",
           .kind = AxisKind::choice,
           .id_token = "angle",
           .choices = {"f32", "bf16"},
           .fallback = "f32"},
          flag("z", "z", true),
          flag("D", "D", true)};
}

AxisSpec dtype() {
  return {
      .name = "dtype", .kind = AxisKind::choice, .choices = {"f32", "f16", "bf16"}, .role = AxisRole::dtype};
}

std::vector<AxisSpec> mimo_axes() {
  return {{.name = "mimo_rank", .id_token = "r", .fallback = std::int64_t{4}},
          flag("out_reduce", "reduce", true),
          flag("outproj_norm", "norm", false)};
}

std::vector<AxisSpec> scan_axes(const char* pairing, const std::vector<AxisSpec>& more) {
  std::vector<AxisSpec> axes{dtype(), layout("blhp"), size("batch", "b", AxisRole::batch),
                             size("seqlen", "l", AxisRole::time)};
  const auto common = common_axes(pairing);
  axes.insert(axes.end(), common.begin(), common.end());
  axes.insert(axes.end(), more.begin(), more.end());
  axes.push_back(
      {.name = "chunk_size", .id_token = "c", .fallback = std::int64_t{64}, .changes_values = false});
  axes.push_back(flag("initial_states", "init", false));
  axes.push_back(flag("final_states", "final", false));
  axes.push_back(flag("cu_seqlens", "packed", false));
  axes.push_back({.name = "sequences", .id_token = "m", .fallback = std::int64_t{1}});
  return axes;
}

std::vector<AxisSpec> step_axes() {
  std::vector<AxisSpec> axes{{.name = "form", .kind = AxisKind::choice, .choices = {"siso", "mimo"}},
                             dtype(),
                             layout("bhp"),
                             size("batch", "b", AxisRole::batch)};
  const auto common = common_axes(kInterleaved);
  axes.insert(axes.end(), common.begin(), common.end());
  for (AxisSpec& axis : mimo_axes()) {
    axis.only_with = {{"form", "mimo"}};
    axes.push_back(std::move(axis));
  }
  return axes;
}

InputFill inputs_of(const Problem& problem, const InputSpec& spec) {
  return fill_from(Mamba3Inputs(problem, spec));
}

OpSpec operation(const char* name, const char* summary, std::vector<AxisSpec> axes,
                 std::vector<TensorSpec> (*tensors)(const Problem&), Work (*least_work)(const Problem&, Math),
                 FileForm file, std::vector<PartwiseComputation> parts) {
  return {.name = name,
          .summary = summary,
          .axes = std::move(axes),
          .tensors = tensors,
          .contradiction = contradiction,
          .inputs = inputs_of,
          .least_work = least_work,
          .file = std::move(file),
          .parts = std::move(parts),
          .look_alikes = {{"Q", "K"}, {"Q_bias", "K_bias"}, {"ADT", "DT"}}};
}

std::vector<PartwiseComputation> scan_parts(const char* op) {
  return {mamba3_in_steps(), mamba3_in_halves(op), mamba3_in_sequences(op), mamba3_mirrored(op)};
}

/// With SISO's, which `ranked` is MIMO of.
std::vector<PartwiseComputation> with_one_rank(std::vector<PartwiseComputation> parts, const char* ranked) {
  parts.push_back(mamba3_with_one_rank(ranked));
  return parts;
}

/// Flags and sizes of axes that not all operations have.
bool flag_of(const Problem& problem, const char* axis, bool absent) {
  return problem.has(axis) ? problem.flag(axis) : absent;
}
std::int64_t size_of(const Problem& problem, const char* axis) {
  return problem.has(axis) ? problem.size(axis) : 1;
}

const OpRegistration siso_forward_op(mamba3_siso_fwd());
const OpRegistration mimo_forward_op(mamba3_mimo_fwd());
const OpRegistration siso_backward_op(mamba3_siso_bwd());
const OpRegistration mimo_backward_op(mamba3_mimo_bwd());
const OpRegistration step_op(mamba3_step());

}  // namespace

const OpSpec& mamba3_siso_fwd() {
  static const OpSpec spec =
      operation("mamba3_siso_fwd", "Mamba-3 scan with one input and output per head, forward",
                scan_axes(kInterleaved, {}), mamba3_fwd_tensors, mamba3_least_work,
                mamba3_siso_fwd_file_form(), with_one_rank(scan_parts("mamba3_siso_fwd"), "mamba3_mimo_fwd"));
  return spec;
}

const OpSpec& mamba3_mimo_fwd() {
  static const OpSpec spec =
      operation("mamba3_mimo_fwd", "Mamba-3 scan with several inputs and outputs per head, forward",
                scan_axes(kHalves, mimo_axes()), mamba3_fwd_tensors, mamba3_least_work,
                mamba3_mimo_fwd_file_form(), scan_parts("mamba3_mimo_fwd"));
  return spec;
}

const OpSpec& mamba3_siso_bwd() {
  static const OpSpec spec = operation(
      "mamba3_siso_bwd", "Mamba-3 scan with one input and output per head, all gradients",
      scan_axes(kInterleaved, {}), mamba3_bwd_tensors, mamba3_bwd_least_work, mamba3_siso_bwd_file_form(),
      with_one_rank({mamba3_mirrored("mamba3_siso_bwd")}, "mamba3_mimo_bwd"));
  return spec;
}

const OpSpec& mamba3_mimo_bwd() {
  static const OpSpec spec =
      operation("mamba3_mimo_bwd", "Mamba-3 scan with several inputs and outputs per head, all gradients",
                scan_axes(kHalves, mimo_axes()), mamba3_bwd_tensors, mamba3_bwd_least_work,
                mamba3_mimo_bwd_file_form(), {mamba3_mirrored("mamba3_mimo_bwd")});
  return spec;
}

const OpSpec& mamba3_step() {
  static const OpSpec spec = operation(
      "mamba3_step", "one decoding step of Mamba-3, the states updated in place", step_axes(),
      mamba3_step_tensors, mamba3_least_work, mamba3_step_file_form(), {mamba3_mirrored("mamba3_step")});
  return spec;
}

Mamba3::Mamba3(const Problem& problem)
    : is_step(&problem.op() == &mamba3_step()),
      is_mimo(problem.has("mimo_rank")),
      batch(problem.size("batch")),
      seqlen(size_of(problem, "seqlen")),
      nheads(problem.size("nheads")),
      headdim(problem.size("headdim")),
      dstate(problem.size("dstate")),
      groups(problem.size("groups")),
      rank(size_of(problem, "mimo_rank")),
      angles(problem.size("rope_angles")),
      sequences(flag_of(problem, "cu_seqlens", false) ? problem.size("sequences") : batch),
      chunk_size(size_of(problem, "chunk_size")),
      interleaved(problem.choice("rotary_pairing") == kInterleaved),
      angles_in_bf16(problem.choice("angle_dtype") == "bf16"),
      has_z(problem.flag("z")),
      has_D(problem.flag("D")),
      has_initial_states(flag_of(problem, "initial_states", is_step)),
      has_final_states(flag_of(problem, "final_states", is_step)),
      has_cu_seqlens(flag_of(problem, "cu_seqlens", false)),
      reduces_ranks(flag_of(problem, "out_reduce", true)),
      has_norm(flag_of(problem, "outproj_norm", false)) {}

}  // namespace ssmbench
