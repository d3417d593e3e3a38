#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cli/device_choice.h"
#include "cli/dump.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/list_cases.h"
#include "cli/run_options.h"
#include "cli/subcommands.h"
#include "config/config.h"
#include "model/build_info.h"
#include "model/errors.h"
#include "report/jsonl.h"
#include "report/labels.h"
#include "report/markdown.h"
#include "report/table.h"
#include "study/load_studies.h"
#include "study/table.h"
#include "sweep/runner.h"

namespace ssmbench {
namespace {

namespace fs = std::filesystem;

std::string utc_now(const char* format) {
  return fmt::format(fmt::runtime(fmt::format("{{:{}}}", format)), fmt::gmtime(std::time(nullptr)));
}

RunInfo run_info(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  const BuildInfo& build = build_info();
  RunInfo info{.argv = options.argv,
               .build = {{"version", std::string(build.version)},
                         {"git_revision", std::string(build.git_revision)},
                         {"compiler", std::string(build.compiler)},
                         {"build_type", std::string(build.build_type)},
                         {"cuda", std::string(build.cuda)},
                         {"cuda_architectures", std::string(build.cuda_architectures)}},
               .devices = {},
               .started = utc_now("%FT%TZ")};
  auto with_cpu = devices;
  if (devices.front().kind != DeviceKind::cpu) with_cpu.insert(with_cpu.begin(), list_devices().front());
  for (const auto& device : with_cpu) {
    auto& fields = info.devices[device_id(device)] = device.details;
    fields["name"] = device.name;
    fields["memory_bytes"] = std::to_string(device.total_bytes);
  }
  return info;
}

/// results/mamba-370m-cuda0-20261120T101500Z.jsonl, in a directory that is made if it is missing.
std::string default_results_file(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  std::error_code error;
  if (fs::exists(options.out_directory, error) && !fs::is_directory(options.out_directory, error))
    throw UsageError(fmt::format("--out {}: is not a directory", options.out_directory));
  fs::create_directories(options.out_directory, error);
  if (error)
    throw UsageError(fmt::format("--out {}: cannot be made: {}", options.out_directory, error.message()));
  std::string device = device_id(devices.back());
  std::erase(device, ':');
  return (fs::path(options.out_directory) / fmt::format("{}-{}-{}.jsonl",
                                                        options.configs.front().stem().string(), device,
                                                        utc_now("%Y%m%dT%H%M%SZ")))
      .string();
}

/// Before anything is generated: each case has to fit what this machine has free.
void check_fits(const Plan& plan, bool verify) {
  const std::size_t host = list_devices().front().free_bytes;
  std::optional<std::size_t> device;
  for (const auto& info : plan.devices)
    if (info.kind == DeviceKind::cuda) device = std::min(device.value_or(info.free_bytes), info.free_bytes);
  for (const auto& planned : plan.cases)
    check_memory(planned.the_case, memory_need(planned, plan, verify), host, device);
}

/// Studies have no axes, no tensors and no implementations.
void refuse_sweep_options(const RunOptions& options) {
  if (!options.overrides.empty() || options.quick || options.list_only || !options.dump_file.empty() ||
      !options.markdown_file.empty())
    throw UsageError(
        fmt::format("{} holds studies; --set, --seed, --quick, --list, --dump and --markdown are for sweeps",
                    options.configs.front().string()));
}

int run_studies(const RunOptions& options, const std::vector<ConvergenceStudy>& studies) {
  refuse_sweep_options(options);
  const std::vector<DeviceInfo> cpu{list_devices().front()};
  const bool pure_json = options.json_file == "-";
  const std::string results =
      options.json_file.empty() ? default_results_file(options, cpu) : options.json_file;
  JsonlReporter report(results);
  report.begin(run_info(options, cpu));
  const auto start = std::chrono::steady_clock::now();
  for (const auto& study : studies)
    for (const auto& A : study.A) {
      std::vector<MethodConvergence> measured;
      for (const Method* method : study.methods) {
        measured.push_back(measure_convergence(study, *method, A));
        report.study_done(measured.back());
      }
      if (!pure_json && !options.quiet) fmt::print("{}\n", convergence_table(measured));
    }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  report.finish({.counts = {}, .interrupted = false, .seconds = seconds.count()});
  if (!pure_json && !options.quiet) fmt::print(stderr, "results: {}\n", results);
  return kOk;
}

void warn_of_unstable_methods(const Plan& plan, Progress& progress) {
  for (const auto& planned : plan.cases) {
    const Problem& problem = planned.the_case.problem;
    if (problem.op().find_axis("method") == nullptr || problem.choice("method") != "bilinear_flipped")
      continue;
    progress.say(
        "warning: bilinear_flipped is unstable for A < 0 and has a pole at z = -2; states may overflow");
    return;
  }
}

int run(RunOptions options) {
  if (const auto studies = load_studies(options.configs); !studies.empty())
    return run_studies(options, studies);
  auto cases = load_configs(options.configs, options.overrides, options.quick);
  std::string note;
  const auto devices = choose_devices(options.device, note);
  Progress progress(options.quiet, options.verbose);
  if (!note.empty()) progress.say(note);

  const Plan plan = make_plan(std::move(cases), devices, options.selection);
  if (plan.cases.empty()) {
    fmt::print(stderr, "ssmbench: no case and implementation on {} match the selection\n", options.device);
    return kNothingMatched;
  }
  if (options.list_only) {
    print_cases(plan, false);
    return kOk;
  }
  check_fits(plan, options.runner.verify);
  warn_of_unstable_methods(plan, progress);

  InterruptGuard interrupt;
  std::vector<std::unique_ptr<Reporter>> reporters;
  const bool pure_json = options.json_file == "-";
  if (!pure_json && !options.quiet) reporters.push_back(std::make_unique<TableReporter>());
  const std::string results =
      options.json_file.empty() ? default_results_file(options, devices) : options.json_file;
  reporters.push_back(std::make_unique<JsonlReporter>(results));
  if (!options.markdown_file.empty())
    reporters.push_back(std::make_unique<MarkdownReporter>(options.markdown_file));

  std::vector<Reporter*> listeners;
  for (const auto& reporter : reporters) listeners.push_back(reporter.get());
  options.runner.repro = [&options](const Case& the_case, const Implementation& implementation,
                                    const DeviceInfo& device) {
    return repro_command(options, the_case, implementation, device_id(device));
  };
  Runner runner(plan, options.runner, listeners, progress, interrupt.flag());

  std::optional<TensorDump> dump;
  if (!options.dump_file.empty()) {
    dump.emplace(options.dump_file, options.dump_what == "failed", plan, options.argv, utc_now("%FT%TZ"));
    runner.on_finished([&dump](const FinishedJob& job) { dump->add(job); });
  }
  const Summary summary = runner.run(run_info(options, devices));
  if (dump) dump->finish();
  if (!pure_json) progress.say(fmt::format("results: {}", results));
  if (summary.interrupted) progress.say("interrupted: " + results + " holds every case that finished");
  return exit_code_of(summary);
}

}  // namespace

void add_run(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  CLI::App* command = app.add_subcommand(
      "run", "Run every implementation on every case of a sweep: verify, time, write results.");
  command->footer("Example: ssmbench run configs/mamba-370m.json --impl 'cuda-*' --dtype bf16");
  auto options = std::make_shared<RunOptions>();
  add_run_options(*command, *options);
  options->argv = {"ssmbench"};
  options->argv.insert(options->argv.end(), arguments.begin(), arguments.end());
  command->callback([&action, options] { action = [options] { return run(finish_options(*options)); }; });
}

}  // namespace ssmbench
