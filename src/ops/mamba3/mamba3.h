#pragma once

#include <cstdint>

#include "model/problem.h"

namespace ssmbench {

/// Mamba-3's scan, forward, with one input and one output per head (SISO). Per (batch, head), with
/// λ_t = σ(Trap_t), α_t = exp(ADT_t), β_t = (1 − λ_t)·DT_t·α_t, γ_t = λ_t·DT_t:
///   θ_t = θ_{t-1} + DT_t·π·tanh(Angles_t)
///   q_t = Rot(θ_t)(Q_t + Q_bias),  k_t = Rot(θ_t)(K_t + K_bias)
///   S_t = α_t·S_{t-1} + β_t·V_{t-1} ⊗ k_{t-1} + γ_t·V_t ⊗ k_t           (headdim × dstate)
///   out_t = (S_t·q_t + D·V_t)·silu(Z_t)
/// Rot turns pair i of the states, i < rope_angles, by θ[i]; rotary_pairing "interleaved" pairs (2i, 2i + 1),
/// "halves" (i, i + dstate/2). The other states are left alone.
/// Source: Mamba-3 (arXiv 2603.15569), and mamba_ssm's mamba3_siso_combined, whose names the tensors have.
/// All tensors are stored in C order. Io dtype: Q, K (B, L, G, N); V, Z, out (B, L, H, P); Trap (B, H, L);
/// Angles (B, L, H, S). f32: ADT, DT (B, H, L); Q_bias, K_bias (H, N); D (H,). cu_seqlens (M + 1,) i32 packs
/// M sequences along L, needs batch 1, starts at 0, never decreases and ends at L. Without it M is B.
/// States, all or none, of each sequence: Input_Angle_State (M, H, S) is θ_{-1}, Input_SSM_State
/// (M, H, P, N), Input_K_State (M, H, N), rotated, and Input_V_State (M, H, P), f32; without them they are 0.
/// Final_Angle_State (mod 2π), Final_SSM_State, Final_K_State are f32, Final_V_State is of the io dtype. A
/// sequence without steps passes its states through.
/// chunk_size is a hint to implementations: the result does not depend on it. angle_dtype is what an
/// implementation may store θ_t in.
const OpSpec& mamba3_siso_fwd();

/// The same with R inputs and outputs per head (MIMO) and one state, r = 0 … R − 1:
///   V_t^r = V_t·MIMO_V^r, and q_t^r, k_t^r of Q_t^r, K_t^r and their biases, as above
///   S_t = α_t·S_{t-1} + β_t·Σ_r V_{t-1}^r ⊗ k_{t-1}^r + γ_t·Σ_r V_t^r ⊗ k_t^r
///   y_t^r = S_t·q_t^r + D·V_t^r
///   y_t^r ← y_t^r·(mean_p (y_t^r)² + 1e-5)^(-1/2)·outproj_norm_weight      with outproj_norm
///   out_t = Σ_r y_t^r·silu(Z_t·MIMO_Z^r)·MIMO_Out^r
/// Without out_reduce there is no MIMO_Out, and out keeps its ranks, (B, L, R, H, P). Q, K
/// (B, L, R, G, N); Q_bias, K_bias (H, R, N); MIMO_V, MIMO_Z, MIMO_Out (H, R, P) f32; outproj_norm_weight
/// (H, P) f32; Angles f32; Input_K_State, Final_K_State (M, R, H, N). V states are of V before MIMO_V.
/// Source: mamba_ssm's mamba3_mimo.
const OpSpec& mamba3_mimo_fwd();

/// All gradients of the scans. Inputs are those of the scan, dout, and with final_states the cotangents
/// dFinal_Angle_State, dFinal_SSM_State, dFinal_K_State and dFinal_V_State (of the io dtype, the others f32);
/// outputs are d<name> of every input of the scan but cu_seqlens, of its shape and dtype. With dy_t =
/// dout_t·silu(Z_t) and G_t the adjoint of S_t, after the last step dFinal_SSM_State:
///   G_t  = dy_t ⊗ q_t + α_{t+1}·G_{t+1}          dq_t = S_tᵀ·dy_t
///   dV_t = γ_t·G_t·k_t + β_{t+1}·G_{t+1}·k_t + D·dy_t         (last: + dFinal_V_State)
///   dk_t = γ_t·G_tᵀ·V_t + β_{t+1}·G_{t+1}ᵀ·V_t                (last: + dFinal_K_State)
///   dADT_t = ⟨G_t, S_t − γ_t·V_t ⊗ k_t⟩
///   dTrap_t = λ_t·(1 − λ_t)·DT_t·⟨G_t, V_t ⊗ k_t − α_t·V_{t-1} ⊗ k_{t-1}⟩
///   dθ_t[i] = q⁰·dq¹ − q¹·dq⁰ + k⁰·dk¹ − k¹·dk⁰ of the pair (0, 1) = i
///   Θ_t  = dFinal_Angle_State + Σ_{u≥t} dθ_u
///   dAngles_t = π·(1 − tanh²(Angles_t))·DT_t·Θ_t
///   dDT_t = ⟨G_t, λ_t·V_t ⊗ k_t + (1 − λ_t)·α_t·V_{t-1} ⊗ k_{t-1}⟩ + Σ_i π·tanh(Angles_t[i])·Θ_t[i]
/// with dQ, dK and their biases those of dq, dk turned back by θ_t, and dInput_Angle_State Θ_0, dInput_SSM_State
/// α_0·G_0, dInput_K_State and dInput_V_State β_0·G_0ᵀ·V_{-1} and β_0·G_0·k_{-1}. Source: as the scans.
const OpSpec& mamba3_siso_bwd();
const OpSpec& mamba3_mimo_bwd();

/// One step of either, the states updated in place: form siso or mimo. The tensors have no axis of time:
/// Q, K (B, G, N) or (B, R, G, N); V, Z, out (B, H, P), out (B, R, H, P) without out_reduce; ADT, DT, Trap
/// (B, H); Angles (B, H, S); Angle_State (B, H, S), SSM_State (B, H, P, N), K_State (B, H, N) or
/// (B, R, H, N), and V_State (B, H, P), f32.
const OpSpec& mamba3_step();

/// The largest headdim and dstate, rank and chunk_size that the operations are defined for.
inline constexpr std::int64_t kMaxMamba3Dim = 256;
inline constexpr std::int64_t kMaxMamba3Rank = 8;
inline constexpr std::int64_t kMaxMamba3Chunk = 256;

/// The eps of outproj_norm.
inline constexpr double kMamba3NormEps = 1e-5;

/// The axes of a problem of any of the operations as plain numbers; of a step, the tensors of a sequence of
/// one.
struct Mamba3 {
  bool is_step, is_mimo;
  std::int64_t batch, seqlen, nheads, headdim, dstate, groups;
  std::int64_t rank;       ///< 1 unless is_mimo
  std::int64_t angles;     ///< rotated pairs of states
  std::int64_t sequences;  ///< M
  std::int64_t chunk_size;
  bool interleaved;     ///< rotary_pairing
  bool angles_in_bf16;  ///< angle_dtype
  bool has_z, has_D, has_initial_states, has_final_states, has_cu_seqlens;
  bool reduces_ranks;  ///< there is MIMO_Out; true for SISO, which has one rank
  bool has_norm;

  explicit Mamba3(const Problem& problem);
  std::int64_t heads_per_group() const { return nheads / groups; }
  /// The states of pair i < angles.
  std::int64_t first_of_pair(std::int64_t i) const { return interleaved ? 2 * i : i; }
  std::int64_t second_of_pair(std::int64_t i) const { return interleaved ? 2 * i + 1 : i + dstate / 2; }
  /// Updates of one state element: the unit that the cost of a scan is counted in.
  double updates() const {
    return static_cast<double>(batch) * static_cast<double>(seqlen) * static_cast<double>(nheads) *
           static_cast<double>(headdim) * static_cast<double>(dstate);
  }
};

}  // namespace ssmbench
