#pragma once

#include <cstdint>

namespace ssmbench {

/// selective_state_update as every implementation takes it; both forms are one with heads (StateUpdate).
/// Everything lies in C order. Absent tensors are null.
struct StateUpdateArgs {
  std::int64_t batch, heads, headdim, dstate, groups;
  bool rate_per_state;  ///< A is (H, N) instead of (H,)
  bool dt_softplus;

  void* state;           ///< (B, H, P, N) state_dtype, updated in place
  const void* x;         ///< (B, H, P) io dtype
  const void* dt;        ///< (B, H) io dtype
  const float* A;        ///< (H, N) or (H,)
  const void* B;         ///< (B, G, N) io dtype
  const void* C;         ///< (B, G, N) io dtype
  const float* D;        ///< (H,) or null
  const void* z;         ///< (B, H, P) io dtype, or null
  const float* dt_bias;  ///< (H,) or null
  void* out;             ///< (B, H, P) io dtype
};

}  // namespace ssmbench
