// The fp64 reference of Mamba-2's scan against its definition (loss.h), and its gradients against
// derivatives of the definition that are taken another way: by dual numbers and by central differences.

#include <omp.h>

#include <cmath>
#include <random>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "model/tensor_map.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/loss.h"
#include "support/host_tensors.h"
#include "support/ssd_problem.h"
#include "verify/tolerance.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

using Values = std::map<std::string, std::vector<double>>;

double uniform(std::mt19937& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random()) / 4294967296.0;
}

/// Well-scaled inputs: 0.1 < Δ < 1.2, |Δ·A| < 1.3; sequences of 3, 1, 2, 1, … steps.
std::vector<HostTensor> inputs_of(const Problem& problem) {
  std::mt19937 random(20240607);
  const SsdChunkScan scan(problem);
  std::vector<HostTensor> tensors;
  for (auto& spec : specs_of(problem, Role::input)) {
    const HostTensor& tensor = tensors.emplace_back(spec);
    for (std::int64_t i = 0; i < element_count(spec.shape); ++i) {
      if (spec.name == "seq_idx") {
        const std::int64_t t = i % scan.seqlen;
        static_cast<std::int32_t*>(tensor.buffer.data())[i] =
            static_cast<std::int32_t>(t < 3 ? 0 : 1 + (t - 3) / 3 * 2 + (t % 3 == 0 ? 0 : 1));
        continue;
      }
      double value = uniform(random, -1, 1);
      if (spec.name == "A") value = uniform(random, -1, -0.2);
      if (spec.name == "dt") value = scan.dt_softplus ? uniform(random, -1, 0.5) : uniform(random, 0.1, 1);
      if (spec.name == "dt_bias") value = uniform(random, 0, 0.2);
      store_from_double(tensor.buffer.data(), i, spec.dtype, value);
    }
  }
  return tensors;
}

Values values_of(const std::vector<HostTensor>& inputs) {
  Values all;
  for (const auto& tensor : inputs)
    for (std::int64_t i = 0; i < element_count(tensor.spec.shape); ++i)
      all[tensor.spec.name].push_back(tensor.spec.dtype == DType::i32
                                          ? static_cast<const std::int32_t*>(tensor.buffer.data())[i]
                                          : load_as_double(tensor.buffer.data(), i, tensor.spec.dtype));
  return all;
}

/// The derivative of the loss by component `i` of `name`, forward mode.
double by_dual(const Problem& problem, const Values& values, const std::string& name, std::size_t i) {
  std::map<std::string, std::vector<Dual>> seeded;
  for (const auto& [tensor, numbers] : values) seeded[tensor].assign(numbers.begin(), numbers.end());
  seeded.at(name)[i].slope = 1;
  SsdLoss<Dual> scan(problem, seeded);
  scan.run();
  return scan.loss().slope;
}

/// The same by a central difference of step h: off by h²/6 of the third derivative and by ε/h of the loss, ε
/// = 2^-64.
double by_difference(const Problem& problem, const Values& values, const std::string& name, std::size_t i) {
  constexpr long double h = 1e-5L;
  std::map<std::string, std::vector<long double>> moved;
  for (const auto& [tensor, numbers] : values) moved[tensor].assign(numbers.begin(), numbers.end());
  const auto loss_at = [&](long double value) {
    moved.at(name)[i] = value;
    SsdLoss<long double> scan(problem, moved);
    scan.run();
    return scan.loss();
  };
  const auto here = static_cast<long double>(values.at(name)[i]);
  return static_cast<double>((loss_at(here + h) - loss_at(here - h)) / (2 * h));
}

using Derivative = double (*)(const Problem&, const Values&, const std::string&, std::size_t);

/// Compares about `samples` evenly spread components of every gradient.
void check_gradients(const Problem& problem, Derivative derivative, double relative, std::size_t samples) {
  INFO(problem.id());
  const auto inputs = inputs_of(problem);
  const auto values = values_of(inputs);
  const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
  for (const auto& spec : specs_of(problem, Role::output)) {
    const auto& expected = outputs.at(spec.name).expected;
    const std::string input = spec.name.substr(1);
    INFO(spec.name);
    REQUIRE(expected.size() == values.at(input).size());
    double scale = 0;
    for (const double value : expected) scale = std::max(scale, std::abs(value));
    REQUIRE(scale > 0.01);
    const std::size_t step = std::max<std::size_t>(1, expected.size() / samples);
    for (std::size_t i = 0; i < expected.size(); i += step) {
      const double wanted = derivative(problem, values, input, i);
      INFO("component " << i << ": " << expected[i] << ", should be " << wanted);
      CHECK(std::abs(expected[i] - wanted) <= relative * (std::abs(wanted) + 0.01 * scale));
    }
  }
}

/// Every option on and off, groups from 1 to one per head; dt_limit cuts some steps on either side.
const std::vector<Axes> kOptions{
    {{"groups", size(2)},
     {"D", "head"},
     {"z", true},
     {"dt_bias", true},
     {"dt_softplus", true},
     {"initial_states", true},
     {"final_states", true}},
    {{"D", "headdim"}, {"dt_limit", "0.3..0.8"}, {"seq_idx", true}, {"initial_states", true}},
    {{"groups", size(4)},
     {"z", true},
     {"dt_softplus", true},
     {"dt_limit", "0.5..inf"},
     {"seq_idx", true},
     {"final_states", true}},
    {{"dt_bias", true}, {"D", "headdim"}, {"z", true}, {"initial_states", true}},
};

Problem problem_with(Axes axes, const OpSpec& op) {
  axes.merge(Axes{{"batch", size(2)},
                  {"seqlen", size(9)},
                  {"nheads", size(4)},
                  {"headdim", size(3)},
                  {"dstate", size(2)}});
  return ssd_problem(axes, op);
}

}  // namespace

TEST_CASE("ssd reference: outputs are those of the definition") {
  for (const auto& options : kOptions) {
    const Problem problem = problem_with(options, ssd_chunk_scan_fwd());
    INFO(problem.id());
    const auto inputs = inputs_of(problem);
    const auto values = values_of(inputs);
    SsdLoss<double> scan(problem, values);
    scan.run();
    const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
    const auto check = [](const std::vector<double>& got, const std::vector<double>& wanted) {
      REQUIRE(got.size() == wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - wanted[i]) < 1e-13);
    };
    check(outputs.at("out").expected, scan.out);
    if (problem.flag("final_states")) check(outputs.at("final_states").expected, scan.final_states);
  }
}

TEST_CASE("ssd reference: gradients are those of dual numbers") {
  for (const auto& options : kOptions)
    check_gradients(problem_with(options, ssd_chunk_scan_bwd()), by_dual, 2e-12, 40);
}

TEST_CASE("ssd reference: gradients are central differences") {
  for (const auto& options : kOptions)
    check_gradients(problem_with(options, ssd_chunk_scan_bwd()), by_difference, 1e-7, 20);
}

TEST_CASE("ssd reference: gradients of long sequences, many heads and one wide head") {
  const Axes all{
      {"D", "head"},         {"z", true}, {"dt_bias", true}, {"dt_softplus", true}, {"initial_states", true},
      {"final_states", true}};
  for (Axes axes :
       {Axes{{"seqlen", size(600)}, {"batch", size(1)}, {"nheads", size(1)}, {"headdim", size(1)}},
        Axes{{"nheads", size(17)}, {"headdim", size(1)}, {"batch", size(1)}},
        Axes{{"nheads", size(1)}, {"headdim", size(7)}, {"dstate", size(19)}, {"batch", size(1)}}}) {
    axes.insert(all.begin(), all.end());
    check_gradients(problem_with(axes, ssd_chunk_scan_bwd()), by_dual, 1e-10, 6);
  }
}

TEST_CASE("ssd reference: chunk_size changes nothing") {
  const auto outputs = [](std::int64_t chunk) {
    const Problem problem = problem_with({{"chunk_size", size(chunk)}, {"z", true}}, ssd_chunk_scan_fwd());
    return compute_reference(problem, views_of(inputs_of(problem)), never_stop).at("out").expected;
  };
  CHECK(outputs(2) == outputs(256));
}

TEST_CASE("ssd reference: a packed sequence is its parts, and initial_states reach the first alone") {
  const Problem packed =
      problem_with({{"batch", size(1)}, {"seq_idx", true}, {"initial_states", true}}, ssd_chunk_scan_fwd());
  const auto inputs = inputs_of(packed);
  auto values = values_of(inputs);
  const auto whole = compute_reference(packed, views_of(inputs), never_stop).at("out").expected;
  // Steps 0 to 2 do not see what comes later, and later steps do not see them.
  static_cast<float*>(views_of(inputs).at("x").data)[0] += 1;
  static_cast<float*>(views_of(inputs).at("initial_states").data)[0] += 1;
  const auto moved = compute_reference(packed, views_of(inputs), never_stop).at("out").expected;
  const std::size_t first_run = 3 * 4 * 3;  // steps × heads × head dims
  CHECK(whole[0] != moved[0]);
  for (std::size_t i = first_run; i < whole.size(); ++i) CHECK(whole[i] == moved[i]);
}

TEST_CASE("ssd reference: bitwise the same for any number of threads") {
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()}) {
    const Problem problem = problem_with({{"nheads", size(12)}, {"D", "head"}, {"dt_bias", true}}, *op);
    const auto inputs = inputs_of(problem);
    const int threads = omp_get_max_threads();
    const auto run_with = [&](int count) {
      omp_set_num_threads(count);
      auto outputs = compute_reference(problem, views_of(inputs), never_stop);
      omp_set_num_threads(threads);
      return outputs;
    };
    const auto one = run_with(1);
    for (const auto& [name, output] : run_with(5)) {
      INFO(name);
      CHECK(output.expected == one.at(name).expected);
      CHECK(output.bound == one.at(name).bound);
      CHECK(output.operand_bound == one.at(name).operand_bound);
    }
  }
}

TEST_CASE("ssd reference: told to stop it throws") {
  const std::atomic<bool> stop{true};
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()}) {
    const Problem problem = problem_with({}, *op);
    const auto inputs = inputs_of(problem);
    CHECK_THROWS_AS(compute_reference(problem, views_of(inputs), stop), Interrupted);
  }
}

TEST_CASE("ssd reference: tolerances catch mistakes of the size that the claimed arithmetic allows") {
  // Elements at or above the root mean square; those near zero are sums that cancel.
  const Axes axes{{"batch", size(1)},    {"seqlen", size(600)}, {"nheads", size(4)},
                  {"headdim", size(16)}, {"dstate", size(64)},  {"D", "head"},
                  {"z", true},           {"dt_bias", true},     {"dt_softplus", true}};
  const std::map<Math, double> allowed{{Math::f32, 2e-3}, {Math::tf32, 0.08}, {Math::bf16, 0.6}};
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()}) {
    const Problem problem = ssd_problem(axes, *op);
    const auto inputs = generate_inputs(problem, {}, never_stop);
    for (const auto& [name, output] : compute_reference(problem, views_of(inputs), never_stop)) {
      double squares = 0;
      for (const double value : output.expected) squares += value * value;
      const double rms = std::sqrt(squares / static_cast<double>(output.expected.size()));
      for (const auto& [math, limit] : allowed) {
        double worst = 0;
        for (std::size_t i = 0; i < output.expected.size(); ++i)
          if (std::abs(output.expected[i]) >= rms)
            worst = std::max(
                worst, tolerance(output.expectation().at(static_cast<std::int64_t>(i)), DType::f32, {math}) /
                           std::abs(output.expected[i]));
        INFO(op->name << " " << name << " " << name_of(math) << ": " << worst);
        // Sums whose terms cancel: over both states, and over all batches and steps besides.
        const double room = name == "dA" || name == "ddt_bias" ? 16 : name == "ddt" ? 2 : 1;
        CHECK(worst < room * limit);
      }
    }
  }
}

TEST_CASE("ssd reference: tolerances of gradients are as small as these are") {
  constexpr double kScale = 0x1p-80;  // its square is less than a float holds
  const Problem problem = problem_with({}, ssd_chunk_scan_bwd());
  const auto inputs = inputs_of(problem);
  const auto usual = compute_reference(problem, views_of(inputs), never_stop);
  const HostTensor& dout = *find_tensor(inputs, "dout");
  for (std::int64_t i = 0; i < element_count(dout.spec.shape); ++i)
    store_from_double(dout.buffer.data(), i, dout.spec.dtype,
                      kScale * load_as_double(dout.buffer.data(), i, dout.spec.dtype));
  const auto tiny = compute_reference(problem, views_of(inputs), never_stop);
  for (const char* name : {"dx", "dB", "dC"})
    for (std::size_t i = 0; i < usual.at(name).expected.size(); ++i)
      REQUIRE(tiny.at(name).operand_bound[i] ==
              Approx(kScale * usual.at(name).operand_bound[i]).epsilon(1e-5));
}

TEST_CASE("ssd reference: tolerances in f16 have room for a dout·silu(z) that is a subnormal number") {
  Axes axes{{"dtype", "f16"}, {"seqlen", size(20)}, {"z", true}};
  const Problem with_gate = ssd_problem(axes, ssd_chunk_scan_bwd());
  const auto inputs = generate_inputs(with_gate, {}, never_stop);
  axes["z"] = false;
  const Problem without_gate = ssd_problem(axes, ssd_chunk_scan_bwd());
  const auto rounded = generate_inputs(without_gate, {}, never_stop);
  const HostTensor& dout = *find_tensor(inputs, "dout");
  for (std::int64_t i = 0; i < element_count(dout.spec.shape); ++i) {
    store_from_double(find_tensor(inputs, "z")->buffer.data(), i, DType::f16, -16);
    const double gated = load_as_double(dout.buffer.data(), i, DType::f16) * -16 / (1 + std::exp(16.0));
    store_from_double(find_tensor(rounded, "dout")->buffer.data(), i, DType::f16, gated);
  }
  const auto right = compute_reference(with_gate, views_of(inputs), never_stop);
  const auto got = compute_reference(without_gate, views_of(rounded), never_stop);
  double worst = 0;
  for (const char* name : {"dx", "dB", "dC"})
    for (std::size_t i = 0; i < right.at(name).expected.size(); ++i) {
      const double error = std::abs(got.at(name).expected[i] - right.at(name).expected[i]);
      const double allowed =
          tolerance(right.at(name).expectation().at(static_cast<std::int64_t>(i)), DType::f32, {Math::f16});
      REQUIRE(error <= allowed);
      worst = std::max(worst, error / allowed);
    }
  CHECK(worst > 0.01);
}

TEST_CASE("ssd reference: tolerances in f16 have room for products that decays make small") {
  const Problem problem = ssd_problem({{"dtype", "f16"},
                                       {"batch", size(1)},
                                       {"seqlen", size(2)},
                                       {"nheads", size(1)},
                                       {"headdim", size(1)},
                                       {"dstate", size(1)},
                                       {"final_states", true}});
  const auto inputs = generate_inputs(problem, {}, never_stop);
  const auto set = [&](const char* name, std::vector<double> values) {
    const HostTensor& tensor = *find_tensor(inputs, name);
    for (std::size_t i = 0; i < values.size(); ++i)
      store_from_double(tensor.buffer.data(), static_cast<std::int64_t>(i), tensor.spec.dtype, values[i]);
  };
  // The state is the first step's product alone, 2^-22 of what the second would add if its B were not 0. A
  // scale that brings the second's Δ of 12 into (0.5, 1] leaves few bits of the first.
  set("A", {-1.327});
  set("dt", {13.5, 12});
  set("x", {1.58, -0.62});
  set("B", {0.12, 0});
  const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
  const ReferenceOutput& state = outputs.at("final_states");
  const double B = load_as_double(find_tensor(inputs, "B")->buffer.data(), 0, DType::f16);
  constexpr double kScale = 0x1p-4;
  const double operand = f16_to_float(float_to_f16(static_cast<float>(kScale * state.expected[0] / B)));
  const double error = std::abs(operand / kScale * B - state.expected[0]);
  const double allowed = tolerance(state.expectation().at(0), DType::f32, {Math::f16});
  CHECK(error <= allowed);
  CHECK(allowed < 20 * error);  // this one is of a usual size, and 10 standard deviations pass
}

TEST_CASE("sequences of cu_seqlens are each on its own, with bounds and states, and empty ones keep theirs") {
  const Axes sizes{{"nheads", size(3)}, {"headdim", size(2)},     {"dstate", size(4)},
                   {"D", "head"},       {"initial_states", true}, {"final_states", true}};
  Axes axes{{"seqlen", size(90)}, {"cu_seqlens", true}, {"sequences", size(6)}, {"lengths", "with-empty"}};
  axes.merge(Axes(sizes));
  const Problem whole = ssd_problem(axes);
  const auto inputs = generate_inputs(whole, {}, never_stop);
  const auto packed = compute_reference(whole, views_of(inputs), never_stop);
  const auto* borders = static_cast<const std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  const std::int64_t of_state = 3 * 2 * 4;
  int empty = 0;
  for (std::int64_t m = 0; m < 6; ++m) {
    const std::int64_t steps = borders[m + 1] - borders[m];
    const auto& finals = packed.at("final_states");
    if (steps == 0) {
      ++empty;
      for (std::int64_t i = m * of_state; i < (m + 1) * of_state; ++i) {
        CHECK(finals.expected[i] ==
              load_as_double(find_tensor(inputs, "initial_states")->buffer.data(), i, DType::f32));
        CHECK(finals.bound[i] == 0);
        CHECK(finals.operand_bound[i] == 0);
      }
      continue;
    }
    Axes one{{"seqlen", steps}};
    one.merge(Axes(sizes));
    const Problem alone = ssd_problem(one);
    std::vector<HostTensor> part;
    for (const auto& spec : alone.tensors())
      if (spec.role == Role::input)
        part.push_back(gathered(spec, *find_tensor(inputs, spec.name), [&](const Shape& here, Shape& there) {
          there = here;
          if (spec.name == "initial_states") there[0] = m;
          if (spec.axes.starts_with("bl")) there[1] += borders[m];
        }));
    const auto separate = compute_reference(alone, views_of(part), never_stop);
    for (const auto& [name, output] : separate) {
      const std::int64_t first = name == "out" ? borders[m] * 3 * 2 : m * of_state;
      for (std::int64_t i = 0; i < std::ssize(output.expected); ++i) {
        REQUIRE(packed.at(name).expected[first + i] == output.expected[i]);
        REQUIRE(packed.at(name).bound[first + i] == output.bound[i]);
        REQUIRE(packed.at(name).operand_bound[first + i] == output.operand_bound[i]);
      }
    }
  }
  CHECK(empty > 0);
}

TEST_CASE("states on the way are the last states of scans that end there, and change nothing else") {
  const Problem whole = ssd_problem({{"seqlen", size(90)},
                                     {"nheads", size(2)},
                                     {"headdim", size(3)},
                                     {"dstate", size(2)},
                                     {"dt_softplus", true},
                                     {"cu_seqlens", true},
                                     {"sequences", size(4)},
                                     {"initial_states", true},
                                     {"final_states", true},
                                     {"states_at", size(11)}});
  const auto inputs = generate_inputs(whole, {.seed = 2}, never_stop);
  const auto got = compute_reference(whole, views_of(inputs), never_stop);
  const Problem plain = whole.with({{"states_at", size(0)}});
  TensorSet without = views_of(inputs);
  const auto expected = compute_reference(plain, without, never_stop);
  const auto same = [](double a, double b) { return std::abs(a - b) <= 1e-13 * std::abs(b); };
  for (const char* name : {"out", "final_states"})
    for (std::size_t i = 0; i < expected.at(name).expected.size(); ++i)
      REQUIRE(same(got.at(name).expected[i], expected.at(name).expected[i]));
  const auto* borders = static_cast<const std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  auto* stops = static_cast<std::int32_t*>(find_tensor(inputs, "states_at")->buffer.data());
  for (std::int64_t k = 0; k < 11; ++k) {
    std::int64_t sequence = 0;
    while (borders[sequence + 1] <= stops[k]) ++sequence;
    // The same scan whose sequence ends there: the steps after that are one sequence more.
    std::vector<HostTensor> cut;
    const Problem prefix = plain.with({{"sequences", sequence + 2}});
    for (const auto& spec : specs_of(prefix, Role::input))
      cut.push_back(gathered(spec, *find_tensor(inputs, spec.name), [&](const Shape& here, Shape& there) {
        there = here;
        if (spec.name == "initial_states") there[0] = std::min<std::int64_t>(here[0], 3);
        if (spec.name == "cu_seqlens") there[0] = std::min<std::int64_t>(here[0], 4);
      }));
    auto* ends = static_cast<std::int32_t*>(find_tensor(cut, "cu_seqlens")->buffer.data());
    ends[sequence + 1] = stops[k] + 1;
    ends[sequence + 2] = 90;
    const auto ended = compute_reference(prefix, views_of(cut), never_stop);
    for (std::int64_t i = 0; i < 12; ++i) {
      REQUIRE(
          same(got.at("states").expected[k * 12 + i], ended.at("final_states").expected[sequence * 12 + i]));
      REQUIRE(got.at("states").bound[k * 12 + i] > 0);
    }
  }
  stops[3] = 90;
  CHECK_THROWS_WITH(compute_reference(whole, views_of(inputs), never_stop),
                    "states_at 90: there are steps 0 to 89");
}

TEST_CASE("cu_seqlens that does not end with the steps is refused by the reference") {
  const Problem whole = ssd_problem({{"seqlen", size(9)}, {"cu_seqlens", true}, {"sequences", size(2)}});
  const auto inputs = generate_inputs(whole, {}, never_stop);
  static_cast<std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data())[2] = 8;
  CHECK_THROWS_AS(compute_reference(whole, views_of(inputs), never_stop), ContractError);
}
