// The fp64 reference against closed forms that are worked out by hand, and against a plain loop in long
// double.

#include <cmath>
#include <complex>
#include <vector>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "model/method.h"
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

using Number = std::complex<long double>;

/// Reads a tensor in logical order; real values have no imaginary part.
std::vector<Number> values_of(const std::vector<HostTensor>& inputs, const char* name) {
  for (const auto& tensor : inputs) {
    if (tensor.spec.name != name) continue;
    const Shape& shape = tensor.spec.shape;
    const Shape strides = tensor.spec.strides();
    std::vector<Number> values(element_count(shape));
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      std::int64_t rest = i;
      std::int64_t offset = 0;
      for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
        offset += rest % shape[axis] * strides[axis];
      values[i] = tensor.spec.dtype == DType::c64
                      ? Number(static_cast<const std::complex<float>*>(tensor.buffer.data())[offset])
                      : Number(load_as_double(tensor.buffer.data(), offset, tensor.spec.dtype));
    }
    return values;
  }
  return {};
}

/// Ā, c and c' word for word as the definition has them; the quotients lose digits near z = 0, where no test
/// goes.
struct Step {
  Number decay, input, previous;
};
Step step_of(const std::string& method, long double d, Number A) {
  const Number z = d * A, e = std::exp(z);
  const Number phi1 = (e - 1.0L) / z, phi2 = (e - 1.0L - z) / (z * z);
  const auto term = [&](long double scale, int power_of_A, int power_of_d) {
    return scale * std::pow(A, power_of_A) * std::pow(d, power_of_d);
  };
  if (method == "zoh") return {e, d, 0};
  if (method == "foh") return {e, d * phi1, 0};
  if (method == "bilinear") return {(1.0L + z / 2.0L) / (1.0L - z / 2.0L), d / (1.0L - z / 2.0L), 0};
  if (method == "bilinear_flipped") return {(1.0L - z / 2.0L) / (1.0L + z / 2.0L), d / (1.0L + z / 2.0L), 0};
  if (method == "poly") return {e, d * (1.0L + z / 2.0L + z * z / 6.0L), 0};
  if (method == "highorder") return {e, d * (1.0L + z / 2.0L), 0};
  if (method == "rk4") return {e, d * (1.0L + z / 2.0L + z * z / 6.0L + z * z * z / 24.0L), 0};
  if (method == "vim_foh") return {e, d * d * (0.5L + z / 6.0L + z * z / 24.0L + z * z * z / 120.0L), 0};
  if (method == "vim_poly")
    return {e,
            d + term(0.5L, 1, 2) + term(0.25L, 0, 2) + term(1 / 6.0L, 2, 3) + term(1 / 12.0L, 1, 3) +
                term(1 / 24.0L, 3, 4) + term(1 / 48.0L, 2, 4),
            0};
  if (method == "vim_highorder")
    return {e,
            d + term(0.5L, 1, 2) + term(0.5L, 0, 2) + term(1 / 6.0L, 2, 3) + term(1 / 6.0L, 1, 3) +
                term(1 / 12.0L, 0, 3) + term(1 / 24.0L, 3, 4) + term(1 / 24.0L, 2, 4) + term(1 / 48.0L, 1, 4),
            0};
  if (method == "foh_exact") return {e, d * phi2, d * (phi1 - phi2)};
  if (method == "trapezoidal") return {e, d / 2, d / 2 * e};
  throw std::logic_error(method);
}

/// The definition, word for word, one element at a time: out, and last_state as the reference lays it out.
std::pair<std::vector<long double>, std::vector<long double>> plain_scan(
    const Problem& problem, const std::vector<HostTensor>& inputs) {
  const SelectiveScan s(problem);
  const auto u = values_of(inputs, "u"), delta = values_of(inputs, "delta"), z = values_of(inputs, "z");
  const auto A = values_of(inputs, "A"), B = values_of(inputs, "B"), C = values_of(inputs, "C");
  const auto D = values_of(inputs, "D"), bias = values_of(inputs, "delta_bias");
  const auto initial = values_of(inputs, "initial_state");
  std::vector<long double> out(s.batch * s.dim * s.seqlen), last;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t d = 0; d < s.dim; ++d) {
      const std::int64_t g = d / (s.dim / s.groups);
      for (std::int64_t n = 0; n < s.dstate; ++n) {
        Number h = initial.empty() ? 0 : initial[(b * s.dim + d) * s.dstate + n];
        Number before = 0;
        for (std::int64_t t = 0; t < s.seqlen; ++t) {
          const std::int64_t at = (b * s.dim + d) * s.seqlen + t;
          const std::int64_t shared = ((b * s.groups + g) * s.dstate + n) * s.seqlen + t;
          long double step = delta[at].real() + (bias.empty() ? 0 : bias[d].real());
          if (s.delta_softplus) step = std::log1p(std::exp(step));
          const Step by = step_of(problem.choice("method"), step, A[d * s.dstate + n]);
          const Number input = B[s.variable_b ? shared : d * s.dstate + n] * u[at];
          h = by.decay * h + by.input * input + by.previous * before;
          before = input;
          out[at] += (s.complex ? 2 : 1) * (C[s.variable_c ? shared : d * s.dstate + n] * h).real();
        }
        last.push_back(h.real());
        if (s.complex) last.push_back(h.imag());
      }
      for (std::int64_t t = 0; t < s.seqlen; ++t) {
        const std::int64_t at = (b * s.dim + d) * s.seqlen + t;
        if (!D.empty()) out[at] += (D[d] * u[at]).real();
        if (!z.empty()) out[at] *= z[at].real() / (1 + std::exp(-z[at].real()));
      }
    }
  }
  return {out, last};
}

/// Largest difference between reference and definition, relative to the largest value of either output.
double difference(const Problem& problem) {
  const auto inputs = generate_inputs(problem, {}, never_stop);
  const auto outputs = reference_of(problem, inputs);
  const auto [out, last] = plain_scan(problem, inputs);
  REQUIRE(outputs.at("last_state").expected.size() == last.size());
  long double largest = 0;
  for (const auto& values : {out, last})
    for (const auto value : values) largest = std::max(largest, std::abs(value));
  long double worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    worst = std::max(worst, std::abs(outputs.at("out").expected[i] - out[i]));
  for (std::size_t i = 0; i < last.size(); ++i)
    worst = std::max(worst, std::abs(outputs.at("last_state").expected[i] - last[i]));
  return static_cast<double>(worst / largest);
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
    // Sums of a few hundred rounded terms: 1e-12 of the largest value is thousands of fp64 roundoffs away.
    CHECK(difference(problem) < 1e-12);
  }
}

TEST_CASE("the reference is the definition for every method, real and complex") {
  for (const auto& method : methods()) {
    for (const char* A : {"real", "complex"}) {
      for (const bool options : {false, true}) {
        // bilinear_flipped grows with every step: few of them, so that the numbers stay comparable.
        const Problem problem =
            scan_problem({{"method", method.name},
                          {"A", A},
                          {"batch", size(2)},
                          {"dim", size(18)},
                          {"groups", size(options ? 2 : 1)},
                          {"seqlen", size(method.id == MethodId::bilinear_flipped ? 9 : 70)},
                          {"dstate", size(3)},
                          {"B", options ? "constant" : "variable"},
                          {"layout", options ? "bld" : "bdl"},
                          {"z", options},
                          {"D", options},
                          {"delta_bias", options},
                          {"delta_softplus", true},
                          {"initial_state", options}});
        INFO(problem.id());
        CHECK(difference(problem) < 1e-11);
      }
    }
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
  // Without decay every step adds its roundings, of which those that depend on the order add up like a root.
  CHECK(bound_at(0, 10000) > 5 * bound_at(0, 1000));
}

TEST_CASE("a reference that is told to stop throws") {
  const std::atomic<bool> stop{true};
  const Problem problem = scan_problem();
  const auto inputs = make_inputs(problem, [](const std::string&, std::int64_t) { return 0.5; });
  CHECK_THROWS_AS(compute_reference(problem, views_of(inputs), stop), Interrupted);
}
