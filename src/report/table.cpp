#include "report/table.h"

#include <fmt/format.h>

#include <cstdio>

#include "report/labels.h"
#include "report/progress.h"

namespace ssmbench {
namespace {

const char* colour_of(Status status) {
  switch (status) {
    case Status::pass:
      return "\x1b[32m";
    case Status::skip:
    case Status::unverified:
      return "\x1b[33m";
    default:
      return "\x1b[31m";
  }
}

}  // namespace

TableReporter::TableReporter() : colour_(is_drawable(stdout)) {}

void TableReporter::begin(const RunInfo& info) {
  for (const auto& [id, details] : info.devices) fmt::print("{}: {}\n", id, details.at("name"));
}

void TableReporter::case_done(const CaseResult& result) {
  const Problem& problem = result.the_case.problem;
  const std::string heading = shape_heading(problem);
  if (heading != heading_) {
    fmt::print("\n{}\n{:<10} {:<16} {:<6} {:<6} {:<24} {:>10} {:>8} {:>9} {:>7}  {}\n", problem.op().name,
               "status", "implementation", "device", "dtype", heading, "hot ms", "GB/s", "rel L2", "err/tol",
               "options");
    heading_ = heading;
  }

  std::string line = fmt::format(
      "{}{:<10}{} {:<16} {:<6} {:<6} {:<24}", colour_ ? colour_of(result.status) : "", name_of(result.status),
      colour_ ? "\x1b[0m" : "", result.impl, result.device, problem.choice("dtype"), shape_label(problem));
  const TimingStats* timing = result.headline();
  line += timing != nullptr
              ? fmt::format(" {:>10.4f} {:>8.1f}", timing->median_ms, gigabytes_per_second(result))
              : fmt::format(" {:>10} {:>8}", "", "");
  const OutputComparison* worst = worst_output(result);
  line += worst != nullptr ? fmt::format(" {:>9.2e} {:>7.3f}", worst->rel_l2, worst->tolerance_ratio)
                           : fmt::format(" {:>9} {:>7}", "", "");
  line += "  " + options_label(result.the_case);
  if (timing != nullptr && result.the_case.budget_ms)
    line += fmt::format("  [{} the budget of {} ms]",
                        timing->median_ms <= *result.the_case.budget_ms ? "meets" : "misses",
                        *result.the_case.budget_ms);
  if (result.determinism && !result.determinism->first_difference.empty()) line += "  [other bits again]";
  if (!result.reason.empty()) line += "  -- " + result.reason;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void TableReporter::finish(const Summary& summary) {
  fmt::print("\n{}\n", summary_line(summary));
}

}  // namespace ssmbench
