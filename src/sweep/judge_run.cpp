#include "sweep/judge_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>

#include "verify/compare.h"
#include "verify/describe.h"
#include "verify/same_bits.h"

namespace ssmbench {
namespace {

/// Bytes that fill the workspace in reruns; before the first launch they are 0xFF, which is NaN. In f32
/// 1.5e16 and -2.9e-16.
constexpr std::array<unsigned char, 2> kGarbage = {0x5A, 0xA5};

/// What the reference says about elements without a value, whatever implementation was run.
std::string describe_notes(const ReferenceOutputs& reference) {
  for (const auto& [name, output] : reference)
    if (!output.note.empty()) return output.note;
  return "";
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
      run_(on.device, implementation, result.the_case.problem, on.inputs.views()) {}

bool RunJudge::is_fine() const {
  return result_.status == Status::pass || result_.status == Status::unverified;
}

void RunJudge::verify(const RerunPolicy& policy) {
  launch_first();
  look_for_damage();
  if (!is_fine()) return;
  launch_again(policy);
  look_for_damage();
}

void RunJudge::launch() {
  const auto start = std::chrono::steady_clock::now();
  run_.launch()(on_.device.stream());
  on_.device.synchronize();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++launches_;
}

OutputComparison RunJudge::compare(const TensorSpec& spec, const TensorView& output) const {
  return compare_output(output, on_.reference->at(spec.name).expectation(),
                        implementation_.arithmetic(result_.the_case.problem.dtype()),
                        result_.the_case.tolerance_of(spec.name), time_axis(spec));
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
  append(result_.reason, reason);
}

void RunJudge::launch_first() {
  launch();
  first_outputs_ = run_.copy_outputs();
  result_.status = Status::unverified;
  if (on_.reference == nullptr) return;

  result_.status = Status::pass;
  const HostTensor* worst = nullptr;
  for (const auto& output : first_outputs_) {
    const OutputComparison& comparison = result_.outputs[output.spec.name] =
        compare(output.spec, output.view());
    if (comparison.judged == 0) leave_unverified(output.spec.name, comparison);
    if (comparison.judged > 0 && !comparison.passed() &&
        (worst == nullptr || comparison.tolerance_ratio > result_.outputs[worst->spec.name].tolerance_ratio))
      worst = &output;
  }
  if (worst == nullptr) return;
  const OutputComparison& comparison = result_.outputs[worst->spec.name];
  fail(*cause_of_failure(comparison), describe_failure(worst->spec.name, comparison, worst->view()));
}

void RunJudge::compare_again(const std::string& when) {
  std::string difference;
  std::size_t position = 0;
  run_.visit_outputs([&](const TensorSpec& spec, const TensorView& output) {
    const TensorView first = real_view(first_outputs_[position++].view());
    const TensorView again = real_view(output);
    const auto index = first_difference(first, again);
    if (!index) return;  // the bits that were right
    if (difference.empty()) {
      const std::int64_t at = offset_of(*index, again.strides);
      difference = fmt::format("{} at ({}): {:.9g}, then {:.9g} {}", spec.name, fmt::join(*index, ", "),
                               load_as_double(first.data, at, first.dtype),
                               load_as_double(again.data, at, again.dtype), when);
    }
    const OutputComparison comparison = compare(spec, output);
    if (comparison.passed() || comparison.judged == 0 || !is_fine()) return;
    result_.outputs[spec.name] = comparison;
    fail(*cause_of_failure(comparison),
         fmt::format("{}: {}", when, describe_failure(spec.name, comparison, output)));
  });
  if (difference.empty()) return;
  if (result_.determinism->first_difference.empty()) result_.determinism->first_difference = difference;
  if (implementation_.deterministic)
    fail(Cause::nondeterministic, "nondeterministic, although it claims to be deterministic: " + difference);
}

void RunJudge::launch_again(const RerunPolicy& policy) {
  if (on_.reference == nullptr) return;
  result_.determinism.emplace();
  int& rerun = result_.determinism->reruns;
  while (rerun < policy.count && seconds_ < policy.max_seconds && is_fine() && !stop_) {
    const bool on_second_stream = rerun % 2 == 0;
    on_.device.use_second_stream(on_second_stream);
    run_.reset_outputs();
    run_.fill_workspace(kGarbage.at(rerun % kGarbage.size()));
    launch();
    ++rerun;
    const bool has_streams = on_.device.stream() != nullptr;
    compare_again(
        fmt::format("in rerun {}{}", rerun, on_second_stream && has_streams ? " on a second stream" : ""));
  }
  on_.device.use_second_stream(false);
}

void RunJudge::start_timing(const TimingPolicy& policy) {
  const Launch counted = [this](void* stream) {
    ++launches_;
    run_.launch()(stream);
  };
  timer_.emplace(on_.device, counted, policy, seconds_, stop_);
  if (auto replay = capture()) timer_->add_graph(std::move(*replay));
}

std::optional<Launch> RunJudge::capture() {
  auto replay = on_.device.capture(run_.launch());
  if (replay && !replays_well(*replay)) replay.reset();
  return replay;
}

bool RunJudge::replays_well(const Launch& replay) {
  // Part of a launch may go where a capture does not see it, or depend on how often it was launched before.
  constexpr int kReplays = 2;
  for (int i = 0; i < kReplays; ++i) {
    run_.reset_outputs();
    replay(on_.device.stream());
  }
  on_.device.synchronize();
  std::size_t position = 0;
  bool is_right = true;
  run_.visit_outputs([&](const TensorSpec& spec, const TensorView& output) {
    const TensorView first = real_view(first_outputs_[position++].view());
    if (!first_difference(first, real_view(output))) return;
    is_right = is_right && !implementation_.deterministic && on_.reference != nullptr &&
               compare(spec, output).passed();
  });
  return is_right;
}

void RunJudge::finish_timing() {
  result_.timing = timer_->results();
  append(result_.reason, timer_->note());
  if (on_.reference != nullptr) {
    run_.reset_outputs();  // to see that this launch writes them all; some were updated in place all the time
    launch();
    compare_again(fmt::format("after {} launches", launches_));
  }
  look_for_damage();
  if (!is_fine() || on_.transfers == nullptr) return;
  measure_transfers();
  look_for_damage();
}

void RunJudge::measure_transfers() {
  result_.transfers = on_.transfers->measure(run_.launch(), run_.output_memory());
}

void RunJudge::look_for_damage() {
  Damage damage = run_.damage();
  damage.add(on_.inputs.damage());
  if (!damage.found()) return;
  result_.status = Status::invalid;
  result_.cause = cause_of(damage);
  append(damage.text, result_.reason);
  result_.reason = damage.text;
  result_.timing.clear();
  result_.transfers.reset();
}

void RunJudge::finish() {
  if (on_.reference != nullptr) append(result_.reason, describe_notes(*on_.reference));
  if (result_.status == Status::fail && !implementation_.known_failure.empty())
    append(result_.reason, "known failure: " + implementation_.known_failure);
}

}  // namespace ssmbench
