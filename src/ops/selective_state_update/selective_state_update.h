#pragma once

#include <cstdint>

#include "model/dtype.h"

namespace ssmbench {

class Problem;
struct OpSpec;

/// One decoding step of Mamba, the state updated in place:
///   Δ = dt + dt_bias, softplus if asked; state = exp(Δ·A)·state + Δ·x·B; y = Σ_n C[n]·state[n];
///   out = (y + D·x)·silu(z)
/// form mamba1: state (B, D, N); x, dt, z, out (B, D); A (D, N); B, C (B, N), or (B, G, N) with several
/// groups; D, dt_bias (D,).
/// form mamba2: state (B, H, P, N); x, z, out (B, H, P); dt (B, H); A (H,); B, C (B, G, N); D, dt_bias (H,).
/// x, dt, z, B, C and out have the io dtype, state has state_dtype, the others are f32. out is of the new
/// state before that is rounded to its dtype, as in mamba_ssm.
/// Source: mamba_ssm's selective_state_update; Dao & Gu, "Transformers are SSMs" (2024), for the second form.
const OpSpec& selective_state_update();

/// The largest headdim and dstate that the operation is defined for.
inline constexpr std::int64_t kMaxHeadDim = 256;
inline constexpr std::int64_t kMaxStepDState = 256;

/// The axes of a selective_state_update problem as plain numbers. Both forms are one with heads: mamba1 has a
/// head of headdim 1 for each channel, whose decay rate differs from state to state.
struct StateUpdate {
  bool rate_per_state;  ///< A is (heads, dstate) instead of (heads,): form mamba1
  std::int64_t batch, heads, headdim, dstate, groups;
  bool has_z, has_D, has_dt_bias, dt_softplus;
  DType state_dtype;

  explicit StateUpdate(const Problem& problem);
  std::int64_t heads_per_group() const { return heads / groups; }
  std::int64_t rows() const { return batch * heads * headdim; }  ///< of dstate states each
  double states() const { return static_cast<double>(rows()) * static_cast<double>(dstate); }
};

}  // namespace ssmbench
