#include "model/ssd.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace ssmbench {
namespace {

TensorSpec in_c_order(const char* name, Role role, DType dtype, Shape shape, const char* axes) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return {name, role, dtype, std::move(shape), std::move(order), axes};
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
  if (scan.has_initial_states)
    all.push_back(
        input("initial_states", DType::f32, {scan.batch, scan.nheads, scan.headdim, scan.dstate}, "bhpn"));
  if (scan.has_seq_idx) all.push_back(input("seq_idx", DType::i32, {scan.batch, scan.seqlen}, "bl"));
  return all;
}

TensorSpec out_like(const Problem& problem, const char* name, Role role) {
  const SsdChunkScan scan(problem);
  return in_c_order(name, role, problem.dtype(), {scan.batch, scan.seqlen, scan.nheads, scan.headdim},
                    "blhp");
}

TensorSpec final_states_like(const Problem& problem, const char* name, Role role) {
  const SsdChunkScan scan(problem);
  return in_c_order(name, role, DType::f32, {scan.batch, scan.nheads, scan.headdim, scan.dstate}, "bhpn");
}

std::vector<TensorSpec> ssd_fwd_tensors(const Problem& problem) {
  auto all = inputs(problem);
  all.push_back(out_like(problem, "out", Role::output));
  if (problem.flag("final_states")) all.push_back(final_states_like(problem, "final_states", Role::output));
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
  if (problem.flag("final_states")) all.push_back(final_states_like(problem, "dfinal_states", Role::input));
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

std::vector<AxisSpec> axes() {
  return {{"dtype", AxisKind::choice, "", {"f32", "f16", "bf16"}, {}},
          {"batch", AxisKind::size, "b", {}, {}},
          {"seqlen", AxisKind::size, "l", {}, {}},
          {"nheads", AxisKind::size, "h", {}, {}},
          {"headdim", AxisKind::size, "p", {}, {}},
          {"dstate", AxisKind::size, "n", {}, {}},
          {"groups", AxisKind::size, "g", {}, std::int64_t{1}},
          {"chunk_size", AxisKind::size, "c", {}, std::int64_t{256}},
          {"D", AxisKind::choice, "D", {"none", "head", "headdim"}, "head"},
          {"z", AxisKind::flag, "z", {}, true},
          {"dt_bias", AxisKind::flag, "bias", {}, true},
          {"dt_softplus", AxisKind::flag, "softplus", {}, true},
          {"dt_limit", AxisKind::interval, "dt", {}, "0..inf"},
          {"initial_states", AxisKind::flag, "init", {}, false},
          {"final_states", AxisKind::flag, "final", {}, false},
          {"seq_idx", AxisKind::flag, "packed", {}, false}};
}

}  // namespace

const OpSpec& ssd_chunk_scan_fwd() {
  static const OpSpec spec{"ssd_chunk_scan_fwd", "Mamba-2 chunked scan (SSD), forward", axes(),
                           ssd_fwd_tensors, ssd_contradiction};
  return spec;
}

const OpSpec& ssd_chunk_scan_bwd() {
  static const OpSpec spec{"ssd_chunk_scan_bwd", "Mamba-2 chunked scan (SSD), all gradients", axes(),
                           ssd_bwd_tensors, ssd_contradiction};
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
