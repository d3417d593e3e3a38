#include "sweep/runner.h"

#include <fmt/format.h>

#include <chrono>

#include "inputs/inputs.h"
#include "model/errors.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"

namespace ssmbench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kOutOfHostMemory = "out of host memory";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// "out at (0, 3, 17): expected 1.25, got 1.5, 12 × the tolerance" for the worst output.
std::string describe_failure(const std::map<std::string, OutputComparison>& outputs) {
  const std::string* worst = nullptr;
  for (const auto& [name, comparison] : outputs)
    if (!comparison.passed() &&
        (worst == nullptr || comparison.tolerance_ratio > outputs.at(*worst).tolerance_ratio))
      worst = &name;
  if (worst == nullptr) return "";
  const OutputComparison& c = outputs.at(*worst);
  std::string index;
  for (const auto i : c.worst_index) index += fmt::format("{}{}", index.empty() ? "" : ", ", i);
  if (c.judged == 0) return fmt::format("{}: every element overflows, none could be judged", *worst);
  const std::string how = c.nonfinite > 0 ? fmt::format("{} elements not finite", c.nonfinite)
                                          : fmt::format("{:.3g} × the tolerance", c.tolerance_ratio);
  return fmt::format("{} at ({}): expected {:.9g}, got {:.9g}; {}", *worst, index, c.worst_expected,
                     c.worst_got, how);
}

/// What the reference says about elements without a value, whatever implementation was run.
std::string describe_notes(const ReferenceOutputs& reference) {
  for (const auto& [name, output] : reference)
    if (!output.note.empty()) return output.note;
  return "";
}

}  // namespace

CaseResult blank_result(const Plan& plan, const Case& the_case, const Job& job,
                        const RunnerOptions& options) {
  const DeviceInfo& device = plan.devices[job.device];
  CaseResult result{.the_case = the_case, .impl = job.implementation->name, .device = device_id(device)};
  result.repro = options.repro(the_case, *job.implementation, device);
  return result;
}

CaseResult failed_result(const Plan& plan, const Case& the_case, const Job& job, const RunnerOptions& options,
                         std::string reason) {
  CaseResult result = blank_result(plan, the_case, job, options);
  result.status = Status::error;
  result.reason = std::move(reason);
  return result;
}

void Runner::run(const JobSet& jobs) {
  std::size_t number = 0;
  for (const auto& planned : plan_.cases) {
    if (stop_) throw Interrupted();
    std::vector<NumberedJob> to_run;
    for (const auto& job : planned.jobs) {
      const std::size_t this_one = number++;
      if (!jobs[this_one]) continue;
      if (!job.skip_reason) {
        to_run.push_back({this_one, &job});
        continue;
      }
      CaseResult skipped = blank_result(plan_, planned.the_case, job, options_);
      skipped.status = Status::skip;
      skipped.reason = *job.skip_reason;
      listener_.finished(this_one, skipped);
    }
    if (!to_run.empty()) run_case(planned.the_case, to_run);
  }
}

void Runner::run_case(const Case& the_case, const std::vector<NumberedJob>& jobs) {
  const auto fail_all = [&](const char* reason) {
    for (const auto& [number, job] : jobs) listener_.finished(number, failed(the_case, *job, reason));
  };
  try {
    listener_.starting(jobs.front().number, Stage::inputs);
    const auto inputs = generate_inputs(the_case.problem, the_case.inputs, stop_);
    if (options_.verify) compute_reference_of(the_case, jobs.front().number, inputs);
    for (std::size_t device = 0; device < plan_.devices.size(); ++device) {
      std::vector<NumberedJob> of_device = jobs;
      std::erase_if(of_device, [&](const NumberedJob& numbered) { return numbered.job->device != device; });
      if (!of_device.empty()) run_on_device(the_case, device, of_device, inputs);
    }
  } catch (const OutOfMemory& error) {
    fail_all(error.what());
  } catch (const std::bad_alloc&) {
    fail_all(kOutOfHostMemory);
  }
}

void Runner::run_on_device(const Case& the_case, std::size_t index, const std::vector<NumberedJob>& jobs,
                           const std::vector<HostTensor>& inputs) {
  std::optional<DeviceTensors> uploaded;
  std::string upload_error;
  try {
    uploaded.emplace(device(index));
    for (const auto& input : inputs) uploaded->add_input(input);
  } catch (const DeviceError& error) {
    upload_error = error.what();
  }
  for (const auto& [number, job] : jobs) {
    listener_.starting(number, Stage::run);
    if (upload_error.empty())
      listener_.finished(number, run_job_contained(the_case, *job, inputs, uploaded->views()));
    else
      listener_.finished(number, failed(the_case, *job, upload_error));
  }
}

CaseResult Runner::run_job_contained(const Case& the_case, const Job& job,
                                     const std::vector<HostTensor>& inputs, const TensorSet& device_inputs) {
  try {
    return run_job(the_case, job, inputs, device_inputs);
  } catch (const Interrupted&) {
    throw;
  } catch (const OutputError&) {
    throw;
  } catch (const std::bad_alloc&) {
    return failed(the_case, job, kOutOfHostMemory);
  } catch (const std::exception& error) {  // a kernel that fails is a result, and the sweep goes on
    return failed(the_case, job, error.what());
  }
}

CaseResult Runner::run_job(const Case& the_case, const Job& job, const std::vector<HostTensor>& inputs,
                           const TensorSet& device_inputs) {
  Device& target = device(job.device);
  const Implementation& implementation = *job.implementation;
  const Problem& problem = the_case.problem;
  CaseResult result = blank_result(plan_, the_case, job, options_);
  result.work = implementation.work(problem);
  result.workspace_bytes = implementation.workspace_bytes(problem);

  const PreparedRun run(target, implementation, problem, inputs, device_inputs);
  const auto start = Clock::now();
  run.launch()(target.stream());
  target.synchronize();
  const double first_run_seconds = seconds_since(start);

  const std::vector<HostTensor> host_outputs = run.copy_outputs();
  result.status = Status::unverified;
  if (options_.verify) {
    for (const auto& output : host_outputs) {
      result.outputs[output.spec.name] =
          compare_output(output.view(), reference_.at(output.spec.name).expectation(),
                         implementation.arithmetic(problem.dtype()));
    }
    result.reason = describe_failure(result.outputs);
    result.status = result.reason.empty() ? Status::pass : Status::fail;
    if (const std::string note = describe_notes(reference_); !note.empty())
      result.reason += (result.reason.empty() ? "" : "; ") + note;
    if (result.status == Status::fail && !implementation.known_failure.empty())
      result.reason += "; known: " + implementation.known_failure;
  }
  if (finished_)
    finished_({result, implementation, inputs, host_outputs, options_.verify ? &reference_ : nullptr});
  // A case that is not right carries no timing.
  if (options_.time && result.status != Status::fail)
    result.timing = time_launch(target, run.launch(), options_.timing, first_run_seconds, stop_);
  return result;
}

Device& Runner::device(std::size_t index) {
  auto& open = devices_[index];
  if (open == nullptr) open = open_device(plan_.devices[index].kind, plan_.devices[index].index);
  return *open;
}

void Runner::compute_reference_of(const Case& the_case, std::size_t job,
                                  const std::vector<HostTensor>& inputs) {
  const std::string key = reference_key(the_case);
  if (key == reference_key_) return;
  listener_.starting(job, Stage::reference);
  reference_key_.clear();
  reference_.clear();  // before the next one is computed, so that only one is ever in memory
  reference_ = compute_reference(the_case.problem, views_of(inputs), stop_);
  reference_key_ = key;
}

}  // namespace ssmbench
