#include "html/page_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "base/json_text.h"
#include "html/median_interval.h"
#include "model/build_info.h"
#include "report/labels.h"

namespace ssmbench {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Six digits, so that a page of thousands of cases stays small. JSON has no numbers that are not finite.
OrderedJson rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  const double digits = std::isfinite(scale) ? std::round(value * scale) / scale : value;
  return std::isfinite(digits) ? digits : value;
}

OrderedJson timing_of(const CaseResult& result) {
  OrderedJson timing = OrderedJson::object();
  for (const auto& [name, stats] : result.timing) {
    if (stats.samples_ms.empty()) continue;
    const MedianInterval interval = median_interval(stats.samples_ms);
    timing[name] = {rounded(stats.median_ms), rounded(interval.low), rounded(interval.high),
                    rounded(interval.confidence), stats.samples_ms.size()};
  }
  return timing;
}

OrderedJson outputs_of(const CaseResult& result) {
  OrderedJson outputs = OrderedJson::object();
  for (const auto& [name, output] : result.outputs) {
    OrderedJson& entry = outputs[name] = {{"ratio", rounded(output.tolerance_ratio)},
                                          {"rms", rounded(output.rms_ratio)},
                                          {"rel", rounded(output.rel_l2)}};
    if (output.over_time.empty()) continue;
    entry["steps"] = output.over_time.back().last + 1;
    for (const auto& span : output.over_time) {
      entry["first"].push_back(span.first);
      entry["over_time"].push_back(rounded(span.worst_ratio));
    }
  }
  return outputs;
}

OrderedJson sizes_of(const Problem& problem) {
  OrderedJson sizes = OrderedJson::object();
  for (const auto& axis : problem.op().axes)
    if (axis.kind == AxisKind::size && !axis.fallback && problem.has(axis))
      sizes[axis.name] = problem.size(axis.name);
  return sizes;
}

/// Of ranks: "cpu*2", "cuda*16@2".
int ranks_of(const std::string& device) {
  return std::atoi(device.c_str() + device.find('*') + 1);
}

OrderedJson team_of(const CaseResult& result) {
  const TeamUse& team = *result.team;
  const auto known = [](bool is_known, double value) {
    return is_known ? rounded(value) : OrderedJson(nullptr);
  };
  OrderedJson json{
      {"ranks", ranks_of(result.device)},
      {"sent", team.wire_bytes},
      {"exchange", known(team.exchange.has_value(), team.exchange.value_or(TimingStats()).median_ms)},
      {"rerun", team.rerun_steps ? OrderedJson(*team.rerun_steps) : OrderedJson(nullptr)}};
  const Scaling scaling = result.scaling.value_or(Scaling());
  json["over"] = result.scaling ? OrderedJson(scaling.impl) : OrderedJson(nullptr);
  json["speedup"] = known(result.scaling.has_value(), scaling.speedup);
  json["efficiency"] = known(result.scaling.has_value(), scaling.efficiency);
  return json;
}

OrderedJson case_of(std::size_t file, const CaseResult& result) {
  const Problem& problem = result.the_case.problem;
  OrderedJson json{{"file", file},
                   {"id", result.the_case.id()},
                   {"op", problem.op().name},
                   {"impl", result.impl},
                   {"device", result.device},
                   {"dtype", problem.choice("dtype")},
                   {"sizes", sizes_of(problem)},
                   {"options", options_label(result.the_case)},
                   {"status", name_of(result.status)}};
  if (const auto& claims = result.claims) {
    json["math"] = name_of(claims->math);
    json["state_dtype"] = name_of(claims->state_dtype);
  }
  if (const auto lowered = result.lowered_arithmetic(); !lowered.empty()) json["lowered"] = lowered;
  if (result.cause) json["cause"] = name_of(*result.cause);
  if (!result.reason.empty()) json["reason"] = result.reason;
  if (result.status != Status::pass) json["repro"] = result.repro;
  json["outputs"] = outputs_of(result);
  if (!result.timing.empty()) json["timing"] = timing_of(result);
  if (result.work.bytes > 0)
    json["work"] = {rounded(result.work.bytes), rounded(result.work.exponentials), rounded(result.work.fmas),
                    rounded(result.work.tensor_flops)};
  if (result.team) json["team"] = team_of(result);
  if (const auto& roofline = result.roofline)
    json["roofline"] = {{"floor", rounded(roofline->floor_ms)},
                        {"bound", roofline->bound},
                        {"fraction", rounded(roofline->fraction)}};
  if (const auto& transfers = result.transfers)
    json["transfers"] = {rounded(transfers->pinned.h2d_ms), rounded(transfers->pinned.d2h_ms),
                         rounded(transfers->pinned.end_to_end_ms),
                         rounded(transfers->pageable.end_to_end_ms)};
  if (const auto budget = result.the_case.budget_ms) json["budget"] = *budget;
  return json;
}

/// Cases and what studies make of them.
std::vector<const CaseResult*> judged_of(const ResultsFile& file) {
  std::vector<const CaseResult*> all;
  for (const auto* list : {&file.cases, &file.consistency})
    for (const auto& result : *list) all.push_back(&result);
  return all;
}

std::string_view cause_text(const CaseResult& result) {
  return result.cause ? name_of(*result.cause) : "";
}

/// Cases that were skipped, by file, operation, implementation, cause and reason: there may be thousands.
OrderedJson skips_of(const std::vector<NamedResults>& files) {
  std::map<std::tuple<std::size_t, std::string, std::string, std::string_view, std::string>, int> counts;
  for (std::size_t file = 0; file < files.size(); ++file)
    for (const CaseResult* result : judged_of(files[file].results))
      if (result->status == Status::skip)
        ++counts[{file, result->the_case.problem.op().name, result->impl, cause_text(*result),
                  result->reason}];
  OrderedJson skips = OrderedJson::array();
  for (const auto& [key, count] : counts) {
    const auto& [file, op, impl, cause, reason] = key;
    skips.push_back(
        {{"file", file}, {"op", op}, {"impl", impl}, {"cause", cause}, {"reason", reason}, {"count", count}});
  }
  return skips;
}

OrderedJson convergence_of(std::size_t file, const MethodConvergence& study) {
  OrderedJson json{{"file", file},
                   {"method", study.method->name},
                   {"A", {study.A.real(), study.A.imag()}},
                   {"horizon", study.horizon},
                   {"order", {study.order, rounded(study.measured_order)}},
                   {"limit", {rounded(study.stability_limit), rounded(study.measured_stability_limit)}}};
  for (const auto& run : study.errors)
    json["runs"].push_back({rounded(run.delta), rounded(run.discretization), rounded(run.rounding)});
  return json;
}

}  // namespace

std::string page_data(const std::vector<NamedResults>& files) {
  OrderedJson data{{"version", build_info().version},
                   {"files", OrderedJson::array()},
                   {"cases", OrderedJson::array()},
                   {"skips", skips_of(files)},
                   {"convergence", OrderedJson::array()}};
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& [name, results] = files[i];
    data["files"].push_back({{"name", name},
                             {"started", results.run.started},
                             {"argv", results.run.argv},
                             {"build", results.run.build},
                             {"devices", results.run.devices}});
    for (const CaseResult* result : judged_of(results))
      if (result->status != Status::skip) data["cases"].push_back(case_of(i, *result));
    for (const auto& study : results.convergence) data["convergence"].push_back(convergence_of(i, study));
  }
  const std::string text = json_text(data);
  std::string safe;  // in JSON '<' is only ever part of a string
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

}  // namespace ssmbench
