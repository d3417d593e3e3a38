#include "sweep/run_recorder.h"

#include <fmt/format.h>

#include "verify/describe.h"

namespace ssmbench {

RunRecorder::RunRecorder(const Plan& plan, const RunnerOptions& options, std::vector<std::string> keys,
                         const JobSet& jobs, std::size_t slots, std::vector<Reporter*> reporters,
                         Progress& progress)
    : plan_(plan),
      options_(options),
      keys_(std::move(keys)),
      reporters_(std::move(reporters)),
      progress_(progress),
      time_left_(plan, jobs, options.verify),
      slots_(slots) {}

void RunRecorder::begin(const RunInfo& info) {
  start_ = last_event_ = Clock::now();
  for (auto& slot : slots_) slot.last_event = start_;
  progress_.total(plan_.job_count());
  for (Reporter* reporter : reporters_) reporter->begin(info);
}

void RunRecorder::kept(const CaseResult& result) {
  count(result);
  best_of_one_.add(result);
  ++summary_.kept;
  for (Reporter* reporter : reporters_) reporter->case_kept(result);
}

void RunRecorder::starting(std::size_t job, Stage stage) {
  account();
  end_preparation();
  slots_[slot_].going_on = {job, stage};
  const auto& [planned, the_job] = plan_.job(job);
  const std::string id = planned->the_case.id();
  if (stage != Stage::run) {
    progress_.update(jobs_done_, (stage == Stage::inputs ? "inputs of " : "reference of ") + id,
                     seconds_left());
    return;
  }
  progress_.update(jobs_done_, fmt::format("{} on {}", the_job->implementation->name, id), seconds_left());
  if (progress_.verbose())
    progress_.say(
        options_.repro(planned->the_case, *the_job->implementation, plan_.devices[the_job->device]));
}

void RunRecorder::resuming(std::size_t job) {
  account();
  slots_[slot_].going_on = {job, Stage::run};
}

void RunRecorder::finished(std::size_t job, const CaseResult& result) {
  account();
  end_preparation();
  time_left_.ended(job, Stage::run, result.status != Status::error);
  CaseResult with_key = result;
  with_key.key = keys_[job];
  best_of_one_.add(result);
  with_key.scaling = best_of_one_.scaling_of(result);
  count(result);
  progress_.clear();
  if (progress_.verbose())
    for (const auto& [name, comparison] : result.outputs) progress_.say(tolerance_text(name, comparison));
  for (Reporter* reporter : reporters_) reporter->case_done(with_key);
}

Summary RunRecorder::finish(bool interrupted) {
  account();
  summary_.interrupted = interrupted;
  summary_.seconds = std::chrono::duration<double>(last_event_ - start_).count();
  progress_.clear();
  for (Reporter* reporter : reporters_) reporter->finish(summary_);
  return summary_;
}

void RunRecorder::count(const CaseResult& result) {
  ++summary_.counts[result.status];
  if (result.status == Status::pass && result.judged_by_user()) ++summary_.passed_by_user;
  ++jobs_done_;
}

void RunRecorder::waiting() {
  account();
  end_preparation();
  slots_[slot_].going_on.reset();
}

std::optional<double> RunRecorder::seconds_left() const {
  const auto seconds = time_left_.seconds();
  if (!seconds) return {};
  return *seconds / static_cast<double>(slots_.size());
}

void RunRecorder::end_preparation() {
  auto& going_on = slots_[slot_].going_on;
  if (!going_on || going_on->second == Stage::run) return;
  time_left_.ended(going_on->first, going_on->second);
  going_on.reset();
}

void RunRecorder::account() {
  auto& [going_on, last_event] = slots_[slot_];
  last_event_ = Clock::now();
  const double seconds = std::chrono::duration<double>(last_event_ - last_event).count();
  last_event = last_event_;
  if (!going_on) return;
  const auto& [job, stage] = *going_on;
  time_left_.spent(job, stage, seconds);
  if (stage == Stage::inputs) summary_.input_seconds += seconds;
  if (stage == Stage::reference) summary_.reference_seconds += seconds;
}

}  // namespace ssmbench
