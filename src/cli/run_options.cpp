#include "cli/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/errors.h"
#include "device/cpu.h"

namespace ssmbench {
namespace {

/// As a shell needs it: bare when it holds nothing special, else in single quotes.
std::string quote(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

constexpr int kMostRanks = 64;

int team_size(const std::string& option, std::string_view text) {
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 1 || size > kMostRanks)
    throw UsageError(fmt::format("{}: expected numbers of ranks from 1 to {}", option, kMostRanks));
  return size;
}

/// What is a slot's own GPU cannot be another one's too.
void refuse_teams_in_slots(const RunOptions& o, const std::string& option) {
  if (!o.gpus.empty())
    throw UsageError(option +
                     " computes a case on several GPUs, --gpus shares cases out: they exclude each other");
}

/// By --ranks, or by a --device that is a team.
void finish_teams(RunOptions& o) {
  if (const auto star = o.device.find('*'); star != std::string::npos) {
    const std::string option = "--device " + o.device;
    if (!o.ranks.empty()) throw UsageError(option + " and --ranks exclude each other");
    o.team_sizes = {team_size(option, std::string_view(o.device).substr(star + 1))};
    o.device.resize(star);
    refuse_teams_in_slots(o, option);
    return;
  }
  if (o.ranks.empty()) return;
  refuse_teams_in_slots(o, "--ranks " + o.ranks);
  o.team_sizes.clear();
  std::istringstream sizes(o.ranks);
  for (std::string text; std::getline(sizes, text, ',');)
    o.team_sizes.push_back(team_size("--ranks " + o.ranks, text));
  std::ranges::sort(o.team_sizes);
  if (std::ranges::adjacent_find(o.team_sizes) != o.team_sizes.end())
    throw UsageError(fmt::format("--ranks {}: a size is given twice", o.ranks));
}

}  // namespace

void add_selection(Command& command, Selection& selection) {
  command.option("--op", "GLOB", selection.op, "Only operations whose name matches");
  command.option("--dtype", "GLOB", selection.dtype, "Only dtypes that match");
  command.option("--method", "GLOB", selection.method, "Only discretization methods that match");
  command.option("--case", "GLOB", selection.case_id, "Only cases whose id matches (see list cases)");
}

void add_run_options(Command& command, RunOptions& o) {
  command.positionals("CONFIG", o.configs, "Config files");
  command.option("--device", "DEVICE", o.device,
                 "auto, cpu, cuda, cuda:N or all (default auto); cpu*RANKS, cuda*RANKS: a team");
  command.positive("--cpus", "N", o.cpus,
                   "Share the cases among N processes on the CPU; what is timed runs alone, on all cores");
  command.option("--gpus", "N", o.gpus,
                 "Share the cases among N GPUs, or among all; each takes the next case when it is free");
  command.option("--ranks", "SIZES", o.ranks,
                 "Also compute each case in teams of these sizes: 1,2,4 (default 1, no team)");
  command.option("--impl", "GLOBS", o.selection.impl, kImplHelp);
  command.repeated_option("--plugin", "LIBRARY", o.plugins, kPluginHelp);
  add_selection(command, o.selection);
  command.repeated_option("--set", "AXIS=VALUES", o.set, kSetHelp);
  command.option("--seed", "N", o.seed, "Seed of the inputs");
  command.flag("--quick", o.quick,
               "Use batch 1, the shortest seqlen of each sweep, and at most five timed runs");
  command.at_least_0("--warmup", "N", o.warmup, "Launches before timing starts");
  command.positive("--runs", "N", o.runs, "Number of timed runs");
  command.at_least_0("--min-time", "SECONDS", o.min_time, "Time each case for at least this long");
  command.at_least_0("--reruns", "N", o.reruns,
                     "Extra launches that check determinism (default 2, fewer for slow cases)");
  command.positive("--timeout", "SECONDS", o.timeout,
                   "Time limit for one implementation on one case (default 600)");
  command.positive("--reference-memory", "GIB", o.reference_memory,
                   "Compute references that need more in parts (default half of the free memory)");
  command.flag("--no-timing", o.no_timing, "Verify only");
  command.flag("--no-verify", o.no_verify, "Time only; nothing is reported as pass");
  command.flag("--profile", o.profile,
               "Launch each case once after warm-up, for ncu and nsys; verify and time nothing");
  command.option("--out", "FOLDER", o.out_directory, "Folder for the results file (default results)");
  command.option("--json", "FILE", o.json_file, "Write the results to this file (- for stdout)");
  command.option("--markdown", "FILE", o.markdown_file, "Also write a Markdown table (- for stdout)");
  command.option("--junit", "FILE", o.junit_file, "Also write JUnit XML (- for stdout)");
  command.option("--csv", "FILE", o.csv_file, "Also write CSV (- for stdout)");
  command.option("--dump", "FILE", o.dump_file, "Write tensors to this HDF5 file (one implementation only)");
  command.choice("--dump-what", o.dump_what, "Cases to dump (default all)", {"failed", "all"});
  command.flag("--resume", o.resume,
               "Continue the --json file, or the newest file in --out; finished cases are not run again");
  command.flag("--no-supervision", o.no_supervision, "Run all cases in this process (for debuggers)");
  command.flag("--list", o.list_only, "Print the selected cases and exit");
  command.flag("--quiet", o.quiet, "Print no table and no progress");
  command.flag("-v,--verbose", o.verbose, "Before each case starts, print the command that runs it alone");
  command.hidden_flag("--worker", o.worker);
  command.hidden_flag("--rehearse", o.rehearse);
}

void refuse_shared_stdout(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<std::string> names;
  for (const auto& [option, file] : files)
    if (file == "-") names.push_back(option + " -");
  if (names.size() > 1)
    throw UsageError(fmt::format("{}: only one of them can go to stdout", fmt::join(names, ", ")));
}

RunOptions finish_options(RunOptions o) {
  if (o.no_timing && o.no_verify) throw UsageError("--no-timing and --no-verify leave nothing to do");
  refuse_shared_stdout({{"--json", o.json_file},
                        {"--markdown", o.markdown_file},
                        {"--junit", o.junit_file},
                        {"--csv", o.csv_file}});
  if (o.resume && o.json_file == "-") throw UsageError("--resume needs a results file, not stdout");
  if (o.resume && !o.dump_file.empty())
    throw UsageError("--resume cannot be combined with --dump: a dump holds the tensors of one run");
  if (o.cpus && !o.gpus.empty()) throw UsageError("--cpus and --gpus exclude each other");
  if (o.has_slots() && (o.no_supervision || o.profile))
    throw UsageError(fmt::format("{} cannot be combined with {}: those run in one process",
                                 o.cpus ? "--cpus" : "--gpus", o.profile ? "--profile" : "--no-supervision"));
  if (o.profile && o.resume) throw UsageError("--profile cannot be combined with --resume");
  if (o.profile && !o.dump_file.empty()) throw UsageError("--profile cannot be combined with --dump");
  finish_teams(o);
  for (const auto& text : o.set) o.overrides.push_back(parse_override(text));
  if (o.seed) o.overrides.push_back(parse_override(fmt::format("seed={}", *o.seed)));

  TimingPolicy& timing = o.runner.timing;
  if (o.quick) {  // five runs, fewer of those that take long
    timing.min_runs = timing.max_runs = 5;
    timing.max_seconds = timing.warmup_seconds = o.runner.reruns.max_seconds = 0.05;
  }
  if (o.min_time) {
    timing.min_seconds = *o.min_time;
    timing.max_seconds = std::max(timing.max_seconds, *o.min_time);
    timing.max_runs = std::numeric_limits<int>::max();
    // Several timings of that length belong to the case.
    if (!o.timeout) o.timeout = kDefaultTimeoutSeconds + 4 * *o.min_time;
  }
  if (o.runs) {
    timing.min_runs = timing.max_runs = *o.runs;
    timing.max_seconds = std::numeric_limits<double>::infinity();
  }
  if (o.warmup) {
    timing.warmup = *o.warmup;
    timing.warmup_seconds = std::numeric_limits<double>::infinity();
  }
  if (o.reruns)
    o.runner.reruns = {.count = *o.reruns, .max_seconds = std::numeric_limits<double>::infinity()};
  if (!o.timeout) o.timeout = kDefaultTimeoutSeconds;
  o.runner.reference_bytes = o.reference_memory ? static_cast<std::size_t>(*o.reference_memory * (1 << 30))
                                                : cpu_info().free_bytes / 2;
  o.runner.profile = o.profile;
  if (o.profile) o.no_supervision = true;  // profilers look at this process
  o.runner.verify = !o.no_verify && !o.profile;
  o.runner.time = !o.no_timing && !o.profile;
  return o;
}

std::string repro_command(const RunOptions& o, const Case& the_case, const Implementation& implementation,
                          const std::string& device) {
  std::string command =
      fmt::format("ssmbench run {} --device {} --impl {} --case {}", quote(the_case.source.file),
                  quote(device), implementation.name, quote(the_case.id()));
  for (const auto& plugin : o.plugins) command += " --plugin " + quote(plugin);
  for (const auto& text : o.set) command += " --set " + quote(text);
  if (o.seed) command += fmt::format(" --seed {}", *o.seed);
  if (o.reruns) command += fmt::format(" --reruns {}", *o.reruns);
  if (o.quick) command += " --quick";
  return command;
}

}  // namespace ssmbench
