#include "sweep/runner.h"

#include <fmt/format.h>

#include <chrono>

#include "inputs/inputs.h"
#include "model/errors.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"
#include "verify/describe.h"

namespace ssmbench {
namespace {

using Clock = std::chrono::steady_clock;

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
  const std::string how = why_failed(c);
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

Summary Runner::run(const RunInfo& info) {
  const auto start = Clock::now();
  progress_.total(plan_.job_count());
  for (Reporter* reporter : reporters_) reporter->begin(info);
  try {
    for (const auto& planned : plan_.cases) {
      if (stop_) throw Interrupted();
      run_case(planned);
    }
  } catch (const Interrupted&) {
    summary_.interrupted = true;
  }
  summary_.seconds = seconds_since(start);
  progress_.clear();
  for (Reporter* reporter : reporters_) reporter->finish(summary_);
  return summary_;
}

void Runner::run_case(const PlannedCase& planned) {
  for (const auto& job : planned.jobs) {
    if (!job.skip_reason) continue;
    CaseResult skipped = blank_result(planned.the_case, job);
    skipped.status = Status::skip;
    skipped.reason = *job.skip_reason;
    emit(skipped);
  }
  if (!planned.runs_anything()) return;

  try {
    progress_.update(jobs_done_, "inputs of " + planned.the_case.id());
    const auto start = Clock::now();
    const auto inputs = generate_inputs(planned.the_case.problem, planned.the_case.inputs, stop_);
    summary_.input_seconds += seconds_since(start);
    if (options_.verify) compute_reference_of(planned.the_case, inputs);
    for (std::size_t device = 0; device < plan_.devices.size(); ++device)
      run_on_device(planned, device, inputs);
  } catch (const OutOfMemory& error) {
    for (const auto& job : planned.jobs)
      if (!job.skip_reason) emit(failed_result(planned.the_case, job, error.what()));
  }
}

void Runner::run_on_device(const PlannedCase& planned, std::size_t index,
                           const std::vector<HostTensor>& inputs) {
  std::vector<const Job*> jobs;
  for (const auto& job : planned.jobs)
    if (job.device == index && !job.skip_reason) jobs.push_back(&job);
  if (jobs.empty()) return;

  std::optional<DeviceTensors> uploaded;
  std::string upload_error;
  try {
    uploaded.emplace(device(index));
    for (const auto& input : inputs) uploaded->add_input(input);
  } catch (const DeviceError& error) {
    upload_error = error.what();
  }
  for (const Job* job : jobs) {
    if (upload_error.empty())
      emit(run_job_contained(planned.the_case, *job, inputs, uploaded->views()));
    else
      emit(failed_result(planned.the_case, *job, upload_error));
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
  } catch (const std::exception& error) {  // a kernel that fails is a result, and the sweep goes on
    return failed_result(the_case, job, error.what());
  }
}

CaseResult Runner::run_job(const Case& the_case, const Job& job, const std::vector<HostTensor>& inputs,
                           const TensorSet& device_inputs) {
  Device& target = device(job.device);
  const Implementation& implementation = *job.implementation;
  const Problem& problem = the_case.problem;
  CaseResult result = blank_result(the_case, job);
  progress_.update(jobs_done_, fmt::format("{} on {}", implementation.name, the_case.id()));
  if (progress_.verbose()) progress_.say(result.repro);

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
                         implementation.arithmetic(problem.dtype()), the_case.tolerance_of(output.spec.name));
      if (progress_.verbose())
        progress_.say(tolerance_text(output.spec.name, result.outputs[output.spec.name]));
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

void Runner::emit(const CaseResult& result) {
  ++summary_.counts[result.status];
  summary_.passed_by_user += result.status == Status::pass && result.judged_by_user() ? 1 : 0;
  ++jobs_done_;
  progress_.clear();
  for (Reporter* reporter : reporters_) reporter->case_done(result);
}

CaseResult Runner::blank_result(const Case& the_case, const Job& job) const {
  const Implementation& implementation = *job.implementation;
  CaseResult result{
      .the_case = the_case, .impl = implementation.name, .device = device_id(plan_.devices[job.device])};
  result.work = implementation.work(the_case.problem);
  result.workspace_bytes = job.skip_reason ? 0 : implementation.workspace_bytes(the_case.problem);
  result.repro = options_.repro(the_case, implementation, plan_.devices[job.device]);
  return result;
}

CaseResult Runner::failed_result(const Case& the_case, const Job& job, std::string reason) const {
  CaseResult result = blank_result(the_case, job);
  result.status = Status::error;
  result.reason = std::move(reason);
  return result;
}

void Runner::compute_reference_of(const Case& the_case, const std::vector<HostTensor>& inputs) {
  const std::string key = reference_key(the_case);
  if (key == reference_key_) return;
  progress_.update(jobs_done_, "reference of " + the_case.id());
  reference_key_.clear();
  reference_.clear();  // before the next one is computed, so that only one is ever in memory
  const auto start = Clock::now();
  reference_ = compute_reference(the_case.problem, views_of(inputs), stop_);
  summary_.reference_seconds += seconds_since(start);
  reference_key_ = key;
}

}  // namespace ssmbench
