#pragma once

#include <cstdint>

#include "model/dtype.h"

namespace ssmbench {

class Problem;
struct OpSpec;

/// Decoding steps of Mamba, the state updated in place. For each of the T tokens of a sequence:
///   Δ = dt + dt_bias, softplus if asked; h = exp(Δ·A)·h + Δ·x·B; y = Σ_n C[n]·h[n]; out = (y + D·x)·silu(z)
/// form mamba1: state (B, D, N); x, dt, z, out (B, D); A (D, N); B, C (B, N), or (B, G, N) with several
/// groups; D, dt_bias (D,).
/// form mamba2: state (B, H, P, N); x, z, out (B, H, P); dt (B, H); A (H,); B, C (B, G, N); D, dt_bias (H,).
/// x, z, B, C and out have the io dtype, dt that or f32, state has state_dtype, the others are f32.
///
/// - tokens T > 1: x, dt, z, B, C and out have an axis of T behind that of the batch.
/// - slots S > 0: state has S in place of B: a cache. source (B,) i32 says which slot h starts from, and −1
///   that the row is padding: what it has in out is anything that does not change from launch to launch.
///   destination (B, T) i32 says into which slot h is stored after each token, −1 into none. No slot is named
///   twice in destination, and none that another row starts from. All other slots keep their bits.
///   Without slots h starts from row b of the state and is stored there after the last token.
/// - intermediate (B, T, H, P, N) or (B, T, D, N), state_dtype: h after each token.
///
/// h is rounded where it is stored, not between tokens, and out is of h before that, as in mamba_ssm.
///
/// - state_dtype i8, i16, e4m3: h = state·state_scale, with a scale for each row of N states: state_scale (S,
/// H,
///   P) or (S, D), f32, updated in place. With a = max_n |h| of a row and Q = 127, 32767 or 448 its scale
///   becomes a/Q, or 1 where a is 0, and state becomes h/scale rounded; |state| ≤ Q. Ties may go either way.
/// - rounding stochastic, for states in f16, i8, i16 and e4m3: h is stored as one of the two numbers next to
///   it, the upper one with probability (h − lower)/(upper − lower), subnormals included. seed (1,) i64
/// chooses
///   them: equal seeds, equal bits; other seeds, others. Which ones, an implementation is free to choose.
/// Source: mamba_ssm's selective_state_update; Dao & Gu, "Transformers are SSMs" (2024), for the second form;
/// vLLM's and FlashInfer's selective_state_update for slots and tokens, FlashInfer's for scales and seeds.
const OpSpec& selective_state_update();

/// The largest headdim and dstate that the operation is defined for.
inline constexpr std::int64_t kMaxHeadDim = 256;
inline constexpr std::int64_t kMaxStepDState = 256;

/// Where states that start in a slot are stored, in inputs that are drawn.
enum class StateStore {
  last,   ///< after the last token, in the slot they came from
  apart,  ///< after the last token, in another slot
  each,   ///< each token in a slot of its own, one of which they came from
  none,   ///< nowhere: a draft is verified
};

/// The axes of a selective_state_update problem as plain numbers. Both forms are one with heads: mamba1 has a
/// head of headdim 1 for each channel, whose decay rate differs from state to state.
struct StateUpdate {
  bool rate_per_state;  ///< A is (heads, dstate) instead of (heads,): form mamba1
  std::int64_t batch, heads, headdim, dstate, groups;
  bool has_z, has_D, has_dt_bias, dt_softplus;
  DType state_dtype, dt_dtype;
  std::int64_t tokens;
  std::int64_t slots;  ///< 0: rows of the state are those of the batch
  std::int64_t pads;   ///< every so manieth row of the batch is padding; 0: none
  StateStore store;
  bool has_intermediate;
  bool stochastic;  ///< rounding of what is stored

  explicit StateUpdate(const Problem& problem);
  bool has_scale() const { return largest_in_scale(state_dtype) > 0; }
  std::int64_t heads_per_group() const { return heads / groups; }
  std::int64_t rows() const { return batch * heads * headdim; }  ///< of dstate states each
  double states() const { return static_cast<double>(rows()) * static_cast<double>(dstate); }
  /// Sequences that the state has room for.
  std::int64_t state_sequences() const { return slots > 0 ? slots : batch; }
  std::int64_t states_of_sequence() const { return heads * headdim * dstate; }
  bool is_padding(std::int64_t row) const { return pads > 0 && (row + 1) % pads == 0; }
  std::int64_t padding_rows() const { return pads > 0 ? batch / pads : 0; }
};

}  // namespace ssmbench
