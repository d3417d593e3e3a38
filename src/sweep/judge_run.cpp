#include "sweep/judge_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <chrono>

#include "base/errors.h"
#include "bench/statistics.h"
#include "device/floating_point.h"
#include "verify/compare.h"
#include "verify/compare_sample.h"
#include "verify/dequantized.h"
#include "verify/describe.h"
#include "verify/same_bits.h"

namespace ssmbench {
namespace {

/// Exponentials and multiply-adds of a problem below which one thread is faster: others have to be woken and
/// waited for, which takes milliseconds where cores are busy.
constexpr double kWorthThreads = 1 << 16;

/// Exchanges that are timed, fewer where they take longer than this together.
constexpr std::size_t kExchangeSamples = 51;
constexpr double kExchangeMs = 100;

bool is_worth_threads(const Problem& problem) {
  const Work work = problem.op().least_work(problem, Math::f32);
  return work.exponentials + work.fmas >= kWorthThreads;
}

/// Parallel regions that the calling thread begins have one thread while this lives.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  OneThread(OneThread&&) = delete;
  OneThread& operator=(OneThread&&) = delete;

 private:
  int before_;
};

std::vector<std::uint64_t> digests_of(const std::vector<HostTensor>& outputs) {
  std::vector<std::uint64_t> digests;
  for (const auto& output : outputs) digests.push_back(digest({output.buffer.data(), output.spec.bytes()}));
  return digests;
}

void append(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
}

}  // namespace

RunJudge::RunJudge(const CaseOnDevice& on, const Implementation& implementation,
                   const std::atomic<bool>& stop, CaseResult& result)
    : on_(on),
      implementation_(implementation),
      stop_(stop),
      result_(result),
      run_(on.device, implementation, result.the_case.problem, on.inputs.views()),
      single_row_(result.the_case.problem) {}

bool RunJudge::is_fine() const {
  return result_.status == Status::pass || result_.status == Status::unverified;
}

void RunJudge::verify(const RerunPolicy& policy) {
  launch_first();
  take_team_use();
  look_for_damage();
  if (!is_fine()) return;
  // As while launches are timed; not before the first, when runtimes count the CPUs that they may use.
  const auto pinned = on_.device.pin_threads();
  launch_again(policy);
  look_for_damage();
}

void RunJudge::launch() {
  const auto start = std::chrono::steady_clock::now();
  run_.launch()(on_.device.stream());
  on_.device.synchronize();
  reset_floating_point();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++launches_;
}

std::vector<OutputComparison> RunJudge::compare(const std::vector<const HostTensor*>& judged,
                                                const std::vector<HostTensor>& outputs,
                                                const CaseReference& reference) const {
  const bool in_parts = reference.in_memory() == nullptr;
  if (in_parts) on_.computes_reference(true);
  auto comparisons = reference.compare(
      judged, outputs, implementation_.arithmetic(result_.the_case.problem.dtype()), result_.the_case);
  if (in_parts) on_.computes_reference(false);
  return comparisons;
}

OutputComparison RunJudge::compare(const HostTensor& output, const std::vector<HostTensor>& outputs,
                                   const CaseReference& reference) const {
  return compare(std::vector{&output}, outputs, reference).front();
}

void RunJudge::leave_unverified(const std::string& output, const OutputComparison& comparison) {
  result_.status = Status::unverified;
  result_.cause = cause_of_failure(comparison);
  append(result_.reason, fmt::format("{}: {}", output, why_failed(comparison)));
}

void RunJudge::fail(Cause cause, const std::string& reason) {
  result_.status = Status::fail;
  if (!result_.cause || *result_.cause == Cause::not_judged) result_.cause = cause;
  result_.timing.clear();
  result_.transfers.reset();
  append(result_.reason, reason);
}

void RunJudge::launch_first() {
  launch();
  {
    const HeldSignals held;
    // Copies of large outputs take longer than launches: only for whoever looks at them.
    if (copies_outputs())
      first_outputs_ = run_.copy_outputs();
    else
      first_digests_ = on_.device.digests(run_.output_memory());
  }
  if (copies_outputs()) first_digests_ = digests_of(first_outputs_);
  result_.status = Status::unverified;
  look_for_late_work(first_digests_);
  if (on_.reference == nullptr || !is_fine()) return;

  result_.status = Status::pass;
  const HostTensor* worst = nullptr;
  std::vector<const HostTensor*> all;
  for (const auto& output : first_outputs_) all.push_back(&output);
  const auto comparisons = compare(all, first_outputs_, *on_.reference);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const HostTensor& output = *all[i];
    const OutputComparison& comparison = result_.outputs[output.spec.name] = comparisons[i];
    if (comparison.judged == 0) leave_unverified(output.spec.name, comparison);
    if (comparison.judged > 0 && !comparison.passed() &&
        (worst == nullptr || comparison.tolerance_ratio > result_.outputs[worst->spec.name].tolerance_ratio))
      worst = &output;
  }
  if (worst == nullptr) return;
  const OutputComparison& comparison = result_.outputs[worst->spec.name];
  fail(*cause_of_failure(comparison), describe_failure(worst->spec.name, comparison, worst->view()));
}

void RunJudge::look_for_late_work(const std::vector<std::uint64_t>& seen) {
  const bool is_idle = on_.device.wait_until_idle();
  const auto now = on_.device.digests(run_.output_memory());
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] != seen[i])
      return invalidate(Cause::late_work,
                        fmt::format("{} was still written after the launch had ended", run_.output_name(i)));
  if (!is_idle)
    invalidate(Cause::late_work, "threads still compute half a second after the launch has returned");
}

void RunJudge::compare_again(const std::string& when) {
  std::string difference;
  for (std::size_t i = 0; i < latest_outputs_.size() && is_fine(); ++i) {
    const TensorSpec& spec = latest_outputs_[i].spec;
    const TensorView first = real_view(first_outputs_[i].view());
    const TensorView again = real_view(latest_outputs_[i].view());
    const auto index = first_difference(first, again);
    if (!index) continue;  // the bits that were right
    if (difference.empty()) {
      const std::int64_t at = offset_of(*index, again.strides);
      difference = fmt::format("{} at ({}): {:.9g}, then {:.9g} {}", spec.name, fmt::join(*index, ", "),
                               load_as_double(first.data, at, first.dtype),
                               load_as_double(again.data, at, again.dtype), when);
    }
    judge_again(latest_outputs_[i], latest_outputs_, *on_.reference, when);
  }
  if (difference.empty()) return;
  if (result_.determinism->first_difference.empty()) result_.determinism->first_difference = difference;
  if (implementation_.deterministic)
    fail(Cause::nondeterministic, "nondeterministic, although it claims to be deterministic: " + difference);
}

void RunJudge::judge_again(const HostTensor& output, const std::vector<HostTensor>& outputs,
                           const CaseReference& reference, const std::string& when) {
  const std::string& name = output.spec.name;
  const OutputComparison comparison = compare(output, outputs, reference);
  if (comparison.passed() || comparison.judged == 0) return;
  result_.outputs[name] = comparison;
  fail(*cause_of_failure(comparison),
       fmt::format("{}: {}", when, describe_failure(name, comparison, output.view())));
}

bool RunJudge::sample_is_right(const HostTensor& output, const std::vector<HostTensor>& outputs,
                               const CaseReference& reference) {
  const ReferenceOutputs* in_memory = reference.in_memory();
  if (in_memory == nullptr) return false;
  const auto values = dequantized(output, outputs);
  return sample_passes((values ? *values : output).view(), in_memory->at(output.spec.name).expectation(),
                       implementation_.arithmetic(result_.the_case.problem.dtype()),
                       result_.the_case.tolerance_of(output.spec.name), random_);
}

void RunJudge::judge_timed(const TimedLaunch& launch) {
  const std::string when = fmt::format("in timed launch {}", launches_);
  const CaseReference& reference = launch.of_other_seed ? *on_.other_reference : *on_.reference;
  for (std::size_t i = 0; launch.rows.empty() && i < launch.outputs.size() && is_fine(); ++i) {
    const HostTensor& output = launch.outputs[i];
    const bool has_known_bits =
        !launch.of_other_seed &&
        !first_difference(real_view(first_outputs_[i].view()), real_view(output.view()));
    if (has_known_bits) continue;
    if (!sample_is_right(output, launch.outputs, reference))
      judge_again(output, launch.outputs, reference, when);
  }
  for (const auto& row : launch.rows)
    if (is_fine()) judge_row(row, when);
  if (is_fine()) return;
  on_.device.wait_until_idle();  // before its memory goes
  look_for_damage();
}

void RunJudge::judge_row(const RowOfLaunch& row, const std::string& when) {
  std::optional<OneThread> alone;
  if (!is_worth_threads(*single_row_.problem())) alone.emplace();
  const CaseReference reference(compute_reference(*single_row_.problem(), views_of(row.inputs), stop_));
  for (const auto& output : row.outputs) {
    const std::string& name = output.spec.name;
    OutputComparison comparison = compare(output, row.outputs, reference);
    const bool elements_pass = comparison.nonfinite == 0 && comparison.tolerance_ratio <= 1;
    if (elements_pass) continue;  // a row alone says little of how errors are distributed
    const auto& whole =
        std::ranges::find(first_outputs_, name, [](const auto& first) { return first.spec.name; });
    comparison.worst_index = single_row_.index_in_whole(row.row, whole->spec, comparison.worst_index);
    result_.outputs[name] = comparison;
    return fail(*cause_of_failure(comparison),
                fmt::format("{}: {}", when, describe_failure(name, comparison, output.view())));
  }
}

void RunJudge::launch_again(const RerunPolicy& policy) {
  if (on_.reference == nullptr) return;
  result_.determinism.emplace();
  int& rerun = result_.determinism->reruns;
  while (rerun < policy.count && seconds_ < policy.max_seconds && is_fine() && !stop_) {
    const bool on_second_stream = rerun % 2 == 0;
    on_.device.use_second_stream(on_second_stream);
    run_.reset_outputs(garbage_byte(random_));
    garbage_ = garbage_byte(random_, garbage_);
    run_.fill_workspace(garbage_);
    launch();
    ++rerun;
    run_.copy_outputs(latest_outputs_);
    const bool has_streams = on_.device.stream() != nullptr;
    compare_again(
        fmt::format("in rerun {}{}", rerun, on_second_stream && has_streams ? " on a second stream" : ""));
  }
  on_.device.use_second_stream(false);
  if (!is_fine()) on_.device.wait_until_idle();  // before its memory goes
}

void RunJudge::start_timing(const TimingPolicy& policy) {
  const Launch counted = [this](void* stream) {
    ++launches_;
    run_.launch()(stream);
  };
  timer_.emplace(on_.device, counted, policy, seconds_, stop_);
  if (auto replay = capture())
    timer_->add_graph([this, replay = std::move(*replay)](void* stream) {
      ++launches_;
      replay(stream);
    });
  Disturbance::Judge judge;
  if (on_.reference != nullptr) judge = [this](const TimedLaunch& launch) { judge_timed(launch); };
  disturbance_.emplace(on_.device, result_.the_case.problem, on_.inputs, on_.other_seed, run_,
                       latest_outputs_, std::move(judge));
  timer_->watch(*disturbance_);
  lacks_copies_ = on_.transfers != nullptr && on_.transfers->prepare(run_.output_memory());
}

bool RunJudge::time_copies_if_free() {
  if (!lacks_copies_) return false;
  const auto alone = on_.host != nullptr ? on_.host->try_memory_alone() : nullptr;
  if (on_.host != nullptr && alone == nullptr) return false;
  time_copies();
  return true;
}

std::optional<Launch> RunJudge::capture() {
  auto replay = on_.device.capture(run_.launch());
  if (replay && !replays_well(*replay)) {
    append(result_.reason, "no graph time: a replay gave other outputs");
    replay.reset();
  }
  return replay;
}

bool RunJudge::replays_well(const Launch& replay) {
  // Part of a launch may go where a capture does not see it, or depend on how often it was launched before.
  constexpr int kReplays = 2;
  for (int i = 0; i < kReplays; ++i) {
    run_.reset_outputs(garbage_byte(random_));
    replay(on_.device.stream());
  }
  on_.device.synchronize();
  if (!copies_outputs()) return on_.device.digests(run_.output_memory()) == first_digests_;
  run_.copy_outputs(latest_outputs_);
  for (std::size_t i = 0; i < latest_outputs_.size(); ++i) {
    const HostTensor& output = latest_outputs_[i];
    if (!first_difference(real_view(first_outputs_[i].view()), real_view(output.view()))) continue;
    if (implementation_.deterministic || on_.reference == nullptr ||
        !compare(output, latest_outputs_, *on_.reference).passed())
      return false;
  }
  return true;
}

void RunJudge::finish_timing() {
  disturbance_.reset();
  result_.timing = timer_->results();
  append(result_.reason, timer_->note());
  if (on_.reference != nullptr) {
    run_.reset_outputs(garbage_byte(random_));  // to see that this launch writes them all
    launch();
    run_.copy_outputs(latest_outputs_);
    look_for_late_work(digests_of(latest_outputs_));
  }
  if (on_.reference != nullptr && is_fine()) {
    compare_again(fmt::format("after {} launches", launches_));
  }
  look_for_damage();
  if (!is_fine()) return;
  take_team_use();
  if (result_.team && result_.team->wire_bytes > 0) result_.team->exchange = time_exchange();
  if (!lacks_copies_) return;
  const auto alone = on_.host != nullptr ? on_.host->memory_alone() : nullptr;
  time_copies();
}

void RunJudge::time_copies() {
  lacks_copies_ = false;
  result_.transfers = on_.transfers->measure(run_.launch(), run_.output_memory());
  look_for_damage();
}

void RunJudge::look_for_damage() {
  Damage damage = run_.damage();
  damage.add(on_.inputs.damage());
  if (on_.other_seed != nullptr) damage.add(on_.other_seed->damage());
  if (damage.found()) invalidate(cause_of(damage), std::move(damage.text));
}

void RunJudge::invalidate(Cause cause, std::string reason) {
  result_.status = Status::invalid;
  result_.cause = cause;
  append(reason, result_.reason);
  result_.reason = std::move(reason);
  result_.timing.clear();
  result_.transfers.reset();
}

void RunJudge::take_team_use() {
  const TeamRun* team = run_.team();
  if (team == nullptr) return;
  result_.team = TeamUse{.wire_bytes = team->wire_bytes(), .rerun_steps = team->rerun_steps()};
  for (auto of_rank : team->timed_ms()) {
    std::ranges::sort(of_rank);
    result_.team->rank_ms.push_back(quantile(of_rank, 0.5));
  }
}

TimingStats RunJudge::time_exchange() {
  const Launch exchange = run_.team()->exchange();
  std::vector<double> samples;
  double spent_ms = 0;
  while (samples.size() < kExchangeSamples && spent_ms < kExchangeMs) {
    if (stop_) throw Interrupted();
    samples.push_back(on_.device.time_launch(exchange, 0).ms);
    spent_ms += samples.back();
  }
  return summarize(std::move(samples));
}

void RunJudge::finish() {
  if (on_.reference != nullptr) append(result_.reason, on_.reference->note());
  if (result_.status == Status::fail && !implementation_.known_failure.empty())
    append(result_.reason, "known failure: " + implementation_.known_failure);
}

}  // namespace ssmbench
