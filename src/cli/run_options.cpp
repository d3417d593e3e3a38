#include "cli/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "base/errors.h"

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

/// A finite number, positive or also 0. CLI11's own checks let NaN pass, and in their message the largest
/// double has all of its digits.
CLI::Validator number(bool or_zero) {
  return {[or_zero](const std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
            if (is_number && (value > 0 || (or_zero && value == 0))) return std::string();
            return fmt::format("got {}; expected a number {}", text, or_zero ? "of at least 0" : "above 0");
          },
          or_zero ? "NONNEGATIVE" : "POSITIVE"};
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& o) {
  command.add_option("CONFIG", o.configs, "Config files")->required();
  const auto text = [&command](const char* name, std::string& to, const char* help) {
    return command.add_option(name, to, help);
  };
  text("--device", o.device, "auto, cpu, cuda, cuda:N or all (default auto)");
  command
      .add_option("--cpus", o.cpus,
                  "Run in so many processes at a time on the CPU; what is timed is timed alone, on all cores")
      ->check(number(false));
  text("--gpus", o.gpus, "Run on so many GPUs at a time, or on all of them; each gets cases as it is free");
  text("--impl", o.selection.impl, "Only implementations that match one of these globs (a,b,...)");
  command.add_option("--plugin", o.plugins, "Load more implementations: LIB.so, LIB.so=ARGUMENT or FILE.py")
      ->take_all()
      ->expected(1);
  text("--op", o.selection.op, "Only this operation (glob)");
  text("--dtype", o.selection.dtype, "Only this dtype (glob)");
  text("--method", o.selection.method, "Only this method (glob)");
  text("--case", o.selection.case_id, "Only cases whose id matches this glob (see list cases)");
  command.add_option("--set", o.set, "Override an axis: axis=v1,v2 or axis=512:65536:*2")
      ->take_all()
      ->expected(1);
  command.add_option("--seed", o.seed, "Seed of the inputs");
  command.add_flag("--quick", o.quick,
                   "Use batch 1, the shortest seqlen of each sweep, at most five timed runs");
  command.add_option("--warmup", o.warmup, "Launches before timing starts")->check(number(true));
  command.add_option("--runs", o.runs, "Number of timed runs")->check(number(false));
  command.add_option("--min-time", o.min_time, "Time each case for at least this many seconds")
      ->check(number(true));
  command
      .add_option("--reruns", o.reruns,
                  "Extra launches that check determinism (default 2, fewer for slow cases)")
      ->check(number(true));
  command
      .add_option("--timeout", o.timeout,
                  "Time limit of one implementation on one case, in seconds (default 600)")
      ->check(number(false));
  command.add_flag("--no-timing", o.no_timing, "Verify only");
  command.add_flag("--no-verify", o.no_verify, "Time only; nothing is reported as pass");
  command.add_flag("--profile", o.profile,
                   "Launch each case once after warm-up, for ncu and nsys; verify and time nothing");
  text("--out", o.out_directory, "Directory for the results file (default results)");
  text("--json", o.json_file, "Write the results to this file (- for stdout)");
  text("--markdown", o.markdown_file, "Also write a Markdown table to this file (- for stdout)");
  text("--junit", o.junit_file, "Also write JUnit XML to this file (- for stdout)");
  text("--csv", o.csv_file, "Also write CSV to this file (- for stdout)");
  text("--dump", o.dump_file, "Write tensors to this HDF5 file (one implementation only)");
  text("--dump-what", o.dump_what, "Cases to dump: failed or all (default all)")
      ->check(CLI::IsMember({"failed", "all"}));
  command.add_flag("--resume", o.resume,
                   "Continue the --json file, or the newest file in --out; finished cases are not run again");
  command.add_flag("--no-supervision", o.no_supervision, "Run all cases in this process (for debuggers)");
  command.add_flag("--list", o.list_only, "Print the selected cases and exit");
  command.add_flag("--quiet", o.quiet, "Print no table and no progress");
  command.add_flag("-v,--verbose", o.verbose, "Print each case's repro command before it starts");
  command.add_flag("--worker", o.worker)->group("");  // hidden
  command.add_flag("--rehearse", o.rehearse)->group("");
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
  o.runner.profile = o.profile;
  if (o.profile) o.no_supervision = true;  // profilers look at this process
  o.runner.verify = !o.no_verify && !o.profile;
  o.runner.time = !o.no_timing && !o.profile;
  return o;
}

std::string repro_command(const RunOptions& o, const Case& the_case, const Implementation& implementation,
                          const std::string& device) {
  std::string command =
      fmt::format("ssmbench run {} --device {} --impl {} --case {}", quote(the_case.source.file), device,
                  implementation.name, quote(the_case.id()));
  for (const auto& plugin : o.plugins) command += " --plugin " + quote(plugin);
  for (const auto& text : o.set) command += " --set " + quote(text);
  if (o.seed) command += fmt::format(" --seed {}", *o.seed);
  if (o.reruns) command += fmt::format(" --reruns {}", *o.reruns);
  if (o.quick) command += " --quick";
  return command;
}

}  // namespace ssmbench
