#pragma once

#include <cstdint>

#include "model/method_id.h"

namespace ssmbench {

class Problem;
struct OpSpec;

/// Mamba-1's selective scan, forward:
///   Δ = delta + delta_bias, softplus if asked; h_t = Ā(Δ_t, A)·h_{t-1} + c(Δ_t, A)·B_t·u_t, Ā and c by the
///   method (model/method.h); out = (y + D·u)·silu(z) with y = Σ_n C_t[n]·h_t[n], or 2·Re Σ_n C_t[n]·h_t[n]
///   for complex A.
/// Source: Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), eq. 2 and
/// algorithm 2; tensor names and shapes as in mamba_ssm's selective_scan_fn.
/// Complex A makes B, C and the states complex (c64) too. Dense A is one real matrix per channel, (D, N, N),
/// row index = state that changes: h' = A·h + B·u; its methods are bilinear, h_t = (I − ΔA/2)⁻¹·((I +
/// ΔA/2)·h_{t-1} + Δ·B·u), and foh, h_t = e^{ΔA}·h_{t-1} + Δ·φ1(ΔA)·B·u with the functions of the matrix ΔA.
/// Outputs: out, and last_state = h at the last step.
const OpSpec& selective_scan_fwd();

/// Its gradients: from the inputs of selective_scan_fwd, dout = ∂loss/∂out and, if asked, dlast_state =
/// ∂loss/∂last_state: du, ddelta, dA, dB, dC, and dD, dz, ddelta_bias, dinitial_state where the input exists,
/// the exact derivatives of the formulas above by every method. Each has the shape, dtype and layout of its
/// input: constant B and C get the sum over batch and time, B and C of a group the sum over its channels.
/// Complex gradients are ∂loss/∂Re + i·∂loss/∂Im, as PyTorch and mamba_ssm have them.
const OpSpec& selective_scan_bwd();

/// The largest dstate that the operation is defined for.
inline constexpr std::int64_t kMaxDState = 256;
/// The same for dense A.
inline constexpr std::int64_t kMaxDenseDState = 32;

/// The axes of a selective_scan problem as plain numbers.
struct SelectiveScan {
  std::int64_t batch, dim, seqlen, dstate, groups;
  MethodId method;
  bool complex;                 ///< A, B, C and the states are c64
  bool dense;                   ///< A is a matrix per channel: (D, N, N)
  bool variable_b, variable_c;  ///< B, C given per time step (B, G, N, L) instead of per channel (D, N)
  bool has_z, has_D, has_delta_bias, has_initial_state, delta_softplus;

  explicit SelectiveScan(const Problem& problem);
  std::int64_t channels_per_group() const { return dim / groups; }
  /// (element, state) pairs: the unit that the cost of a scan is counted in.
  double pairs() const {
    return static_cast<double>(batch) * static_cast<double>(dim) * static_cast<double>(seqlen) *
           static_cast<double>(dstate);
  }
};

}  // namespace ssmbench
