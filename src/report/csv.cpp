#include "report/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "report/labels.h"
#include "report/text.h"

namespace ssmbench {
namespace {

struct Column {
  std::string name;
  std::function<std::string(const CaseResult&)> value;  ///< empty where the result has none
};
using Columns = std::vector<Column>;

template <class Object, class Member>
std::string member_text(const Object* object, Member member) {
  return object == nullptr ? "" : fmt::format("{}", object->*member);
}

void add_axis(Columns& columns, const std::string& name) {
  columns.push_back({name, [name](const CaseResult& result) {
                       const Problem& problem = result.the_case.problem;
                       return problem.has(name) ? to_string(problem.value(name)) : "";
                     }});
}

void add_problem(Columns& columns) {
  columns.push_back({"id", [](const CaseResult& result) { return result.the_case.id(); }});
  columns.push_back(
      {"op", [](const CaseResult& result) { return std::string(result.the_case.problem.op().name); }});
  columns.push_back({"impl", [](const CaseResult& result) { return result.impl; }});
  columns.push_back({"device", [](const CaseResult& result) { return result.device; }});
  const auto add_axes = [&columns](const auto& chosen) {
    for (const OpSpec* op : all_ops())
      for (const auto& axis : op->axes)
        if (chosen(axis) && std::ranges::find(columns, axis.name, &Column::name) == columns.end())
          add_axis(columns, axis.name);
  };
  for (const AxisRole role : {AxisRole::method, AxisRole::dtype, AxisRole::layout})
    add_axes([role](const AxisSpec& axis) { return axis.role == role; });
  add_axes([](const AxisSpec& axis) { return axis.kind == AxisKind::size; });
  columns.push_back({"options", [](const CaseResult& result) { return options_label(result.the_case); }});
}

void add_times(Columns& columns, const std::string& timing) {
  const auto add = [&](const char* suffix, const auto& text) {
    columns.push_back({timing + suffix, [timing, text](const CaseResult& result) {
                         const auto found = result.timing.find(timing);
                         return found == result.timing.end() ? "" : text(found->second);
                       }});
  };
  add("_median_ms", [](const TimingStats& times) { return fmt::format("{}", times.median_ms); });
  add("_min_ms", [](const TimingStats& times) { return fmt::format("{}", times.min_ms); });
  add("_p95_ms", [](const TimingStats& times) { return fmt::format("{}", times.p95_ms); });
  add("_n", [](const TimingStats& times) { return std::to_string(times.samples_ms.size()); });
}

/// A column of a number or text that a part of the result has, where it has that part.
template <class Part, class Member>
void add_member(Columns& columns, const char* name, Part part, Member member) {
  columns.push_back(
      {name, [part, member](const CaseResult& result) { return member_text(part(result), member); }});
}

void add_measurements(Columns& columns) {
  for (const char* timing : {"hot", "cold", "graph"}) add_times(columns, timing);
  const auto pinned = [](const CaseResult& result) {
    return result.transfers ? &result.transfers->pinned : nullptr;
  };
  add_member(columns, "h2d_ms", pinned, &TransferTimes::Times::h2d_ms);
  add_member(columns, "d2h_ms", pinned, &TransferTimes::Times::d2h_ms);
  add_member(columns, "end_to_end_ms", pinned, &TransferTimes::Times::end_to_end_ms);
  columns.push_back({"gb_per_s", [](const CaseResult& result) {
                       return result.headline() == nullptr ? ""
                                                           : fmt::format("{}", gigabytes_per_second(result));
                     }});
  add_member(columns, "max_abs", worst_output, &OutputComparison::max_abs);
  add_member(columns, "rel_l2", worst_output, &OutputComparison::rel_l2);
  add_member(columns, "tolerance_ratio", worst_output, &OutputComparison::tolerance_ratio);
  const auto roofline = [](const CaseResult& result) {
    return result.roofline ? &*result.roofline : nullptr;
  };
  add_member(columns, "floor_ms", roofline, &Roofline::floor_ms);
  add_member(columns, "bound", roofline, &Roofline::bound);
  add_member(columns, "fraction", roofline, &Roofline::fraction);
  columns.push_back({"budget_ms", [](const CaseResult& result) {
                       const auto budget = result.the_case.budget_ms;
                       return budget ? fmt::format("{}", *budget) : "";
                     }});
  columns.push_back(
      {"workspace_bytes", [](const CaseResult& result) { return std::to_string(result.workspace_bytes); }});
}

Columns make_columns() {
  Columns columns;
  add_problem(columns);
  const auto claims = [](const CaseResult& result) { return result.claims ? &*result.claims : nullptr; };
  columns.push_back({"math", [claims](const CaseResult& result) {
                       return claims(result) == nullptr ? "" : std::string(name_of(claims(result)->math));
                     }});
  columns.push_back({"state_dtype", [claims](const CaseResult& result) {
                       return claims(result) == nullptr ? ""
                                                        : std::string(name_of(claims(result)->state_dtype));
                     }});
  columns.push_back({"status", [](const CaseResult& result) { return std::string(name_of(result.status)); }});
  columns.push_back({"cause", [](const CaseResult& result) {
                       return result.cause ? std::string(name_of(*result.cause)) : "";
                     }});
  columns.push_back({"reason", [](const CaseResult& result) { return result.reason; }});
  add_measurements(columns);
  columns.push_back({"repro", [](const CaseResult& result) { return result.repro; }});
  return columns;
}

const Columns& all_columns() {
  static const Columns columns = make_columns();
  return columns;
}

}  // namespace

void CsvReporter::begin(const RunInfo& /*info*/) {
  std::vector<std::string> names;
  for (const auto& column : all_columns()) names.push_back(column.name);
  file_.append(fmt::format("{}", fmt::join(names, ",")));
}

void CsvReporter::case_done(const CaseResult& result) {
  std::vector<std::string> fields;
  for (const auto& column : all_columns()) fields.push_back(csv_field(column.value(result)));
  file_.append(fmt::format("{}", fmt::join(fields, ",")));
}

}  // namespace ssmbench
