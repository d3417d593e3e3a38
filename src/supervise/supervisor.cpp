#include "supervise/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "record/record_reader.h"
#include "sweep/job_result.h"

namespace ssmbench {
namespace {

/// For a worker that said its last words, or whose pipe is closed.
constexpr std::chrono::seconds kGrace{10};

std::string_view describe(Stage stage) {
  return stage == Stage::inputs ? "generating the inputs" : "computing the reference";
}

/// A death before any implementation ran is not put down to one.
Explanation of_preparation(const Explanation& death, Stage stage) {
  const Cause of_stage = stage == Stage::inputs ? Cause::inputs : Cause::reference;
  return {death.cause == Cause::out_of_memory ? death.cause : of_stage,
          fmt::format("{} while {}", death.reason, describe(stage))};
}

}  // namespace

void Supervisor::run(JobSet jobs) {
  left_ = std::move(jobs);
  while (std::ranges::find(left_, true) != left_.end()) {
    if (const auto death = run_worker()) blame(*death);
  }
}

std::optional<Explanation> Supervisor::run_worker() {
  place_.reset();
  has_finished_some_ = false;
  spent_seconds_.clear();
  ChildProcess worker(how_.worker_argv, to_bytes({.supervisor = getpid(),
                                                  .plan = plan_fingerprint(plan_),
                                                  .jobs = left_,
                                                  .dump_folder = how_.dump_folder,
                                                  .ceilings = options_.ceilings}));
  since_ = worker.now();
  while (true) {
    std::string line;
    switch (worker.next_line(line, deadline(), stop_)) {
      case ChildProcess::Event::line:
        charge(worker.now());
        try {
          if (handle(parse_message(line))) continue;
        } catch (const ProtocolError& error) {  // something wrote over its memory, or into its pipe
          return {
              {Cause::protocol, fmt::format("the worker process sent an invalid message: {}", error.what())}};
        }
        worker.end(kGrace);
        return {};
      case ChildProcess::Event::closed:
        return worker.end(kGrace);
      case ChildProcess::Event::timed_out:
        return {{Cause::timeout, fmt::format("timed out after {:g} s", seconds_allowed())}};
      case ChildProcess::Event::interrupted:
        throw Interrupted();
    }
  }
}

bool Supervisor::handle(const Message& message) {
  switch (message.kind) {
    case Message::Kind::starting:
      if (message.job >= left_.size() || !left_[message.job])
        throw ProtocolError("a job that it was not given");
      deaths_at_start_ = 0;
      place_ = {message.job, message.stage};
      listener_.starting(message.job, message.stage);
      return true;
    case Message::Kind::resuming:
      if (message.job >= left_.size() || !left_[message.job])
        throw ProtocolError("a job that it was not given");
      place_ = {message.job, Stage::run};
      return true;
    case Message::Kind::finished:
      finish(message.job, message.text);
      return true;
    case Message::Kind::failed:
      throw OutputError(message.text);
    case Message::Kind::leaving:
      return false;
    case Message::Kind::done:
      if (std::ranges::find(left_, true) != left_.end()) throw ProtocolError("done, but jobs are left");
      return false;
  }
  throw std::logic_error("unreachable");
}

void Supervisor::finish(std::size_t job, const std::string& record) {
  if (job >= left_.size() || !left_[job]) throw ProtocolError("a job that it was not given");
  CaseResult result = [&record] {
    try {
      return read_case_record(record);
    } catch (const UsageError& error) {
      throw ProtocolError(error.what());
    }
  }();
  const auto& [planned, the_job] = plan_.job(job);
  if (result.the_case.id() != planned->the_case.id() || result.impl != the_job->implementation->name)
    throw ProtocolError("the record of another job");
  result.the_case = planned->the_case;  // knows where it was asked for, too
  how_.collect(job);
  listener_.finished(job, result);
  left_[job] = false;
  has_finished_some_ = true;
  place_.reset();
}

void Supervisor::blame(const Explanation& death) {
  if (place_) {
    const PlannedCase& planned = *plan_.job(place_->job).first;
    if (place_->stage == Stage::run)
      fail(place_->job, death);
    else if (!has_finished_some_)
      fail_case(planned, of_preparation(death, place_->stage));
    else  // perhaps something that ran before spoilt that process; a new one tells
      how_.warn(fmt::format("warning: {} while {} of {}; retrying in a new process", death.reason,
                            describe(place_->stage), planned.the_case.id()));
  } else if (has_finished_some_) {
    how_.warn(fmt::format("warning: {} between two cases; continuing in a new process", death.reason));
  } else if (++deaths_at_start_ == 2) {
    for (const auto& planned : plan_.cases)
      fail_case(planned, {Cause::worker, "worker processes end before the first case: " + death.reason});
  }
}

void Supervisor::fail_case(const PlannedCase& planned, const Explanation& why) {
  for (std::size_t job = 0; job < left_.size(); ++job)
    if (left_[job] && plan_.job(job).first == &planned) fail(job, why);
}

void Supervisor::fail(std::size_t job, const Explanation& why) {
  const auto& [planned, the_job] = plan_.job(job);
  listener_.finished(job, failed_result(plan_, planned->the_case, *the_job, options_, why));
  left_[job] = false;
}

void Supervisor::charge(Clock::time_point now) {
  if (place_ && place_->stage == Stage::run)
    spent_seconds_[place_->job] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
}

Supervisor::Clock::time_point Supervisor::deadline() const {
  double left = seconds_allowed();
  if (place_ && place_->stage == Stage::run)
    if (const auto spent = spent_seconds_.find(place_->job); spent != spent_seconds_.end())
      left = std::max(left - spent->second, 0.0);
  return since_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(left));
}

double Supervisor::seconds_allowed() const {
  const bool under_test = place_ && place_->stage == Stage::run;
  return std::min(how_.timeout_seconds * (under_test ? 1 : kPreparationFactor), kForeverSeconds);
}

}  // namespace ssmbench
