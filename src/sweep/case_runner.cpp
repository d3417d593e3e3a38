#include "sweep/case_runner.h"

#include <algorithm>
#include <new>
#include <random>
#include <utility>

#include "base/errors.h"
#include "base/fnv1a.h"
#include "bench/roofline.h"
#include "device/cpu.h"
#include "inputs/inputs.h"
#include "sweep/exchange.h"
#include "sweep/profile_run.h"

namespace ssmbench {
namespace {

/// The share of free memory (1 over this) that jobs waiting for their turn may take; the rest is for what
/// implementations allocate without saying so.
constexpr std::size_t kShareOfMemory = 2;
/// What may be spent on the median of one kind of copies.
constexpr double kTransferSeconds = 0.05;

std::vector<Upload> uploads(const std::vector<HostTensor>& inputs, const DeviceInputs& uploaded) {
  std::vector<Upload> all;
  for (const auto& input : inputs)
    all.push_back({uploaded.views().at(input.spec.name).data, input.buffer.data(), input.spec.bytes()});
  return all;
}

}  // namespace

CaseRunner::CaseRunner(const Plan& plan, const RunnerOptions& options, RunListener& listener,
                       const std::atomic<bool>& stop, const FinishedHook& finished, const Case& the_case,
                       Device& device, std::vector<HostTensor>& inputs, const CaseReference* reference)
    : plan_(plan),
      options_(options),
      listener_(listener),
      stop_(stop),
      finished_(finished),
      case_(the_case),
      device_(device),
      inputs_(inputs),
      reference_(reference) {}

void CaseRunner::run(const std::vector<NumberedJob>& jobs) {
  const DeviceInfo& of_plan = plan_.devices[jobs.front().job->device];
  has_times_ = of_plan.untimed.empty();
  upload();
  std::shared_ptr<void> alone;
  std::shared_ptr<void> all_cores;
  if (options_.host != nullptr && device_.shares_host_memory()) {  // what computes are the host's cores
    if (is_timed()) alone = options_.host->alone();
    all_cores = options_.host->all_cores();
  }
  room_ = room();
  for (const auto& job : jobs) start(job);
  finish_held();
  for (const auto& job : std::exchange(again_, {})) {
    start(job);
    finish_held();
  }
}

void CaseRunner::start(const NumberedJob& job) {
  listener_.starting(job.number, Stage::run);
  if (upload_error_) {
    listener_.finished(job.number, failed(job, *upload_error_));
    return;
  }
  const std::size_t bytes = bytes_of(job);
  if (held_bytes_ + bytes > room_ && !held_.empty()) {
    finish_held();
    listener_.resuming(job.number);
  }
  Candidate& candidate = held_.emplace_back(
      Candidate{.job = job, .result = blank_result(plan_, case_, *job.job, options_), .bytes = bytes});
  held_bytes_ += bytes;
  const bool is_right = contained(candidate, [&] { verify(candidate); }) && candidate.judge != nullptr &&
                        candidate.judge->is_fine();
  if (!is_right || !is_timed()) conclude(std::prev(held_.end()));
}

void CaseRunner::verify(Candidate& candidate) {
  const Implementation& implementation = *candidate.job.job->implementation;
  candidate.result.work = least_work(implementation, case_.problem);
  candidate.result.workspace_bytes = implementation.workspace_bytes(case_.problem);
  if (options_.profile) {
    profile_run(device_, *uploaded_, implementation, options_.timing.warmup, candidate.result);
    return;
  }
  const CaseOnDevice on{device_,
                        *uploaded_,
                        reference_,
                        transfers_ ? &*transfers_ : nullptr,
                        other_uploaded_ ? &*other_uploaded_ : nullptr,
                        other_reference_ ? &*other_reference_ : nullptr,
                        options_.host,
                        finished_ != nullptr,
                        [this, number = candidate.job.number](bool begins) {
                          if (begins)
                            listener_.starting(number, Stage::reference);
                          else
                            listener_.starting(number, Stage::run);
                        }};
  candidate.judge = std::make_unique<RunJudge>(on, implementation, stop_, candidate.result);
  candidate.judge->verify(options_.reruns);
  if (candidate.judge->is_fine() && is_timed()) candidate.judge->start_timing(options_.timing);
}

void CaseRunner::finish_held() {
  std::shared_ptr<void> off_memory;  // launches of a GPU that nothing is compared of
  if (options_.host != nullptr && reference_ == nullptr && !device_.shares_host_memory())
    off_memory = options_.host->off_memory();
  take_turns();
  if (held_.size() > 1 && inputs_are_damaged()) {  // by one of them
    put_back_held();
    repair_inputs();
  }
  while (!held_.empty()) {
    Candidate& candidate = held_.front();
    listener_.resuming(candidate.job.number);
    contained(candidate, [&] { candidate.judge->finish_timing(); });
    conclude(held_.begin());
  }
}

void CaseRunner::take_turns() {
  const auto pinned = device_.pin_threads();
  std::mt19937_64 random(fnv1a(case_.id()));  // the same order each time
  const bool others_run = held_.size() > 1;
  while (true) {
    std::vector<Place> round;
    for (auto place = held_.begin(); place != held_.end(); ++place)
      if (!place->judge->timer().is_done()) round.push_back(place);
    if (round.empty()) return;
    std::ranges::shuffle(round, random);
    for (const Place place : round) {
      listener_.resuming(place->job.number);
      const auto turn = [&judge = *place->judge, others_run] {
        const bool copied = judge.time_copies_if_free();
        if (judge.is_fine()) judge.timer().burst(copied || others_run);
      };
      if (contained(*place, turn) && place->judge->is_fine()) continue;
      if (place->judge != nullptr && held_.size() > 1 && inputs_are_damaged()) {  // perhaps not by this one
        put_back_held();
        repair_inputs();
        return;
      }
      conclude(place);
      if (held_.empty()) return;  // perhaps all were put back
    }
  }
}

void CaseRunner::conclude(Place place) {
  const Status status = place->result.status;
  report(*place);
  held_bytes_ -= place->bytes;
  held_.erase(place);
  if (status != Status::invalid && status != Status::error) return;
  if (!inputs_are_damaged()) return;
  put_back_held();
  repair_inputs();
}

void CaseRunner::report(Candidate& candidate) {
  if (candidate.put_back) {
    again_.push_back(candidate.job);
    return;
  }
  if (candidate.judge != nullptr)
    contained(candidate, [&] {
      candidate.judge->finish();
      judge_speed_of(candidate);
      const auto outputs = candidate.judge->take_outputs();
      if (finished_ && candidate.result.status != Status::invalid)
        finished_({candidate.result, *candidate.job.job->implementation, inputs_, outputs,
                   reference_ != nullptr ? reference_->in_memory() : nullptr});
    });
  listener_.finished(candidate.job.number, candidate.result);
}

void CaseRunner::judge_speed_of(Candidate& candidate) {
  const auto known = options_.ceilings.find(candidate.result.device);
  if (known == options_.ceilings.end()) return;
  const Implementation& implementation = *candidate.job.job->implementation;
  Ceilings ceilings = known->second;
  if (options_.measure_again && is_too_fast(implementation, ceilings, candidate.result)) try {
      ceilings = options_.measure_again(device_.info(), ceilings);
    } catch (const OutOfMemory&) {  // then by what was measured before
    }
  judge_speed(implementation, ceilings, candidate.result);
}

void CaseRunner::put_back_held() {
  for (const auto& candidate : held_) again_.push_back(candidate.job);
  held_.clear();
  held_bytes_ = 0;
}

template <class Work>
bool CaseRunner::contained(Candidate& candidate, const Work& work) {
  try {
    work();
    return true;
  } catch (const Interrupted&) {
    throw;
  } catch (const OutputError&) {
    throw;
  } catch (const std::bad_alloc& error) {
    lacks_memory(candidate, error);
  } catch (const OutOfMemory& error) {
    lacks_memory(candidate, error);
  } catch (const std::exception& error) {  // a kernel that fails is a result, and the sweep goes on
    fail(candidate, error);
  }
  try {
    device_.use_second_stream(false);  // in case it failed on that
  } catch (const DeviceError&) {       // what runs next meets it too, and says it
  }
  return false;
}

void CaseRunner::lacks_memory(Candidate& candidate, const std::exception& error) {
  candidate.put_back = held_.size() > 1;
  fail(candidate, error);
}

void CaseRunner::fail(Candidate& candidate, const std::exception& error) {
  candidate.judge.reset();
  candidate.result = failed(candidate.job, explain(error));
}

CaseResult CaseRunner::failed(const NumberedJob& job, const Explanation& why) const {
  return failed_result(plan_, case_, *job.job, options_, why);
}

std::size_t CaseRunner::bytes_of(const NumberedJob& job) const {
  try {
    std::size_t bytes = job.job->implementation->workspace_bytes(case_.problem) +
                        bytes_of_ranks(*job.job, plan_, case_.problem);
    for (const auto& spec : case_.problem.tensors())
      if (spec.role == Role::output)
        bytes += 3 * spec.bytes();  // on the device, and the first and the latest ones on the host
    return bytes;
  } catch (const std::exception&) {  // verify() meets it too, and says it
    return 0;
  }
}

std::size_t CaseRunner::room() const {
  try {
    return std::min(device_.info().free_bytes, cpu_info().free_bytes) / kShareOfMemory;
  } catch (const DeviceError&) {  // the first job meets it too, and says it
    return 0;
  }
}

bool CaseRunner::inputs_are_damaged() {
  try {
    return uploaded_->damage().found();
  } catch (const DeviceError& error) {
    upload_error_ = explain(error);
    return false;
  }
}

void CaseRunner::upload() {
  try {
    uploaded_.emplace(device_, inputs_);
    if (is_timed() && !ExchangeDraw(case_.problem).can_exchange()) prepare_other_seed();
  } catch (const DeviceError& error) {
    upload_error_ = explain(error);
    return;
  } catch (const std::bad_alloc& error) {
    upload_error_ = explain(error);
    return;
  }
  if (is_timed() && !device_.shares_host_memory() && device_.info().ranks == 1)
    transfers_.emplace(device_, uploads(inputs_, *uploaded_),
                       std::min(kTransferSeconds, options_.timing.max_seconds / 40), stop_);
}

void CaseRunner::prepare_other_seed() {
  InputSpec other = case_.inputs;
  ++other.seed;
  other_inputs_ = generate_inputs(case_.problem, other, stop_);
  if (reference_ != nullptr && !other_reference_)  // a repair changes no values
    other_reference_.emplace(case_.problem, other_inputs_, options_.reference_bytes, stop_);
  other_uploaded_.emplace(device_, other_inputs_);
}

void CaseRunner::repair_inputs() {
  transfers_.reset();
  other_uploaded_.reset();
  uploaded_.reset();
  if (device_.shares_host_memory()) {
    inputs_.clear();  // before they are made again, so that they are in memory only once
    inputs_ = generate_inputs(case_.problem, case_.inputs, stop_);
  }
  upload();
}

}  // namespace ssmbench
