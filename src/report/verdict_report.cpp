#include "report/verdict_report.h"

#include <fmt/format.h>

#include <optional>

#include "base/json_text.h"
#include "record/comparison_json.h"
#include "verify/describe.h"

namespace ssmbench {
namespace {

std::string histogram_text(const ErrorProfile& profile) {
  std::string text = "    ulps:";
  for (std::size_t bin = 0; bin < profile.histogram.size(); ++bin) {
    if (profile.histogram.at(bin) == 0) continue;
    std::string label = "not finite";
    if (bin == 0)
      label = "exact";
    else if (bin < ErrorProfile::kUlps.size())
      label = fmt::format("<={}", ErrorProfile::kUlps.at(bin));
    else if (bin == ErrorProfile::kUlps.size())
      label = fmt::format(">{}", ErrorProfile::kUlps.back());
    text += fmt::format("  {}: {}", label, profile.histogram.at(bin));
  }
  return text + "\n";
}

std::string over_time_text(const OutputComparison& comparison) {
  if (comparison.over_time.empty()) return "";
  std::string text = "    over time, rms error (err/tol):";
  for (const auto& span : comparison.over_time)
    text += fmt::format("  l {}-{}: {:.1e} ({:.2g})", span.first, span.last, span.rms, span.worst_ratio);
  return text + "\n";
}

std::string details_text(const OutputVerdict& output) {
  std::string text;
  const OutputComparison& c = output.comparison;
  if (!c.passed() && c.judged > 0) {
    text += fmt::format("    worst {}: expected {:.9g}, got {:.9g}\n", index_text(c.worst_index, output.axes),
                        c.worst_expected, c.worst_got);
    if (output.profile.first_bad)
      text += fmt::format("    {} of {} elements out of tolerance, the first at {}\n", output.profile.bad,
                          c.judged, index_text(*output.profile.first_bad, output.axes));
    else
      text += fmt::format("    {}\n", why_failed(c));
    for (const auto& pattern : output.patterns) text += fmt::format("    {}\n", pattern);
  }
  if (const auto left_out = output.profile.left_out; left_out > 0)
    text += fmt::format(
        "    {} elements not compared: a correct implementation may overflow there, or it is padding\n",
        left_out);
  if (c.judged > 0) text += "  " + tolerance_text(output.name, c) + "\n";
  return text + histogram_text(output.profile) + over_time_text(c);
}

nlohmann::ordered_json cause_json(std::optional<Cause> cause) {
  return cause ? nlohmann::ordered_json(name_of(*cause)) : nullptr;
}

/// The cause of the output that is furthest off.
std::optional<Cause> worst_cause(const CaseVerdict& verdict) {
  const OutputComparison* worst = nullptr;
  for (const auto& output : verdict.outputs)
    if (const OutputComparison& c = output.comparison;
        !c.passed() && (worst == nullptr || c.tolerance_ratio > worst->tolerance_ratio))
      worst = &c;
  return worst == nullptr ? std::nullopt : cause_of_failure(*worst);
}

std::string status_of(const OutputComparison& comparison) {
  return std::string(name_of(comparison.passed() ? Status::pass : Status::fail));
}

}  // namespace

std::string verdict_heading() {
  return fmt::format("{:<6} {:<16} {:>9} {:>9} {:>10} {:>9} {:>9} {:>6}\n", "status", "output", "max abs",
                     "rel L2", "max ulp", "err/tol", "rms", "decays");
}

std::string verdict_text(const CaseRead& read, const CaseVerdict& verdict, bool details) {
  std::string text =
      fmt::format("{} ({}, math {})\n", read.id, read.problem.op().name, name_of(read.arithmetic.math));
  for (const auto& output : verdict.outputs) {
    const OutputComparison& c = output.comparison;
    text += fmt::format("{:<6} {:<16} {:>9.2e} {:>9.2e} {:>10.4g} {:>9.3g} {:>9.3g} {:>6}\n", status_of(c),
                        output.name, c.max_abs, c.rel_l2, c.max_ulp, c.tolerance_ratio, c.rms_ratio,
                        c.decay_bias ? fmt::format("{:.3f}", c.decay_bias_ratio) : "");
    if (details || !c.passed() || output.profile.left_out > 0) text += details_text(output);
  }
  if (!verdict.explanation.empty()) text += fmt::format("    hint: {}\n", verdict.explanation);
  return text;
}

std::string verdict_json(const std::string& file, const FileInfo& info, const CaseRead& read,
                         const CaseVerdict& verdict) {
  nlohmann::ordered_json record{{"record", "check"},
                                {"file", file},
                                {"producer", info.producer},
                                {"id", read.id},
                                {"op", read.problem.op().name},
                                {"math", name_of(read.arithmetic.math)},
                                {"status", name_of(verdict.passed() ? Status::pass : Status::fail)},
                                {"cause", cause_json(worst_cause(verdict))},
                                {"hint", verdict.explanation}};
  for (const auto& output : verdict.outputs) {
    auto entry = to_json(output.comparison);
    const ErrorProfile& profile = output.profile;
    entry["cause"] = cause_json(cause_of_failure(output.comparison));
    entry["out_of_tolerance"] = profile.bad;
    entry["not_judged"] = profile.left_out;
    if (profile.first_bad) entry["first_bad_index"] = *profile.first_bad;
    entry["patterns"] = output.patterns;
    entry["ulp_histogram"] = {{"up_to", ErrorProfile::kUlps}, {"counts", profile.histogram}};
    record["outputs"][output.name] = entry;
  }
  return json_text(record);
}

}  // namespace ssmbench
