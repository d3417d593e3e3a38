#include "report/table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/printable.h"
#include "base/progress.h"
#include "report/labels.h"

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

/// Where the reader has gone, as `head` does, the results are in the file all the same: what is left of the
/// table goes nowhere. Other failures show at the end.
void flush_table() {
  if (std::fflush(stdout) == 0 || errno != EPIPE) return;
  std::clearerr(stdout);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
}

}  // namespace

TableReporter::TableReporter() : colour_(is_drawable(stdout)) {}

void TableReporter::begin(const RunInfo& info) {
  for (const auto& [id, details] : info.devices) fmt::print("{}: {}\n", id, details.at("name"));
  if (!info.slots.empty()) fmt::print("{} slots: {}\n", info.slots.size(), fmt::join(info.slots, ", "));
  has_device_times_ = has_device_times(info);
  has_roofline_ = has_roofline(info);
  flush_table();
}

void TableReporter::case_done(const CaseResult& result) {
  const Problem& problem = result.the_case.problem;
  const std::string heading = shape_heading(problem);
  if (heading != heading_) {
    fmt::print("\n{}\n{:<16} {:<16} {:<6} {:<6} {:<24} {:>10}", problem.op().name, "status", "implementation",
               "device", "dtype", heading, "hot ms");
    if (has_device_times_)
      for (const auto& [name, _] : device_times(result)) fmt::print(" {:>10}", name);
    fmt::print(" {:>8}{} {:>9} {:>7}  {}\n", "GB/s", has_roofline_ ? fmt::format(" {:>11}", "% of peak") : "",
               "rel L2", "err/tol", "options");
    heading_ = heading;
  }

  std::string line = fmt::format(
      "{}{:<16}{} {:<16} {:<6} {:<6} {:<24}", colour_ ? colour_of(result.status) : "", status_label(result),
      colour_ ? "\x1b[0m" : "", result.impl, result.device, problem.choice("dtype"), shape_label(problem));
  const TimingStats* timing = result.headline();
  const auto add_ms = [&line](std::optional<double> ms) {
    line += ms ? fmt::format(" {:>10.4f}", *ms) : fmt::format(" {:>10}", "");
  };
  add_ms(timing != nullptr ? std::optional(timing->median_ms) : std::nullopt);
  if (has_device_times_)
    for (const auto& [_, ms] : device_times(result)) add_ms(ms);
  line +=
      timing != nullptr ? fmt::format(" {:>8.1f}", gigabytes_per_second(result)) : fmt::format(" {:>8}", "");
  if (has_roofline_) line += fmt::format(" {:>11}", roofline_label(result));
  const OutputComparison* worst = worst_output(result);
  line += worst != nullptr ? fmt::format(" {:>9.2e} {:>7.3f}", worst->rel_l2, worst->tolerance_ratio)
                           : fmt::format(" {:>9} {:>7}", "", "");
  line += "  " + options_label(result.the_case);
  if (const auto budget = budget_label(result); !budget.empty()) line += "  [" + budget + "]";
  if (const auto& scaling = result.scaling)
    line += fmt::format("  [{:.2f} times as fast as {}]", scaling->speedup, scaling->impl);
  if (timing != nullptr && timing->throttled > 0)
    line += fmt::format("  [{} throttled samples dropped]", timing->throttled);
  if (result.determinism && !result.determinism->first_difference.empty()) line += "  [nondeterministic]";
  if (!result.reason.empty()) line += "  -- " + printable(result.reason);
  fmt::print("{}\n", line);
  flush_table();
}

void TableReporter::finish(const Summary& summary) {
  fmt::print("\n{}\n", summary_line(summary));
  flush_table();
}

}  // namespace ssmbench
