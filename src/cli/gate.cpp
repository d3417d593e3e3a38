#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/glob.h"
#include "base/progress.h"
#include "cli/exit_code.h"
#include "cli/run_options.h"
#include "cli/subcommands.h"
#include "gate/judge.h"
#include "record/line_file.h"
#include "report/gate_report.h"
#include "report/github.h"

namespace ssmbench {
namespace {

namespace fs = std::filesystem;

struct GateOptions {
  std::string baseline, results;
  std::string max_regression = "3%", max_error_growth = "25%", confidence = "99%";
  std::string impl, case_id, json_file, markdown_file, junit_file;
  bool allow_different_device = false, quiet = false;
  GatePolicy policy;
};

/// "3%" as 0.03. The sign is asked for, since 3 and 0.03 are both easily meant.
double fraction_of(const std::string& option, const std::string& text) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = text.size();  // no number
  }
  if (text.substr(end) != "%" || !(value >= 0) || value > 1e6)
    throw UsageError(fmt::format("{} {}: expected a percentage, such as 3%", option, text));
  return value / 100;
}

GatePolicy policy_of(const GateOptions& options) {
  GatePolicy policy = options.policy;
  policy.max_regression = fraction_of("--max-regression", options.max_regression);
  policy.max_error_growth = fraction_of("--max-error-growth", options.max_error_growth);
  policy.confidence = fraction_of("--confidence", options.confidence);
  if (policy.confidence < 0.5 || policy.confidence > 0.999)
    throw UsageError(fmt::format("--confidence {}: expected 50% to 99.9%", options.confidence));
  return policy;
}

/// Results files of one program and sweep, each of another process.
struct Side {
  std::string name;  ///< as given
  std::vector<std::string> names;
  std::vector<ResultsFile> files;
};

/// The results files of a folder, by name; a file itself.
std::vector<std::string> files_of(const std::string& name) {
  std::error_code error;  // what cannot be read says so when it is
  if (!fs::is_directory(name, error)) return {name};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(name))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  if (files.empty())
    throw UsageError(fmt::format("{}: the folder contains no results files (*.jsonl)", name));
  std::ranges::sort(files);
  return files;
}

ResultsFile read_selected(const std::string& name, const GateOptions& options) {
  ResultsFile file = read_results(name);
  std::erase_if(file.cases, [&](const CaseResult& result) {
    return !matches_any_glob(options.impl, result.impl) ||
           (!options.case_id.empty() && !matches_glob(options.case_id, result.the_case.id()));
  });
  return file;
}

/// Files of another program are no further processes of this one, and copies of a file are none at all.
Side read_side(const std::string& name, const GateOptions& options, Progress& progress) {
  Side side{.name = name, .names = {}, .files = {}};
  const auto names = files_of(name);
  for (const auto& file : names) {
    progress.update(side.files.size(), file);
    ResultsFile read = read_selected(file, options);
    if (!side.files.empty() && read.run.build != side.files.front().run.build)
      throw UsageError(fmt::format("{} and {} are from different builds; a folder holds results of one build",
                                   side.names.front(), file));
    const auto original =
        std::ranges::find_if(side.files, [&](const ResultsFile& other) { return is_copy(other, read); });
    if (original != side.files.end()) {
      progress.say(fmt::format("warning: {} is a copy of {}; it does not count as a process", file,
                               side.names[original - side.files.begin()]));
      continue;
    }
    side.names.push_back(file);
    side.files.push_back(std::move(read));
  }
  return side;
}

/// A side that was timed, but never in that way, would compare as nothing at all.
void check_timed(const Side& side, const std::string& timing) {
  bool timed = false;
  for (const auto& file : side.files)
    for (const auto& result : file.cases) {
      if (result.timing.contains(timing)) return;
      timed = timed || !result.timing.empty();
    }
  if (timed) throw UsageError(fmt::format("{}: no case has {} times", side.name, timing));
}

void check_devices(const Side& before, const Side& after) {
  for (const Side* side : {&before, &after})
    for (std::size_t i = 0; i < side->files.size(); ++i)
      if (const auto differences = device_differences(before.files.front(), side->files[i]);
          !differences.empty())
        throw UsageError(
            fmt::format("{} and {} were measured on different devices or drivers; "
                        "--allow-different-device compares them all the same: {}",
                        before.names.front(), side->names[i], fmt::join(differences, "; ")));
}

void print_heading(const Side& before, const Side& after, const std::string& timing) {
  for (const auto& [title, side] : {std::pair("baseline", &before), {"new", &after}}) {
    const RunInfo& run = side->files.front().run;
    const auto found = run.build.find("git_revision");
    fmt::print("{:<9} {}: {}, revision {:.12}{}\n", title, side->name, run.started,
               found == run.build.end() ? "unknown" : found->second,
               side->files.size() == 1 ? "" : fmt::format(", {} processes", side->files.size()));
  }
  fmt::print("{:<9} {}\n\n", "timing", timing);
}

/// In a workflow of GitHub.
void report_to_github(const std::vector<Comparison>& comparisons, const GatePolicy& policy,
                      LineFile* summary) {
  for (const auto& comparison : comparisons)
    if (const Finding finding = comparison.finding();
        finding > Finding::inconclusive ||
        (finding == Finding::inconclusive && policy.fail_on_inconclusive)) {
      const CaseResult& result = comparison.either();
      annotate_error(fmt::format("{}: {}", result.impl, gate_label(comparison)),
                     fmt::format("{}: {}\n{}", result.the_case.id(), gate_message(comparison), result.repro));
    }
  if (summary != nullptr) summary->append(gate_markdown(comparisons, policy));
}

int exit_code_of(const std::vector<Comparison>& comparisons, const GatePolicy& policy) {
  const auto compared = [](const Comparison& comparison) {
    return comparison.before != nullptr && comparison.after != nullptr;
  };
  Finding worst = Finding::none;
  for (const auto& comparison : comparisons) worst = std::max(worst, comparison.finding());
  switch (worst) {
    case Finding::crashed:
      return kDeviceOrCrash;
    case Finding::worse:
      return kOutOfTolerance;
    case Finding::slower:
      return kRegression;
    case Finding::inconclusive:
      return policy.fail_on_inconclusive ? kInconclusive : kOk;
    case Finding::none:
      break;
  }
  return std::ranges::any_of(comparisons, compared) ? kOk : kNothingMatched;
}

std::optional<LineFile> open(const std::string& name) {
  return name.empty() ? std::optional<LineFile>() : std::optional<LineFile>(std::in_place, name);
}

int gate(const GateOptions& options) {
  refuse_shared_stdout({{"--json", options.json_file},
                        {"--markdown", options.markdown_file},
                        {"--junit", options.junit_file}});
  const GatePolicy policy = policy_of(options);
  Progress progress(options.quiet, false);
  const Side before = read_side(options.baseline, options, progress);
  const Side after = read_side(options.results, options, progress);
  if (!options.allow_different_device) check_devices(before, after);
  check_timed(before, policy.timing);
  check_timed(after, policy.timing);
  // Before anything is computed, so that a name that cannot be written costs nothing.
  auto json = open(options.json_file);
  auto markdown = open(options.markdown_file);
  auto junit = open(options.junit_file);
  const auto summary = in_github_actions() ? open_step_summary() : nullptr;

  const auto comparisons =
      compare_results(before.files, after.files, policy, [&](std::size_t done, std::size_t of) {
        progress.total(of);
        progress.update(done, "comparing");
      });
  progress.clear();
  const bool text =
      !options.quiet && options.json_file != "-" && options.markdown_file != "-" && options.junit_file != "-";
  if (text) {
    print_heading(before, after, policy.timing);
    fmt::print("{}\n{}\n", gate_table(comparisons, policy), gate_counts(comparisons));
  }
  if (json)
    for (const auto& comparison : comparisons) json->append(gate_record(comparison, policy));
  if (markdown) markdown->append(gate_markdown(comparisons, policy));
  if (junit) junit->append(gate_junit(comparisons, policy));
  if (in_github_actions()) report_to_github(comparisons, policy, summary.get());
  const int code = exit_code_of(comparisons, policy);
  if (code == kNothingMatched)
    fmt::print(stderr, "ssmbench: {} and {} have no case in common\n", options.baseline, options.results);
  return code;
}

}  // namespace

void add_gate(Program& program) {
  Command& command = program.add(
      "gate",
      "Compare two results files statistically: find what got slower, less accurate, or stopped passing.",
      "ssmbench gate results/h200/mamba-370m.jsonl new.jsonl --max-regression 3%");
  auto o = std::make_shared<GateOptions>();
  command.positional("BASELINE", o->baseline,
                     "Results file, or a folder with a results file for each of several processes");
  command.positional("NEW", o->results, "Results file or folder to compare with it");
  command.option("--max-regression", "PERCENT", o->max_regression,
                 "Largest slowdown of a median to accept (default 3%)");
  command.option("--max-error-growth", "PERCENT", o->max_error_growth,
                 "Largest growth of a tolerance_ratio to accept (default 25%)");
  command.option("--confidence", "PERCENT", o->confidence, "Confidence level of each interval (default 99%)");
  command.choice("--timing", o->policy.timing, "Times to compare (default hot)", {"hot", "cold", "graph"});
  command.option("--impl", "GLOBS", o->impl, kImplHelp);
  command.option("--case", "GLOB", o->case_id, "Only cases whose id matches");
  command.flag("--allow-different-device", o->allow_different_device,
               "Compare even if devices or drivers differ");
  command.flag("--allow-missing", o->policy.allow_missing, "Accept cases that are missing from NEW");
  command.flag("--fail-on-inconclusive", o->policy.fail_on_inconclusive,
               "Exit with code 6 if a comparison is inconclusive");
  command.option("--json", "FILE", o->json_file, "Write one JSON record per comparison (- for stdout)");
  command.option("--markdown", "FILE", o->markdown_file, "Also write Markdown (- for stdout)");
  command.option("--junit", "FILE", o->junit_file, "Also write JUnit XML (- for stdout)");
  command.flag("--quiet", o->quiet, "Print no table");
  command.runs([o] { return gate(*o); });
}

}  // namespace ssmbench
