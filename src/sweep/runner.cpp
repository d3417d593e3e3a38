#include "sweep/runner.h"

#include <new>

#include "base/errors.h"
#include "inputs/inputs.h"
#include "sweep/case_runner.h"

namespace ssmbench {

void Runner::run(const JobSet& jobs) {
  std::size_t number = 0;
  for (const auto& planned : plan_.cases) {
    if (stop_) throw Interrupted();
    std::vector<NumberedJob> to_run;
    for (const auto& job : planned.jobs) {
      const std::size_t this_one = number++;
      if (!jobs[this_one]) continue;
      if (!job.skip) {
        to_run.push_back({this_one, &job});
        continue;
      }
      CaseResult skipped = blank_result(plan_, planned.the_case, job, options_);
      skipped.status = Status::skip;
      skipped.cause = job.skip->cause;
      skipped.reason = job.skip->reason;
      listener_.finished(this_one, skipped);
    }
    if (!to_run.empty()) run_case(planned.the_case, to_run);
  }
}

void Runner::run_case(const Case& the_case, const std::vector<NumberedJob>& jobs) {
  const auto fail_all = [&](const std::exception& error) {
    for (const auto& [number, job] : jobs)
      listener_.finished(number, failed_result(plan_, the_case, *job, options_, explain(error)));
  };
  try {
    listener_.starting(jobs.front().number, Stage::inputs);
    auto inputs = generate_inputs(the_case.problem, the_case.inputs, stop_);
    if (options_.verify) prepare_reference(the_case, jobs.front().number, inputs);
    for (std::size_t device = 0; device < plan_.devices.size(); ++device) {
      std::vector<NumberedJob> of_device = jobs;
      std::erase_if(of_device, [&](const NumberedJob& numbered) { return numbered.job->device != device; });
      if (of_device.empty()) continue;
      CaseRunner(plan_, options_, listener_, stop_, finished_, the_case, this->device(device), inputs,
                 options_.verify ? &*reference_ : nullptr)
          .run(of_device);
    }
  } catch (const OutOfMemory& error) {
    fail_all(error);
  } catch (const std::bad_alloc& error) {
    fail_all(error);
  }
}

Device& Runner::device(std::size_t index) {
  auto& open = devices_[index];
  if (open == nullptr) open = options_.open(plan_.devices[index]);
  return *open;
}

void Runner::prepare_reference(const Case& the_case, std::size_t job, const std::vector<HostTensor>& inputs) {
  const std::string key = reference_key(the_case);
  if (key == reference_key_) return;
  listener_.starting(job, Stage::reference);
  reference_key_.clear();
  reference_.reset();  // before the next one is computed, so that only one is ever in memory
  reference_.emplace(the_case.problem, inputs, options_.reference_bytes, stop_);
  if (reference_->in_memory() != nullptr) reference_key_ = key;
}

}  // namespace ssmbench
