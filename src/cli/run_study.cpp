#include "cli/run_study.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/exit_code.h"
#include "cli/run_info.h"
#include "device/device.h"
#include "model/errors.h"
#include "report/jsonl.h"
#include "study/table.h"

namespace ssmbench {
namespace {

/// Studies have no axes, no tensors and no implementations.
void refuse_sweep_options(const RunOptions& options) {
  if (!options.overrides.empty() || options.quick || options.list_only || !options.dump_file.empty() ||
      !options.markdown_file.empty())
    throw UsageError(
        fmt::format("{} holds studies; --set, --seed, --quick, --list, --dump and --markdown are for sweeps",
                    options.configs.front().string()));
}

}  // namespace

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

}  // namespace ssmbench
