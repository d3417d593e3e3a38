// The fp64 reference against closed forms that are worked out by hand, and against a plain loop in long
// double.

#include <cmath>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "model/errors.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

ReferenceOutputs reference_of(const Problem& problem, const std::vector<HostTensor>& inputs) {
  return compute_reference(problem, views_of(inputs), never_stop);
}

void check_close(double got, double expected, double relative) {
  INFO("got " << got << ", expected " << expected);
  CHECK(std::abs(got - expected) <= relative * std::abs(expected));
}

/// Reads a tensor in logical order.
std::vector<long double> values_of(const std::vector<HostTensor>& inputs, const char* name) {
  for (const auto& tensor : inputs) {
    if (tensor.spec.name != name) continue;
    const Shape& shape = tensor.spec.shape;
    const Shape strides = tensor.spec.strides();
    std::vector<long double> values(element_count(shape));
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      std::int64_t rest = i;
      std::int64_t offset = 0;
      for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
        offset += rest % shape[axis] * strides[axis];
      values[i] = load_as_double(tensor.buffer.data(), offset, tensor.spec.dtype);
    }
    return values;
  }
  return {};
}

/// The definition, word for word, one element at a time.
std::pair<std::vector<long double>, std::vector<long double>> plain_scan(
    const Problem& problem, const std::vector<HostTensor>& inputs) {
  const SelectiveScan s(problem);
  const auto u = values_of(inputs, "u"), delta = values_of(inputs, "delta"), z = values_of(inputs, "z");
  const auto A = values_of(inputs, "A"), B = values_of(inputs, "B"), C = values_of(inputs, "C");
  const auto D = values_of(inputs, "D"), bias = values_of(inputs, "delta_bias");
  const auto initial = values_of(inputs, "initial_state");
  std::vector<long double> out(s.batch * s.dim * s.seqlen), last(s.batch * s.dim * s.dstate);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t d = 0; d < s.dim; ++d) {
      const std::int64_t g = d / (s.dim / s.groups);
      for (std::int64_t n = 0; n < s.dstate; ++n) {
        const std::int64_t state = (b * s.dim + d) * s.dstate + n;
        long double h = initial.empty() ? 0 : initial[state];
        for (std::int64_t t = 0; t < s.seqlen; ++t) {
          const std::int64_t at = (b * s.dim + d) * s.seqlen + t;
          const std::int64_t shared = ((b * s.groups + g) * s.dstate + n) * s.seqlen + t;
          long double step = delta[at] + (bias.empty() ? 0 : bias[d]);
          if (s.delta_softplus) step = std::log1p(std::exp(step));
          h = std::exp(step * A[d * s.dstate + n]) * h +
              step * B[s.variable_b ? shared : d * s.dstate + n] * u[at];
          out[at] += C[s.variable_c ? shared : d * s.dstate + n] * h;
        }
        last[state] = h;
      }
      for (std::int64_t t = 0; t < s.seqlen; ++t) {
        const std::int64_t at = (b * s.dim + d) * s.seqlen + t;
        if (!D.empty()) out[at] += D[d] * u[at];
        if (!z.empty()) out[at] *= z[at] / (1 + std::exp(-z[at]));
      }
    }
  }
  return {out, last};
}

}  // namespace

TEST_CASE("A = 0, B = C = 1 and a step of 1 give the cumulative sum of u") {
  const Problem problem = scan_problem({{"seqlen", size(300)}, {"dim", size(3)}});
  const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
    if (name == "A") return 0.0;
    if (name == "u") return static_cast<double>(i % 7 - 3);
    return 1.0;
  });
  const auto outputs = reference_of(problem, inputs);
  for (int d = 0; d < 3; ++d) {
    double sum = 0;
    for (int t = 0; t < 300; ++t) {
      sum += (d * 300 + t) % 7 - 3;
      CHECK(outputs.at("out").expected[d * 300 + t] == sum);  // integers: no rounding anywhere
    }
    CHECK(outputs.at("last_state").expected[d] == sum);
  }
}

TEST_CASE("a constant input gives the geometric series") {
  // h_t = q·h + Δ·B·u with q = e^{ΔA}: h_t = Δ·B·u·(1 − q^t)/(1 − q) after t steps.
  const double step = 0.25, A = -0.5, B = 1.5, u = 2, C = -0.75;
  const Problem problem = scan_problem({{"seqlen", size(1000)}});
  const auto inputs = make_inputs(problem, [&](const std::string& name, std::int64_t) {
    if (name == "delta") return step;
    if (name == "A") return A;
    if (name == "B") return B;
    return name == "C" ? C : u;
  });
  const auto outputs = reference_of(problem, inputs);
  for (const int t : {1, 2, 63, 64, 65, 500, 1000}) {  // 64: the reference's tile
    const double h = step * B * u * std::expm1(t * step * A) / std::expm1(step * A);
    check_close(outputs.at("out").expected[t - 1], C * h, 1e-13);
  }
}

TEST_CASE("an initial state with no input decays by e^{ΔA} a step") {
  const Problem problem = scan_problem({{"seqlen", size(100)}, {"initial_state", true}});
  const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t) {
    if (name == "delta") return 0.125;
    if (name == "A") return -1.0;
    if (name == "initial_state") return 3.0;
    return name == "C" ? 1.0 : 0.0;
  });
  const auto outputs = reference_of(problem, inputs);
  for (const int t : {1, 64, 65, 100})
    check_close(outputs.at("out").expected[t - 1], 3 * std::exp(-0.125 * t), 1e-13);
  check_close(outputs.at("last_state").expected[0], 3 * std::exp(-12.5), 1e-13);
}

TEST_CASE("one step, every option, by hand") {
  const Problem problem = scan_problem(
      {{"D", true}, {"z", true}, {"delta_bias", true}, {"delta_softplus", true}, {"initial_state", true}});
  const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t) {
    if (name == "u") return 2.0;
    if (name == "delta") return 0.5;
    if (name == "delta_bias") return -1.5;
    if (name == "A") return -0.25;
    if (name == "B") return 3.0;
    if (name == "C") return 0.5;
    if (name == "D") return -4.0;
    return name == "z" ? 1.5 : 0.75;  // 0.75: initial_state
  });
  const double step = std::log1p(std::exp(0.5 - 1.5));
  const double h = std::exp(step * -0.25) * 0.75 + step * 3.0 * 2.0;
  const double out = (0.5 * h + -4.0 * 2.0) * 1.5 / (1 + std::exp(-1.5));
  const auto outputs = reference_of(problem, inputs);
  check_close(outputs.at("out").expected[0], out, 1e-14);
  check_close(outputs.at("last_state").expected[0], h, 1e-14);
}

TEST_CASE("softplus and silu of the reference hold up far from zero") {
  // x = ±700: e^x alone would overflow or vanish; Δ = x or e^x, and silu(z) = z or z·e^z.
  for (const double x : {-700.0, -40.0, 40.0, 700.0}) {
    const Problem problem = scan_problem({{"delta_softplus", true}, {"z", true}});
    const auto inputs = make_inputs(problem, [x](const std::string& name, std::int64_t) {
      if (name == "delta" || name == "z") return x;
      return name == "A" ? 0.0 : 1.0;
    });
    const auto outputs = reference_of(problem, inputs);
    const double step = x > 0 ? x : std::exp(x);
    check_close(outputs.at("last_state").expected[0], step, 1e-14);
    check_close(outputs.at("out").expected[0], step * (x > 0 ? x : x * std::exp(x)), 1e-13);
  }
}

TEST_CASE("the reference is the plain loop, every option, both layouts, any number of channels") {
  // dim 17 and 33: a block of 16 channels and its ragged end; seqlen 130: two tiles of 64 steps and a tail.
  const std::vector<std::map<std::string, AxisValue>> variants{
      {},
      {{"layout", "bld"}},
      {{"dtype", "bf16"}, {"D", true}, {"z", true}},
      {{"dtype", "f16"}, {"delta_bias", true}, {"delta_softplus", true}, {"layout", "bld"}},
      {{"B", "constant"}, {"initial_state", true}},
      {{"C", "constant"}, {"D", true}},
      {{"B", "constant"}, {"C", "constant"}, {"z", true}},
      {{"dim", size(34)}, {"groups", size(2)}, {"z", true}, {"D", true}, {"layout", "bld"}},
      {{"dim", size(3)}, {"groups", size(3)}, {"delta_bias", true}},
      {{"dim", size(33)}, {"dstate", size(1)}, {"initial_state", true}},
  };
  for (auto axes : variants) {
    axes.merge(std::map<std::string, AxisValue>{
        {"batch", size(2)}, {"dim", size(17)}, {"seqlen", size(130)}, {"dstate", size(5)}});
    const Problem problem = scan_problem(axes);
    INFO(problem.id());
    const auto inputs = generate_inputs(problem, {}, never_stop);
    const auto outputs = reference_of(problem, inputs);
    const auto [out, last] = plain_scan(problem, inputs);
    // Sums of a few hundred rounded terms: 1e-12 of the largest value is thousands of fp64 roundoffs away.
    long double largest = 0;
    for (const auto v : out) largest = std::max(largest, std::abs(v));
    double worst = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      worst =
          std::max(worst, static_cast<double>(std::abs(outputs.at("out").expected[i] - out[i]) / largest));
    for (std::size_t i = 0; i < last.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::abs(outputs.at("last_state").expected[i] - last[i])));
    CHECK(worst < 1e-12);
  }
}

TEST_CASE("the error bound grows with the memory of the recurrence and not with its length") {
  const auto bound_at = [](double A, std::int64_t seqlen) {
    const Problem problem = scan_problem({{"seqlen", size(seqlen)}});
    const auto inputs = make_inputs(problem, [A](const std::string& name, std::int64_t) {
      if (name == "A") return A;
      return name == "delta" ? 0.01 : 1.0;
    });
    const auto out = reference_of(problem, inputs).at("out");
    return out.bound.back() / std::abs(out.expected.back());
  };
  // Memory 1/(Δ|A|) = 100 steps: after forty times that the bound has settled, near the memory.
  CHECK(std::abs(bound_at(-1, 10000) / bound_at(-1, 4000) - 1) < 1e-6);
  CHECK(bound_at(-1, 4000) > 100);
  CHECK(bound_at(-1, 4000) < 2000);
  // Without decay every step adds its roundings.
  CHECK(bound_at(0, 10000) > 9 * bound_at(0, 1000));
}

TEST_CASE("a reference that is told to stop throws") {
  const std::atomic<bool> stop{true};
  const Problem problem = scan_problem();
  const auto inputs = make_inputs(problem, [](const std::string&, std::int64_t) { return 0.5; });
  CHECK_THROWS_AS(compute_reference(problem, views_of(inputs), stop), Interrupted);
}
