#include "reference/selective_scan/dense_matrix.h"

#include <algorithm>
#include <cmath>

namespace ssmbench {
namespace {

// (1/2)^16/16! = 7e-19 is far below fp64's roundoff.
constexpr int kTaylorTerms = 16;

void add(Matrix& sum, double factor, const Matrix& term) {
  for (int i = 0; i < sum.n; ++i)
    for (int j = 0; j < sum.n; ++j) sum[i][j] += factor * term[i][j];
}

/// 2·x + rest
Matrix doubled(const Matrix& x, Matrix rest) {
  add(rest, 2, x);
  return rest;
}

}  // namespace

Matrix Matrix::identity(int size) {
  Matrix result(size);
  for (int i = 0; i < size; ++i) result[i][i] = 1;
  return result;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.n);
  for (int i = 0; i < a.n; ++i)
    for (int k = 0; k < a.n; ++k)
      for (int j = 0; j < a.n; ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Vector product(const Matrix& a, const Vector& x) {
  Vector y{};
  for (int i = 0; i < a.n; ++i)
    for (int j = 0; j < a.n; ++j) y[i] += a[i][j] * x[j];
  return y;
}

Vector magnitude_product(const Matrix& a, const Vector& x) {
  Vector y{};
  for (int i = 0; i < a.n; ++i)
    for (int j = 0; j < a.n; ++j) y[i] += std::abs(a[i][j] * x[j]);
  return y;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a.n);
  for (int i = 0; i < a.n; ++i)
    for (int j = 0; j < a.n; ++j) t[j][i] = a[i][j];
  return t;
}

double norm_1(const Matrix& a) {
  Vector sums{};
  for (int i = 0; i < a.n; ++i)
    for (int j = 0; j < a.n; ++j) sums[j] += std::abs(a[i][j]);
  return *std::ranges::max_element(sums);
}

double norm_infinity(const Matrix& a) {
  return norm_1(transposed(a));
}

LU::LU(const Matrix& matrix) : factors_(matrix) {
  const int n = matrix.n;
  for (int i = 0; i < n; ++i) row_[i] = i;
  for (int k = 0; k < n; ++k) {
    int pivot = k;
    for (int i = k + 1; i < n; ++i)
      if (std::abs(factors_[i][k]) > std::abs(factors_[pivot][k])) pivot = i;
    std::swap_ranges(factors_[k], factors_[k] + n, factors_[pivot]);
    std::swap(row_[k], row_[pivot]);
    if (factors_[k][k] == 0) {
      singular_ = true;
      return;
    }
    for (int i = k + 1; i < n; ++i) {
      const double factor = factors_[i][k] /= factors_[k][k];
      for (int j = k + 1; j < n; ++j) factors_[i][j] -= factor * factors_[k][j];
    }
  }
}

Vector LU::solve(const Vector& right) const {
  const int n = factors_.n;
  Vector x{};
  for (int i = 0; i < n; ++i) {
    x[i] = right[row_[i]];
    for (int j = 0; j < i; ++j) x[i] -= factors_[i][j] * x[j];
  }
  for (int i = n - 1; i >= 0; --i) {
    for (int j = i + 1; j < n; ++j) x[i] -= factors_[i][j] * x[j];
    x[i] /= factors_[i][i];
  }
  return x;
}

Matrix LU::inverse() const {
  // As solve, for all columns of the identity at once.
  const int n = factors_.n;
  Matrix x(n);
  for (int i = 0; i < n; ++i) {
    x[i][row_[i]] = 1;
    for (int k = 0; k < i; ++k)
      for (int j = 0; j < n; ++j) x[i][j] -= factors_[i][k] * x[k][j];
  }
  for (int i = n - 1; i >= 0; --i) {
    for (int k = i + 1; k < n; ++k)
      for (int j = 0; j < n; ++j) x[i][j] -= factors_[i][k] * x[k][j];
    for (int j = 0; j < n; ++j) x[i][j] /= factors_[i][i];
  }
  return x;
}

Vector LU::magnitude_product(const Vector& x) const {
  const int n = factors_.n;
  Vector upper{};
  for (int i = 0; i < n; ++i)
    for (int j = i; j < n; ++j) upper[i] += std::abs(factors_[i][j] * x[j]);
  Vector result{};
  for (int i = 0; i < n; ++i) {
    double sum = upper[i];
    for (int j = 0; j < i; ++j) sum += std::abs(factors_[i][j]) * upper[j];
    result[row_[i]] = sum;
  }
  return result;
}

MatrixExponential::MatrixExponential(const Matrix& A) : norm_(norm_1(A)) {
  // Powers of a matrix of norm at most 1 neither overflow nor lose a digit to the scaling by a power of two.
  scale_ = norm_ > 0 ? std::exp2(std::ceil(std::log2(norm_))) : 1;
  Matrix scaled = A;
  for (double& value : scaled.values) value /= scale_;
  powers_.push_back(scaled);
  while (powers_.size() < kTaylorTerms) powers_.push_back(product(scaled, powers_.back()));
}

std::vector<MatrixExponential::Step> MatrixExponential::doublings(double delta) const {
  const int n = powers_.front().n;
  const double norm = std::abs(delta) * norm_;
  // A norm that is not finite gives NaN in any case.
  const int count = norm > 0.5 && std::isfinite(norm) ? static_cast<int>(std::ceil(std::log2(norm))) + 1 : 0;

  // Without the identity, changes far smaller than 1 keep their digits: growth is e^{τA} − I.
  Matrix growth(n);
  Matrix integral = Matrix::identity(n);
  double tau = std::ldexp(delta, -count);
  double factor = 1;  // (τ·scale)^k/k!
  for (int k = 1; k <= kTaylorTerms; ++k) {
    factor *= tau * scale_ / k;
    add(growth, factor, powers_[k - 1]);
    add(integral, factor / (k + 1), powers_[k - 1]);
  }
  for (double& value : integral.values) value *= tau;

  std::vector<Step> steps;
  for (int k = 0;; ++k) {
    steps.push_back({tau, growth, integral});
    for (int i = 0; i < n; ++i) steps.back().exponential[i][i] += 1;
    if (k == count) break;
    tau *= 2;
    // e^{2X} − I = 2·(e^X − I) + (e^X − I)², and ∫₀^{2τ} = 2·∫₀^τ + (e^{τA} − I)·∫₀^τ
    integral = doubled(integral, product(growth, integral));
    growth = doubled(growth, product(growth, growth));
  }
  return steps;
}

}  // namespace ssmbench
