#include "sweep/runner.h"

#include <fmt/format.h>

#include <chrono>

#include "inputs/inputs.h"
#include "model/errors.h"
#include "verify/describe.h"

namespace ssmbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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
    auto inputs = generate_inputs(planned.the_case.problem, planned.the_case.inputs, stop_);
    summary_.input_seconds += seconds_since(start);
    if (options_.verify) compute_reference_of(planned.the_case, inputs);
    for (std::size_t device = 0; device < plan_.devices.size(); ++device)
      run_on_device(planned, device, inputs);
  } catch (const OutOfMemory& error) {
    for (const auto& job : planned.jobs)
      if (!job.skip_reason) emit(failed_result(planned.the_case, job, error.what()));
  }
}

void Runner::run_on_device(const PlannedCase& planned, std::size_t index, std::vector<HostTensor>& inputs) {
  std::vector<const Job*> jobs;
  for (const auto& job : planned.jobs)
    if (job.device == index && !job.skip_reason) jobs.push_back(&job);
  if (jobs.empty()) return;

  std::optional<DeviceInputs> uploaded;
  std::string upload_error;
  const auto contained = [&](const auto& upload) {
    try {
      upload();
    } catch (const DeviceError& error) {
      upload_error = error.what();
    }
  };
  contained([&] { uploaded.emplace(device(index), inputs); });
  for (const Job* job : jobs) {
    if (!upload_error.empty()) {
      emit(failed_result(planned.the_case, *job, upload_error));
      continue;
    }
    const CaseResult result = run_job_contained(planned.the_case, *job, inputs, *uploaded);
    emit(result);
    if (result.status == Status::invalid || result.status == Status::error)
      contained([&] { repair_inputs(planned.the_case, device(index), inputs, uploaded); });
  }
}

void Runner::repair_inputs(const Case& the_case, Device& target, std::vector<HostTensor>& inputs,
                           std::optional<DeviceInputs>& uploaded) {
  if (uploaded->damage().empty()) return;
  uploaded.reset();
  if (target.shares_host_memory()) {
    inputs.clear();  // before they are made again, so that they are in memory only once
    inputs = generate_inputs(the_case.problem, the_case.inputs, stop_);
  }
  uploaded.emplace(target, inputs);
}

CaseResult Runner::run_job_contained(const Case& the_case, const Job& job,
                                     const std::vector<HostTensor>& inputs, const DeviceInputs& uploaded) {
  try {
    return run_job(the_case, job, inputs, uploaded);
  } catch (const Interrupted&) {
    throw;
  } catch (const OutputError&) {
    throw;
  } catch (const std::exception& error) {  // a kernel that fails is a result, and the sweep goes on
    return failed_result(the_case, job, error.what());
  }
}

CaseResult Runner::run_job(const Case& the_case, const Job& job, const std::vector<HostTensor>& inputs,
                           const DeviceInputs& uploaded) {
  const Implementation& implementation = *job.implementation;
  CaseResult result = blank_result(the_case, job);
  progress_.update(jobs_done_, fmt::format("{} on {}", implementation.name, the_case.id()));
  if (progress_.verbose()) progress_.say(result.repro);

  JudgePolicy policy{.reruns = options_.reruns, .timing = {}};
  if (options_.time) policy.timing = options_.timing;
  const ReferenceOutputs* reference = options_.verify ? &reference_ : nullptr;
  const auto outputs =
      judge_run({device(job.device), uploaded, reference}, implementation, policy, stop_, result);
  if (progress_.verbose())
    for (const auto& [name, comparison] : result.outputs) progress_.say(tolerance_text(name, comparison));
  if (finished_ && result.status != Status::invalid)
    finished_({result, implementation, inputs, outputs, reference});
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
