#include "record/record_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "record/comparison_json.h"

namespace ssmbench {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const AxisValue& value) {
  return std::visit([](const auto& held) { return OrderedJson(held); }, value);
}

/// The size axes as "shape"; method, dtype and layout as fields of their own; the rest as "options".
void add_problem(OrderedJson& record, const Case& the_case) {
  const Problem& problem = the_case.problem;
  OrderedJson shape = OrderedJson::object();
  OrderedJson options = OrderedJson::object();
  for (const auto& axis : problem.op().axes) {
    if (!problem.has(axis)) continue;
    const OrderedJson value = to_json(problem.value(axis.name));
    if (axis.kind == AxisKind::size)
      shape[axis.name] = value;
    else if (has_own_field(axis))
      record[axis.name] = value;
    else
      options[axis.name] = value;
  }
  options["inputs"] = the_case.inputs.distribution;
  options["values"] = the_case.inputs.values;
  options["seed"] = the_case.inputs.seed;
  record["shape"] = shape;
  record["options"] = options;
}

void add_status(OrderedJson& record, const CaseResult& result) {
  record["status"] = name_of(result.status);
  record["cause"] = result.cause ? OrderedJson(name_of(*result.cause)) : OrderedJson(nullptr);
  record["reason"] = result.reason;
}

OrderedJson to_json(const Determinism& d) {
  OrderedJson json{{"reruns", d.reruns}, {"bitwise_equal", nullptr}};
  if (d.reruns > 0 || !d.first_difference.empty()) json["bitwise_equal"] = d.first_difference.empty();
  if (!d.first_difference.empty()) json["first_difference"] = d.first_difference;
  return json;
}

OrderedJson to_json(const TimingStats& t) {
  OrderedJson json{
      {"median_ms", t.median_ms}, {"mean_ms", t.mean_ms},     {"stdev_ms", t.stdev_ms},
      {"min_ms", t.min_ms},       {"max_ms", t.max_ms},       {"p5_ms", t.p5_ms},
      {"p95_ms", t.p95_ms},       {"p99_ms", t.p99_ms},       {"n", t.samples_ms.size()},
      {"outliers", t.outliers},   {"throttled", t.throttled}, {"queue_ran_dry", t.queue_ran_dry}};
  if (!t.stopped_by.empty()) json["stopped_by"] = t.stopped_by;
  if (t.clock_mhz) json["clock_mhz"] = *t.clock_mhz;
  json["samples_ms"] = t.samples_ms;
  return json;
}

/// The contract's three times are those with pinned memory.
void add_transfers(OrderedJson& timing, const TransferTimes& transfers) {
  for (const auto& [suffix, times] : {std::pair("", transfers.pinned), {"_pageable", transfers.pageable}}) {
    timing[fmt::format("h2d{}_ms", suffix)] = times.h2d_ms;
    timing[fmt::format("d2h{}_ms", suffix)] = times.d2h_ms;
    timing[fmt::format("end_to_end{}_ms", suffix)] = times.end_to_end_ms;
  }
}

void add_measurements(OrderedJson& record, const CaseResult& result) {
  for (const auto& [name, comparison] : result.outputs)
    record["verify"]["outputs"][name] = to_json(comparison);
  if (result.determinism) record["determinism"] = to_json(*result.determinism);
  for (const auto& [name, timing] : result.timing) record["timing"][name] = to_json(timing);
  if (result.transfers) add_transfers(record["timing"], *result.transfers);
  if (const auto& team = result.team) {
    if (team->exchange) record["timing"]["exchange"] = to_json(*team->exchange);
    for (std::size_t rank = 0; rank < team->rank_ms.size(); ++rank)
      record["team"].push_back({{"rank", rank}, {"median_ms", team->rank_ms[rank]}});
    record["wire_bytes"] = team->wire_bytes;
    if (team->rerun_steps) record["rerun_steps"] = *team->rerun_steps;
  }
  if (const auto& scaling = result.scaling)
    record["scaling"] = {{"impl", scaling->impl},
                         {"ms_one", scaling->ms_one},
                         {"speedup", scaling->speedup},
                         {"efficiency", scaling->efficiency}};
  if (const auto& roofline = result.roofline)
    record["roofline"] = {
        {"floor_ms", roofline->floor_ms}, {"bound", roofline->bound}, {"fraction", roofline->fraction}};
  const TimingStats* headline = result.headline();
  if (headline == nullptr) return;
  const double seconds = headline->median_ms / 1000;
  // Elements of the first output: out, or du of the gradients, which has the same size.
  const auto tensors = result.the_case.problem.tensors();
  const auto output = std::ranges::find(tensors, Role::output, &TensorSpec::role);
  const auto elements = static_cast<double>(element_count(output->shape));
  record["throughput"] = {{"gb_per_s", result.work.bytes / seconds / 1e9},
                          {"elements_per_s", elements / seconds}};
  if (const auto budget = result.the_case.budget_ms)
    record["budget"] = {{"limit_ms", *budget},
                        {"met", headline->median_ms <= *budget},
                        {"margin_ms", *budget - headline->median_ms}};
}

}  // namespace

std::string case_record(const CaseResult& result) {
  OrderedJson record{{"record", "case"},
                     {"id", result.the_case.id()},
                     {"op", result.the_case.problem.op().name},
                     {"impl", result.impl},
                     {"device", result.device}};
  add_problem(record, result.the_case);
  if (const auto& claims = result.claims) {
    record["math"] = name_of(claims->math);
    record["state_dtype"] = name_of(claims->state_dtype);
  }
  add_status(record, result);
  add_measurements(record, result);
  if (result.work.bytes > 0)
    record["work"] = {{"bytes", result.work.bytes},
                      {"exponentials", result.work.exponentials},
                      {"fmas", result.work.fmas},
                      {"tensor_flops", result.work.tensor_flops}};
  record["workspace_bytes"] = result.workspace_bytes;
  if (!result.slot.empty()) record["slot"] = result.slot;
  if (result.beside) record["beside"] = *result.beside;
  record["repro"] = result.repro;
  record["key"] = result.key;
  return json_text(record);
}

std::string run_record(const RunInfo& info) {
  OrderedJson record{{"record", "run"},     {"schema", "ssmbench-results/1"},
                     {"argv", info.argv},   {"started", info.started},
                     {"build", info.build}, {"devices", info.devices}};
  if (!info.slots.empty()) record["slots"] = info.slots;
  return json_text(record);
}

std::string study_record(const MethodConvergence& result) {
  OrderedJson record{
      {"record", "study"},
      {"kind", "convergence"},
      {"method", result.method->name},
      {"A", {result.A.real(), result.A.imag()}},
      {"horizon", result.horizon},
      {"order", {{"theoretical", result.order}, {"measured", result.measured_order}}},
      {"stability_limit",
       {{"theoretical", result.stability_limit}, {"measured", result.measured_stability_limit}}}};
  for (const auto& errors : result.errors)
    record["runs"].push_back({{"steps", errors.steps},
                              {"delta", errors.delta},
                              {"discretization_error", errors.discretization},
                              {"f32_rounding_error", errors.rounding}});
  return json_text(record);
}

std::string study_record(const ConsistencyResult& result) {
  const CaseResult& at_once = result.at_once;
  OrderedJson record{{"record", "study"},
                     {"kind", "consistency"},
                     {"check", result.check},
                     {"id", at_once.the_case.id()},
                     {"op", at_once.the_case.problem.op().name},
                     {"impl", at_once.impl},
                     {"parts_op", result.parts_op},
                     {"parts_impl", result.parts},
                     {"device", at_once.device}};
  add_problem(record, at_once.the_case);
  add_status(record, at_once);
  for (const auto& [name, comparison] : at_once.outputs)
    record["verify"]["outputs"][name] = to_json(comparison);
  return json_text(record);
}

std::string summary_record(const Summary& summary) {
  OrderedJson counts = OrderedJson::object();
  for (const auto& [status, count] : summary.counts) counts[std::string(name_of(status))] = count;
  return json_text(OrderedJson{{"record", "summary"},
                               {"counts", counts},
                               {"kept", summary.kept},
                               {"passed_by_user_tolerance", summary.passed_by_user},
                               {"interrupted", summary.interrupted},
                               {"seconds", summary.seconds},
                               {"input_seconds", summary.input_seconds},
                               {"reference_seconds", summary.reference_seconds}});
}

}  // namespace ssmbench
