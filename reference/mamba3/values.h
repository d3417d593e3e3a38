#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

#include "ops/mamba3/mamba3.h"
#include "reference/common/activations.h"
#include "reference/common/rounded.h"
#include "reference/mamba3/projections.h"
#include "reference/mamba3/steps.h"
#include "reference/ssd_chunk_scan/pass.h"

namespace ssmbench {

/// What storing an angle below 8 in bf16 does, half a unit in the last place, in roundoffs of f32.
inline constexpr double kAngleInBf16 = 0x1p-6 / 0x1p-24;
inline constexpr double kTurn = 2 * std::numbers::pi;

/// Roundings that one term of a result has as a whole (V and the decayed product; in MIMO MIMO_V, DT and s
/// as well), and those of each of its parts k·q (k, k with its decay; the biases of both). Terms of a
/// gradient have dy for V, and MIMO_Out and the gate for MIMO_V.
struct OperandRoundings {
  double terms, parts;
  double least;  ///< what the rounding of V·MIMO_V is relative to at least; see least_operand()
};
inline OperandRoundings mamba3_operand_roundings(const Mamba3& scan, DType dtype) {
  return scan.is_mimo ? OperandRoundings{5, 4, least_operand(dtype)} : OperandRoundings{2, 2, 0};
}

/// A result on its way out, with what an implementation may get wrong about it.
struct Mamba3Value {
  double value = 0, magnitude = 0;
  double error = 0;           ///< in roundoffs
  double variance = 0;        ///< of rounded operands, in squared roundoffs
  double angle_variance = 0;  ///< of rounded angles, in squared radians
};

/// By a number that all others of the sum are multiplied by too.
inline void scale(Mamba3Value& value, const Rounded<double>& factor) {
  const double size = std::abs(factor.value);
  value.error = size * value.error + std::abs(value.value) * (factor.error + size);
  value.value *= factor.value;
  value.magnitude *= size;
  value.variance *= size * size;
  value.angle_variance *= size * size;
}

inline void add(Mamba3Value& sum, const Mamba3Value& term) {
  sum.value += term.value;
  sum.magnitude += term.magnitude;
  sum.error += term.error + term.magnitude;
  sum.variance += term.variance;
  sum.angle_variance += term.angle_variance;
}

/// q·k of one step, in which the rotation cancels. `roundings`: of a sum over states.
inline Mamba3Value mamba3_score(const Mamba3Vector& q, const Mamba3Vector& k, double roundings) {
  Mamba3Value score;
  for (std::size_t n = 0; n < q.plain.size(); ++n) {
    const double size = q.size[n] * k.size[n];
    score.value += q.plain[n] * k.plain[n];
    score.magnitude += size;
    score.variance += 2 * size * size;
  }
  score.error = (roundings + 2 * kRotationError) * score.magnitude;
  return score;
}

/// Adds γ·(q·k)·x, what a step reads of its own input; x is exact or off by x_error.
inline void add_own_term(Mamba3Value& sum, const Rounded<double>& own, const Mamba3Value& score, double x,
                         double x_error, OperandRoundings roundings) {
  const double factor = std::abs(own.value * x);
  sum.value += own.value * score.value * x;
  sum.magnitude += factor * score.magnitude;
  sum.error += factor * score.error + score.magnitude * std::abs(x) * (own.error + 3 * own.value) +
               std::abs(own.value * score.value) * x_error;
  sum.variance +=
      factor * factor * (score.variance + (roundings.terms + roundings.parts) * score.value * score.value);
  const double least = own.value * score.value * roundings.least;
  sum.variance += least * least;
}

/// silu(Z·MIMO_Z) and its slope by z = Z·MIMO_Z, a product that MIMO rounds.
inline Gate mamba3_gate(double z, bool is_mimo) {
  Gate gate = gate_of(z);
  if (!is_mimo) return gate;
  gate.value.error += std::abs(gate.slope.value * z) + std::abs(gate.value.value);
  gate.slope.error += std::abs(z);  // silu'' is below 1/2
  return gate;
}

/// (mean y² + eps)^(-1/2) of a row of y.
inline double inverse_of_norm(std::span<const Mamba3Value> y) {
  double squares = 0;
  for (const auto& each : y) squares += each.value * each.value;
  return 1 / std::sqrt(squares / static_cast<double>(y.size()) + kMamba3NormEps);
}

/// y·(mean y² + eps)^(-1/2): its derivative is that of y less y·mean(y·dy)/(mean y² + eps).
inline void normalize(std::span<Mamba3Value> y) {
  const double inverse = inverse_of_norm(y);
  const auto count = static_cast<double>(y.size());
  double error = 0;
  double variance = 0;
  for (const auto& each : y) {
    error += std::abs(each.value) * each.error;
    variance += each.value * each.value * each.variance;
  }
  for (auto& each : y) {
    const double size = std::abs(each.value) * inverse * inverse;
    each.error += size * error / count + (4 + std::sqrt(count)) * std::abs(each.value);
    each.variance += size * size * variance / (count * count);
    scale(each, exactly(inverse));
  }
}

}  // namespace ssmbench
