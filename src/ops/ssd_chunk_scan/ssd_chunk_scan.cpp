#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

#include <fmt/format.h>

#include <numeric>

#include "inputs/packed_sequences.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/file_form.h"
#include "ops/ssd_chunk_scan/inputs.h"
#include "ops/ssd_chunk_scan/parts.h"
#include "ops/ssd_chunk_scan/sequences.h"
#include "ops/ssd_chunk_scan/work.h"

namespace ssmbench {
namespace {

TensorSpec in_c_order(const char* name, Role role, DType dtype, Shape shape, const char* axes) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return {name, role, dtype, std::move(shape), std::move(order), axes};
}

TensorSpec states_like(const Problem& problem, const char* name, Role role) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  return in_c_order(name, role, sequences.state_dtype,
                    {sequences.count, scan.nheads, scan.headdim, scan.dstate},
                    sequences.packed ? "mhpn" : "bhpn");
}

std::vector<TensorSpec> inputs(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const DType io = problem.dtype();
  const Shape sequence{scan.batch, scan.seqlen, scan.nheads, scan.headdim};
  const Shape projection{scan.batch, scan.seqlen, scan.groups, scan.dstate};
  const auto input = [](const char* name, DType dtype, Shape shape, const char* axes) {
    return in_c_order(name, Role::input, dtype, std::move(shape), axes);
  };
  std::vector<TensorSpec> all{input("x", io, sequence, "blhp"),
                              input("dt", io, {scan.batch, scan.seqlen, scan.nheads}, "blh"),
                              input("A", DType::f32, {scan.nheads}, "h"), input("B", io, projection, "blgn"),
                              input("C", io, projection, "blgn")};
  if (scan.skip == SsdSkip::head) all.push_back(input("D", DType::f32, {scan.nheads}, "h"));
  if (scan.skip == SsdSkip::headdim) all.push_back(input("D", DType::f32, {scan.nheads, scan.headdim}, "hp"));
  if (scan.has_z) all.push_back(input("z", io, sequence, "blhp"));
  if (scan.has_dt_bias) all.push_back(input("dt_bias", DType::f32, {scan.nheads}, "h"));
  if (scan.has_initial_states) all.push_back(states_like(problem, "initial_states", Role::input));
  const SsdSequences sequences(problem);
  if (sequences.packed) all.push_back(input("cu_seqlens", DType::i32, {sequences.count + 1}, "c"));
  if (scan.has_seq_idx) all.push_back(input("seq_idx", DType::i32, {scan.batch, scan.seqlen}, "bl"));
  return all;
}

TensorSpec out_like(const Problem& problem, const char* name, Role role) {
  const SsdChunkScan scan(problem);
  return in_c_order(name, role, problem.dtype(), {scan.batch, scan.seqlen, scan.nheads, scan.headdim},
                    "blhp");
}

std::vector<TensorSpec> ssd_fwd_tensors(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  const std::int64_t stops = sequences.stops;
  auto all = inputs(problem);
  if (stops > 0) all.push_back(in_c_order("states_at", Role::input, DType::i32, {stops}, "k"));
  all.push_back(out_like(problem, "out", Role::output));
  if (problem.flag("final_states")) all.push_back(states_like(problem, "final_states", Role::output));
  if (stops > 0)
    all.push_back(in_c_order("states", Role::output, sequences.state_dtype,
                             {stops, scan.nheads, scan.headdim, scan.dstate}, "khpn"));
  return all;
}

std::vector<TensorSpec> ssd_bwd_tensors(const Problem& problem) {
  auto all = inputs(problem);
  std::vector<TensorSpec> gradients;
  for (const auto& input : all) {
    if (input.dtype == DType::i32) continue;
    gradients.push_back(input);
    gradients.back().name = "d" + input.name;
    gradients.back().role = Role::output;
  }
  all.push_back(out_like(problem, "dout", Role::input));
  if (problem.flag("final_states")) all.push_back(states_like(problem, "dfinal_states", Role::input));
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

std::optional<std::string> ssd_contradiction(const Problem& problem) {
  const SsdChunkScan scan(problem);
  if (scan.headdim > kMaxSsdDim)
    return fmt::format("headdim {} is over the limit of {}", scan.headdim, kMaxSsdDim);
  if (scan.dstate > kMaxSsdDim)
    return fmt::format("dstate {} is over the limit of {}", scan.dstate, kMaxSsdDim);
  if (scan.nheads % scan.groups != 0)
    return fmt::format("nheads {} is not a multiple of groups {}", scan.nheads, scan.groups);
  if (scan.chunk_size > kMaxSsdChunk)
    return fmt::format("chunk_size {} is over the limit of {}", scan.chunk_size, kMaxSsdChunk);
  return {};
}

std::optional<std::string> ssd_fwd_contradiction(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  if (sequences.stops > 0 && !sequences.packed)
    return fmt::format("states_at {} without cu_seqlens", sequences.stops);
  if (sequences.stops > scan.seqlen)
    return fmt::format("states_at {} is more than seqlen {}", sequences.stops, scan.seqlen);
  if (sequences.state_dtype != DType::f32 && !scan.has_initial_states)
    return fmt::format("state_dtype {} without initial_states, which say it in files",
                       name_of(sequences.state_dtype));
  if (auto reason = packing_contradiction(problem)) return reason;
  if (sequences.packed && scan.has_seq_idx) return "seq_idx with cu_seqlens: both say where sequences begin";
  return ssd_contradiction(problem);
}

AxisSpec size(const char* name, const char* id_token, AxisRole role = AxisRole::none) {
  return {.name = name, .id_token = id_token, .role = role};
}

AxisSpec flag(const char* name, const char* id_token, bool fallback) {
  return {.name = name, .kind = AxisKind::flag, .id_token = id_token, .fallback = fallback};
}

std::vector<AxisSpec> ssd_axes() {
  return {
      {.name = "dtype", .kind = AxisKind::choice, .choices = {"f32", "f16", "bf16"}, .role = AxisRole::dtype},
      size("batch", "b", AxisRole::batch),
      size("seqlen", "l", AxisRole::time),
      {.name = "nheads", .id_token = "h", .role = AxisRole::channel, .letter = 'h'},
      size("headdim", "p"),
      size("dstate", "n"),
      {.name = "groups", .id_token = "g", .fallback = std::int64_t{1}, .role = AxisRole::groups},
      {.name = "chunk_size", .id_token = "c", .fallback = std::int64_t{256}, .changes_values = false},
      {.name = "D",
       .kind = AxisKind::choice,
       .id_token = "D",
       .choices = {"none", "head", "headdim"},
       .fallback = "head"},
      flag("z", "z", true),
      flag("dt_bias", "bias", true),
      flag("dt_softplus", "softplus", true),
      {.name = "dt_limit", .kind = AxisKind::interval, .id_token = "dt", .fallback = "0..inf"},
      flag("initial_states", "init", false),
      flag("final_states", "final", false),
      flag("seq_idx", "packed", false)};
}

std::vector<AxisSpec> ssd_fwd_axes() {
  std::vector<AxisSpec> axes = ssd_axes();
  for (auto& axis : packing_axes()) axes.push_back(std::move(axis));
  axes.push_back({.name = "states_at", .id_token = "at", .fallback = std::int64_t{0}});
  axes.push_back({.name = "state_dtype",
                  .kind = AxisKind::choice,
                  .id_token = "state",
                  .choices = {"f32", "f16", "bf16"},
                  .fallback = "f32"});
  return axes;
}

InputFill ssd_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(SsdChunkScanInputs(problem, spec));
}

const OpRegistration forward_op(ssd_chunk_scan_fwd());
const OpRegistration backward_op(ssd_chunk_scan_bwd());

}  // namespace

const OpSpec& ssd_chunk_scan_fwd() {
  static const OpSpec spec{.name = "ssd_chunk_scan_fwd",
                           .summary = "Mamba-2 chunked scan (SSD), forward",
                           .axes = ssd_fwd_axes(),
                           .tensors = ssd_fwd_tensors,
                           .contradiction = ssd_fwd_contradiction,
                           .inputs = ssd_inputs,
                           .least_work = ssd_least_work,
                           .file = ssd_file_form(),
                           .parts = {ssd_in_steps(), ssd_then_steps(), ssd_in_halves(), ssd_in_sequences(),
                                     ssd_in_prefixes(), ssd_as_scan()},
                           .look_alikes = {{"B", "C"}}};
  return spec;
}

const OpSpec& ssd_chunk_scan_bwd() {
  static const OpSpec spec{.name = "ssd_chunk_scan_bwd",
                           .summary = "Mamba-2 chunked scan (SSD), all gradients",
                           .axes = ssd_axes(),
                           .tensors = ssd_bwd_tensors,
                           .contradiction = ssd_contradiction,
                           .inputs = ssd_inputs,
                           .least_work = ssd_bwd_least_work,
                           .file = ssd_bwd_file_form(),
                           .look_alikes = {{"B", "C"}}};
  return spec;
}

SsdChunkScan::SsdChunkScan(const Problem& problem)
    : batch(problem.size("batch")),
      seqlen(problem.size("seqlen")),
      nheads(problem.size("nheads")),
      headdim(problem.size("headdim")),
      dstate(problem.size("dstate")),
      groups(problem.size("groups")),
      chunk_size(problem.size("chunk_size")),
      skip(problem.choice("D") == "none"   ? SsdSkip::none
           : problem.choice("D") == "head" ? SsdSkip::head
                                           : SsdSkip::headdim),
      has_z(problem.flag("z")),
      has_dt_bias(problem.flag("dt_bias")),
      has_initial_states(problem.flag("initial_states")),
      has_final_states(problem.flag("final_states")),
      has_seq_idx(problem.flag("seq_idx")),
      dt_softplus(problem.flag("dt_softplus")),
      dt_low(problem.interval("dt_limit").low),
      dt_high(problem.interval("dt_limit").high) {}

}  // namespace ssmbench
