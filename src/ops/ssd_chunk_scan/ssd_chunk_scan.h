#pragma once

#include <cstdint>

namespace ssmbench {

class Problem;
struct OpSpec;

/// Mamba-2's scan, forward, with one decay per head:
///   Δ = dt + dt_bias, softplus if asked, then clamped to dt_limit
///   h_t = exp(Δ_t·A)·h_{t-1} + Δ_t·x_t ⊗ B_t                 (headdim × dstate per head)
///   out = (h_t·C_t + D·x)·silu(z)
/// The state is reset to zero where seq_idx changes; initial_states reach only the leading run of seq_idx 0.
/// chunk_size is a hint to implementations: the result does not depend on it.
/// Source: Dao & Gu, "Transformers are SSMs" (2024), section 6 and listing 1; tensor names and shapes as in
/// mamba_ssm's mamba_chunk_scan_combined.
/// All tensors are stored in C order: x, z, out (B, L, H, P); dt (B, L, H); A, dt_bias (H,) f32; B, C
/// (B, L, G, N); D (H,) or (H, P) f32; initial_states, final_states (B, H, P, N) f32; seq_idx (B, L) i32, in
/// each batch starting at 0 and never decreasing.
/// Forward only: cu_seqlens (M + 1,) i32 packs M sequences along L, needs batch 1, starts at 0, never decreases
/// and ends at L. States are then (M, H, P, N), of each sequence; one without steps passes its state through.
/// lengths is how they are drawn: ragged, one of a single step among them where there are three or more; equal;
/// with-empty, ragged with one without steps where there are two or more.
/// With states_at > 0 there are states_at (K,) i32, steps of L, and the output states (K, H, P, N): h after
/// each of these steps, of the sequence that it belongs to. Servers keep them where blocks of prompts end. They
/// are drawn one from each of K equal parts of L.
/// Also forward only: state_dtype f16 or bf16, that of initial_states, final_states and states. They are
/// rounded where they are stored; the scan goes on from what they were. It needs initial_states.
const OpSpec& ssd_chunk_scan_fwd();

/// Its gradients: from the inputs of ssd_chunk_scan_fwd, dout = ∂loss/∂out and, where the forward operation
/// has final_states, dfinal_states = ∂loss/∂final_states: dx, ddt, dA, dB, dC, and dD, dz, ddt_bias,
/// dinitial_states where the input exists, each with the shape and dtype of its input. dt beyond dt_limit
/// gets gradient 0.
const OpSpec& ssd_chunk_scan_bwd();

/// The largest headdim and dstate, and the largest chunk_size, that the operations are defined for.
inline constexpr std::int64_t kMaxSsdDim = 256;
inline constexpr std::int64_t kMaxSsdChunk = 256;

enum class SsdSkip { none, head, headdim };  ///< no D, D (H,), D (H, P)

/// The axes of an ssd_chunk_scan problem as plain numbers.
struct SsdChunkScan {
  std::int64_t batch, seqlen, nheads, headdim, dstate, groups, chunk_size;
  SsdSkip skip;
  bool has_z, has_dt_bias, has_initial_states, has_final_states, has_seq_idx, dt_softplus;
  double dt_low, dt_high;  ///< dt_limit

  explicit SsdChunkScan(const Problem& problem);
  std::int64_t heads_per_group() const { return nheads / groups; }
  std::int64_t chunks() const { return (seqlen + chunk_size - 1) / chunk_size; }
  /// Updates of one state element: the unit that the cost of a scan is counted in.
  double updates() const {
    return static_cast<double>(batch) * static_cast<double>(seqlen) * static_cast<double>(nheads) *
           static_cast<double>(headdim) * static_cast<double>(dstate);
  }
};

}  // namespace ssmbench
