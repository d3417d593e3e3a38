#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>

#include "catch.h"
#include "inputs/inputs.h"
#include "kernels/selective_scan/cpu/definition.h"
#include "model/implementation.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "support/axes.h"
#include "support/find_implementation.h"
#include "support/simd_targets.h"

using namespace ssmbench;
using namespace ssmbench::test;
using test::on_every_target;

namespace {

Problem problem(std::int64_t dim, std::int64_t seqlen, std::int64_t dstate, const Axes& changes = {}) {
  Axes axes{
      {"dtype", "f32"}, {"batch", std::int64_t{2}}, {"dim", dim}, {"seqlen", seqlen}, {"dstate", dstate}};
  for (const auto& [name, value] : changes) axes[name] = value;
  return {selective_scan_fwd(), axes};
}

const Implementation& cpu_simd() {
  return test::find_implementation("selective_scan_fwd", "cpu-simd");
}

std::vector<HostTensor> outputs_of(const Problem& the_problem) {
  std::vector<HostTensor> outputs;
  for (const auto& spec : the_problem.tensors())
    if (spec.role == Role::output) outputs.emplace_back(spec);
  return outputs;
}

TensorSet joined(const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& outputs) {
  TensorSet all = views_of(inputs);
  for (const auto& output : outputs) all.add(output.spec.name, output.view());
  return all;
}

void launch(const Problem& the_problem, const TensorSet& tensors) {
  cpu_simd().bind(the_problem, tensors, nullptr)(nullptr);
}

/// Runs on `inputs`, outputs filled with NaN before so that an element left out shows.
std::vector<HostTensor> run(const Problem& the_problem, const std::vector<HostTensor>& inputs) {
  auto outputs = outputs_of(the_problem);
  for (auto& output : outputs) std::memset(output.buffer.data(), 0xFF, output.buffer.bytes());
  launch(the_problem, joined(inputs, outputs));
  return outputs;
}

/// Largest |error| / (bound + half an ulp of the output's dtype) of out and last_state.
double worst_ratio(const std::vector<HostTensor>& outputs,
                   const std::vector<std::vector<Bounded>>& expected) {
  double worst = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const auto& tensor = outputs[k];
    const Shape strides = tensor.spec.strides();
    const auto& shape = tensor.spec.shape;
    std::size_t i = 0;
    for (std::int64_t x = 0; x < shape[0]; ++x)
      for (std::int64_t y = 0; y < shape[1]; ++y)
        for (std::int64_t z = 0; z < shape[2]; ++z) {
          const Bounded& e = expected[k][i++];
          const double got = load_as_double(
              tensor.buffer.data(), x * strides[0] + y * strides[1] + z * strides[2], tensor.spec.dtype);
          const auto value = static_cast<double>(e.value);
          const double allowed = static_cast<double>(e.error) * unit_roundoff(DType::f32) +
                                 0.5 * ulp_at(value, tensor.spec.dtype) * (1 + 1e-6);
          const double ratio = std::fabs(got - value) / allowed;
          worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
        }
  }
  return worst;
}

void check(const Problem& the_problem, const InputSpec& spec = {}) {
  const auto inputs = generate_inputs(the_problem, spec, std::atomic<bool>(false));
  const TensorSet views = views_of(inputs);
  std::vector<std::vector<Bounded>> expected(2);
  ScanDefinition(the_problem, views)
      .for_each([&](auto, auto, auto, const Bounded& e) { expected[0].push_back(e); },
                [&](auto, auto, auto, const Bounded& e) { expected[1].push_back(e); });
  on_every_target([&](const char* target) {
    INFO(the_problem.id() << " " << spec.distribution << " on " << target);
    CHECK(worst_ratio(run(the_problem, inputs), expected) <= 1);
  });
}

}  // namespace

TEST_CASE("cpu-simd is right at every boundary of its time tile") {
  // 1: nothing to walk; 63, 64, 65: the tile of 64 less one, whole, and one step into the next; 129: one step
  // into the third. In bdl a tile's tail is a partial vector, in bld it is fewer rows.
  for (const std::int64_t seqlen : {1, 63, 64, 65, 129})
    for (const auto* layout : {"bdl", "bld"})
      check(problem(5, seqlen, 3, {{"layout", layout}, {"initial_state", true}}));
}

TEST_CASE("cpu-simd is right at every boundary of its vectors and runs of channels") {
  // 1, 3, 5: fewer than any vector, or one more than four lanes; 7 to 17: around 8 and 16 lanes; 63, 64, 65:
  // around the 64 channels of a run, 80: a run and a whole vector.
  for (const std::int64_t dim : {1, 3, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 80})
    for (const auto* layout : {"bdl", "bld"})
      check(problem(dim, 5, 2, {{"layout", layout}, {"initial_state", true}}));
}

TEST_CASE("cpu-simd is right for every number of states") {
  // Odd numbers pair the last state with a row of zeros; 2, 15, 16, 17 surround multiples of 4, to which rows
  // are padded; 256 fills the scratch memory.
  for (const std::int64_t dstate : {1, 2, 3, 15, 16, 17, 64, 255, 256})
    for (const auto* layout : {"bdl", "bld"})
      for (const auto* projections : {"variable", "constant"})
        check(problem(17, 3, dstate,
                      {{"layout", layout}, {"B", projections}, {"C", projections}, {"initial_state", true}}));
}

TEST_CASE("cpu-simd is right with every combination of options") {
  for (int bits = 0; bits < 1 << 7; ++bits) {
    const auto on = [bits](int i) { return (bits >> i & 1) != 0; };
    const auto projection = [&on](int i) { return std::string(on(i) ? "constant" : "variable"); };
    check(problem(6, 3, 5,
                  {{"D", on(0)},
                   {"z", on(1)},
                   {"delta_bias", on(2)},
                   {"delta_softplus", on(3)},
                   {"initial_state", on(4)},
                   {"B", projection(5)},
                   {"C", projection(6)}}));
  }
}

TEST_CASE("cpu-simd gives each channel its own group's B and C") {
  // Groups of 3 channels are smaller than a vector, groups of 65 cut a run.
  for (const std::int64_t dim : {6, 130})
    for (const auto* layout : {"bdl", "bld"}) {
      check(problem(dim, 65, 3, {{"groups", std::int64_t{2}}, {"layout", layout}}));
      check(problem(dim, 4, 3, {{"groups", std::int64_t{2}}, {"layout", layout}, {"B", "constant"}}));
    }
}

TEST_CASE("cpu-simd is right in every dtype and for every distribution") {
  for (const auto* dtype : {"f32", "f16", "bf16"})
    for (const auto* layout : {"bdl", "bld"})
      for (const auto* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
        check(problem(19, 70, 4, {{"dtype", dtype}, {"layout", layout}}), {.distribution = distribution});
}

TEST_CASE("cpu-simd gives the same bits for any number of threads") {
  // 300 channels are cut into runs of 64, 48 or 16, by the number of threads.
  const Problem the_problem = problem(300, 70, 5, {{"initial_state", true}, {"dtype", "bf16"}});
  const auto inputs = generate_inputs(the_problem, {}, std::atomic<bool>(false));
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto alone = run(the_problem, inputs);
  for (const int count : {2, 3, 12, 40}) {
    omp_set_num_threads(count);
    const auto together = run(the_problem, inputs);
    for (std::size_t i = 0; i < alone.size(); ++i)
      CHECK(std::memcmp(alone[i].buffer.data(), together[i].buffer.data(), alone[i].buffer.bytes()) == 0);
  }
  omp_set_num_threads(threads);
}

TEST_CASE("a bound launch of cpu-simd can be repeated") {
  const Problem the_problem = problem(5, 70, 3, {{"initial_state", true}});
  const auto inputs = generate_inputs(the_problem, {}, std::atomic<bool>(false));
  const auto outputs = outputs_of(the_problem);
  const Launch launch = cpu_simd().bind(the_problem, joined(inputs, outputs), nullptr);
  const auto once = run(the_problem, inputs);
  for (int i = 0; i < 2; ++i) {
    launch(nullptr);
    for (std::size_t k = 0; k < once.size(); ++k)
      CHECK(std::memcmp(outputs[k].buffer.data(), once[k].buffer.data(), once[k].buffer.bytes()) == 0);
  }
}

namespace {

/// out = D·u for every 16-bit pattern as a channel's u: B, C = 0 leave nothing else.
std::vector<std::uint16_t> skip_only(const std::string& dtype, float skip) {
  const Problem the_problem = problem(
      1 << 16, 1, 1,
      {{"dtype", dtype}, {"batch", std::int64_t{1}}, {"z", false}, {"B", "constant"}, {"C", "constant"}});
  auto inputs = generate_inputs(the_problem, {}, std::atomic<bool>(false));
  for (auto& input : inputs) {
    if (input.spec.name == "u")
      for (std::size_t i = 0; i < 1 << 16; ++i)
        static_cast<std::uint16_t*>(input.buffer.data())[i] = static_cast<std::uint16_t>(i);
    if (input.spec.name == "B" || input.spec.name == "C")
      std::memset(input.buffer.data(), 0, input.buffer.bytes());
    if (input.spec.name == "D") std::fill_n(static_cast<float*>(input.buffer.data()), 1 << 16, skip);
  }
  const auto outputs = run(the_problem, inputs);
  const auto* out = static_cast<const std::uint16_t*>(outputs[0].buffer.data());
  return {out, out + (1 << 16)};
}

}  // namespace

TEST_CASE(
    "cpu-simd reads and rounds 16-bit values as the model does, every pattern, on every instruction set") {
  // 1 keeps each value; 1 + 2^-8 and 1 + 2^-11 make ties of f16 and bf16 both ways; 2^-12 makes f16
  // subnormals, 300 overflows.
  on_every_target([](const char* target) {
    for (const float skip : {1.0F, 1 + 0x1p-8F, 1 + 0x1p-11F, 0x1p-12F, 300.0F})
      for (const std::string dtype : {"f16", "bf16"}) {
        const auto got = skip_only(dtype, skip);
        const auto load = dtype == "f16" ? f16_to_float : bf16_to_float;
        const auto store = dtype == "f16" ? float_to_f16 : float_to_bf16;
        for (std::uint32_t bits = 0; bits < 1U << 16U; ++bits) {
          const float u = load(static_cast<std::uint16_t>(bits));
          const float expected = skip * u;
          const float back = load(got[bits]);
          // The kernel adds 0·(Δ·u): NaN from an infinite u, and +0 from -0.
          const bool right = std::isfinite(u) ? back == load(store(expected)) : std::isnan(back);
          if (!right)
            FAIL(target << " " << dtype << " " << skip << " × pattern " << bits << " gives " << got[bits]);
        }
      }
  });
}

TEST_CASE("cpu-simd does not hide a NaN of its inputs") {
  for (const std::string name : {"u", "delta", "z", "B", "C", "D", "delta_bias", "initial_state", "A"}) {
    const Problem the_problem = problem(1, 4, 1, {{"initial_state", true}, {"batch", std::int64_t{1}}});
    auto inputs = generate_inputs(the_problem, {}, std::atomic<bool>(false));
    for (auto& input : inputs)
      if (input.spec.name == name)
        static_cast<float*>(input.buffer.data())[0] = std::numeric_limits<float>::quiet_NaN();
    on_every_target([&](const char* target) {
      INFO(name << " on " << target);
      const auto outputs = run(the_problem, inputs);
      CHECK(!std::isfinite(static_cast<const float*>(outputs[0].buffer.data())[0]));
    });
  }
}

TEST_CASE("cpu-simd overflows to infinity for a growing state") {
  // e^(Δ·A) past 88 is infinite in f32, far past it too; no other decay may come out.
  for (const float rate : {100.0F, 1e4F, 1e30F}) {
    const Problem the_problem =
        problem(3, 2, 1, {{"delta_softplus", false}, {"delta_bias", false}, {"initial_state", true}});
    auto inputs = generate_inputs(the_problem, {}, std::atomic<bool>(false));
    for (auto& input : inputs)
      if (input.spec.name == "delta" || input.spec.name == "A")
        std::fill_n(static_cast<float*>(input.buffer.data()), input.spec.bytes() / sizeof(float),
                    input.spec.name == "A" ? rate : 1.0F);
    on_every_target([&](const char* target) {
      const auto outputs = run(the_problem, inputs);
      INFO(rate << " on " << target);
      CHECK(std::isinf(static_cast<const float*>(outputs[1].buffer.data())[0]));
    });
  }
}

TEST_CASE("cpu-simd's exponential is exact to two roundoffs and unbiased over its whole range") {
  // last_state = e^(1·A)·1, for A from under the smallest number to over the largest.
  constexpr std::int64_t kChannels = 1 << 18;
  const Problem the_problem = problem(kChannels, 1, 1,
                                      {{"batch", std::int64_t{1}},
                                       {"delta_softplus", false},
                                       {"delta_bias", false},
                                       {"initial_state", true}});
  auto inputs = generate_inputs(the_problem, {}, std::atomic<bool>(false));
  const auto exponent = [](std::int64_t i) {
    return static_cast<float>(-90 + 180.0 * static_cast<double>(i) / kChannels);
  };
  for (auto& input : inputs) {
    auto* values = static_cast<float*>(input.buffer.data());
    const auto count = static_cast<std::int64_t>(input.spec.bytes() / sizeof(float));
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = input.spec.name == "A" ? exponent(i) : input.spec.name == "u" ? 0.0F : 1.0F;
  }
  on_every_target([&](const char* target) {
    const auto outputs = run(the_problem, inputs);
    const auto* last_state = static_cast<const float*>(outputs[1].buffer.data());
    double worst = 0;
    double sum = 0;
    std::int64_t normal = 0;
    std::string wrong;
    for (std::int64_t i = 0; i < kChannels; ++i) {
      const double expected = std::exp(static_cast<double>(exponent(i)));
      bool right = true;
      if (expected < 0x1p-125) {
        right = std::fabs(last_state[i] - expected) <= 0x1p-125;
      } else if (expected > std::numeric_limits<float>::max() * (1 + 0x1p-24)) {
        right = std::isinf(last_state[i]);
      } else {
        const double error = (last_state[i] / expected - 1) / unit_roundoff(DType::f32);
        worst = std::max(worst, std::fabs(error));
        sum += error;
        ++normal;
      }
      if (!right) wrong = fmt::format("e^{} is {}", exponent(i), last_state[i]);
    }
    INFO(target);
    CHECK(wrong == "");
    CHECK(worst <= 2);
    CHECK(std::fabs(sum / static_cast<double>(normal)) <= 0.02);
  });
}
