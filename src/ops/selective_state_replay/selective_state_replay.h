#pragma once

#include <cstdint>

#include "model/problem.h"
#include "ops/selective_state_update/selective_state_update.h"

namespace ssmbench {

/// Decoding steps of Mamba-2 that keep their inputs in place of their state: h of a sequence is made anew
/// from a checkpoint h₀ that lags behind, the K last tokens and the T new ones.
///   h = e^(Δ·A)·h + Δ·x·B for the K tokens in the ring, oldest first, then for the new ones; out of the new
///   ones as selective_state_update has it
///   where K + T > W: state = h after the K tokens of the ring, rounded; else it keeps its bits
///   ring rows (start + K + i) mod R = x, B and Δ of new token i; all other rows keep their bits
/// state (S, H, P, N) state_dtype, ring_x (S, H, R, P) and ring_B (S, G, R, N) io, ring_dt (S, H, R) f32: Δ
/// with bias and softplus; all updated in place. start and count (S,) i32: the ring row of the oldest token,
/// below R, and K, at most W = `window`; R = W + T. Whoever calls advances them afterwards. x, dt, A, B, C,
/// D, z, dt_bias, out and source as in selective_state_update, form mamba2; S = B and no source without
/// slots. No slot is named by two rows.
///
/// Source: ReplaySSM in vLLM, and FlashInfer's checkpointing_ssu.
const OpSpec& selective_state_replay();

/// How counts are drawn: whether h₀ is stored in this launch.
enum class Flush {
  mixed,  ///< of some sequences
  none,
  all,
};

struct StateReplay {
  StateUpdate step;  ///< the new tokens as steps
  std::int64_t window;
  Flush flush;

  explicit StateReplay(const Problem& problem);
  std::int64_t ring() const { return window + step.tokens; }
  bool stores(std::int64_t count) const { return count + step.tokens > window; }
  /// Tokens in the ring of row b, as inputs are drawn.
  std::int64_t drawn_count(std::int64_t b) const;
};

/// The new tokens as steps that store nothing. Throws ContractError where there is no such problem.
Problem steps_of_replay(const Problem& replay);

}  // namespace ssmbench
