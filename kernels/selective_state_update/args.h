#pragma once

#include <cstdint>

#include "model/dtype.h"

namespace ssmbench {

/// selective_state_update as every implementation takes it; both forms are one with heads (StateUpdate).
/// Everything lies in C order. Absent tensors are null. T is 1 where tensors have no axis of tokens.
struct StateUpdateArgs {
  std::int64_t batch, heads, headdim, dstate, groups, tokens;
  bool rate_per_state;  ///< A is (H, N) instead of (H,)
  bool dt_softplus;
  bool dt_is_f32;  ///< and not of the io dtype

  void* state;                      ///< (S, H, P, N) state_dtype, updated in place
  const void* x;                    ///< (B, T, H, P) io dtype
  const void* dt;                   ///< (B, T, H)
  const float* A;                   ///< (H, N) or (H,)
  const void* B;                    ///< (B, T, G, N) io dtype
  const void* C;                    ///< (B, T, G, N) io dtype
  const float* D;                   ///< (H,) or null
  const void* z;                    ///< (B, T, H, P) io dtype, or null
  const float* dt_bias;             ///< (H,) or null
  const std::int32_t* source;       ///< (B,), or null: S = B, row b is updated
  const std::int32_t* destination;  ///< (B, T), null where source is
  void* out;                        ///< (B, T, H, P) io dtype
  void* intermediate;               ///< (B, T, H, P, N) state_dtype, or null
};

/// How states are stored.
struct StateStorage {
  DType dtype;
  float* scale;              ///< (S, H, P), updated in place; null where the dtype needs none
  const std::int64_t* seed;  ///< (1,), or null: rounded to nearest
};

}  // namespace ssmbench
