#include "report/gate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/printable.h"
#include "report/junit.h"
#include "report/text.h"

namespace ssmbench {
namespace {

/// GitHub takes at most 1 MiB of a step's summary, and what is the same is of little interest there.
constexpr std::size_t kFoldedBytes = 500'000;

std::string percent(double ratio) {
  return fmt::format("{:+.1f}%", 100 * (ratio - 1));
}

/// The columns that all tables have: before, after, change, interval. Empty where there is none.
struct Cells {
  std::string before, after, change, interval;
};

Cells cells_of(const Comparison& comparison) {
  Cells cells;
  if (!comparison.time) return cells;
  const TimeChange& time = *comparison.time;
  if (time.before_ms > 0) cells.before = fmt::format("{:.4f}", time.before_ms);
  if (time.after_ms > 0) cells.after = fmt::format("{:.4f}", time.after_ms);
  if (!time.reason.empty()) return cells;
  cells.change = percent(time.ratio.ratio);
  cells.interval = fmt::format("{} to {}", percent(time.ratio.low), percent(time.ratio.high));
  return cells;
}

std::string interval_heading(const GatePolicy& policy) {
  return fmt::format("{:g}% interval", 100 * policy.confidence);
}

std::string markdown_table(const std::vector<Comparison>& comparisons, const GatePolicy& policy, bool same) {
  std::string rows;
  for (const auto& comparison : comparisons) {
    if ((gate_label(comparison) == name_of(Verdict::same)) != same) continue;
    const Cells cells = cells_of(comparison);
    const CaseResult& result = comparison.either();
    rows += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", gate_label(comparison),
                        markdown_cell(result.impl), result.the_case.id(), result.device, cells.before,
                        cells.after, cells.change, cells.interval, markdown_cell(gate_remark(comparison)));
  }
  if (rows.empty()) return rows;
  return fmt::format(
      "| verdict | implementation | case | device | {0} before, ms | {0} now, ms | change | {1} | reason |\n"
      "| --- | --- | --- | --- | ---: | ---: | ---: | --- | --- |\n{2}",
      policy.timing, interval_heading(policy), rows);
}

JunitCase::Outcome junit_outcome(const Comparison& comparison, const GatePolicy& policy) {
  switch (comparison.finding()) {
    case Finding::crashed:
      return JunitCase::Outcome::error;
    case Finding::worse:
    case Finding::slower:
      return JunitCase::Outcome::failure;
    case Finding::inconclusive:
      return policy.fail_on_inconclusive ? JunitCase::Outcome::failure : JunitCase::Outcome::skipped;
    case Finding::none:
      break;
  }
  return gate_label(comparison) == "-" ? JunitCase::Outcome::skipped : JunitCase::Outcome::passed;
}

/// "slower", "missing"; of one that got worse because it no longer passes, the cause.
std::string junit_type(const Comparison& comparison) {
  const CaseResult* after = comparison.after;
  if (!comparison.worse.empty() && after != nullptr && after->cause)
    return std::string(name_of(*after->cause));
  const std::string label = gate_label(comparison);
  std::string type;
  for (const char c : label) type += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return label == "-" ? "not_compared" : type;
}

}  // namespace

std::string gate_label(const Comparison& comparison) {
  if (comparison.after == nullptr) return "MISSING";
  if (comparison.before == nullptr) return "NEW";
  if (!comparison.worse.empty()) return "WORSE";
  return comparison.time ? std::string(name_of(comparison.time->verdict)) : "-";
}

std::string gate_remark(const Comparison& comparison) {
  if (!comparison.worse.empty()) return fmt::format("{}", fmt::join(comparison.worse, "; "));
  std::vector<std::string> remarks = comparison.changes;
  if (comparison.time && !comparison.time->reason.empty()) remarks.push_back(comparison.time->reason);
  if (comparison.time || !remarks.empty()) return fmt::format("{}", fmt::join(remarks, "; "));
  if (comparison.before == nullptr || comparison.after == nullptr) return "";
  const auto before = name_of(comparison.before->status);
  const auto after = name_of(comparison.after->status);
  return before == after ? std::string(after) : fmt::format("was {}, now {}", before, after);
}

std::string gate_message(const Comparison& comparison) {
  const Cells cells = cells_of(comparison);
  std::string message = gate_label(comparison);
  if (!cells.change.empty()) message += fmt::format(" {} ({})", cells.change, cells.interval);
  const std::string remark = gate_remark(comparison);
  return remark.empty() ? message : message + ": " + remark;
}

std::string gate_counts(const std::vector<Comparison>& comparisons) {
  std::map<std::string, int> counts;
  for (const auto& comparison : comparisons) ++counts[gate_label(comparison)];
  std::vector<std::string> parts;
  for (const char* label : {"SAME", "FASTER", "SLOWER", "INCONCLUSIVE", "WORSE", "MISSING", "NEW"})
    if (counts.contains(label)) parts.push_back(fmt::format("{} {}", counts[label], label));
  if (counts.contains("-")) parts.push_back(fmt::format("{} not compared", counts["-"]));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string gate_table(const std::vector<Comparison>& comparisons, const GatePolicy& policy) {
  std::string text =
      fmt::format("{:<12} {:<18} {:<6} {:>10} {:>10} {:>8}  {:<18} {}\n", "verdict", "implementation",
                  "device", "before ms", "now ms", "change", interval_heading(policy), "case");
  for (const auto& comparison : comparisons) {
    const Cells cells = cells_of(comparison);
    const CaseResult& result = comparison.either();
    const std::string remark = gate_remark(comparison);
    text +=
        fmt::format("{:<12} {:<18} {:<6} {:>10} {:>10} {:>8}  {:<18} {}{}{}\n", gate_label(comparison),
                    printable(result.impl), printable(result.device), cells.before, cells.after, cells.change,
                    cells.interval, result.the_case.id(), remark.empty() ? "" : "  -- ", printable(remark));
  }
  return text;
}

std::string gate_markdown(const std::vector<Comparison>& comparisons, const GatePolicy& policy) {
  std::string text = gate_counts(comparisons) + "\n";
  if (const auto changed = markdown_table(comparisons, policy, false); !changed.empty())
    text += "\n" + changed;
  const auto same = markdown_table(comparisons, policy, true);
  if (!same.empty() && same.size() <= kFoldedBytes)
    text += fmt::format("\n<details><summary>SAME: within {:g}%</summary>\n\n{}\n</details>\n",
                        100 * policy.max_regression, same);
  return text;
}

std::string gate_record(const Comparison& comparison, const GatePolicy& policy) {
  using OrderedJson = nlohmann::ordered_json;
  const auto status = [](const CaseResult* result) {
    return result == nullptr ? OrderedJson(nullptr) : OrderedJson(name_of(result->status));
  };
  const CaseResult& result = comparison.either();
  const auto cause = [](const CaseResult* side) {
    return side == nullptr || !side->cause ? OrderedJson(nullptr) : OrderedJson(name_of(*side->cause));
  };
  OrderedJson record{{"record", "gate"},
                     {"id", result.the_case.id()},
                     {"op", result.the_case.problem.op().name},
                     {"impl", result.impl},
                     {"device", result.device},
                     {"verdict", gate_label(comparison)},
                     {"status", {{"before", status(comparison.before)}, {"after", status(comparison.after)}}},
                     {"cause", {{"before", cause(comparison.before)}, {"after", cause(comparison.after)}}},
                     {"worse", comparison.worse},
                     {"changes", comparison.changes}};
  if (comparison.time) {
    const TimeChange& time = *comparison.time;
    OrderedJson& timing = record["timing"] = {
        {"column", policy.timing}, {"verdict", name_of(time.verdict)}, {"reason", time.reason}};
    if (time.reason.empty())
      timing.update({{"before_ms", time.before_ms},
                     {"after_ms", time.after_ms},
                     {"ratio", time.ratio.ratio},
                     {"confidence", policy.confidence},
                     {"interval", {time.ratio.low, time.ratio.high}},
                     {"p_value", time.p_value},
                     {"corrected_p_value", time.corrected_p_value},
                     {"processes", {time.processes_before, time.processes_after}}});
  }
  return json_text(record);
}

std::string gate_junit(const std::vector<Comparison>& comparisons, const GatePolicy& policy) {
  std::vector<JunitCase> cases;
  for (const auto& comparison : comparisons) {
    const CaseResult& result = comparison.either();
    const std::string message = gate_message(comparison);
    cases.push_back({.suite = std::string(result.the_case.problem.op().name),
                     .class_name = fmt::format("{} on {}", result.impl, result.device),
                     .name = result.the_case.id(),
                     .outcome = junit_outcome(comparison, policy),
                     .type = junit_type(comparison),
                     .message = message,
                     .output = message + "\n" + result.repro,
                     .seconds = comparison.time ? comparison.time->after_ms / 1000 : 0});
  }
  return junit_document(cases);
}

}  // namespace ssmbench
