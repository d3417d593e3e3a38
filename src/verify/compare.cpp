#include "verify/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "verify/distribution.h"
#include "verify/element.h"
#include "verify/rounding_bias.h"
#include "verify/significand.h"

namespace ssmbench {

/// What PartwiseComparison::State consists of. A header declares it, so these types have linkage too.
namespace partwise {

/// What the steps of one span add up to.
struct SpanSum {
  double squares = 0, worst = 0;
  std::int64_t count = 0;

  void add(const SpanSum& more) {
    squares += more.squares;
    worst = std::max(worst, more.worst);
    count += more.count;
  }
};

/// An output's time steps in spans of as equal a length as can be.
class TimeSpans {
 public:
  static constexpr std::int64_t kMost = 16;

  TimeSpans(const Shape& shape, std::optional<std::size_t> along) {
    if (!along) return;
    steps_ = shape[*along];
    for (std::size_t axis = *along + 1; axis < shape.size(); ++axis) inner_ *= shape[axis];
    count_ = std::min(kMost, steps_);
  }

  std::int64_t count() const { return count_; }  ///< 0 without a time axis
  /// Time step of the element at a row-major position, and the step between neighbours.
  std::int64_t step_of(std::int64_t position) const { return position / inner_ % steps_; }
  std::int64_t stride() const { return inner_ == 1 ? 1 : 0; }
  std::int64_t of(std::int64_t step) const { return step * count_ / steps_; }
  std::int64_t first_step(std::int64_t span) const { return (span * steps_ + count_ - 1) / count_; }

 private:
  std::int64_t steps_ = 1, inner_ = 1, count_ = 0;
};

/// What one contiguous range of elements adds up to.
struct Partial {
  double error_squared = 0;
  double expected_squared = 0;
  double max_abs = 0;
  double max_ulp = 0;
  double worst_ratio = -1;
  std::int64_t worst = 0;
  std::int64_t nonfinite = 0;
  std::int64_t judged = 0;
  std::int64_t first_nonfinite = std::numeric_limits<std::int64_t>::max();
  ErrorDistribution distribution;
  ShortNumbers numbers;
  std::array<SpanSum, TimeSpans::kMost> spans;
};

/// What an output is judged by.
struct Rule {
  Arithmetic arithmetic;
  const UserTolerance* user;

  Tolerance of(const ExpectedElement& expected, DType dtype) const {
    if (user != nullptr) return {user->abs + user->rel * std::abs(expected.value), 0};
    return tolerance_of(expected, dtype, arithmetic);
  }
};

}  // namespace partwise

namespace {

using partwise::Partial;
using partwise::Rule;
using partwise::SpanSum;
using partwise::TimeSpans;

void add(Partial& sum, std::int64_t position, double got, const Expectation& all,
         const ElementVerdict& element, DType dtype) {
  const ExpectedElement expected_element = all.at(position);
  const double expected = expected_element.value;
  const double signed_error = expected_element.difference(got, expected);
  using Kind = ElementVerdict::Kind;
  if (element.kind == Kind::left_out) return;
  ++sum.judged;
  if (element.kind == Kind::wrong) {
    ++sum.nonfinite;
    sum.first_nonfinite = std::min(sum.first_nonfinite, position);
  }
  if (element.kind != Kind::measured) return;
  sum.error_squared += element.error * element.error;
  sum.expected_squared += expected * expected;
  sum.max_abs = std::max(sum.max_abs, element.error);
  sum.max_ulp = std::max(sum.max_ulp, element.error / spacing(expected_element, dtype));
  std::optional<float> response;
  if (all.decay_response != nullptr) response = all.decay_response[position];
  sum.distribution.add(signed_error, expected_element, element.tolerance, dtype, response);
  if (dtype == DType::f32) sum.numbers.add(got, expected);
  if (element.ratio > sum.worst_ratio) {
    sum.worst_ratio = element.ratio;
    sum.worst = position;
  }
}

Partial judge_range(const TensorView& got, const Expectation& expected, const Rule& rule,
                    const TimeSpans& time, std::int64_t begin, std::int64_t end) {
  Partial sum;
  const std::int64_t row = got.shape.back();
  const std::int64_t step = got.strides.back();
  std::int64_t position = begin;
  while (position < end) {  // row by row of the innermost logical axis
    const Shape index = index_of(position, got.shape);
    std::int64_t offset = offset_of(index, got.strides);
    const std::int64_t row_end = std::min(end, position + row - index.back());
    std::int64_t time_step = time.step_of(position);
    for (; position < row_end; ++position, offset += step, time_step += time.stride()) {
      const double value = load_as_double(got.data, offset, got.dtype);
      const ExpectedElement element = expected.at(position);
      const ElementVerdict verdict = judge_element(value, element, got.dtype, rule.of(element, got.dtype));
      add(sum, position, value, expected, verdict, got.dtype);
      if (time.count() > 0 && verdict.kind != ElementVerdict::Kind::left_out)
        sum.spans.at(time.of(time_step)).add({verdict.error * verdict.error, verdict.ratio, 1});
    }
  }
  return sum;
}

/// Fills in what describes the worst element.
void describe_worst(OutputComparison& result, const TensorView& got, const Expectation& expected,
                    const Rule& rule, std::int64_t worst) {
  const ExpectedElement element = expected.at(worst);
  const Tolerance allowed = rule.of(element, got.dtype);
  result.worst_index = index_of(worst, got.shape);
  result.worst_expected = element.value;
  result.worst_got = load_as_double(got.data, offset_of(result.worst_index, got.strides), got.dtype);
  result.worst_parts = {.arithmetic = allowed.arithmetic,
                        .storage = allowed.storage,
                        .factor = kToleranceConstant,
                        .bound = element.bound};
  if (element.operand_bound) result.worst_parts.operand_bound = *element.operand_bound;
}

void add(Partial& all, const Partial& part) {
  all.error_squared += part.error_squared;
  all.expected_squared += part.expected_squared;
  all.max_abs = std::max(all.max_abs, part.max_abs);
  all.max_ulp = std::max(all.max_ulp, part.max_ulp);
  all.nonfinite += part.nonfinite;
  all.judged += part.judged;
  all.first_nonfinite = std::min(all.first_nonfinite, part.first_nonfinite);
  all.distribution.add(part.distribution);
  all.numbers.add(part.numbers);
  for (std::size_t span = 0; span < all.spans.size(); ++span) all.spans.at(span).add(part.spans.at(span));
  if (part.worst_ratio > all.worst_ratio) {
    all.worst_ratio = part.worst_ratio;
    all.worst = part.worst;
  }
}

std::vector<OutputComparison::Span> over_time(const TimeSpans& time, const Partial& all) {
  std::vector<OutputComparison::Span> spans;
  for (std::int64_t span = 0; span < time.count(); ++span) {
    const SpanSum& sum = all.spans.at(span);
    const auto count = static_cast<double>(std::max<std::int64_t>(sum.count, 1));
    spans.push_back({.first = time.first_step(span),
                     .last = time.first_step(span + 1) - 1,
                     .rms = std::sqrt(sum.squares / count),
                     .worst_ratio = sum.worst});
  }
  return spans;
}

}  // namespace

std::optional<std::size_t> time_axis(const TensorSpec& spec) {
  const auto found = spec.axes.find(kTimeLetter);
  return found == std::string::npos ? std::nullopt : std::optional(found);
}

struct PartwiseComparison::State {
  TensorView got;  // the whole
  partwise::Rule rule;
  std::optional<std::size_t> along;
  partwise::Partial all = {};
  OutputComparison worst = {}, first_nonfinite = {};  // what describes them
  std::optional<OutputComparison::RoundingBias> bias = {};
};

PartwiseComparison::PartwiseComparison(const TensorView& output, const Arithmetic& arithmetic,
                                       const UserTolerance* user, std::optional<std::size_t> along)
    : state_(std::make_unique<State>(
          State{.got = real_view(output), .rule = {arithmetic, user}, .along = along})) {}

PartwiseComparison::~PartwiseComparison() = default;
PartwiseComparison::PartwiseComparison(PartwiseComparison&&) noexcept = default;

void PartwiseComparison::add(Shape begin, const Shape& shape, const Expectation& expected) {
  const TensorView& whole = state_->got;
  const Rule& rule = state_->rule;
  Partial& all = state_->all;
  begin.resize(shape.size(), 0);  // the parts of complex numbers
  TensorView got = whole;
  got.shape = shape;
  got.data = static_cast<std::byte*>(got.data) +
             offset_of(begin, got.strides) * static_cast<std::int64_t>(size_of(got.dtype));
  const TimeSpans time(got.shape, state_->along);
  const std::int64_t count = element_count(got.shape);
  // Fixed ranges, added up in order: sums do not depend on who computed them.
  constexpr std::int64_t kRange = 1 << 16;
  const std::int64_t ranges = (count + kRange - 1) / kRange;
  std::vector<Partial> partials(ranges);
#pragma omp parallel for schedule(dynamic) if (ranges > 1)
  for (std::int64_t i = 0; i < ranges; ++i)
    partials[i] = judge_range(got, expected, rule, time, i * kRange, std::min(count, (i + 1) * kRange));

  Partial part;
  for (const auto& partial : partials) ssmbench::add(part, partial);
  const auto position_in_whole = [&](std::int64_t position) {
    const Shape index = index_of(position, got.shape);
    std::int64_t in_whole = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis)
      in_whole = in_whole * whole.shape[axis] + begin[axis] + index[axis];
    return in_whole;
  };
  const auto describe = [&](OutputComparison& into, std::int64_t position) {
    describe_worst(into, got, expected, rule, position);
    for (std::size_t axis = 0; axis < begin.size(); ++axis) into.worst_index[axis] += begin[axis];
  };
  if (part.nonfinite > 0) {
    const std::int64_t in_whole = position_in_whole(part.first_nonfinite);
    if (in_whole < all.first_nonfinite) describe(state_->first_nonfinite, part.first_nonfinite);
    part.first_nonfinite = in_whole;
  }
  if (part.worst_ratio > all.worst_ratio || state_->worst.worst_index.empty())
    describe(state_->worst, part.worst);
  ssmbench::add(all, part);
  if (!expected.stochastic || rule.user != nullptr) return;
  std::optional<OutputComparison::RoundingBias>& bias = state_->bias;
  const auto of_part = rounding_bias(got, expected, rule.arithmetic);
  if (of_part && (!bias || of_part->ratio > bias->ratio)) bias = of_part;
}

OutputComparison PartwiseComparison::result() const {
  const auto& [whole, rule, along, all, worst, first_nonfinite, bias] = *state_;
  OutputComparison result = all.nonfinite > 0 ? first_nonfinite : worst;
  result.max_abs = all.max_abs;
  result.max_ulp = all.max_ulp;
  result.nonfinite = all.nonfinite;
  result.judged = all.judged;
  result.tolerance_ratio = std::max(all.worst_ratio, 0.0);
  // A zero reference is met exactly or not at all; then the absolute norm says more than a division by zero.
  const double norm = all.expected_squared > 0 ? all.expected_squared : 1;
  result.over_time = over_time(TimeSpans(whole.shape, along), all);
  result.rel_l2 = std::sqrt(all.error_squared / norm);
  if (rule.user != nullptr) {
    result.user_tolerance = *rule.user;
    return result;
  }
  result.rms_ratio = all.distribution.rms_ratio();
  result.rounding_bias = bias;
  result.significand_bits = all.numbers.bits(rule.arithmetic.operand_roundoff());
  if (const auto decay_bias = all.distribution.decay_bias(unit_roundoff(rule.arithmetic.math))) {
    result.decay_bias = decay_bias->mean;
    result.decay_bias_ratio = decay_bias->ratio;
  }
  return result;
}

OutputComparison compare_output(const TensorView& output, const Expectation& expected,
                                const Arithmetic& arithmetic, const UserTolerance* user,
                                std::optional<std::size_t> along) {
  PartwiseComparison comparison(output, arithmetic, user, along);
  const Shape shape = real_view(output).shape;
  comparison.add(Shape(shape.size(), 0), shape, expected);
  return comparison.result();
}

}  // namespace ssmbench
