#pragma once

#include <optional>

#include "model/method.h"
#include "reference/selective_scan/dense_matrix.h"
#include "reference/selective_scan/step.h"

namespace ssmbench {

/// One step of h' = A·h + B·u with a matrix A, and what an implementation may add to the error of the state.
struct DenseStep {
  Vector state;  ///< h_t
  Matrix decay;  ///< Ā
  Vector error;  ///< λ, in units of the roundoff
};

/// A of one channel, and a method: bilinear or foh.
///
/// λ, with r = 2 + √N roundings for a sum of N products (step.h says why √N), e_Δ the relative
/// error of Δ, and |w| for |A|·|h_{t-1}| + |B·u|:
/// - bilinear: h_t solves M·h_t = (I + ΔA/2)·h_{t-1} + Δ·B·u with M = I − ΔA/2, or
///   M·(h_t − h_{t-1}) = Δ·(A·h_{t-1} + B·u), or M·(h_t + h_{t-1}) = 2·h_{t-1} + Δ·B·u, by LU factorization.
///   Errors of the right-hand side, of the entries of M, and of the factorization and the two triangular
///   solutions (|L|·|U|, r each) go through M⁻¹; with x = max(|h_{t-1}|, |h_t|)
///     λ = |M⁻¹|·((e_Δ + 1 + r)·|Δ||w| + 2·|h_{t-1}| + ((e_Δ + 1)·|ΔA/2| + |diag M|)·x + 3r·|L||U|·x) + |h_t|
/// - foh: h_t is h(1) of h' = ΔA·h + Δ·B·u over one unit of time, by Taylor series or squaring, in ‖ΔA‖ parts
///   or what amounts to them. With x the largest |h| on the way, an implementation makes errors at a rate of
///     η = (e_Δ + 2r)·ρ + ½·‖ρ‖∞ + max(1, ‖ΔA‖)·x,    ρ = |ΔA|·x + |Δ·B·u|
///   at most, and e^{(1-s)·ΔA} carries that of time s to the end: ∫ = (I + |e^{τA}|)·∫ at every doubling of
///   τ. The ½·‖ρ‖∞ is a series that ends when its rest is below half a roundoff in norm (Al-Mohy & Higham,
///   "Computing the Action of the Matrix Exponential" (2011)): much for a state that others hardly drive.
///     λ = ∫ + r·(|e^{ΔA}|·|h_{t-1}| + |Δ·φ1(ΔA)|·|B·u|) + |h_t|
class DenseSystem {
 public:
  DenseSystem(MethodId method, const Matrix& A);

  /// From h = h_{t-1}, whose error is at most h_error roundoffs, and input = B·u. λ is charged at |h| and
  /// what an implementation in f32 may have in its place: where Ā is next to 0, and so what is left of errors
  /// before, its own Ā need not be. Nothing where I − ΔA/2 is singular, exactly or to fp64.
  std::optional<DenseStep> step(StepSize size, const Vector& h, const Vector& h_error,
                                const Vector& input) const;

 private:
  std::optional<DenseStep> bilinear(StepSize size, const Vector& h, const Vector& h_size,
                                    const Vector& input) const;
  DenseStep hold(StepSize size, const Vector& h, const Vector& h_size, const Vector& input) const;

  MethodId method_;
  Matrix A_;
  double roundings_;  // r
  double norm_;  // the larger of ‖A‖₁ and ‖A‖∞, either of which parts of a step may be chosen by
  std::optional<MatrixExponential> exponential_;
};

}  // namespace ssmbench
