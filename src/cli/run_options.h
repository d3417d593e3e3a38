#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/program.h"
#include "config/config.h"
#include "sweep/plan.h"
#include "sweep/runner_options.h"

namespace ssmbench {

inline constexpr double kDefaultTimeoutSeconds = 600;

/// The options of `run`, as given, and what follows from them.
struct RunOptions {
  std::vector<std::filesystem::path> configs;
  std::vector<std::string> plugins;  ///< as parse_plugin takes them
  std::string device = "auto";
  Selection selection;
  std::vector<std::string> set;
  std::optional<std::int64_t> seed;
  bool quick = false;
  std::optional<int> warmup, runs, reruns;
  std::optional<double> min_time, timeout;
  std::optional<double> reference_memory;  ///< GiB
  bool no_timing = false, no_verify = false, profile = false;
  std::string out_directory = "results";
  std::string json_file, markdown_file, junit_file, csv_file, dump_file;
  std::string dump_what = "all";
  bool resume = false, no_supervision = false;
  std::optional<int> cpus;  ///< slots on the CPU
  std::string gpus;         ///< slots on GPUs: how many, or "all"; empty: none
  std::string ranks;        ///< sizes of teams, with commas between them; empty: 1
  bool list_only = false, quiet = false, verbose = false;
  // Not for users, but for processes that this one starts (src/supervise/):
  bool worker = false;    ///< runs cases
  bool rehearse = false;  ///< only plans, to see whether plugins survive that

  // Filled by finish_options:
  std::vector<Override> overrides;
  std::vector<int> team_sizes{1};  ///< 1: devices by themselves
  RunnerOptions runner;
  std::vector<std::string> argv;

  /// Whether several workers are to run at a time.
  bool has_slots() const { return cpus || !gpus.empty(); }
  /// Whether a file of a machine's format is stdout, which then holds nothing else.
  bool stdout_is_taken() const {
    return json_file == "-" || markdown_file == "-" || junit_file == "-" || csv_file == "-";
  }
};

inline constexpr const char* kImplHelp = "Only implementations that match one of these globs (a,b,...)";
inline constexpr const char* kPluginHelp = "Load more implementations: LIB.so, LIB.so=ARGUMENT or FILE.py";
inline constexpr const char* kSetHelp = "Override an axis: axis=v1,v2 or axis=512:65536:*2";

/// --op, --dtype, --method and --case.
void add_selection(Command& command, Selection& selection);
void add_run_options(Command& command, RunOptions& options);

/// Throws UsageError when several of these options (name and file) are given "-".
void refuse_shared_stdout(const std::vector<std::pair<std::string, std::string>>& files);

/// Checks the options against each other and derives the rest. Throws UsageError.
RunOptions finish_options(RunOptions options);

/// The command line that runs one implementation on one case again, quoted for a shell.
std::string repro_command(const RunOptions& options, const Case& the_case,
                          const Implementation& implementation, const std::string& device);

}  // namespace ssmbench
