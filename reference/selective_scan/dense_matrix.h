#pragma once

#include <array>
#include <cstddef>
#include <vector>

// Small dense linear algebra in fp64, for selective_scan with dense A.

namespace ssmbench {

inline constexpr std::size_t kMaxMatrix = 32;

using Vector = std::array<double, kMaxMatrix>;

/// n × n, n ≤ kMaxMatrix, row by row. What lies outside of it is 0 and stays 0.
struct Matrix {
  explicit Matrix(int size) : n(size) {}
  static Matrix identity(int size);

  double* operator[](int i) { return values.data() + i * kMaxMatrix; }
  const double* operator[](int i) const { return values.data() + i * kMaxMatrix; }

  int n;
  std::array<double, kMaxMatrix * kMaxMatrix> values{};
};

Matrix product(const Matrix& a, const Matrix& b);
Vector product(const Matrix& a, const Vector& x);
/// |a|·|x|
Vector magnitude_product(const Matrix& a, const Vector& x);
Matrix transposed(const Matrix& a);
/// Largest column sum, and largest row sum, of magnitudes.
double norm_1(const Matrix& a);
double norm_infinity(const Matrix& a);

/// P·M = L·U with partial pivoting. Source: Golub & Van Loan, "Matrix Computations", 4th ed.,
/// algorithm 3.4.1.
class LU {
 public:
  explicit LU(const Matrix& matrix);
  /// A pivot is 0; then there is no solution.
  bool singular() const { return singular_; }
  Vector solve(const Vector& right) const;
  Matrix inverse() const;
  /// |P⁻¹·L|·|U|·|x|: γ times that is the backward error of the solution x by this factorization (Higham,
  /// "Accuracy and Stability of Numerical Algorithms", 2nd ed., theorem 9.4).
  Vector magnitude_product(const Vector& x) const;

 private:
  Matrix factors_;                     // L below the diagonal, where its ones are not stored, and U
  std::array<int, kMaxMatrix> row_{};  // of the matrix, for each row of the factors
  bool singular_ = false;
};

/// e^{ΔA} and ∫₀^Δ e^{sA} ds = Δ·φ1(ΔA), for one A and many Δ. The Taylor series of both at Δ/2^k, where
/// ‖ΔA/2^k‖₁ ≤ 1/2, from powers of A that are computed once; then k doublings of e^{τA} − I and
/// of the integral. Errors of e^{ΔA} are some roundoffs relative to the larger of 1 and its norm. Source:
/// Higham, "Functions of Matrices" (2008), sections 10.3 and 10.7.4.
class MatrixExponential {
 public:
  explicit MatrixExponential(const Matrix& A);

  /// At one step size τ.
  struct Step {
    double tau;
    Matrix exponential, integral;
  };
  /// At Δ/2^k, Δ/2^(k-1), …, Δ.
  std::vector<Step> doublings(double delta) const;

 private:
  double norm_;
  double scale_;                // a power of two, at least ‖A‖₁
  std::vector<Matrix> powers_;  // (A/scale)^1, ^2, …
};

}  // namespace ssmbench
