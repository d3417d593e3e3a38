#include "cli/run_study.h"

#include <fmt/format.h>

#include <chrono>

#include "base/errors.h"
#include "cli/device_choice.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/run_info.h"
#include "device/device.h"
#include "report/jsonl.h"
#include "report/labels.h"
#include "report/study_table.h"

namespace ssmbench {
namespace {

/// Studies choose their own axes, dump no tensors and take no times.
void refuse_sweep_options(const RunOptions& options) {
  if (!options.overrides.empty() || options.quick || options.list_only || !options.dump_file.empty() ||
      !options.markdown_file.empty() || !options.junit_file.empty() || !options.csv_file.empty() ||
      options.resume || options.profile || options.no_verify || options.has_slots())
    throw UsageError(fmt::format(
        "{} holds studies; --set, --seed, --quick, --list, --dump, --markdown, --junit, --csv, --resume, "
        "--profile, --no-verify, --cpus and --gpus are for sweeps",
        options.configs.front().string()));
}

void run_convergence(const ConvergenceStudy& study, JsonlReporter& report, bool print) {
  for (const auto& A : study.A) {
    std::vector<MethodConvergence> measured;
    for (const Method* method : study.methods) {
      measured.push_back(measure_convergence(study, *method, A));
      report.study_done(measured.back());
    }
    if (print) fmt::print("{}\n", convergence_table(measured));
  }
}

void run_consistency(const std::vector<ConsistencyStudy>& studies, const std::vector<DeviceInfo>& devices,
                     const Selection& selection, JsonlReporter& report, bool print, Summary& summary) {
  const InterruptGuard interrupt;
  if (print) fmt::print("{}\n", consistency_heading());
  try {
    for (const auto& study : studies)
      measure_consistency(study, devices, selection, interrupt.flag(), [&](const ConsistencyResult& result) {
        ++summary.counts[result.at_once.status];
        report.study_done(result);
        if (print) fmt::print("{}\n", consistency_line(result));
      });
  } catch (const Interrupted&) {
    summary.interrupted = true;
  }
}

/// Convergence is a property of methods, which the CPU computes whatever devices there are.
std::vector<DeviceInfo> devices_of(const RunOptions& options, const Studies& studies, std::string& note) {
  std::vector<DeviceInfo> devices = choose_devices(options.device, note);
  if (!studies.consistency.empty()) return devices;
  if (options.device.starts_with("cuda"))
    throw UsageError(fmt::format("--device {}: convergence studies run on the CPU", options.device));
  note.clear();
  return choose_devices("cpu", note);
}

}  // namespace

int run_studies(const RunOptions& options, const Studies& studies) {
  refuse_sweep_options(options);
  const bool print = options.json_file != "-" && !options.quiet;
  std::string note;
  const std::vector<DeviceInfo> devices = devices_of(options, studies, note);
  if (!note.empty() && !options.quiet) fmt::print(stderr, "{}\n", note);
  const std::string results =
      options.json_file.empty() ? default_results_file(options, devices) : options.json_file;
  JsonlReporter report(results);
  report.begin(run_info(options, devices));
  const auto start = std::chrono::steady_clock::now();
  Summary summary;
  for (const auto& study : studies.convergence) run_convergence(study, report, print);
  if (!studies.consistency.empty())
    run_consistency(studies.consistency, devices, options.selection, report, print, summary);
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.finish(summary);
  if (print && !studies.consistency.empty()) fmt::print("\n{}\n", summary_line(summary));
  if (print) fmt::print(stderr, "results: {}\n", results);
  return studies.consistency.empty() ? kOk : exit_code_of(summary);
}

}  // namespace ssmbench
