// Memories of 65536 steps, where the sum of absolute values is hundreds of times what it adds up to: mistakes
// that the worst case of all roundings would hide. The right results are those of built-in implementations.

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "catch.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "support/axes.h"
#include "support/find_implementation.h"
#include "support/host_tensors.h"
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

}  // namespace

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
