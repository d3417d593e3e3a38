#include "reference/selective_scan/dense_matrix.h"

#include <cmath>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

Matrix matrix(const std::vector<std::vector<double>>& rows) {
  Matrix m(static_cast<int>(rows.size()));
  for (int i = 0; i < m.n; ++i)
    for (int j = 0; j < m.n; ++j) m[i][j] = rows[i][j];
  return m;
}

/// Entries in (−1, 1), different for every seed.
Matrix random_matrix(int n, std::uint64_t seed) {
  Matrix m(n);
  std::uint64_t draw = seed;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      draw = draw * 6364136223846793005U + 1442695040888963407U;
      m[i][j] = std::ldexp(static_cast<double>(draw >> 40), -23) - 1;
    }
  return m;
}

double largest(const Matrix& m) {
  double most = 0;
  for (const double value : m.values) most = std::max(most, std::abs(value));
  return most;
}

/// Largest difference of two matrices, relative to the largest entry; for exponentials to 1, the identity's,
/// at least.
double difference(Matrix got, const Matrix& expected, double at_least = 0) {
  for (std::size_t i = 0; i < got.values.size(); ++i) got.values[i] -= expected.values[i];
  return largest(got) / std::max(at_least, largest(expected));
}

MatrixExponential::Step functions_of(const Matrix& A, double delta) {
  return MatrixExponential(A).doublings(delta).back();
}

}  // namespace

TEST_CASE("LU solves, inverts and says what it costs, pivoting where it has to") {
  for (const int n : {1, 2, 3, 16, 31, 32}) {
    CAPTURE(n);
    Matrix m = random_matrix(n, 5);
    if (n > 1) m[0][0] = 0;  // without pivoting a division by zero
    const LU lu(m);
    CHECK_FALSE(lu.singular());
    CHECK(difference(product(m, lu.inverse()), Matrix::identity(n)) < 1e-12);
    Vector x{};
    for (int i = 0; i < n; ++i) x[i] = i % 3 - 1.5;
    const Vector solved = lu.solve(product(m, x));
    const Vector cost = lu.magnitude_product(x);
    const Vector least = magnitude_product(m, x);
    for (int i = 0; i < n; ++i) {
      CHECK(std::abs(solved[i] - x[i]) < 1e-12);
      CHECK(cost[i] >= least[i] * (1 - 1e-12));
    }
  }
  // P·M = L·U with P swapping both rows, L = (1 0; 0.5 1), U = (2 8; 0 -3): |L|·|U|·(1, 1) = (10, 8).
  const Vector cost = LU(matrix({{1, 1}, {2, 8}})).magnitude_product({1, 1});
  CHECK(cost[1] == 10);
  CHECK(cost[0] == 8);
}

TEST_CASE("LU knows an exactly singular matrix") {
  CHECK(LU(matrix({{1, 2}, {2, 4}})).singular());
  CHECK(LU(matrix({{0}})).singular());
  CHECK(LU(matrix({{1, 2, 3}, {4, 8, 6}, {2, 4, 1}})).singular());
  CHECK_FALSE(LU(matrix({{0, 1}, {1, 0}})).singular());
}

TEST_CASE("the exponential of a diagonal matrix is that of its elements") {
  for (const double delta : {0.0, 1e-9, 0.01, 0.25, 1.0, 7.0, -0.5}) {
    const Matrix A = matrix({{-1, 0, 0}, {0, -16, 0}, {0, 0, 0.125}});
    const auto [tau, exponential, integral] = functions_of(A, delta);
    CHECK(tau == delta);
    for (int i = 0; i < 3; ++i) {
      const double z = delta * A[i][i];
      CHECK(std::abs(exponential[i][i] - std::exp(z)) <= 1e-13 * std::max(1.0, std::exp(z)));
      CHECK(std::abs(integral[i][i] - std::expm1(z) / A[i][i]) <= 1e-13 * std::abs(std::expm1(z) / A[i][i]));
    }
  }
}

TEST_CASE("a rotation, a nilpotent matrix and a Jordan block have the functions that they should") {
  const double w = 3;
  for (const double delta : {0.01, 0.4, 2.0, 20.0}) {
    CAPTURE(delta);
    const double c = std::cos(w * delta), s = std::sin(w * delta);
    const auto turn = functions_of(matrix({{0, -w}, {w, 0}}), delta);
    CHECK(difference(turn.exponential, matrix({{c, -s}, {s, c}})) < 1e-13 * (1 + delta));
    CHECK(difference(turn.integral, matrix({{s / w, (c - 1) / w}, {(1 - c) / w, s / w}})) <
          1e-13 * (1 + delta));

    const double d = delta, d2 = d * d / 2, d3 = d * d * d / 6;
    const auto shift = functions_of(matrix({{0, 1, 0}, {0, 0, 1}, {0, 0, 0}}), delta);
    CHECK(difference(shift.exponential, matrix({{1, d, d2}, {0, 1, d}, {0, 0, 1}})) < 1e-13);
    CHECK(difference(shift.integral, matrix({{d, d2, d3}, {0, d, d2}, {0, 0, d}})) < 1e-13);

    const double e = std::exp(-2 * d);
    const auto jordan = functions_of(matrix({{-2, 1}, {0, -2}}), delta);
    CHECK(difference(jordan.exponential, matrix({{e, d * e}, {0, e}}), 1) < 1e-13);
    CHECK(difference(jordan.integral, matrix({{(1 - e) / 2, (1 - (1 + 2 * d) * e) / 4}, {0, (1 - e) / 2}})) <
          1e-13);
  }
}

TEST_CASE("exponentials are those of an independent program") {
  // Python's mpmath 1.3, 60 digits: expm of Δ·((A, b), (0, 0)), whose upper part is (e^{ΔA}, Δ·φ1(ΔA)·b).
  struct Case {
    double delta;
    Matrix A;
    Vector b;
    std::vector<std::vector<double>> expected;  // e^{ΔA} | Δ·φ1(ΔA)·b
  };
  const Matrix mixed = matrix({{-1.5, 2.25, -0.125}, {-3.0, -0.5, 0.75}, {0.25, -1.0, -8.0}});
  const Matrix far_from_normal = matrix({{-1, 100, 0}, {0, -2, 100}, {0, 0, -3}});
  const std::vector<Case> cases{
      {0.015625,
       mixed,
       {1, -2, 0.5},
       {{0.976022478716833546, 0.0346154641199712741, -0.00161804909358312844, 0.0148886177693352936},
        {-0.0461129056043754743, 0.991317390398627366, 0.0110121263271788408, -0.0314371580327246665},
        {0.00397493618771829664, -0.0145596954361464478, 0.882409415019902357, 0.00760753473813701491}}},
      {0.5,
       mixed,
       {1, -2, 0.5},
       {{0.0668885144667680473, 0.505612950049196203, 0.039026238529521071, -0.0842856761676275209},
        {-0.665119180038827223, 0.271860217763444787, 0.0527229696731421579, -0.903296295610912224},
        {0.0845130834227767222, -0.0432030328172197332, 0.0115886718232453628, 0.150688923950020809}}},
      {3,
       mixed,
       {1, -2, 0.5},
       {{-0.0018896251654634936, 0.0381606432912064022, 0.00321015436815792676, -0.474275296702010289},
        {-0.0501636025885360497, 0.0135025441272769547, 0.00352247213570789472, -0.786642001737087961},
        {0.00649028365898890447, -0.0025448641150597333, -0.000520959325747610492, 0.144594205666918853}}},
      {1,
       far_from_normal,
       {1, 1, 1},
       {{0.367879441171442322, 23.254415793482963, 734.979715330404404, 441.57837031626024},
        {0, 0.135335283236612692, 8.55482148687487489, 11.9918038088131905},
        {0, 0, 0.049787068367863943, 0.316737643877378686}}}};
  for (const auto& one : cases) {
    CAPTURE(one.delta);
    const auto [tau, exponential, integral] = functions_of(one.A, one.delta);
    const Vector driven = product(integral, one.b);
    double scale = 0;
    for (const auto& row : one.expected)
      for (const double value : row) scale = std::max(scale, std::abs(value));
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) CHECK(std::abs(exponential[i][j] - one.expected[i][j]) <= 1e-13 * scale);
      CHECK(std::abs(driven[i] - one.expected[i][3]) <= 1e-13 * scale);
    }
  }
}
