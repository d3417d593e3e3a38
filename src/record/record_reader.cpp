#include "record/record_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/errors.h"
#include "base/json_text.h"

namespace ssmbench {
namespace {

// Not ordered_json, which copies what it holds whenever it grows. And a type of its own (bytes, which JSON text never
// has, are signed), since 100,000 records are 400 MB to parse: only this source is optimized, and of templates that
// several sources instantiate the linker keeps any one.
using ParsedJson =
    nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, double,
                         std::allocator, nlohmann::adl_serializer, std::vector<std::int8_t>>;

/// A number that may have been written as null because it was not finite; 0 in files of before it was there.
double number(const ParsedJson& object, const char* name, double not_finite) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  return found->is_null() ? not_finite : found->get<double>();
}

/// Nothing where it is null or missing.
std::optional<double> optional_number(const ParsedJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return {};
  return found->get<double>();
}

AxisValue axis_value(const ParsedJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return value.get<std::string>();
}

/// Inverse of add_problem of record_writer.cpp.
Case case_of(const ParsedJson& record) {
  const auto& op_name = record.at("op").get_ref<const std::string&>();
  const OpSpec* op = find_op(op_name);
  if (op == nullptr) throw UsageError("unknown op " + op_name);
  std::map<std::string, AxisValue> axes;
  for (const auto& axis :
       op->axes)  // a claim, which is a field of the record too, may have the name of another axis
    for (const ParsedJson* place :
         {has_own_field(axis) ? &record : &record.at("shape"), &record.at("options")})
      if (const auto found = place->find(axis.name); found != place->end())
        axes[axis.name] = axis_value(*found);
  const ParsedJson& options = record.at("options");
  Case the_case{.problem = Problem(*op, axes),
                .inputs = {.distribution = options.at("inputs").get<std::string>(),
                           .values = options.at("values").get<std::string>(),
                           .seed = options.at("seed").get<std::int64_t>()},
                .budget_ms = {},
                .source = {}};
  if (record.contains("budget")) the_case.budget_ms = record.at("budget").at("limit_ms").get<double>();
  return the_case;
}

OutputComparison comparison_of(const ParsedJson& object) {
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
  if (const auto bits = object.find("significand_bits"); bits != object.end())
    c.significand_bits = bits->get<int>();
  if (const auto bias = object.find("rounding_bias"); bias != object.end())
    c.rounding_bias = {.mean = number(*bias, "mean", kNaN),
                       .ratio = number(*bias, "ratio", kInfinity),
                       .among = bias->at("among").get<std::string>()};
  if (const auto spans = object.find("over_time"); spans != object.end())
    for (const ParsedJson& span : *spans)
      c.over_time.push_back({.first = span.at("first").get<std::int64_t>(),
                             .last = span.at("last").get<std::int64_t>(),
                             .rms = number(span, "rms", kInfinity),
                             .worst_ratio = number(span, "tolerance_ratio", kInfinity)});
  if (const auto user = object.find("user_tolerance"); user != object.end())
    c.user_tolerance = {.abs = user->at("abs").get<double>(), .rel = user->at("rel").get<double>()};
  return c;
}

TimingStats timing_of(const ParsedJson& object) {
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
          .queue_ran_dry = object.value("queue_ran_dry", 0),
          .stopped_by = object.value("stopped_by", ""),
          .clock_mhz = optional_number(object, "clock_mhz")};
}

TransferTimes transfers_of(const ParsedJson& timing) {
  const auto times = [&](const std::string& suffix) {
    const auto value = [&](const char* name) { return timing.at(name + suffix).get<double>(); };
    return TransferTimes::Times{
        .h2d_ms = value("h2d"), .d2h_ms = value("d2h"), .end_to_end_ms = value("end_to_end")};
  };
  return {.pinned = times("_ms"), .pageable = times("_pageable_ms")};
}

Status status_of(const ParsedJson& record) {
  const auto& name = record.at("status").get_ref<const std::string&>();
  if (const auto status = status_named(name)) return *status;
  throw UsageError("unknown status " + name);
}

/// Nothing in files of before there were causes, too.
std::optional<Cause> cause_of(const ParsedJson& record) {
  const auto found = record.find("cause");
  if (found == record.end() || found->is_null()) return {};
  const auto& name = found->get_ref<const std::string&>();
  if (const auto cause = cause_named(name)) return cause;
  throw UsageError("unknown cause " + name);
}

/// Nothing in files of before it was kept.
std::optional<Arithmetic> claims_of(const ParsedJson& record) {
  if (!record.contains("math")) return {};
  const auto& math = record.at("math").get_ref<const std::string&>();
  const auto& state_dtype = record.at("state_dtype").get_ref<const std::string&>();
  const auto known_math = parse_math(math);
  const auto known_dtype = parse_dtype(state_dtype);
  if (!known_math) throw UsageError("unknown math " + math);
  if (!known_dtype) throw UsageError("unknown state_dtype " + state_dtype);
  return Arithmetic{.math = *known_math, .state_dtype = *known_dtype};
}

constexpr const char* kExchange = "exchange";

std::optional<TeamUse> team_of(const ParsedJson& record) {
  if (!record.contains("wire_bytes")) return {};
  TeamUse team{.wire_bytes = record.at("wire_bytes").get<double>()};
  if (record.contains("rerun_steps")) team.rerun_steps = record.at("rerun_steps").get<std::int64_t>();
  if (record.contains("team"))
    for (const ParsedJson& rank : record.at("team"))
      team.rank_ms.push_back(rank.at("median_ms").get<double>());
  if (record.contains("timing") && record.at("timing").contains(kExchange))
    team.exchange = timing_of(record.at("timing").at(kExchange));
  return team;
}

CaseResult result_of(const ParsedJson& record) {
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
    const ParsedJson& determinism = record.at("determinism");
    result.determinism = {.reruns = determinism.at("reruns").get<int>(),
                          .first_difference = determinism.value("first_difference", "")};
  }
  if (record.contains("timing")) {
    const ParsedJson& timing = record.at("timing");
    for (const auto& [name, stats] : timing.items())
      if (stats.is_object() && name != kExchange) result.timing[name] = timing_of(stats);
    if (timing.contains("h2d_ms")) result.transfers = transfers_of(timing);
  }
  result.team = team_of(record);
  if (record.contains("scaling")) {
    const ParsedJson& scaling = record.at("scaling");
    result.scaling = {.impl = scaling.at("impl").get<std::string>(),
                      .ms_one = scaling.at("ms_one").get<double>(),
                      .speedup = scaling.at("speedup").get<double>(),
                      .efficiency = scaling.at("efficiency").get<double>()};
  }
  if (record.contains("roofline")) {
    const ParsedJson& roofline = record.at("roofline");
    result.roofline = {.floor_ms = roofline.at("floor_ms").get<double>(),
                       .bound = roofline.at("bound").get<std::string>(),
                       .fraction = roofline.at("fraction").get<double>()};
  }
  if (record.contains("work")) {
    const ParsedJson& work = record.at("work");
    result.work = {.bytes = work.at("bytes").get<double>(),
                   .exponentials = work.at("exponentials").get<double>(),
                   .fmas = work.at("fmas").get<double>(),
                   .tensor_flops = work.value("tensor_flops", 0.0)};
  }
  result.workspace_bytes = record.at("workspace_bytes").get<std::size_t>();
  result.slot = record.value("slot", "");
  if (record.contains("beside")) result.beside = record.at("beside").get<int>();
  result.repro = record.at("repro").get<std::string>();
  result.key = record.value("key", "");  // files of before there were keys
  return result;
}

/// Inverse of study_record.
MethodConvergence convergence_of(const ParsedJson& record) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto& name = record.at("method").get_ref<const std::string&>();
  const auto method = std::ranges::find(methods(), name, &Method::name);
  if (method == methods().end()) throw UsageError("unknown method " + name);
  const ParsedJson& order = record.at("order");
  const ParsedJson& limit = record.at("stability_limit");
  MethodConvergence result{
      .method = &*method,
      .A = {record.at("A").at(0).get<double>(), record.at("A").at(1).get<double>()},
      .horizon = record.at("horizon").get<double>(),
      .order = order.at("theoretical").get<int>(),
      .measured_order = number(order, "measured", std::numeric_limits<double>::quiet_NaN()),
      .stability_limit = number(limit, "theoretical", kInfinity),
      .measured_stability_limit = number(limit, "measured", kInfinity),
      .errors = {}};
  for (const ParsedJson& run : record.at("runs"))
    result.errors.push_back({.steps = run.at("steps").get<std::int64_t>(),
                             .delta = run.at("delta").get<double>(),
                             .discretization = number(run, "discretization_error", kInfinity),
                             .rounding = number(run, "f32_rounding_error", kInfinity)});
  return result;
}

/// Inverse of study_record, as a result of both sides.
CaseResult consistency_of(const ParsedJson& record) {
  ParsedJson as_case = record;
  as_case["workspace_bytes"] = 0;
  as_case["repro"] = "";
  CaseResult result = result_of(as_case);
  result.impl = fmt::format("{} against {} in parts", result.impl,
                            record.at("parts_impl").get_ref<const std::string&>());
  return result;
}

RunInfo run_of(const ParsedJson& record) {
  constexpr std::string_view kSchema = "ssmbench-results/1";
  if (const auto& schema = record.at("schema").get_ref<const std::string&>(); schema != kSchema)
    throw UsageError(fmt::format("schema {}; expected {}", schema, kSchema));
  RunInfo info;
  record.at("argv").get_to(info.argv);
  record.at("build").get_to(info.build);
  record.at("devices").get_to(info.devices);
  record.at("started").get_to(info.started);
  if (record.contains("slots")) record.at("slots").get_to(info.slots);
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

/// A study of consistency is a case result too, but of another place.
struct Consistency {
  CaseResult result;
};

/// What a line holds; nothing where that is of no interest.
using Record = std::variant<std::monostate, RunInfo, CaseResult, MethodConvergence, Consistency>;

Record record_of(const std::string& line) {
  const ParsedJson record = ParsedJson::parse(line);
  const auto& kind = record.at("record").get_ref<const std::string&>();
  if (kind == "run") return run_of(record);
  if (kind == "case") return result_of(record);
  if (kind == "study" && record.at("kind") == "convergence") return convergence_of(record);
  if (kind == "study" && record.at("kind") == "consistency") return Consistency{consistency_of(record)};
  return {};
}

/// Collects a file's records in their order.
class Collector {
 public:
  /// `id` of the case, where it is a result of one.
  void add(Record record, const std::string& id) {
    if (auto* run = std::get_if<RunInfo>(&record)) {
      file.run = std::move(*run);
      started_ = true;
    }
    if (!started_) throw UsageError("no run record before it; expected a results file");
    if (auto* result = std::get_if<CaseResult>(&record)) add(std::move(*result), id);
    if (auto* study = std::get_if<MethodConvergence>(&record)) file.convergence.push_back(std::move(*study));
    if (auto* study = std::get_if<Consistency>(&record)) file.consistency.push_back(std::move(study->result));
  }
  /// What follows the last newline: the beginning of a record, where a run was killed while it wrote it.
  void check_rest(std::string_view rest) const {
    const std::string_view beginning = started_ ? R"({"record":")" : R"({"record":"run",)";
    if (rest.substr(0, beginning.size()) != beginning.substr(0, rest.size()))
      throw UsageError("neither a results record nor the beginning of one");
  }

  ResultsFile file;

 private:
  void add(CaseResult result, const std::string& id) {
    const auto [place, is_new] =
        place_of_.try_emplace(fmt::format("{}\n{}\n{}", id, result.impl, result.device), file.cases.size());
    if (is_new)
      file.cases.push_back(std::move(result));
    else
      file.cases[place->second] = std::move(result);
  }

  std::unordered_map<std::string, std::size_t> place_of_;  ///< by id, implementation and device
  bool started_ = false;
};

/// Some lines of a file, which are parsed at the same time.
class Block {
 public:
  void add(std::string line) { lines_.push_back(std::move(line)); }
  bool is_full() const {
    constexpr std::size_t kLines = 2048;
    return lines_.size() == kLines;
  }

  /// Hands its records to `collector`, in order, and is empty. Throws UsageError with the line's number.
  void collect(Collector& collector, const std::string& path) {
    std::vector<Record> records(lines_.size());
    std::vector<std::string> ids(lines_.size());
    std::vector<std::exception_ptr> errors(lines_.size());
#pragma omp parallel for schedule(dynamic, 16) if (lines_.size() > 16)
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      try {
        records[i] = reading([&] { return record_of(lines_[i]); });
        if (const auto* result = std::get_if<CaseResult>(&records[i])) ids[i] = result->the_case.id();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      ++number_;
      at_line(path, number_, [&] {
        if (errors[i]) std::rethrow_exception(errors[i]);
        collector.add(std::move(records[i]), ids[i]);
      });
      collector.file.whole_bytes += lines_[i].size() + 1;
    }
    lines_.clear();
  }
  /// The line after those that were collected.
  void check_rest(const Collector& collector, const std::string& path, std::string_view rest) const {
    at_line(path, number_ + 1, [&] { collector.check_rest(rest); });
  }

 private:
  template <class Work>
  static void at_line(const std::string& path, std::size_t number, const Work& work) {
    try {
      work();
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }

  std::vector<std::string> lines_;
  std::size_t number_ = 0;  ///< of the last line that was collected
};

}  // namespace

CaseResult read_case_record(const std::string& line) {
  return reading([&] { return result_of(ParsedJson::parse(line)); });
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
  Block block;
  std::string line;
  while (std::getline(stream, line)) {
    if (stream.eof()) break;  // a line that has no end
    block.add(std::exchange(line, {}));
    if (block.is_full()) block.collect(collector, path.string());
  }
  block.collect(collector, path.string());
  block.check_rest(collector, path.string(), line);
  return std::move(collector.file);
}

}  // namespace ssmbench
