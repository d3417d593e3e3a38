// The fp64 reference for dense A against the definition in long double, and its error bounds against f32 ways
// of computing the same, right and wrong.

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "support/find_implementation.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

template <class Real>
using Numbers = std::vector<Real>;  // n, or n × n row by row

template <class Real>
Numbers<Real> times(const Numbers<Real>& a, const Numbers<Real>& x, int columns) {
  const int n = static_cast<int>(std::lround(std::sqrt(static_cast<double>(a.size()))));
  Numbers<Real> y(n * columns);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int c = 0; c < columns; ++c) y[i * columns + c] += a[i * n + j] * x[j * columns + c];
  return y;
}

/// M⁻¹·x, Gauss-Jordan with partial pivoting.
template <class Real>
Numbers<Real> solve(Numbers<Real> M, Numbers<Real> x, int columns) {
  const int n = static_cast<int>(x.size()) / columns;
  for (int k = 0; k < n; ++k) {
    int pivot = k;
    for (int i = k + 1; i < n; ++i)
      if (std::abs(M[i * n + k]) > std::abs(M[pivot * n + k])) pivot = i;
    for (int j = 0; j < n; ++j) std::swap(M[k * n + j], M[pivot * n + j]);
    for (int c = 0; c < columns; ++c) std::swap(x[k * columns + c], x[pivot * columns + c]);
    for (int i = 0; i < n; ++i) {
      if (i == k) continue;
      const Real factor = M[i * n + k] / M[k * n + k];
      for (int j = k; j < n; ++j) M[i * n + j] -= factor * M[k * n + j];
      for (int c = 0; c < columns; ++c) x[i * columns + c] -= factor * x[k * columns + c];
    }
  }
  for (int i = 0; i < n; ++i)
    for (int c = 0; c < columns; ++c) x[i * columns + c] /= M[i * n + i];
  return x;
}

/// scale·A + one·I
template <class Real>
Numbers<Real> shifted(const Numbers<Real>& A, Real scale, Real one, int n) {
  Numbers<Real> result(n * n);
  for (int i = 0; i < n * n; ++i) result[i] = scale * A[i] + (i % (n + 1) == 0 ? one : 0);
  return result;
}

// Steps: from A, Δ, h_{t-1} and B·u to h_t.

template <class Real>
Numbers<Real> bilinear(const Numbers<Real>& A, Real delta, const Numbers<Real>& h,
                       const Numbers<Real>& input) {
  const int n = static_cast<int>(h.size());
  Numbers<Real> right = times(shifted<Real>(A, delta / 2, 1, n), h, 1);
  for (int i = 0; i < n; ++i) right[i] += delta * input[i];
  return solve(shifted<Real>(A, -delta / 2, 1, n), right, 1);
}

/// 2·M⁻¹·(h + ΔB·u/2) − h
template <class Real>
Numbers<Real> bilinear_by_one_product(const Numbers<Real>& A, Real delta, const Numbers<Real>& h,
                                      const Numbers<Real>& input) {
  const int n = static_cast<int>(h.size());
  Numbers<Real> right = h;
  for (int i = 0; i < n; ++i) right[i] += delta / 2 * input[i];
  Numbers<Real> x = solve(shifted<Real>(A, -delta / 2, 1, n), right, 1);
  for (int i = 0; i < n; ++i) x[i] = 2 * x[i] - h[i];
  return x;
}

/// With the matrix Ā = M⁻¹·(I + ΔA/2)
template <class Real>
Numbers<Real> bilinear_by_matrix(const Numbers<Real>& A, Real delta, const Numbers<Real>& h,
                                 const Numbers<Real>& input) {
  const int n = static_cast<int>(h.size());
  const Numbers<Real> inverse = solve(shifted<Real>(A, -delta / 2, 1, n), shifted<Real>(A, 0, 1, n), n);
  Numbers<Real> x = times(times(inverse, shifted<Real>(A, delta / 2, 1, n), n), h, 1);
  const Numbers<Real> added = times(inverse, input, 1);
  for (int i = 0; i < n; ++i) x[i] += delta * added[i];
  return x;
}

/// With the matrices e^{ΔA} and Δ·φ1(ΔA): the exponential of Δ·((A, B·u), (0, 0)), by 30 terms of its series
/// at Δ/2^k and k squarings (Higham, "Functions of Matrices" (2008), section 10.7.4).
template <class Real>
Numbers<Real> hold(const Numbers<Real>& A, Real delta, const Numbers<Real>& h, const Numbers<Real>& input) {
  const int n = static_cast<int>(h.size()), m = n + 1;
  Numbers<Real> Z(m * m);
  Real norm = 0;
  for (int i = 0; i < n; ++i) {
    Real row = 0;
    for (int j = 0; j < n; ++j) row += std::abs(delta * A[i * n + j]);
    norm = std::max(norm, row);
  }
  const int squarings = norm > 1 ? std::ilogb(norm) + 1 : 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) Z[i * m + j] = std::ldexp(delta * A[i * n + j], -squarings);
    Z[i * m + n] = std::ldexp(delta * input[i], -squarings);
  }
  Numbers<Real> E = shifted<Real>(Z, 0, 1, m);
  for (int k = 30; k > 0; --k) E = shifted<Real>(times(Z, E, m), Real{1} / static_cast<Real>(k), 1, m);
  for (int k = 0; k < squarings; ++k) E = times(E, E, m);
  Numbers<Real> extended = h;
  extended.push_back(1);
  extended = times(E, extended, 1);
  extended.pop_back();
  return extended;
}

template <class Real>
using StepFunction = std::function<Numbers<Real>(const Numbers<Real>& A, Real delta, const Numbers<Real>& h,
                                                 const Numbers<Real>& input)>;

/// The definition in the arithmetic of Real.
template <class Real>
class PlainScan {
 public:
  PlainScan(const Problem& problem, const TensorSet& tensors) : scan_(problem), tensors_(tensors) {}

  /// Calls use_out(index of (B, D, L), value), and use_state(index of (B, D, N), value) after the last step.
  template <class UseOut, class UseState>
  void run(const StepFunction<Real>& step, const UseOut& use_out, const UseState& use_state) const {
    const int n = static_cast<int>(scan_.dstate);
    for (std::int64_t b = 0; b < scan_.batch; ++b)
      for (std::int64_t d = 0; d < scan_.dim; ++d) {
        Numbers<Real> A, h;
        for (int i = 0; i < n * n; ++i) A.push_back(at("A", {d, i / n, i % n}));
        for (int i = 0; i < n; ++i) h.push_back(scan_.has_initial_state ? at("initial_state", {b, d, i}) : 0);
        for (std::int64_t t = 0; t < scan_.seqlen; ++t) {
          Real delta = at("delta", {b, d, t});
          if (scan_.has_delta_bias) delta += at("delta_bias", {d});
          if (scan_.delta_softplus) delta = std::log1p(std::exp(delta));
          const Real u = at("u", {b, d, t});
          Numbers<Real> input(n);
          for (int i = 0; i < n; ++i) input[i] = projection("B", scan_.variable_b, b, d, i, t) * u;
          h = step(A, delta, h, input);
          Real y = 0;
          for (int i = 0; i < n; ++i) y += projection("C", scan_.variable_c, b, d, i, t) * h[i];
          if (scan_.has_D) y += at("D", {d}) * u;
          if (scan_.has_z) y *= at("z", {b, d, t}) / (1 + std::exp(-at("z", {b, d, t})));
          use_out((b * scan_.dim + d) * scan_.seqlen + t, y);
        }
        for (int i = 0; i < n; ++i) use_state((b * scan_.dim + d) * n + i, h[i]);
      }
  }

 private:
  Real at(const char* name, const Shape& index) const {
    const TensorView& view = tensors_.at(name);
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * view.strides[axis];
    return static_cast<Real>(load_as_double(view.data, offset, view.dtype));
  }
  Real projection(const char* name, bool variable, std::int64_t b, std::int64_t d, int n,
                  std::int64_t t) const {
    return variable ? at(name, {b, d / scan_.channels_per_group(), n, t}) : at(name, {d, n});
  }

  SelectiveScan scan_;
  const TensorSet& tensors_;
};

Problem dense_problem(const std::string& method, std::map<std::string, AxisValue> axes) {
  axes.emplace("A", "dense");
  axes.emplace("method", method);
  return scan_problem(std::move(axes));
}

/// err/tol of an f32 scan by `step`, the worse of out and last_state.
double tolerance_ratio(const Problem& problem, const std::vector<HostTensor>& inputs,
                       const StepFunction<float>& step) {
  const auto specs = specs_of(problem, Role::output);
  const HostTensor out(specs[0]), last_state(specs[1]);
  const TensorSet views = views_of(inputs);
  PlainScan<float>(problem, views)
      .run(
          step, [&](std::int64_t i, float y) { static_cast<float*>(out.buffer.data())[i] = y; },
          [&](std::int64_t i, float h) { static_cast<float*>(last_state.buffer.data())[i] = h; });
  const auto reference = compute_reference(problem, views, never_stop);
  double worst = 0;
  for (const HostTensor* tensor : {&out, &last_state}) {
    const ReferenceOutput& expected = reference.at(tensor->spec.name);
    const auto result = compare_output(tensor->view(), expected.expectation(), {});
    CHECK(result.judged == element_count(expected.shape));
    worst = std::max(worst, result.nonfinite > 0 ? HUGE_VAL : result.tolerance_ratio);
  }
  return worst;
}

}  // namespace

TEST_CASE("dense: the reference is the definition in long double") {
  const std::map<std::string, AxisValue> all{{"D", true},          {"z", true},
                                             {"delta_bias", true}, {"delta_softplus", true},
                                             {"groups", size(2)},  {"initial_state", true}};
  for (const auto& [method, step] :
       {std::pair<std::string, StepFunction<long double>>{"bilinear", bilinear<long double>},
        {"foh", hold<long double>}})
    for (const bool options : {false, true})
      for (const auto& axes : std::vector<std::map<std::string, AxisValue>>{
               {{"dstate", size(1)}},
               {{"dstate", size(3)}, {"layout", "bld"}},
               {{"dstate", size(16)}, {"dtype", "bf16"}},
               {{"dstate", size(32)}, {"B", "constant"}, {"layout", "bld"}},
               {{"dstate", size(4)}, {"C", "constant"}}}) {
        auto full = axes;
        full.insert({{"dim", size(2)}, {"seqlen", size(9)}});
        if (options) full.insert(all.begin(), all.end());
        const Problem problem = dense_problem(method, full);
        INFO(problem.id());
        for (const char* distribution : {"mamba", "large_A"}) {
          const auto inputs = generate_inputs(problem, {.distribution = distribution}, never_stop);
          const TensorSet views = views_of(inputs);
          const auto reference = compute_reference(problem, views, never_stop);
          long double worst = 0, largest = 0;
          const auto compare_with = [&](const char* name) {
            return [&, name](std::int64_t i, long double value) {
              worst = std::max(worst, std::abs(reference.at(name).expected[i] - value));
              largest = std::max(largest, std::abs(value));
            };
          };
          PlainScan<long double>(problem, views).run(step, compare_with("out"), compare_with("last_state"));
          CHECK(worst < 1e-13L * largest);
        }
      }
}

TEST_CASE("dense: a diagonal matrix gives what diagonal A gives") {
  for (const char* method : {"bilinear", "foh"}) {
    const std::map<std::string, AxisValue> sizes{
        {"batch", size(2)}, {"dim", size(3)}, {"seqlen", size(70)}, {"dstate", size(5)}, {"D", true}};
    auto axes = sizes;
    axes.emplace("method", method);
    const Problem diagonal = scan_problem(axes);
    const Problem dense = dense_problem(method, sizes);
    const auto inputs = generate_inputs(diagonal, {}, never_stop);
    const TensorSet views = views_of(inputs);
    HostTensor matrices(specs_of(dense, Role::input)[2]);
    REQUIRE(matrices.spec.name == "A");
    for (std::int64_t i = 0; i < 75; ++i)  // 3 channels of 5 × 5
      static_cast<float*>(matrices.buffer.data())[i] =
          i / 5 % 5 == i % 5 ? static_cast<const float*>(views.at("A").data)[i / 5] : 0;
    TensorSet dense_views = views;
    dense_views.add("A", matrices.view());
    const auto expected = compute_reference(diagonal, views, never_stop);
    const auto got = compute_reference(dense, dense_views, never_stop);
    for (const char* name : {"out", "last_state"})
      for (std::size_t i = 0; i < expected.at(name).expected.size(); ++i) {
        const double value = expected.at(name).expected[i];
        if (!(std::abs(got.at(name).expected[i] - value) <= 1e-13 * std::max(1.0, std::abs(value))))
          FAIL(method << " " << name << " " << i);
      }
  }
}

TEST_CASE("dense: a rotation keeps its length, and its error bound grows by as much every step") {
  constexpr double kTurn = 0.75;
  for (const std::string method : {"bilinear", "foh"}) {
    std::vector<double> bounds;
    for (const std::int64_t length : {1000, 2000}) {
      const Problem problem =
          dense_problem(method, {{"dstate", size(2)}, {"seqlen", size(length)}, {"initial_state", true}});
      const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
        if (name == "A") return std::vector{0.0, -kTurn, kTurn, 0.0}[i];
        if (name == "initial_state") return i == 0 ? 1.0 : 0.0;
        return name == "u" ? 0.0 : 1.0;  // Δ = 1
      });
      const auto last = compute_reference(problem, views_of(inputs), never_stop).at("last_state");
      const double angle = static_cast<double>(length) * (method == "foh" ? kTurn : 2 * std::atan(kTurn / 2));
      CHECK(std::abs(last.expected[0] - std::cos(angle)) < 1e-12);
      CHECK(std::abs(last.expected[1] - std::sin(angle)) < 1e-12);
      bounds.push_back(std::hypot(last.bound[0], last.bound[1]));
    }
    CHECK(bounds[1] < 2.01 * bounds[0]);
    CHECK(bounds[1] > 1.99 * bounds[0]);
    CHECK(bounds[1] < 2000 * 100);
  }
}

TEST_CASE("dense: honest ways to compute in f32 are within tolerance") {
  for (const std::int64_t n : {1, 4, 16, 32})
    for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta", "trained"}) {
      const std::map<std::string, AxisValue> axes{
          {"dim", size(3)}, {"seqlen", size(100)}, {"dstate", size(n)}, {"initial_state", true}};
      const Problem tustin = dense_problem("bilinear", axes);
      const Problem held = dense_problem("foh", axes);
      CAPTURE(n, distribution);
      const auto inputs = generate_inputs(tustin, {.distribution = distribution}, never_stop);
      CHECK(tolerance_ratio(tustin, inputs, bilinear<float>) < 1);
      CHECK(tolerance_ratio(tustin, inputs, bilinear_by_one_product<float>) < 1);
      CHECK(tolerance_ratio(tustin, inputs, bilinear_by_matrix<float>) < 1);
      CHECK(tolerance_ratio(held, inputs, hold<float>) < 1);
    }
}

TEST_CASE("dense: wrong ways are out of tolerance") {
  // A step that is off by a thousandth, B·u that is, columns for rows, the other method.
  struct Mistake {
    float delta = 1, input = 1;
    bool transposed = false, other_method = false;
  };
  const auto wrong = [](const Mistake& mistake, const StepFunction<float>& step) -> StepFunction<float> {
    return [=](const Numbers<float>& A, float delta, const Numbers<float>& h, Numbers<float> input) {
      const int n = static_cast<int>(h.size());
      Numbers<float> matrix = A;
      if (mistake.transposed)
        for (int i = 0; i < n * n; ++i) matrix[i] = A[i % n * n + i / n];
      for (float& value : input) value *= mistake.input;
      return step(matrix, delta * mistake.delta, h, input);
    };
  };
  const StepFunction<float> tustin = bilinear<float>, held = hold<float>;
  for (const std::int64_t n : {2, 16, 32})
    for (const std::string distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
      for (const std::string method : {"bilinear", "foh"}) {
        // From a state of 1, f32 would not see what tiny steps do.
        const bool tiny = distribution == "tiny_delta";
        const Problem problem = dense_problem(
            method, {{"dim", size(2)}, {"seqlen", size(40)}, {"dstate", size(n)}, {"initial_state", !tiny}});
        CAPTURE(n, distribution, method);
        const auto inputs = generate_inputs(problem, {.distribution = distribution}, never_stop);
        const auto ratio_of = [&](const Mistake& mistake) {
          const bool by_bilinear = (method == "bilinear") != mistake.other_method;
          return tolerance_ratio(problem, inputs, wrong(mistake, by_bilinear ? tustin : held));
        };
        CHECK(ratio_of({}) < 1);
        CHECK(ratio_of({.delta = 1.001F}) > 1);
        CHECK(ratio_of({.input = 1.001F}) > 1);
        if (!tiny) CHECK(ratio_of({.transposed = true}) > 1);                        // h hardly depends on A
        if (distribution == "large_A") CHECK(ratio_of({.other_method = true}) > 1);  // equal to order 2
      }
}

TEST_CASE("dense: a singular matrix is reported with its index") {
  // I − A/2 is: 0 in one direction; exactly singular; singular, but for rounding in the elimination: its
  // third row is the sum of the others, and the first pivot is 10.
  for (const auto& A : std::vector<std::vector<double>>{{2, 0, 0, 0, -1, 0, 0, 0, -1},
                                                        {1, 1, 0, 1, 1, 0, 0, 0, -1},
                                                        {-4, -2, -4, -14, -2, -10, -20, -6, -12}}) {
    const Problem problem = dense_problem(
        "bilinear", {{"batch", size(2)}, {"dim", size(3)}, {"seqlen", size(8)}, {"dstate", size(3)}});
    const auto inputs = make_inputs(problem, [&](const std::string& name, std::int64_t i) {
      if (name == "A") return i / 9 == 2 ? A[i % 9] : (i % 9 % 4 == 0 ? -1.0 : 0.25);
      // Singular at (b, d, t) = (1, 2, 5) only.
      if (name == "delta") return i == (1 * 3 + 2) * 8 + 5 ? 1 : 0.0625;
      return 0.5;
    });
    TensorSet views = views_of(inputs);
    const auto reference = compute_reference(problem, views, never_stop);
    const std::string note = "I - delta*A/2 is singular at (b, d, t) = (1, 2, 5): no value from there on";
    const auto& out = reference.at("out");
    CHECK(out.note == note);
    CHECK(reference.at("last_state").note == note);
    for (std::int64_t i = 0; i < 48; ++i) {
      const bool undefined = i >= 45;
      CHECK(std::isnan(out.expected[i]) == undefined);
      CHECK(std::isfinite(out.bound[i]) != undefined);
    }
    for (std::int64_t i = 0; i < 18; ++i)
      CHECK(std::isfinite(reference.at("last_state").expected[i]) == (i < 15));

    // What an implementation makes of it is not judged, the rest is.
    const auto specs = specs_of(problem, Role::output);
    const HostTensor got(specs[0]), last_state(specs[1]);
    views.add("out", got.view());
    views.add("last_state", last_state.view());
    find_implementation("selective_scan_fwd", "cpu-scalar").bind(problem, views, nullptr)(nullptr);
    const auto result = compare_output(got.view(), out.expectation(), {});
    CHECK(result.passed());
    CHECK(result.judged == 45);
  }
}

TEST_CASE("dense: several singular matrices are counted, the first is named") {
  const Problem problem =
      dense_problem("bilinear", {{"batch", size(2)}, {"dim", size(2)}, {"seqlen", size(3)}});
  const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
    if (name == "A") return i == 1 ? 2.0 : -1.0;
    return name == "delta" && i % 3 == 1 ? 1.0 : 0.5;
  });
  CHECK(compute_reference(problem, views_of(inputs), never_stop).at("out").note ==
        "I - delta*A/2 is singular at (b, d, t) = (0, 1, 1) and in 1 more (b, d): no value from there on");
  const Problem held = dense_problem("foh", {{"batch", size(2)}, {"dim", size(2)}, {"seqlen", size(3)}});
  CHECK(compute_reference(held, views_of(inputs), never_stop).at("out").note == "");
}

TEST_CASE("dense: a step of 0 changes nothing but the output") {
  for (const char* method : {"bilinear", "foh"}) {
    const Problem problem =
        dense_problem(method, {{"dstate", size(3)}, {"seqlen", size(4)}, {"initial_state", true}});
    const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
      return name == "delta" ? 0.0 : static_cast<double>(i + 1);
    });
    const auto last = compute_reference(problem, views_of(inputs), never_stop).at("last_state");
    CHECK(last.expected == std::vector<double>{1, 2, 3});
    for (const float bound : last.bound) CHECK(std::isfinite(bound));
  }
}
