#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "cli/calibrate.h"
#include "cli/execute_plan.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/list_cases.h"
#include "cli/rank_leader.h"
#include "cli/rows_by_unit.h"
#include "cli/run_info.h"
#include "cli/run_options.h"
#include "cli/run_slots.h"
#include "cli/run_study.h"
#include "cli/subcommands.h"
#include "cli/tensor_dump.h"
#include "config/config.h"
#include "plugin/plugin.h"
#include "record/record_reader.h"
#include "report/csv.h"
#include "report/github.h"
#include "report/jsonl.h"
#include "report/junit.h"
#include "report/markdown.h"
#include "report/table.h"
#include "study/load_studies.h"
#include "supervise/child_ranks.h"
#include "supervise/resume.h"
#include "supervise/run_clock.h"
#include "sweep/job_keys.h"
#include "sweep/run_recorder.h"

namespace ssmbench {
namespace {

/// Before anything is generated: each case has to fit what this machine has free.
void check_fits(const Plan& plan, const RunnerOptions& options) {
  const std::size_t host = list_devices().front().free_bytes;
  std::optional<std::size_t> device;
  for (const auto& info : plan.devices)
    if (info.kind == DeviceKind::cuda) device = std::min(device.value_or(info.free_bytes), info.free_bytes);
  for (const auto& planned : plan.cases)
    check_memory(planned.the_case, memory_need(planned, plan, options.verify, options.reference_bytes), host,
                 device);
}

/// What operations warn of, each warning once.
void print_warnings(const Plan& plan, Progress& progress) {
  std::set<std::string> said;
  for (const auto& planned : plan.cases) {
    const Problem& problem = planned.the_case.problem;
    if (problem.op().warning == nullptr) continue;
    if (const auto warning = problem.op().warning(problem); warning && said.insert(*warning).second)
      progress.say("warning: " + *warning);
  }
}

/// Where results go, and what is there already.
struct Results {
  std::string file;
  bool continued = false;
  ResultsFile earlier = {};
};

Results choose_results(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  if (options.resume) {
    const auto old = options.json_file.empty() ? newest_results_file(options, devices) : options.json_file;
    if (old && std::filesystem::exists(*old)) return {*old, true, read_results(*old)};
  }
  return {options.json_file.empty() ? default_results_file(options, devices) : options.json_file};
}

/// All that is asked of plugins before their cases run.
void plan_alone(const RunOptions& options) {
  register_plugins(options.plugins);
  std::string note;
  const Plan plan = make_plan(load_configs(options.configs, options.overrides, options.quick),
                              choose_slot_devices(options, note).of_plan, options.selection);
  check_fits(plan, options.runner);
}

/// Results that cannot be written take no tensors with them, which may go to another disk.
void keep_tensors(std::optional<TensorDump>& dump) {
  try {
    if (dump) dump->finish();
  } catch (const std::exception&) {  // what went wrong first is said
  }
}

/// One per output format. JSON Lines come first, so that a result is kept where the others cannot be written.
std::vector<std::unique_ptr<Reporter>> make_reporters(const RunOptions& options, const Results& results,
                                                      bool rows_are_mixed, const Plan& plan,
                                                      const JobSet& jobs) {
  std::vector<std::unique_ptr<Reporter>> reporters;
  const auto add_table = [&](std::unique_ptr<Reporter> table) {
    if (rows_are_mixed) table = std::make_unique<RowsByUnit>(std::move(table), plan, jobs);
    reporters.push_back(std::move(table));
  };
  reporters.push_back(results.continued
                          ? std::make_unique<JsonlReporter>(results.file, results.earlier.whole_bytes)
                          : std::make_unique<JsonlReporter>(results.file));
  if (!options.stdout_is_taken() && !options.quiet) add_table(std::make_unique<TableReporter>());
  if (!options.markdown_file.empty()) add_table(std::make_unique<MarkdownReporter>(options.markdown_file));
  if (!options.junit_file.empty()) reporters.push_back(std::make_unique<JunitReporter>(options.junit_file));
  if (!options.csv_file.empty()) reporters.push_back(std::make_unique<CsvReporter>(options.csv_file));
  if (in_github_actions()) reporters.push_back(std::make_unique<GithubReporter>());
  return reporters;
}

/// `leader`: of the ranks that share the run; null: there are none.
int run_plan(const RunOptions& options, const Plan& plan, const SlotDevices& chosen, RankLeader* leader,
             Progress& progress) {
  const auto& devices = chosen.of_plan;
  check_fits(plan, options.runner);
  print_warnings(plan, progress);
  const RunSlots slots = leader != nullptr ? leader->slots(options, plan) : local_slots(options, chosen.gpus);

  InterruptGuard interrupt;
  std::signal(SIGPIPE, SIG_IGN);  // who stops reading the table does not end the run
  RunInfo info = run_info(options, devices);
  for (const auto& place : slots.places)
    if (!place.name.empty()) info.slots.push_back(place.name);
  auto keys = job_keys(plan, options.runner, info);
  const Results results = choose_results(options, devices);
  const Remainder remainder = remaining(plan, keys, results.earlier.cases);
  const auto reporters = make_reporters(options, results, slots.are_several(), plan, remainder.jobs);
  std::optional<TensorDump> dump;
  if (!options.dump_file.empty())
    dump.emplace(options.dump_file, options.dump_what == "failed", plan, options.argv, iso_now());

  std::vector<Reporter*> listeners;
  for (const auto& reporter : reporters) listeners.push_back(reporter.get());
  RunRecorder recorder(plan, options.runner, std::move(keys), remainder.jobs, slots.places.size(), listeners,
                       progress);
  recorder.begin(info);
  for (const auto& result : remainder.kept) recorder.kept(result);
  bool interrupted = false;
  Summary summary;
  try {
    try {
      execute_plan(options, plan, slots, remainder.jobs, recorder, dump ? &*dump : nullptr, progress,
                   interrupt.flag());
    } catch (const Interrupted&) {
      interrupted = true;
    }
    summary = recorder.finish(interrupted);
  } catch (...) {
    keep_tensors(dump);
    throw;
  }
  if (dump) dump->finish();
  if (options.json_file != "-") progress.say(fmt::format("results: {}", results.file));
  if (interrupted) progress.say("interrupted: every finished case is in " + results.file);
  return exit_code_of(summary);
}

/// Opens devices in this process, and teams with ranks of their own.
decltype(RunnerOptions::open) opener(const RunOptions& options) {
  const std::chrono::duration<double> patience(std::min(*options.timeout, kForeverSeconds));
  return
      [start = ranks_as_children(with_option(options.argv, "--worker")), patience](const DeviceInfo& info) {
        if (info.ranks == 1) return open_device(info.kind, info.index);
        return open_team(info, start, std::chrono::duration_cast<std::chrono::milliseconds>(patience));
      };
}

int run(const RunOptions& unfinished) {
  std::optional<RankLeader> leader;  // goes last, and with it the other ranks
  if (const int processes = processes_of_run(unfinished); processes > 1) {
    leader.emplace();
    if (!leader->is_this()) return leader->relay(unfinished);
  }
  RunOptions options = finish_options(unfinished);
  if (leader) refuse_options_of_one_process(options);
  if (options.rehearse) return finish_rehearsal([&] { plan_alone(options); });
  std::optional<WorkerProcess> worker;
  if (options.worker) worker.emplace();
  if (worker && worker->is_rank()) return worker->follow();
  if (!options.plugins.empty() && !options.worker && !options.no_supervision)
    rehearse_plugins(options.argv, options.plugins, *options.timeout);
  register_plugins(options.plugins);
  if (const auto studies = load_studies(options.configs); !studies.empty()) {
    if (leader) throw UsageError("studies run in one process; start it without mpirun or srun");
    if (options.team_sizes != std::vector{1}) throw UsageError("studies have no teams of ranks");
    return run_studies(options, studies);
  }
  auto cases = load_configs(options.configs, options.overrides, options.quick);
  std::string note;
  const SlotDevices chosen = choose_slot_devices(options, note);
  const auto& devices = chosen.of_plan;
  if (leader && std::ranges::any_of(devices, [](const DeviceInfo& device) {
        return device.kind == DeviceKind::cuda && device.ranks > 1;
      }))
    throw UsageError("teams of GPUs run without mpirun or srun, on one host");
  Progress progress(options.quiet || options.worker, options.verbose);
  if (!note.empty()) progress.say(note);
  if (options.profile && devices.front().kind == DeviceKind::cpu)
    throw UsageError("--profile: CUDA profilers need a GPU; choose one with --device");

  const Plan plan = make_plan(std::move(cases), devices, options.selection);
  if (plan.cases.empty()) {
    std::string names;
    for (const auto& device : devices) names += (names.empty() ? "" : ", ") + device_id(device);
    fmt::print(stderr, "ssmbench: no case with an implementation on {} matches the selection\n", names);
    return kNothingMatched;
  }
  if (options.list_only) {
    print_cases(plan);
    return kOk;
  }
  if (options.runner.time && !options.worker) {
    options.runner.ceilings = known_ceilings(devices, progress);
    warn_of_unlike_ceilings(chosen.gpus, progress);
  }
  options.runner.measure_again = measure_again();
  options.runner.open = opener(options);
  options.runner.repro = [&options](const Case& the_case, const Implementation& implementation,
                                    const DeviceInfo& device) {
    return repro_command(options, the_case, implementation, device_id(device));
  };
  if (worker) return run_as_worker(options, plan, *worker);
  return run_plan(options, plan, chosen, leader ? &*leader : nullptr, progress);
}

}  // namespace

void add_run(Program& program, const std::vector<std::string>& arguments) {
  Command& command =
      program.add("run", "Run every implementation on every case of a sweep: verify, time, write results.",
                  "ssmbench run configs/mamba-370m.json --impl 'cuda-*' --dtype bf16");
  auto options = std::make_shared<RunOptions>();
  add_run_options(command, *options);
  options->argv = {"ssmbench"};
  options->argv.insert(options->argv.end(), arguments.begin(), arguments.end());
  command.runs([options] { return run(*options); });
}

}  // namespace ssmbench
