#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/glob.h"
#include "base/printable.h"
#include "base/progress.h"
#include "check/verdict.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/subcommands.h"
#include "cli/time_limit.h"
#include "interchange/reader.h"
#include "record/line_file.h"
#include "report/verdict_report.h"

namespace ssmbench {
namespace {

struct CheckOptions {
  std::vector<std::string> files;
  std::string case_id, json_file;
  double timeout = kDefaultJudgingSeconds;
  bool allow_nonfinite = false, quiet = false, verbose = false;
};

/// Judges the cases of files one after the other. A file or case that cannot be read is said and counted, and
/// the others are judged all the same.
class Checker {
 public:
  explicit Checker(const CheckOptions& options)
      : options_(options), progress_(options.quiet, options.verbose) {
    if (!options.json_file.empty()) json_.emplace(options.json_file);
  }

  int run() {
    for (const auto& file : options_.files) contained([&] { check_file(file); });
    if (prints_text()) fmt::print("{} pass, {} fail\n", passed_, failed_);
    if (unreadable_ > 0) return kUsage;
    if (failed_ > 0) return kOutOfTolerance;
    if (passed_ > 0) return kOk;
    fmt::print(stderr, "ssmbench: no case to check in {}\n", fmt::join(options_.files, ", "));
    return kNothingMatched;
  }

 private:
  bool prints_text() const { return !options_.quiet && options_.json_file != "-"; }

  template <class Work>
  void contained(const Work& work) {
    try {
      work();
    } catch (const UsageError& error) {
      progress_.clear();
      fmt::print(stderr, "ssmbench: {}\n", printable(error.what()));
      ++unreadable_;
    }
  }

  void check_file(const std::string& name) {
    const InterchangeFile file(name, Rehearsal::in_child, interrupt_.flag());
    if (prints_text())
      fmt::print("{}: {}\n{}", printable(name), printable(file.info().producer), verdict_heading());
    for (const auto& id : file.case_ids())
      if (matches_glob(options_.case_id, id)) contained([&] { check_case(name, file, id); });
  }

  void check_case(const std::string& name, const InterchangeFile& file, const std::string& id) {
    if (interrupt_.flag()) throw Interrupted();
    progress_.update(passed_ + failed_, id);
    const CaseRead read = file.read_case(id);
    if (read.outputs.empty()) {
      progress_.say(fmt::format("{}: /cases/{} has no outputs to check", name, id));
      return;
    }
    if (const auto inputs = nonfinite_inputs(read); !inputs.empty() && !options_.allow_nonfinite)
      throw UsageError(
          fmt::format("{}: /cases/{}/inputs: NaN or Inf in {}; judged only with --allow-nonfinite", name, id,
                      fmt::join(inputs, ", ")));
    CaseVerdict verdict;
    within_time(options_.timeout, interrupt_.flag(), fmt::format("{}: /cases/{}", name, id),
                [&](const std::atomic<bool>& stop) {
                  try {
                    verdict = judge_case(read, stop);
                  } catch (const ContractError& error) {  // inputs that contradict one another
                    throw UsageError(fmt::format("{}: /cases/{}/inputs: {}", name, id, error.what()));
                  }
                });
    ++(verdict.passed() ? passed_ : failed_);
    progress_.clear();
    if (prints_text()) fmt::print("{}", verdict_text(read, verdict, options_.verbose));
    if (json_) json_->append(verdict_json(name, file.info(), read, verdict));
  }

  const CheckOptions& options_;
  Progress progress_;
  InterruptGuard interrupt_;
  std::optional<LineFile> json_;
  std::size_t passed_ = 0, failed_ = 0, unreadable_ = 0;
};

}  // namespace

void add_check(Program& program) {
  Command& command = program.add(
      "check", "Check the outputs in interchange files against the fp64 reference of their inputs.",
      "ssmbench check outputs.h5");
  auto options = std::make_shared<CheckOptions>();
  command.positionals("FILE", options->files, "Interchange files (HDF5)");
  command.option("--case", "GLOB", options->case_id, "Only cases whose id matches");
  command.option("--json", "FILE", options->json_file, "Write one JSON record per case (- for stdout)");
  command.flag("--allow-nonfinite", options->allow_nonfinite,
               "Also check cases whose inputs contain NaN or Inf");
  command.positive("--timeout", "SECONDS", options->timeout, "Time limit for each case (default 6000)");
  command.flag("--quiet", options->quiet, "Print no table and no progress");
  command.flag("-v,--verbose", options->verbose,
               "Print a histogram of errors, and the error over time, for every output");
  command.runs([options] { return Checker(*options).run(); });
}

}  // namespace ssmbench
