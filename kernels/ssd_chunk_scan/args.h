#pragma once

#include <cstdint>

namespace ssmbench {

/// Inputs and sizes of an ssd_chunk_scan as every implementation takes them: plain pointers into the device's
/// memory, tensors in C order without gaps, absent ones null.
struct SsdInputs {
  std::int64_t batch, seqlen, nheads, headdim, dstate, groups, heads_per_group, chunk_size;
  bool dt_softplus;
  float dt_low, dt_high;  ///< dt_limit; 0 and +infinity when the case has none
  bool skip_per_headdim;  ///< D is (H, P)

  const void* x;                ///< (B, L, H, P) io dtype
  const void* dt;               ///< (B, L, H) io dtype
  const float* A;               ///< (H,)
  const void* B;                ///< (B, L, G, N) io dtype
  const void* C;                ///< (B, L, G, N) io dtype
  const float* D;               ///< (H,), (H, P) or null
  const void* z;                ///< (B, L, H, P) io dtype, or null
  const float* dt_bias;         ///< (H,) or null
  const float* initial_states;  ///< (B, H, P, N) or null
  const std::int32_t* seq_idx;  ///< (B, L) or null
};

/// ssd_chunk_scan_fwd.
struct SsdArgs {
  SsdInputs in;
  void* out;            ///< (B, L, H, P) io dtype
  float* final_states;  ///< (B, H, P, N) or null
};

/// ssd_chunk_scan_bwd: each gradient like its input, null where the input is.
struct SsdBwdArgs {
  SsdInputs in;
  const void* dout;            ///< (B, L, H, P) io dtype
  const float* dfinal_states;  ///< (B, H, P, N) or null

  void* dx;
  void* ddt;
  float* dA;
  void* dB;
  void* dC;
  float* dD;
  void* dz;
  float* ddt_bias;
  float* dinitial_states;
};

}  // namespace ssmbench
