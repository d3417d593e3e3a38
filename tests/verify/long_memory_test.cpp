// Memories of 65536 steps, where the sum of absolute values is hundreds of times what it adds up to: mistakes
// that the worst case of all roundings would hide. The right results are those of built-in implementations.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "support/axes.h"
#include "support/find_implementation.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "verify/compare.h"
#include "verify/describe.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kSteps = 65536;

using Tensors = std::map<std::string, HostTensor>;

/// A problem of long memory, its reference, and what an implementation makes of it.
class LongScan {
 public:
  LongScan(const char* op, const char* implementation, Axes axes)
      : implementation_(find_implementation(op, implementation)),
        problem_(*find_op(op), with_steps(std::move(axes))),
        inputs_(generate_inputs(problem_, {.distribution = "slow_decay", .values = "native", .seed = 5},
                                never_stop)),
        expected_(compute_reference(problem_, views_of(inputs_), never_stop)) {}

  Tensors outputs() const {
    Tensors outputs;
    TensorSet all = views_of(inputs_);
    for (const auto& spec : specs_of(problem_, Role::output)) {
      const auto [place, _] = outputs.emplace(spec.name, HostTensor(spec));
      all.add(spec.name, place->second.view());
    }
    const HostBuffer workspace(implementation_.workspace_bytes(problem_));
    implementation_.bind(problem_, all, workspace.data())(nullptr);
    return outputs;
  }

  /// Where the last step, of the axis l, adds nothing: an input is 0 there.
  Tensors without_last(const std::string& input) {
    for (const auto& tensor : inputs_) {
      if (tensor.spec.name != input) continue;
      const TensorView view = tensor.view();
      const auto time = *time_axis(tensor.spec);
      std::vector<std::byte> kept(tensor.buffer.bytes());
      std::memcpy(kept.data(), tensor.buffer.data(), kept.size());
      for (std::int64_t i = 0; i < element_count(view.shape); ++i)
        if (index_of(i, view.shape)[time] == kSteps - 1)
          store_from_double(view.data, offset_in(view, i), view.dtype, 0);
      Tensors stale = outputs();
      std::memcpy(tensor.buffer.data(), kept.data(), kept.size());
      return stale;
    }
    throw std::logic_error(input);
  }

  OutputComparison judge(const HostTensor& output) const {
    return compare_output(output.view(), expected_.at(output.spec.name).expectation(),
                          implementation_.arithmetic(problem_.dtype()), nullptr, time_axis(output.spec));
  }

 private:
  static Axes with_steps(Axes axes) {
    axes["dtype"] = "f32";
    axes["seqlen"] = kSteps;
    axes["batch"] = std::int64_t{1};
    return axes;
  }

  const Implementation& implementation_;
  Problem problem_;
  std::vector<HostTensor> inputs_;
  ReferenceOutputs expected_;
};

/// Every element becomes change(value, its index).
void spoil(const HostTensor& output, const std::function<double(double, const Shape&)>& change) {
  const TensorView view = real_view(output.view());
  for (std::int64_t i = 0; i < element_count(view.shape); ++i) {
    const std::int64_t offset = offset_in(view, i);
    const double value = load_as_double(view.data, offset, view.dtype);
    store_from_double(view.data, offset, view.dtype, change(value, index_of(i, view.shape)));
  }
}

void check_sequence(const LongScan& scan, const Tensors& honest, const std::string& name) {
  const TensorSpec& spec = honest.at(name).spec;
  const std::size_t time = *time_axis(spec);
  Shape one = spec.shape;
  for (auto& at : one) at /= 2;
  const auto judged = [&](const char* what, const std::function<double(double, const Shape&)>& change) {
    HostTensor spoilt(spec);
    std::memcpy(spoilt.buffer.data(), honest.at(name).buffer.data(), spoilt.buffer.bytes());
    spoil(spoilt, change);
    const OutputComparison result = scan.judge(spoilt);
    INFO(name << ": " << what << ": " << why_failed(result));
    CHECK_FALSE(result.passed());
  };
  judged("one element, 4 times as large", [&](double x, const Shape& at) { return at == one ? 4 * x : x; });
  judged("one step, 10% too large",
         [&](double x, const Shape& at) { return at[time] == kSteps / 2 ? 1.1 * x : x; });
  judged("the last half, 1% too large",
         [&](double x, const Shape& at) { return at[time] >= kSteps / 2 ? 1.01 * x : x; });
}

void check_honest(const LongScan& scan, const Tensors& outputs) {
  for (const auto& [name, output] : outputs) {
    const OutputComparison result = scan.judge(output);
    INFO(tolerance_text(name, result));
    CHECK(result.passed());
    CHECK(result.rms_ratio < 0.5);
  }
}

void check_state(const LongScan& scan, const HostTensor& honest, const HostTensor& stale) {
  CHECK_FALSE(scan.judge(stale).passed());
  spoil(honest, [](double x, const Shape&) { return bf16_to_float(float_to_bf16(static_cast<float>(x))); });
  CHECK_FALSE(scan.judge(honest).passed());
}

using Floats = std::vector<float>;

/// All states h_t = a_t·h_{t−1} + b_t of a row, in f32.
using Order = std::function<Floats(const Floats& a, const Floats& b)>;

Floats in_sequence(const Floats& a, const Floats& b) {
  Floats h(a.size());
  float state = 0;
  for (std::size_t t = 0; t < h.size(); ++t) h[t] = state = a[t] * state + b[t];
  return h;
}

/// Chunks from a state of 0, and what they inherit by products of decays.
Floats in_chunks(const Floats& a, const Floats& b) {
  constexpr std::size_t kChunk = 256;
  Floats h(a.size());
  float carry = 0;
  for (std::size_t first = 0; first < h.size(); first += kChunk) {
    float state = 0;
    float decay = 1;
    for (std::size_t t = first; t < first + kChunk; ++t) {
      state = a[t] * state + b[t];
      decay *= a[t];
      h[t] = state + decay * carry;
    }
    carry = h[first + kChunk - 1];
  }
  return h;
}

/// Kogge and Stone's scan of pairs.
Floats in_a_tree(const Floats& a, const Floats& b) {
  Floats decay = a;
  Floats h = b;
  for (std::size_t reach = 1; reach < h.size(); reach *= 2)
    for (std::size_t t = h.size(); t-- > reach;) {
      h[t] = decay[t] * h[t - reach] + h[t];
      decay[t] *= decay[t - reach];
    }
  return h;
}

float to_nearest(double x) {
  return static_cast<float>(x);
}
float toward_zero(double x) {
  const auto nearest = static_cast<float>(x);
  return static_cast<double>(nearest) > x ? std::nextafter(nearest, 0.0F) : nearest;
}

constexpr std::int64_t kRows = 3;  // channels, and states of each

/// What a scan of that order makes of inputs without options, its decays rounded so, in the outputs' order.
std::vector<HostTensor> scan_by(const Problem& problem, const std::vector<HostTensor>& inputs,
                                const Order& order, float (*round)(double)) {
  const TensorSet tensors = views_of(inputs);
  const auto at = [&](const char* name, const Shape& index) {
    const TensorView& view = tensors.at(name);
    return static_cast<const float*>(view.data)[offset_of(index, view.strides)];
  };
  std::vector<HostTensor> outputs;
  for (const auto& spec : specs_of(problem, Role::output)) outputs.emplace_back(spec);
  auto* out = static_cast<float*>(outputs.at(0).buffer.data());
  auto* last_state = static_cast<float*>(outputs.at(1).buffer.data());
  REQUIRE(outputs.at(0).spec.name == "out");
  std::fill_n(out, kRows * kSteps, 0.0F);
  for (std::int64_t d = 0; d < kRows; ++d)
    for (std::int64_t n = 0; n < kRows; ++n) {
      Floats decays(kSteps);
      Floats terms(kSteps);
      for (std::int64_t t = 0; t < kSteps; ++t) {
        const float delta = at("delta", {0, d, t});
        decays[t] = round(std::exp(static_cast<double>(delta * at("A", {d, n}))));
        terms[t] = delta * at("u", {0, d, t}) * at("B", {0, 0, n, t});
      }
      const Floats h = order(decays, terms);
      for (std::int64_t t = 0; t < kSteps; ++t) out[d * kSteps + t] += at("C", {0, 0, n, t}) * h[t];
      last_state[d * kRows + n] = h.back();
    }
  return outputs;
}

void check_orders(const Problem& problem, const std::vector<HostTensor>& inputs, float (*round)(double)) {
  const auto expected = compute_reference(problem, views_of(inputs), never_stop);
  const std::map<std::string, Order> orders{
      {"sequence", in_sequence}, {"chunks", in_chunks}, {"tree", in_a_tree}};
  for (const auto& [name, order] : orders)
    for (const auto& output : scan_by(problem, inputs, order, round)) {
      const auto result = compare_output(output.view(), expected.at(output.spec.name).expectation(), {});
      INFO(name << tolerance_text(output.spec.name, result));
      CHECK(result.passed());
      CHECK(result.tolerance_ratio < 0.5);
      CHECK(result.rms_ratio < 0.9);
    }
}

Problem row_problem() {
  return scan_problem({{"dim", kRows}, {"dstate", kRows}, {"seqlen", kSteps}});
}

}  // namespace

TEST_CASE("every order of a long scan passes, with decays that are truncated too", "[long]") {
  const Problem problem = row_problem();
  for (const char* distribution : {"slow_decay", "tiny_delta"}) {
    CAPTURE(distribution);
    const InputSpec spec{.distribution = distribution, .values = "native", .seed = 3};
    const auto inputs = generate_inputs(problem, spec, never_stop);
    check_orders(problem, inputs, to_nearest);
    check_orders(problem, inputs, toward_zero);
  }
}

TEST_CASE("a long scan of the same step again and again passes, whose roundings do not average out",
          "[long]") {
  const Problem problem = row_problem();
  for (const double step : {0.011, 0.0037}) {
    CAPTURE(step);
    check_orders(problem,
                 make_inputs(problem,
                             [&](const std::string& name, std::int64_t i) {
                               if (name == "delta") return step;
                               if (name == "A") return -0.001 * (1 + 0.37 * static_cast<double>(i));
                               return 0.7;
                             }),
                 to_nearest);
  }
}

TEST_CASE("mistakes in a long selective scan are seen", "[long]") {
  LongScan scan("selective_scan_fwd", "cpu-simd", {{"dim", std::int64_t{16}}, {"dstate", std::int64_t{16}}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  check_sequence(scan, honest, "out");
  check_state(scan, honest.at("last_state"), scan.without_last("u").at("last_state"));
}

TEST_CASE("mistakes in a long linear scan are seen", "[long]") {
  const LongScan scan("linear_scan", "cpu-scalar", {{"dim", std::int64_t{16}}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  check_sequence(scan, honest, "out");
}
