#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/printable.h"
#include "base/progress.h"
#include "check/difference.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/subcommands.h"
#include "cli/time_limit.h"
#include "interchange/reader.h"

namespace ssmbench {
namespace {

struct CompareOptions {
  std::string a, b;
  double timeout = kDefaultJudgingSeconds;
  bool quiet = false;
};

void print(const OutputDifference& output) {
  const OutputComparison& c = output.comparison;
  const char* status = "equal";
  std::string note;
  if (output.different > 0) {
    status = output.agrees() ? "agree" : "differ";
    note = fmt::format("{} of {} differ, most at {}: {:.9g} and {:.9g}", output.different, output.elements,
                       index_text(c.worst_index, output.axes), c.worst_expected, c.worst_got);
  }
  fmt::print("{:<8} {:<16} {:>9.2e} {:>9.2e} {:>10.4g} {:>9.3g}  {}\n", status, output.name, c.max_abs,
             c.rel_l2, c.max_ulp, c.tolerance_ratio, note);
}

/// Reads a case of both files and says how their outputs differ; true when all agree.
bool compare_case(const CompareOptions& options, const InterchangeFile& a, const InterchangeFile& b,
                  const std::string& id, const std::atomic<bool>& interrupted) {
  const CaseRead in_a = a.read_case(id);
  const CaseRead in_b = b.read_case(id);
  const auto complain = [&](const std::string& what) {
    return UsageError(fmt::format("{} and {}: /cases/{}: {}", options.a, options.b, id, what));
  };
  if (&in_a.problem.op() != &in_b.problem.op() || in_a.problem.axes() != in_b.problem.axes())
    throw complain("the problems differ");
  if (const auto names = different_inputs(in_a, in_b); !names.empty())
    throw complain(fmt::format("the inputs differ: {}", fmt::join(names, ", ")));
  std::vector<OutputDifference> differences;
  within_time(options.timeout, interrupted, fmt::format("{} and {}: /cases/{}", options.a, options.b, id),
              [&](const std::atomic<bool>& stop) { differences = compare_cases(in_a, in_b, stop); });
  if (differences.empty()) throw complain("the files have no output in common");
  if (!options.quiet) {
    fmt::print("{}\n{:<8} {:<16} {:>9} {:>9} {:>10} {:>9}\n", id, "status", "output", "max abs", "rel L2",
               "max ulp", "diff/tol");
    for (const auto& output : differences) print(output);
  }
  return std::ranges::all_of(differences, &OutputDifference::agrees);
}

int compare(const CompareOptions& options) {
  const InterruptGuard interrupt;
  const InterchangeFile a(options.a, Rehearsal::in_child, interrupt.flag());
  const InterchangeFile b(options.b, Rehearsal::in_child, interrupt.flag());
  std::vector<std::string> common;
  std::ranges::set_intersection(a.case_ids(), b.case_ids(), std::back_inserter(common));
  Progress progress(options.quiet, false);
  for (const auto* file : {&a, &b})
    for (const auto& id : file->case_ids())
      if (!std::ranges::binary_search(common, id))
        progress.say(fmt::format("only in {}: {}", file == &a ? options.a : options.b, id));

  int differing = 0;
  bool unreadable = false;
  for (const auto& id : common) {
    if (interrupt.flag()) throw Interrupted();
    try {
      differing += compare_case(options, a, b, id, interrupt.flag()) ? 0 : 1;
    } catch (const UsageError& error) {  // the other cases are compared all the same
      fmt::print(stderr, "ssmbench: {}\n", printable(error.what()));
      unreadable = true;
    }
  }
  if (common.empty())
    fmt::print(stderr, "ssmbench: {} and {} have no case in common\n", options.a, options.b);
  if (unreadable) return kUsage;
  if (differing > 0) return kOutOfTolerance;
  return common.empty() ? kNothingMatched : kOk;
}

}  // namespace

void add_compare(Program& program) {
  Command& command =
      program.add("compare", "Compare two producers' outputs for the same cases, tensor by tensor.",
                  "ssmbench compare mamba_ssm.h5 mine.h5");
  auto options = std::make_shared<CompareOptions>();
  command.positional("A", options->a, "First interchange file (HDF5)");
  command.positional("B", options->b, "Second interchange file (HDF5)");
  command.positive("--timeout", "SECONDS", options->timeout, "Time limit for each case (default 6000)");
  command.flag("--quiet", options->quiet, "Print no table, only set the exit code");
  command.runs([options] { return compare(*options); });
}

}  // namespace ssmbench
