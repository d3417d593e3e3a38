#include "supervise/slot.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "record/record_reader.h"

namespace ssmbench {
namespace {

/// For a worker that said its last words, or whose pipe is closed.
constexpr std::chrono::seconds kGrace{10};
/// A worker that waits is given so many times kWaitingEvery at least, whatever cases may take: a busy machine
/// may keep it from saying so.
constexpr int kFewestMissed = 5;

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

void Slot::take(Unit unit) {
  unit_ = std::move(unit);
  send_unit();
}

Unit Slot::give_back() {
  Unit rest = std::move(*std::exchange(unit_, {}));
  std::erase_if(rest.jobs, [this](std::size_t job) { return !books_.is_left(job); });
  return rest;
}

void Slot::start() {
  worker_ = place_.start();
  worker_->order(orders_);
  place_of_.reset();
  is_waiting_ = false;
  has_finished_some_ = false;
  spent_seconds_.clear();
  beside_.clear();
}

void Slot::send_unit() {
  if (worker_ == nullptr) start();
  JobSet jobs(books_.left().size(), false);
  for (const std::size_t job : unit_->jobs) jobs[job] = books_.is_left(job);
  worker_->order(to_bytes(jobs));
  since_ = clock_.now();
}

void Slot::dismiss() {
  worker_->no_more_orders();
  end(kGrace, false);
}

void Slot::kill() {
  if (worker_ != nullptr) worker_->end(Clock::duration::zero());
}

void Slot::watch(std::vector<pollfd>& descriptors) const {
  if (worker_ != nullptr && !is_ending_) worker_->watch(descriptors);
}

void Slot::step(int beside) {
  if (worker_ != nullptr && !is_ending_) read_lines(beside);
  if (!is_ending_) return;
  if (const auto ending = worker_->ended()) conclude(*ending);
}

void Slot::read_lines(int beside) {
  if (place_of_ && place_of_->stage == Stage::run)
    beside_[place_of_->job] = std::max(beside_[place_of_->job], beside);
  std::string line;
  auto event = worker_->next_line(line);
  for (; event == WorkerHandle::Event::line; event = worker_->next_line(line)) {
    charge();
    try {
      if (handle(parse_message(line), beside)) continue;
    } catch (const ProtocolError& error) {  // something wrote over its memory, or into its pipe
      return end(Clock::duration::zero(), true,
                 Explanation{Cause::protocol,
                             fmt::format("the worker process sent an invalid message: {}", error.what())});
    }
    return end(kGrace, !has_finished_some_);
  }
  if (event == WorkerHandle::Event::closed) return end(kGrace, true);
  if (unit_ && clock_.now() > deadline())
    end(Clock::duration::zero(), true,
        Explanation{Cause::timeout,
                    is_waiting_
                        ? fmt::format("sent nothing for {:g} s while it waited for others", seconds_allowed())
                        : fmt::format("timed out after {:g} s", seconds_allowed())});
}

bool Slot::handle(const Message& message, int beside) {
  books_.listener().in_slot(number_);
  is_waiting_ = message.kind == Message::Kind::waiting;
  switch (message.kind) {
    case Message::Kind::starting:
      check_given(message.job);
      if (message.stage == Stage::run) deaths_at_start_ = 0;
      place_of_ = {message.job, message.stage};
      if (message.stage == Stage::run) beside_[message.job] = beside;
      books_.listener().starting(message.job, message.stage);
      return true;
    case Message::Kind::resuming:
      check_given(message.job);
      place_of_ = {message.job, Stage::run};
      books_.listener().resuming(message.job);
      return true;
    case Message::Kind::finished:
      finish(message.job, message.text, beside);
      return true;
    case Message::Kind::failed:
      throw OutputError(message.text);
    case Message::Kind::waiting:
      books_.listener().waiting();
      return true;
    case Message::Kind::leaving:
      if (!has_finished_some_) place_of_.reset();  // its device did not work, which no case is blamed for
      return false;
    case Message::Kind::done:
      if (!unit_ || !is_done(*unit_)) throw ProtocolError("done, but jobs are left");
      unit_.reset();
      place_of_.reset();
      return true;
  }
  throw std::logic_error("unreachable");
}

bool Slot::is_done(const Unit& unit) const {
  return std::ranges::none_of(unit.jobs, [this](std::size_t job) { return books_.is_left(job); });
}

void Slot::check_given(std::size_t job) const {
  if (!unit_ || !books_.is_left(job) || std::ranges::find(unit_->jobs, job) == unit_->jobs.end())
    throw ProtocolError("a job that it was not given");
}

void Slot::finish(std::size_t job, const std::string& record, int beside) {
  check_given(job);
  CaseResult result = [&record] {
    try {
      return read_case_record(record);
    } catch (const UsageError& error) {
      throw ProtocolError(error.what());
    }
  }();
  const auto& [planned, the_job] = books_.plan().job(job);
  if (result.the_case.id() != planned->the_case.id() || result.impl != the_job->implementation->name)
    throw ProtocolError("the record of another job");
  if (!place_.name.empty() && result.status != Status::skip) {
    const bool has_host_for_itself = books_.options().time && planned->the_case.timed &&
                                     the_job->implementation->device == DeviceKind::cpu;
    result.slot = place_.name;
    result.beside = has_host_for_itself ? 0 : std::max(beside_[job], beside);
  }
  books_.finish(job, std::move(result));
  has_finished_some_ = true;
  place_of_.reset();
}

void Slot::end(Clock::duration grace, bool is_blamed, std::optional<Explanation> why) {
  worker_->end(grace);
  is_ending_ = true;
  is_blamed_ = is_blamed;
  blamed_for_ = std::move(why);
}

void Slot::conclude(const WorkerHandle::Ending& ending) {
  worker_.reset();
  is_ending_ = false;
  books_.listener().in_slot(number_);
  if (is_blamed_) blame(blamed_for_.value_or(ending.how));
  is_waiting_ = false;
  place_of_.reset();
  if (!ending.is_gone && !place_.name.empty())
    out_of_service_ = ending.how.reason;  // it may still use the GPU
  if (!unit_) return;
  if (is_done(*unit_))
    unit_.reset();
  else if (out_of_service_.empty())
    send_unit();
}

void Slot::blame(const Explanation& death) {
  if (place_of_) {
    const PlannedCase& planned = *books_.plan().job(place_of_->job).first;
    if (place_of_->stage == Stage::run || is_waiting_)  // who waits for its turn makes no reference
      books_.fail(place_of_->job, death);
    else if (!has_finished_some_)
      books_.fail_case(planned, of_preparation(death, place_of_->stage));
    else  // perhaps something that ran before spoilt that process; a new one tells
      how_.warn(fmt::format("warning: {} while {} of {}; retrying in a new process", death.reason,
                            describe(place_of_->stage), planned.the_case.id()));
  } else if (has_finished_some_) {
    how_.warn(fmt::format("warning: {} between two cases; continuing in a new process", death.reason));
  } else if (++deaths_at_start_ == 2) {
    out_of_service_ = "worker processes end before the first case: " + death.reason;
  }
}

void Slot::charge() {
  const auto now = clock_.now();
  if (place_of_ && place_of_->stage == Stage::run && !is_waiting_)
    spent_seconds_[place_of_->job] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
}

Slot::Clock::time_point Slot::deadline() const {
  double left = seconds_allowed();
  if (place_of_ && place_of_->stage == Stage::run && !is_waiting_)
    if (const auto spent = spent_seconds_.find(place_of_->job); spent != spent_seconds_.end())
      left = std::max(left - spent->second, 0.0);
  return since_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(left));
}

double Slot::seconds_allowed() const {
  const bool under_test = place_of_ && place_of_->stage == Stage::run;
  const double allowed = how_.timeout_seconds * (under_test ? 1 : kPreparationFactor);
  const double least = is_waiting_ ? kFewestMissed * std::chrono::duration<double>(kWaitingEvery).count() : 0;
  return std::clamp(allowed, least, kForeverSeconds);
}

}  // namespace ssmbench
