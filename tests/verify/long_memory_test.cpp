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
#include "support/scan_orders.h"
#include "support/scan_problem.h"
#include "verify/compare.h"
#include "verify/describe.h"
#include "verify/tolerance.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kLongSteps = 65536;

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

  /// Where a step, of the axis l, adds nothing: an input is 0 there.
  Tensors without(const std::string& input, std::int64_t step) {
    for (const auto& tensor : inputs_) {
      if (tensor.spec.name != input) continue;
      const TensorView view = tensor.view();
      const auto time = *time_axis(tensor.spec);
      std::vector<std::byte> kept(tensor.buffer.bytes());
      std::memcpy(kept.data(), tensor.buffer.data(), kept.size());
      for (std::int64_t i = 0; i < element_count(view.shape); ++i)
        if (index_of(i, view.shape)[time] == step)
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

  /// Tolerances over values, in the root mean square.
  double relative_tolerance(const std::string& name) const {
    const ReferenceOutput& output = expected_.at(name);
    double sizes = 0;
    double tolerances = 0;
    for (std::int64_t i = 0; i < std::ssize(output.expected); ++i) {
      const ExpectedElement element = output.expectation().at(i);
      sizes += element.value * element.value;
      tolerances += std::pow(tolerance_of(element, DType::f32, {}).arithmetic, 2);
    }
    return std::sqrt(tolerances / sizes);
  }

 private:
  static Axes with_steps(Axes axes) {
    axes["dtype"] = "f32";
    axes["seqlen"] = kLongSteps;
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

/// The first element from the middle on that is as large as half the root mean square.
Shape typical_index(const HostTensor& output) {
  const TensorView view = real_view(output.view());
  const std::int64_t count = element_count(view.shape);
  const auto value = [&](std::int64_t i) {
    return load_as_double(view.data, offset_in(view, i), view.dtype);
  };
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) squares += value(i) * value(i);
  const double least = 0.5 * std::sqrt(squares / static_cast<double>(count));
  for (std::int64_t i = count / 2; i < count; ++i)
    if (std::abs(value(i)) >= least) return index_of(i, view.shape);
  return index_of(0, view.shape);
}

/// An output that is a sum over time.
void check_sum(const LongScan& scan, const HostTensor& honest) {
  const Shape one = typical_index(honest);
  spoil(honest, [&](double x, const Shape& at) { return at == one ? 4 * x : x; });
  INFO(honest.spec.name);
  CHECK_FALSE(scan.judge(honest).passed());
}

/// `half`: whether 1% in half of the output has to be seen.
void check_sequence(const LongScan& scan, const Tensors& honest, const std::string& name, bool half = true) {
  const TensorSpec& spec = honest.at(name).spec;
  const std::size_t time = *time_axis(spec);
  const Shape one = typical_index(honest.at(name));
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
         [&](double x, const Shape& at) { return at[time] == kLongSteps / 2 ? 1.1 * x : x; });
  if (half)
    judged("the last half, 1% too large",
           [&](double x, const Shape& at) { return at[time] >= kLongSteps / 2 ? 1.01 * x : x; });
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

constexpr std::int64_t kScanRows = 3;  // channels, and states of each

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
  std::fill_n(out, kScanRows * kLongSteps, 0.0F);
  for (std::int64_t d = 0; d < kScanRows; ++d)
    for (std::int64_t n = 0; n < kScanRows; ++n) {
      Floats decays(kLongSteps);
      Floats terms(kLongSteps);
      for (std::int64_t t = 0; t < kLongSteps; ++t) {
        const float delta = at("delta", {0, d, t});
        decays[t] = round(std::exp(static_cast<double>(delta * at("A", {d, n}))));
        terms[t] = delta * at("u", {0, d, t}) * at("B", {0, 0, n, t});
      }
      const Floats h = order(decays, terms);
      for (std::int64_t t = 0; t < kLongSteps; ++t) out[d * kLongSteps + t] += at("C", {0, 0, n, t}) * h[t];
      last_state[d * kScanRows + n] = h.back();
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
  return scan_problem({{"dim", kScanRows}, {"dstate", kScanRows}, {"seqlen", kLongSteps}});
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
    check_orders(problem, inputs, approximate);
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

TEST_CASE("table of tolerances over long memories", "[.bounds]") {
  const std::vector<std::tuple<const char*, const char*, Axes>> scans{
      {"selective_scan_bwd", "cpu-simd", {{"dim", size(8)}, {"dstate", size(8)}}},
      {"ssd_chunk_scan_fwd", "cpu-simd", {{"nheads", size(2)}, {"headdim", size(8)}, {"dstate", size(16)}}},
      {"ssd_chunk_scan_bwd", "cpu-simd", {{"nheads", size(2)}, {"headdim", size(8)}, {"dstate", size(16)}}},
      {"mamba3_siso_fwd", "cpu-simd", {{"nheads", size(2)}, {"headdim", size(8)}, {"dstate", size(16)}}},
      {"mamba3_siso_bwd", "cpu-scalar", {{"nheads", size(2)}, {"headdim", size(8)}, {"dstate", size(16)}}},
  };
  for (auto [op, implementation, axes] : scans) {
    if (std::string(op).starts_with("mamba3")) axes["rope_angles"] = size(4);
    const LongScan scan(op, implementation, axes);
    for (const auto& [name, output] : scan.outputs()) {
      const OutputComparison result = scan.judge(output);
      fmt::print("{:20} {:16} tolerance/size {:9.2e}  err/tol {:.4f} rms {:.5f}\n", op, name,
                 scan.relative_tolerance(name), result.tolerance_ratio, result.rms_ratio);
    }
  }
}

TEST_CASE("mistakes in a long selective scan are seen", "[long]") {
  LongScan scan("selective_scan_fwd", "cpu-simd", {{"dim", std::int64_t{16}}, {"dstate", std::int64_t{16}}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  check_sequence(scan, honest, "out");
  check_state(scan, honest.at("last_state"), scan.without("u", kLongSteps - 1).at("last_state"));
}

TEST_CASE("mistakes in gradients of a long selective scan are seen", "[long]") {
  LongScan scan("selective_scan_bwd", "cpu-simd",
                {{"dim", size(8)}, {"dstate", size(16)}, {"initial_state", true}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  for (const char* name : {"du", "ddelta", "dz", "dB", "dC"}) check_sequence(scan, honest, name);
  for (const char* name : {"dA", "dD", "ddelta_bias"}) check_sum(scan, honest.at(name));
  check_state(scan, honest.at("dinitial_state"), scan.without("dout", 0).at("dinitial_state"));
}

TEST_CASE("mistakes in a long chunked scan are seen", "[long]") {
  LongScan scan("ssd_chunk_scan_fwd", "cpu-simd",
                {{"nheads", size(2)}, {"headdim", size(8)}, {"dstate", size(16)}, {"final_states", true}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  check_sequence(scan, honest, "out");
  check_state(scan, honest.at("final_states"), scan.without("x", kLongSteps - 1).at("final_states"));
}

TEST_CASE("mistakes in gradients of a long chunked scan are seen", "[long]") {
  LongScan scan("ssd_chunk_scan_bwd", "cpu-simd",
                {{"nheads", size(2)}, {"headdim", size(8)}, {"dstate", size(16)}, {"initial_states", true}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  for (const char* name : {"dx", "ddt", "dz", "dB", "dC"}) check_sequence(scan, honest, name);
  for (const char* name : {"dA", "dD", "ddt_bias"}) check_sum(scan, honest.at(name));
  check_state(scan, honest.at("dinitial_states"), scan.without("dout", 0).at("dinitial_states"));
}

TEST_CASE("mistakes in long scans of Mamba-3 are seen", "[long]") {
  for (const char* op : {"mamba3_siso_fwd", "mamba3_mimo_fwd"}) {
    Axes axes{{"nheads", size(2)},
              {"headdim", size(8)},
              {"dstate", size(16)},
              {"rope_angles", size(4)},
              {"final_states", true}};
    if (op == std::string("mamba3_mimo_fwd")) axes["mimo_rank"] = size(2);
    LongScan scan(op, "cpu-simd", axes);
    const Tensors honest = scan.outputs();
    check_honest(scan, honest);
    check_sequence(scan, honest, "out");
    check_state(scan, honest.at("Final_SSM_State"), scan.without("V", kLongSteps - 2).at("Final_SSM_State"));
  }
}

TEST_CASE("mistakes in gradients of a long scan of Mamba-3 are seen", "[long]") {
  LongScan scan("mamba3_siso_bwd", "cpu-scalar",
                {{"nheads", size(2)},
                 {"headdim", size(8)},
                 {"dstate", size(16)},
                 {"rope_angles", size(4)},
                 {"initial_states", true}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  for (const char* name : {"dQ", "dK", "dV", "dZ", "dTrap"}) check_sequence(scan, honest, name);
  check_sequence(scan, honest, "dADT", false);  // a sum of products of both states
  for (const char* name : {"dD", "dQ_bias", "dK_bias"}) check_sum(scan, honest.at(name));
  check_state(scan, honest.at("dInput_SSM_State"), scan.without("dout", 0).at("dInput_SSM_State"));
}

TEST_CASE("mistakes in a long linear scan are seen", "[long]") {
  const LongScan scan("linear_scan", "cpu-scalar", {{"dim", std::int64_t{16}}});
  const Tensors honest = scan.outputs();
  check_honest(scan, honest);
  check_sequence(scan, honest, "out");
}
