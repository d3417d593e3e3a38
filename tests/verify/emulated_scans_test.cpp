// What CUDA kernels do to long memories, on the CPU: gradients by any order of the scans, with exponentials like
// theirs, and chunked scans with the operands of products rounded.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "model/arithmetic.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_orders.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"
#include "verify/compare.h"
#include "verify/describe.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr std::int64_t kSteps = 65536;
constexpr std::int64_t kRows = 3;  // channels, and states of each

using Outputs = std::map<std::string, HostTensor>;

Outputs empty_outputs(const Problem& problem) {
  Outputs outputs;
  for (const auto& spec : specs_of(problem, Role::output)) {
    const TensorView view = outputs.emplace(spec.name, HostTensor(spec)).first->second.view();
    std::fill_n(static_cast<float*>(view.data), element_count(view.shape), 0.0F);
  }
  return outputs;
}

float* floats(const Outputs& outputs, const std::string& name) {
  return static_cast<float*>(outputs.at(name).view().data);
}

const float* floats(const TensorSet& tensors, const char* name) {
  return static_cast<const float*>(tensors.at(name).data);
}

/// `most`: of the tolerance.
void check(const Outputs& outputs, const ReferenceOutputs& expected, const Arithmetic& arithmetic,
           double most = 0.5) {
  for (const auto& [name, output] : outputs) {
    const auto result = compare_output(output.view(), expected.at(name).expectation(), arithmetic, nullptr,
                                       time_axis(output.spec));
    INFO(tolerance_text(name, result));
    CHECK(result.passed());
    CHECK(result.tolerance_ratio < most);
    CHECK(result.rms_ratio < 0.9);
  }
}

Floats reversed(Floats numbers) {
  std::ranges::reverse(numbers);
  return numbers;
}

/// Gradients of a scan without options, in f32, by a scan of that order in time and against it.
Outputs gradients_by(const Problem& problem, const TensorSet& inputs, const Order& order,
                     float (*round)(double)) {
  const float* delta = floats(inputs, "delta");
  const float* u = floats(inputs, "u");
  const float* dout = floats(inputs, "dout");
  Outputs outputs = empty_outputs(problem);
  for (std::int64_t d = 0; d < kRows; ++d)
    for (std::int64_t n = 0; n < kRows; ++n) {
      const float A = floats(inputs, "A")[d * kRows + n];
      const float* B = floats(inputs, "B") + n * kSteps;
      const float* C = floats(inputs, "C") + n * kSteps;
      Floats decays(kSteps);
      Floats terms(kSteps);
      Floats back_decays(kSteps);
      Floats back_terms(kSteps);
      for (std::int64_t t = 0; t < kSteps; ++t) {
        const std::int64_t at = d * kSteps + t;
        decays[t] = round(std::exp(static_cast<double>(delta[at] * A)));
        terms[t] = delta[at] * u[at] * B[t];
        back_terms[t] = dout[at] * C[t];
        if (t > 0) back_decays[t - 1] = decays[t];
      }
      const Floats h = order(decays, terms);
      const Floats g = reversed(order(reversed(back_decays), reversed(back_terms)));
      for (std::int64_t t = 0; t < kSteps; ++t) {
        const std::int64_t at = d * kSteps + t;
        const float of_exponent = t == 0 ? 0 : g[t] * h[t - 1] * decays[t];
        floats(outputs, "du")[at] += g[t] * B[t] * delta[at];
        floats(outputs, "ddelta")[at] += of_exponent * A + g[t] * B[t] * u[at];
        floats(outputs, "dA")[d * kRows + n] += of_exponent * delta[at];
        floats(outputs, "dB")[n * kSteps + t] += g[t] * delta[at] * u[at];
        floats(outputs, "dC")[n * kSteps + t] += dout[at] * h[t];
      }
    }
  return outputs;
}

void check_gradients(const Problem& problem, const std::vector<HostTensor>& inputs, double most) {
  const TensorSet tensors = views_of(inputs);
  const auto expected = compute_reference(problem, tensors, never_stop);
  const std::map<std::string, Order> orders{
      {"sequence", in_sequence}, {"chunks", in_chunks}, {"tree", in_a_tree}};
  for (const auto& [name, order] : orders)
    for (const auto& round : {to_nearest, toward_zero, approximate}) {
      INFO(name);
      check(gradients_by(problem, tensors, order, round), expected, {}, most);
    }
}

Problem gradient_problem() {
  return scan_problem({{"dim", kRows}, {"dstate", kRows}, {"seqlen", kSteps}}, selective_scan_bwd());
}

constexpr std::int64_t kHeadDims = 4;
constexpr std::int64_t kStates = 8;
constexpr std::int64_t kChunk = 64;

/// To as many bits of significand, half away from zero.
float rounded_to(int bits, float x) {
  const int cut = 24 - bits;
  if (cut == 0) return x;
  const std::uint32_t whole = std::bit_cast<std::uint32_t>(x) + (1U << (cut - 1));
  return std::bit_cast<float>(whole >> cut << cut);
}

/// One chunk of one head: y and the state by products of matrices whose operands have so many bits. Sums of
/// Δ·A over the chunk come first, decays are exponentials of their differences.
void scan_chunk(const TensorSet& inputs, std::int64_t begin, int bits, float* state, float* out) {
  const float A = floats(inputs, "A")[0];
  const float* dt = floats(inputs, "dt") + begin;
  const float* x = floats(inputs, "x") + begin * kHeadDims;
  const float* B = floats(inputs, "B") + begin * kStates;
  const float* C = floats(inputs, "C") + begin * kStates;
  const auto operand = [bits](float number) { return rounded_to(bits, number); };
  const auto decay = [](float exponent) { return approximate(std::exp(static_cast<double>(exponent))); };
  float sums[kChunk];
  float sum = 0;
  for (std::int64_t t = 0; t < kChunk; ++t) sums[t] = sum += dt[t] * A;
  for (std::int64_t t = 0; t < kChunk; ++t) {
    float y[kHeadDims] = {};
    for (std::int64_t p = 0; p < kHeadDims; ++p)
      for (std::int64_t n = 0; n < kStates; ++n)
        y[p] += operand(C[t * kStates + n]) * operand(state[p * kStates + n]);
    for (float& of_state : y) of_state *= decay(sums[t]);
    for (std::int64_t s = 0; s <= t; ++s) {
      float score = 0;
      for (std::int64_t n = 0; n < kStates; ++n)
        score += operand(C[t * kStates + n]) * operand(B[s * kStates + n]);
      score = operand(score * decay(sums[t] - sums[s]) * dt[s]);
      for (std::int64_t p = 0; p < kHeadDims; ++p) y[p] += score * operand(x[s * kHeadDims + p]);
    }
    std::copy_n(y, kHeadDims, out + (begin + t) * kHeadDims);
  }
  for (std::int64_t p = 0; p < kHeadDims; ++p)
    for (std::int64_t n = 0; n < kStates; ++n) {
      float added = 0;
      for (std::int64_t s = 0; s < kChunk; ++s)
        added += operand(decay(sum - sums[s]) * dt[s] * x[s * kHeadDims + p]) * operand(B[s * kStates + n]);
      state[p * kStates + n] = decay(sum) * state[p * kStates + n] + added;
    }
}

Problem chunked_problem() {
  return ssd_problem(
      {{"headdim", kHeadDims}, {"dstate", kStates}, {"seqlen", kSteps}, {"final_states", true}});
}

void check_chunked(const Problem& problem, const std::vector<HostTensor>& inputs) {
  const TensorSet tensors = views_of(inputs);
  const auto expected = compute_reference(problem, tensors, never_stop);
  for (const auto& [math, bits] :
       {std::pair{Math::f32, 24}, std::pair{Math::tf32, 11}, std::pair{Math::bf16, 8}}) {
    INFO(name_of(math));
    const Outputs outputs = empty_outputs(problem);
    for (std::int64_t begin = 0; begin < kSteps; begin += kChunk)
      scan_chunk(tensors, begin, bits, floats(outputs, "final_states"), floats(outputs, "out"));
    check(outputs, expected, {.math = math});
  }
}

}  // namespace

TEST_CASE("gradients of a long scan in every order pass, with decays as CUDA kernels have them", "[long]") {
  const Problem problem = gradient_problem();
  const InputSpec spec{.distribution = "slow_decay", .values = "native", .seed = 3};
  check_gradients(problem, generate_inputs(problem, spec, never_stop), 0.5);
}

TEST_CASE("gradients of a long scan whose decays all round alike pass", "[long]") {
  const Problem problem = gradient_problem();
  constexpr double kMost = 0.8;  // some have a whole roundoff and more in common
  const auto draws =
      generate_inputs(problem, {.distribution = "slow_decay", .values = "native", .seed = 4}, never_stop);
  auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
    if (name == "delta") return 0.0037;
    return name == "A" ? -0.001 * (1 + 0.37 * static_cast<double>(i)) : 0.7;
  });
  check_gradients(problem, inputs, kMost);
  for (std::size_t i = 0; i < inputs.size(); ++i)  // u, B and C of both signs
    if (inputs[i].spec.name != "delta" && inputs[i].spec.name != "A")
      std::copy_n(static_cast<const float*>(draws[i].view().data), element_count(draws[i].view().shape),
                  static_cast<float*>(inputs[i].view().data));
  check_gradients(problem, inputs, kMost);
}

TEST_CASE("a long chunked scan passes with operands of f32, tf32 and bf16", "[long]") {
  const Problem problem = chunked_problem();
  check_chunked(
      problem,
      generate_inputs(problem, {.distribution = "slow_decay", .values = "native", .seed = 3}, never_stop));
  check_chunked(problem, make_inputs(problem, [](const std::string& name, std::int64_t i) {
                  if (name == "dt") return 0.0037;
                  return name == "A" ? -0.001 : i % 2 == 0 ? 0.7 : -0.3;
                }));
}
