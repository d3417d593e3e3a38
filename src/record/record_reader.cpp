#include "record/record_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "base/errors.h"
#include "base/json_text.h"

namespace ssmbench {
namespace {

using Json = nlohmann::ordered_json;

/// A number that may have been written as null because it was not finite; 0 in files of before it was there.
double number(const Json& object, const char* name, double not_finite) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  return found->is_null() ? not_finite : found->get<double>();
}

/// Nothing where it is null or missing.
std::optional<double> optional_number(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return {};
  return found->get<double>();
}

AxisValue axis_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return value.get<std::string>();
}

/// Inverse of add_problem of record_writer.cpp.
Case case_of(const Json& record) {
  const auto& op_name = record.at("op").get_ref<const std::string&>();
  const OpSpec* op = find_op(op_name);
  if (op == nullptr) throw UsageError("unknown op " + op_name);
  std::map<std::string, AxisValue> axes;
  for (const auto& axis : op->axes)
    for (const Json* place : {&record, &record.at("shape"), &record.at("options")})
      if (const auto found = place->find(axis.name); found != place->end() && !axes.contains(axis.name))
        axes[axis.name] = axis_value(*found);
  const Json& options = record.at("options");
  Case the_case{.problem = Problem(*op, std::move(axes)),
                .inputs = {.distribution = options.at("inputs").get<std::string>(),
                           .values = options.at("values").get<std::string>(),
                           .seed = options.at("seed").get<std::int64_t>()},
                .budget_ms = {},
                .source = {}};
  if (record.contains("budget")) the_case.budget_ms = record.at("budget").at("limit_ms").get<double>();
  return the_case;
}

OutputComparison comparison_of(const Json& object) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  OutputComparison c{.max_abs = number(object, "max_abs", kInfinity),
                     .rel_l2 = number(object, "rel_l2", kInfinity),
                     .max_ulp = number(object, "max_ulp", kInfinity),
                     .tolerance_ratio = number(object, "tolerance_ratio", kInfinity),
                     .worst_index = object.at("worst_index").get<Shape>(),
                     .worst_expected = number(object, "worst_expected", kNaN),
                     .worst_got = number(object, "worst_got", kNaN),
                     .nonfinite = object.at("nonfinite").get<std::int64_t>(),
                     .judged = object.at("judged").get<std::int64_t>(),
                     .rms_ratio = number(object, "rms_ratio", kInfinity),
                     .decay_bias = optional_number(object, "decay_bias"),
                     .decay_bias_ratio = number(object, "decay_bias_ratio", kInfinity)};
  if (const auto parts = object.find("tolerance"); parts != object.end())
    c.worst_parts = {.arithmetic = number(*parts, "arithmetic", kInfinity),
                     .storage = number(*parts, "storage", kInfinity),
                     .factor = number(*parts, "factor", kInfinity),
                     .bound = number(*parts, "bound", kInfinity),
                     .operand_bound = optional_number(*parts, "operand_bound")};
  if (const auto spans = object.find("over_time"); spans != object.end())
    for (const Json& span : *spans)
      c.over_time.push_back({.first = span.at("first").get<std::int64_t>(),
                             .last = span.at("last").get<std::int64_t>(),
                             .rms = number(span, "rms", kInfinity),
                             .worst_ratio = number(span, "tolerance_ratio", kInfinity)});
  if (const auto user = object.find("user_tolerance"); user != object.end())
    c.user_tolerance = {.abs = user->at("abs").get<double>(), .rel = user->at("rel").get<double>()};
  return c;
}

TimingStats timing_of(const Json& object) {
  const auto value = [&](const char* name) { return object.at(name).get<double>(); };
  return {.median_ms = value("median_ms"),
          .mean_ms = value("mean_ms"),
          .stdev_ms = value("stdev_ms"),
          .min_ms = value("min_ms"),
          .max_ms = value("max_ms"),
          .p5_ms = value("p5_ms"),
          .p95_ms = value("p95_ms"),
          .p99_ms = value("p99_ms"),
          .samples_ms = object.at("samples_ms").get<std::vector<double>>(),
          .outliers = object.value("outliers", 0),
          .throttled = object.value("throttled", 0),
          .stopped_by = object.value("stopped_by", ""),
          .clock_mhz = optional_number(object, "clock_mhz")};
}

TransferTimes transfers_of(const Json& timing) {
  const auto times = [&](const std::string& suffix) {
    const auto value = [&](const char* name) { return timing.at(name + suffix).get<double>(); };
    return TransferTimes::Times{
        .h2d_ms = value("h2d"), .d2h_ms = value("d2h"), .end_to_end_ms = value("end_to_end")};
  };
  return {.pinned = times("_ms"), .pageable = times("_pageable_ms")};
}

Status status_of(const Json& record) {
  const auto& name = record.at("status").get_ref<const std::string&>();
  if (const auto status = status_named(name)) return *status;
  throw UsageError("unknown status " + name);
}

/// Nothing in files of before there were causes, too.
std::optional<Cause> cause_of(const Json& record) {
  const auto found = record.find("cause");
  if (found == record.end() || found->is_null()) return {};
  const auto& name = found->get_ref<const std::string&>();
  if (const auto cause = cause_named(name)) return cause;
  throw UsageError("unknown cause " + name);
}

/// Nothing in files of before it was kept.
std::optional<Arithmetic> claims_of(const Json& record) {
  if (!record.contains("math")) return {};
  const auto& math = record.at("math").get_ref<const std::string&>();
  const auto& state_dtype = record.at("state_dtype").get_ref<const std::string&>();
  const auto known_math = parse_math(math);
  const auto known_dtype = parse_dtype(state_dtype);
  if (!known_math) throw UsageError("unknown math " + math);
  if (!known_dtype) throw UsageError("unknown state_dtype " + state_dtype);
  return Arithmetic{.math = *known_math, .state_dtype = *known_dtype};
}

CaseResult result_of(const Json& record) {
  CaseResult result{.the_case = case_of(record),
                    .impl = record.at("impl").get<std::string>(),
                    .device = record.at("device").get<std::string>(),
                    .claims = claims_of(record),
                    .status = status_of(record),
                    .cause = cause_of(record),
                    .reason = record.at("reason").get<std::string>()};
  if (record.contains("verify"))
    for (const auto& [name, output] : record.at("verify").at("outputs").items())
      result.outputs[name] = comparison_of(output);
  for (const auto& [name, output] : result.outputs)
    if (output.user_tolerance) result.the_case.tolerances[name] = *output.user_tolerance;
  if (record.contains("determinism")) {
    const Json& determinism = record.at("determinism");
    result.determinism = {.reruns = determinism.at("reruns").get<int>(),
                          .first_difference = determinism.value("first_difference", "")};
  }
  if (record.contains("timing")) {
    const Json& timing = record.at("timing");
    for (const auto& [name, stats] : timing.items())
      if (stats.is_object()) result.timing[name] = timing_of(stats);
    if (timing.contains("h2d_ms")) result.transfers = transfers_of(timing);
  }
  if (record.contains("roofline")) {
    const Json& roofline = record.at("roofline");
    result.roofline = {.floor_ms = roofline.at("floor_ms").get<double>(),
                       .bound = roofline.at("bound").get<std::string>(),
                       .fraction = roofline.at("fraction").get<double>()};
  }
  if (record.contains("work")) {
    const Json& work = record.at("work");
    result.work = {.bytes = work.at("bytes").get<double>(),
                   .exponentials = work.at("exponentials").get<double>(),
                   .fmas = work.at("fmas").get<double>(),
                   .tensor_flops = work.value("tensor_flops", 0.0)};
  }
  result.workspace_bytes = record.at("workspace_bytes").get<std::size_t>();
  result.repro = record.at("repro").get<std::string>();
  result.key = record.value("key", "");  // files of before there were keys
  return result;
}

/// Inverse of study_record.
MethodConvergence convergence_of(const Json& record) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto& name = record.at("method").get_ref<const std::string&>();
  const auto method = std::ranges::find(methods(), name, &Method::name);
  if (method == methods().end()) throw UsageError("unknown method " + name);
  const Json& order = record.at("order");
  const Json& limit = record.at("stability_limit");
  MethodConvergence result{
      .method = &*method,
      .A = {record.at("A").at(0).get<double>(), record.at("A").at(1).get<double>()},
      .horizon = record.at("horizon").get<double>(),
      .order = order.at("theoretical").get<int>(),
      .measured_order = number(order, "measured", std::numeric_limits<double>::quiet_NaN()),
      .stability_limit = number(limit, "theoretical", kInfinity),
      .measured_stability_limit = number(limit, "measured", kInfinity),
      .errors = {}};
  for (const Json& run : record.at("runs"))
    result.errors.push_back({.steps = run.at("steps").get<std::int64_t>(),
                             .delta = run.at("delta").get<double>(),
                             .discretization = number(run, "discretization_error", kInfinity),
                             .rounding = number(run, "f32_rounding_error", kInfinity)});
  return result;
}

/// Inverse of study_record, as a result of both sides.
CaseResult consistency_of(const Json& record) {
  Json as_case = record;
  as_case["workspace_bytes"] = 0;
  as_case["repro"] = "";
  CaseResult result = result_of(as_case);
  result.impl = fmt::format("{} against {} in parts", result.impl,
                            record.at("parts_impl").get_ref<const std::string&>());
  return result;
}

RunInfo run_of(const Json& record) {
  constexpr std::string_view kSchema = "ssmbench-results/1";
  if (const auto& schema = record.at("schema").get_ref<const std::string&>(); schema != kSchema)
    throw UsageError(fmt::format("schema {}; expected {}", schema, kSchema));
  RunInfo info;
  record.at("argv").get_to(info.argv);
  record.at("build").get_to(info.build);
  record.at("devices").get_to(info.devices);
  record.at("started").get_to(info.started);
  return info;
}

/// Calls `read` and turns what JSON and problems have to say into UsageError.
template <class Read>
auto reading(Read read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("not a results record ({:.200})", json_error_text(error.what())));
  } catch (const ContractError& error) {
    throw UsageError(error.what());
  }
}

/// Collects a file's records line by line.
class Collector {
 public:
  void add(const std::string& line) {
    const Json record = Json::parse(line);
    const auto& kind = record.at("record").get_ref<const std::string&>();
    if (kind == "run") {
      file.run = run_of(record);
      started_ = true;
    }
    if (!started_) throw UsageError("no run record before it; expected a results file");
    if (kind == "case") add(result_of(record));
    if (kind == "study" && record.at("kind") == "convergence")
      file.convergence.push_back(convergence_of(record));
    if (kind == "study" && record.at("kind") == "consistency")
      file.consistency.push_back(consistency_of(record));
  }

  ResultsFile file;

 private:
  void add(CaseResult result) {
    const auto [place, is_new] = place_of_.try_emplace(
        std::make_tuple(result.the_case.id(), result.impl, result.device), file.cases.size());
    if (is_new)
      file.cases.push_back(std::move(result));
    else
      file.cases[place->second] = std::move(result);
  }

  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> place_of_;
  bool started_ = false;
};

}  // namespace

CaseResult read_case_record(const std::string& line) {
  return reading([&] { return result_of(Json::parse(line)); });
}

ResultsFile read_results(const std::filesystem::path& path) {
  const auto unreadable = [&](const char* reason) {
    return UsageError(fmt::format("{}: cannot be read ({}); expected a results file", path.string(), reason));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw unreadable("it is a directory");
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw unreadable(std::strerror(errno));
  Collector collector;
  std::string line;
  for (int number = 1; std::getline(stream, line) && !stream.eof();
       ++number) {  // the rest ends in no newline
    try {
      reading([&] { collector.add(line); });
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}:{}: {}", path.string(), number, error.what()));
    }
    collector.file.whole_bytes += line.size() + 1;
  }
  return std::move(collector.file);
}

}  // namespace ssmbench
