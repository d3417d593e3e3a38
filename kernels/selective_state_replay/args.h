#pragma once

#include <cstdint>

#include "model/dtype.h"

namespace ssmbench {

/// selective_state_replay as every implementation takes it. Everything lies in C order. Absent tensors are
/// null. T is 1 where tensors have no axis of tokens; R = window + T.
struct StateReplayArgs {
  std::int64_t batch, heads, headdim, dstate, groups, tokens, window;
  bool dt_softplus;
  bool dt_is_f32;  ///< and not of the io dtype
  DType state_dtype;

  void* state;                 ///< (S, H, P, N) state_dtype, updated in place
  void* ring_x;                ///< (S, H, R, P) io dtype, updated in place
  void* ring_B;                ///< (S, G, R, N) io dtype, updated in place
  float* ring_dt;              ///< (S, H, R), updated in place
  const std::int32_t* start;   ///< (S,)
  const std::int32_t* count;   ///< (S,)
  const std::int32_t* source;  ///< (B,), or null: S = B
  const void* x;               ///< (B, T, H, P) io dtype
  const void* dt;              ///< (B, T, H)
  const float* A;              ///< (H,)
  const void* B;               ///< (B, T, G, N) io dtype
  const void* C;               ///< (B, T, G, N) io dtype
  const float* D;              ///< (H,) or null
  const void* z;               ///< (B, T, H, P) io dtype, or null
  const float* dt_bias;        ///< (H,) or null
  void* out;                   ///< (B, T, H, P) io dtype

  std::int64_t ring() const { return window + tokens; }
  std::int64_t slot(std::int64_t b) const { return source == nullptr ? b : source[b]; }
  /// Row of the ring that holds token k of a slot, the oldest one first.
  std::int64_t ring_row(std::int64_t slot, std::int64_t k) const { return (start[slot] + k) % ring(); }
  bool stores(std::int64_t slot) const { return count[slot] + tokens > window; }
  /// Of (slot, head, ring row), and of (slot, group of the head, ring row).
  std::int64_t ring_at(std::int64_t slot, std::int64_t head, std::int64_t row) const {
    return (slot * heads + head) * ring() + row;
  }
  std::int64_t ring_b_at(std::int64_t slot, std::int64_t head, std::int64_t row) const {
    return (slot * groups + head / (heads / groups)) * ring() + row;
  }
};

}  // namespace ssmbench
