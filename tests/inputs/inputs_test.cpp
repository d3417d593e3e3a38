#include "inputs/inputs.h"

#include <omp.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "base/errors.h"
#include "catch.h"
#include "inputs/distributions.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "support/axes.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

// 39 steps: rows start inside a Philox call of four, and 39 is not 1 modulo the 6 channels.
Problem problem(const Axes& changes = {}) {
  Axes axes{{"dtype", "f32"},
            {"batch", std::int64_t{2}},
            {"dim", std::int64_t{6}},
            {"seqlen", std::int64_t{39}},
            {"dstate", std::int64_t{5}},
            {"groups", std::int64_t{2}},
            {"initial_state", true}};
  for (const auto& [name, value] : changes) axes[name] = value;
  return {selective_scan_fwd(), axes};
}

std::vector<HostTensor> generate(const Problem& the_problem, const InputSpec& spec = {}) {
  return generate_inputs(the_problem, spec, std::atomic<bool>(false));
}

/// Values in logical row-major order, complex ones as pairs.
std::vector<double> values_of(const HostTensor& tensor) {
  const auto& [data, dtype, shape, strides] = real_view(tensor.view());
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    std::int64_t rest = i, offset = 0;
    for (auto axis = static_cast<int>(shape.size()) - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    values.push_back(load_as_double(data, offset, dtype));
  }
  return values;
}

std::map<std::string, std::vector<double>> values_by_name(const std::vector<HostTensor>& tensors) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& tensor : tensors) all[tensor.spec.name] = values_of(tensor);
  return all;
}

std::uint64_t fnv1a(const std::vector<HostTensor>& tensors) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const auto& tensor : tensors)
    for (std::size_t i = 0; i < tensor.spec.bytes(); ++i)
      hash = (hash ^ static_cast<const unsigned char*>(tensor.buffer.data())[i]) * 0x100000001b3U;
  return hash;
}

bool holds(double value, DType dtype) {
  std::uint64_t storage = 0;
  store_from_double(&storage, 0, dtype, value);
  return load_as_double(&storage, 0, dtype) == value;
}

/// Δ of every (b, d, t) in fp64, from the stored tensors.
std::vector<double> effective_delta(const Problem& the_problem, const std::string& distribution) {
  const auto all = values_by_name(generate(the_problem, {.distribution = distribution}));
  const SelectiveScan scan(the_problem);
  std::vector<double> result = all.at("delta");
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (scan.has_delta_bias) result[i] += all.at("delta_bias")[i / scan.seqlen % scan.dim];
    if (scan.delta_softplus) result[i] = std::log1p(std::exp(result[i]));
  }
  return result;
}

double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] / b[i] - 1));
  return worst;
}

const std::vector<std::string> kDTypes{"f32", "f16", "bf16"};

}  // namespace

TEST_CASE("inputs are the same bits for any number of threads") {
  // 2500 steps: three segments, the last ragged.
  const Problem big = problem({{"seqlen", std::int64_t{2500}}, {"layout", "bld"}});
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto alone = fnv1a(generate(big));
  omp_set_num_threads(7);
  const auto together = fnv1a(generate(big));
  omp_set_num_threads(threads);
  CHECK(alone == together);
}

TEST_CASE("the layout does not change values") {
  for (const std::int64_t seqlen : {1, 39, 1025}) {  // 1025: one past a segment
    const auto bdl = generate(problem({{"seqlen", seqlen}, {"layout", "bdl"}}));
    const auto bld = generate(problem({{"seqlen", seqlen}, {"layout", "bld"}}));
    CHECK(values_by_name(bdl) == values_by_name(bld));
  }
  const Problem complex = problem({{"A", "complex"}});
  CHECK(values_by_name(generate(complex)) == values_by_name(generate(complex.with({{"layout", "bld"}}))));
}

TEST_CASE("values depend on the logical index, not on what else there is") {
  const auto all = values_by_name(generate(problem()));
  const auto few = values_by_name(
      generate(problem({{"z", false}, {"D", false}, {"initial_state", false}, {"C", "constant"}})));
  CHECK_FALSE(few.contains("z"));
  for (const auto* name : {"u", "delta", "A", "B", "delta_bias"}) CHECK(few.at(name) == all.at(name));
  CHECK(few.at("C").size() == 30);
}

TEST_CASE("tensors that are always f32 do not depend on the dtype or the value precision") {
  const Problem constant = problem({{"B", "constant"}, {"C", "constant"}, {"groups", std::int64_t{1}}});
  const auto expected = values_by_name(generate(constant));
  for (const auto& dtype : kDTypes)
    for (const auto* precision : {"native", "shared"}) {
      const auto all = values_by_name(generate(constant.with({{"dtype", dtype}}), {.values = precision}));
      for (const auto* name : {"A", "B", "C", "D", "delta_bias", "initial_state"})
        CHECK(all.at(name) == expected.at(name));
    }
}

TEST_CASE("tensors that are always complex do not depend on the dtype or the value precision") {
  const Problem complex = problem({{"A", "complex"}});
  const auto expected = values_by_name(generate(complex));
  for (const auto& dtype : kDTypes)
    for (const auto* precision : {"native", "shared"}) {
      const auto all = values_by_name(generate(complex.with({{"dtype", dtype}}), {.values = precision}));
      for (const auto* name : {"A", "B", "C", "initial_state"}) CHECK(all.at(name) == expected.at(name));
    }
}

TEST_CASE("complex A decays at the rates of the distribution and turns by whole multiples of pi") {
  for (const auto& distribution : distributions()) {
    CAPTURE(distribution.name);
    const auto real = values_by_name(generate(problem(), {.distribution = distribution.name}));
    const auto complex =
        values_by_name(generate(problem({{"A", "complex"}}), {.distribution = distribution.name}));
    const auto& A = complex.at("A");
    REQUIRE(A.size() == 60);  // 6 channels of 5 pairs
    for (std::size_t i = 0; i < A.size() / 2; ++i) {
      CHECK(A[2 * i] == (distribution.decay_rate ? real.at("A")[i] : -0.5));
      CHECK(A[2 * i + 1] == static_cast<float>(M_PI * static_cast<double>(i % 5)));
    }
    for (const auto* name : {"u", "delta", "D", "z", "delta_bias"}) CHECK(complex.at(name) == real.at(name));
  }
}

TEST_CASE("dense A has the rates on its diagonal, and lets no state grow") {
  for (const auto& distribution : distributions())
    for (const std::int64_t n : {1, 2, 5, 32}) {
      CAPTURE(distribution.name, n);
      const Axes sizes{{"dstate", n}};
      const auto rates = values_by_name(generate(problem(sizes), {.distribution = distribution.name}));
      Axes axes = sizes;
      axes.insert({{"A", "dense"}, {"method", "foh"}});
      const auto dense = values_by_name(generate(problem(axes), {.distribution = distribution.name}));
      if (!distribution.has_extremes)  // which dense A goes without
        for (const auto* name : {"u", "delta", "B", "C", "D", "z", "initial_state"})
          CHECK(dense.at(name) == rates.at(name));
      REQUIRE(dense.at("A").size() == static_cast<std::size_t>(6 * n * n));
      for (std::int64_t d = 0; d < 6; ++d) {
        const double* A = dense.at("A").data() + d * n * n;
        const double* diagonal = rates.at("A").data() + d * n;
        std::vector<double> S(n * n);  // −(A + Aᵀ)/2, scaled to a diagonal of 1
        for (std::int64_t i = 0; i < n; ++i) {
          CHECK(A[i * n + i] == diagonal[i]);
          for (std::int64_t j = 0; j < n; ++j)
            S[i * n + j] = -(A[i * n + j] + A[j * n + i]) / 2 / std::sqrt(diagonal[i] * diagonal[j]);
        }
        // Cholesky's pivots of S − 1/2 are positive: every direction decays at half the rates at least.
        for (std::int64_t i = 0; i < n; ++i) S[i * n + i] -= 0.5;
        for (std::int64_t k = 0; k < n; ++k) {
          if (!(S[k * n + k] > 0)) FAIL("pivot " << k << " of channel " << d << " is " << S[k * n + k]);
          for (std::int64_t i = k + 1; i < n; ++i)
            for (std::int64_t j = k + 1; j < n; ++j)
              S[i * n + j] -= S[i * n + k] * S[k * n + j] / S[k * n + k];
        }
        // Most of what couples states is antisymmetric.
        if (n < 5) continue;
        double symmetric = 0, antisymmetric = 0;
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < i; ++j) {
            const double scale = diagonal[i] * diagonal[j];
            symmetric += std::pow(A[i * n + j] + A[j * n + i], 2) / scale;
            antisymmetric += std::pow(A[i * n + j] - A[j * n + i], 2) / scale;
          }
        CHECK(symmetric < 0.1 * antisymmetric);
        CHECK(symmetric > 0);
      }
    }
}

TEST_CASE("complex B, C and states have independent parts of variance 1/2") {
  const auto all = values_by_name(generate(problem({{"A", "complex"}, {"dim", std::int64_t{512}}})));
  for (const auto* name : {"B", "C", "initial_state"}) {
    CAPTURE(name);
    const auto& values = all.at(name);
    const double count = static_cast<double>(values.size()) / 2;
    double real = 0, imaginary = 0, product = 0;
    for (std::size_t i = 0; i < values.size(); i += 2) {
      real += values[i] * values[i] / count;
      imaginary += values[i + 1] * values[i + 1] / count;
      product += values[i] * values[i + 1] / count;
    }
    // Standard errors: of a square, √2 of its mean; of the product, its mean square's root, 1/2.
    const double error = 4.5 * 0.5 / std::sqrt(count);
    CHECK(std::fabs(real - 0.5) < std::sqrt(2.0) * error);
    CHECK(std::fabs(imaginary - 0.5) < std::sqrt(2.0) * error);
    CHECK(std::fabs(product) < error);
  }
}

double rounded_to(DType dtype, double value) {
  std::uint64_t storage = 0;
  store_from_double(&storage, 0, dtype, value);
  return load_as_double(&storage, 0, dtype);
}

TEST_CASE("native values are the f32 values rounded to the dtype, shared ones the same in every dtype") {
  for (const auto& distribution : distributions()) {
    const auto exact = values_by_name(generate(problem(), {.distribution = distribution.name}));
    const auto shared =
        values_by_name(generate(problem(), {.distribution = distribution.name, .values = "shared"}));
    for (const auto& dtype : kDTypes) {
      const Problem narrow = problem({{"dtype", dtype}});
      CHECK(values_by_name(generate(narrow, {.distribution = distribution.name, .values = "shared"})) ==
            shared);
      const auto native = generate(narrow, {.distribution = distribution.name});
      for (const auto& tensor : native) {
        auto rounded = exact.at(tensor.spec.name);
        for (double& value : rounded) value = rounded_to(tensor.spec.dtype, value);
        CHECK(values_of(tensor) == rounded);
      }
    }
    for (const auto* name : {"u", "delta", "z", "B", "C"}) {
      auto rounded = exact.at(name);
      for (double& value : rounded) value = rounded_to(DType::f16, rounded_to(DType::bf16, value));
      CHECK(shared.at(name) == rounded);
      for (const double value : shared.at(name))
        if (!holds(value, DType::f16) || !holds(value, DType::bf16) || !holds(value, DType::f32))
          FAIL(distribution.name << " " << name << " " << value);
    }
    CHECK(shared.at("u") != exact.at("u"));
  }
}

TEST_CASE("seeds and tensors differ") {
  const auto first = values_by_name(generate(problem()));
  const auto second = values_by_name(generate(problem(), {.seed = 1}));
  for (const auto& [name, values] : first)
    if (name != "A") CHECK(values != second.at(name));  // Mamba's A is not drawn
  CHECK(first.at("u") != first.at("z"));
  CHECK(first.at("B") != first.at("C"));
}

TEST_CASE("A, dt and everything else lie where the distribution says, finite in every dtype") {
  for (const auto& distribution : distributions())
    for (const auto& dtype : kDTypes)
      for (const bool softplus : {true, false}) {
        const auto all = values_by_name(generate(problem({{"dtype", dtype}, {"delta_softplus", softplus}}),
                                                 {.distribution = distribution.name}));
        for (const auto& [name, values] : all)
          for (const double value : values)
            if (!std::isfinite(value)) FAIL(distribution.name << " " << name);
        for (std::size_t i = 0; i < all.at("A").size(); ++i) {
          const double rate = -all.at("A")[i];
          const bool right = distribution.decay_rate ? rate >= distribution.decay_rate->low * 0.999999 &&
                                                           rate <= distribution.decay_rate->high * 1.000001
                                                     : rate == static_cast<double>(i % 5 + 1);
          if (!right) FAIL(distribution.name << " A " << i << " " << rate);
        }
        for (const double bias : all.at("delta_bias")) {
          const double dt = softplus ? std::log1p(std::exp(bias)) : 64 * bias;
          if (dt < distribution.dt.low * 0.99999 || dt > distribution.dt.high * 1.00001)
            FAIL(distribution.name << " dt " << dt);
        }
      }
}

TEST_CASE("the step size is the same whether or not there is a bias and a softplus") {
  for (const auto& distribution : distributions()) {
    const auto expected = effective_delta(problem(), distribution.name);
    for (const bool bias : {true, false})
      for (const bool softplus : {true, false}) {
        const auto got =
            effective_delta(problem({{"delta_bias", bias}, {"delta_softplus", softplus}}), distribution.name);
        // f32 rounding of delta and the bias; x near -16 makes 16·2⁻²⁴ of it in softplus(x).
        CHECK(largest_relative_difference(got, expected) < 20 * std::ldexp(1.0, -23));
      }
  }
}

TEST_CASE("the step size is positive without softplus, in narrow dtypes too") {
  for (const auto& distribution : distributions())
    for (const auto& dtype : kDTypes) {
      const Problem plain =
          problem({{"dtype", dtype}, {"delta_softplus", false}, {"seqlen", std::int64_t{5000}}});
      for (const double delta : effective_delta(plain, distribution.name))
        if (!(delta > 0)) FAIL(distribution.name << " " << dtype << " " << delta);
    }
}

TEST_CASE("Mamba's step size has the median and the spread of its initialisation") {
  // ln Δ ≈ ln dt + N(0, 1/3) with ln dt uniform on [ln 1e-3, ln 0.1]: mean ln 0.01, variance (ln 100)²/12 +
  // 1/3. Channels are few and dt is one draw each, so 4096 channels and 4.5 standard errors.
  const Problem wide =
      problem({{"dim", std::int64_t{4096}}, {"seqlen", std::int64_t{4}}, {"batch", std::int64_t{1}}});
  const auto all = values_by_name(generate(wide));
  double sum = 0, squares = 0, noise = 0;
  for (std::size_t i = 0; i < 4096; ++i) {
    const double dt = std::log(std::log1p(std::exp(all.at("delta_bias")[i])));
    sum += dt;
    squares += dt * dt;
  }
  for (const double x : all.at("delta")) noise += x * x;
  const double mean = sum / 4096;
  const double variance = std::log(100.0) * std::log(100.0) / 12;
  CHECK(std::fabs(mean - std::log(0.01)) < 4.5 * std::sqrt(variance / 4096));
  // A uniform's fourth central moment is 9/5 of its variance squared.
  CHECK(std::fabs(squares / 4096 - mean * mean - variance) < 4.5 * variance * std::sqrt(0.8 / 4096));
  CHECK(std::fabs(noise / (4 * 4096) - 1.0 / 3) < 4.5 / 3 * std::sqrt(2.0 / (4 * 4096)));
}

TEST_CASE("unknown names and an interrupt end generation") {
  CHECK_THROWS_AS(generate(problem(), {.distribution = "flat"}), UsageError);
  CHECK_THROWS_WITH(
      generate(problem(), {.distribution = "flat"}),
      "there is no input distribution 'flat'; there are mamba, slow_decay, large_A, tiny_delta, trained");
  CHECK_THROWS_AS(generate(problem(), {.values = "exact"}), UsageError);
  CHECK_THROWS_AS(generate_inputs(problem(), {}, std::atomic<bool>(true)), Interrupted);
}

TEST_CASE("generated bytes are those of an independent computation") {
  // FNV-1a over all tensors' bytes. The hashes come from a separate program in Python: Philox from its paper,
  // AS 241, exp and log in 60 digits (mpmath), rounding by numpy. If one changes, every recorded case changes
  // its inputs.
  const Problem tiny = problem({{"dim", std::int64_t{3}},
                                {"seqlen", std::int64_t{5}},
                                {"dstate", std::int64_t{4}},
                                {"groups", std::int64_t{1}}});
  CHECK(fnv1a(generate(tiny, {.seed = 42})) == 0xe6000e5df682e82eU);
  CHECK(fnv1a(generate(tiny.with({{"dtype", "bf16"}, {"delta_softplus", false}}),
                       {.distribution = "slow_decay", .values = "shared", .seed = -1})) ==
        0x83b478655b3516f3U);
  CHECK(fnv1a(generate(tiny.with({{"dtype", "f16"}, {"delta_bias", false}}),
                       {.distribution = "tiny_delta", .seed = 7})) == 0x3af37e7afe94636eU);
  const Problem complex = tiny.with({{"A", "complex"}});
  CHECK(fnv1a(generate(complex, {.seed = 42})) == 0xe0af05d0284a116eU);
  CHECK(fnv1a(generate(complex, {.distribution = "slow_decay", .seed = -3})) == 0x7da256a94c4de5d5U);
}
