#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "model/dtype.h"

namespace ssmbench {

/// Inputs and sizes of an ssd_chunk_scan as every implementation takes them: plain pointers into the device's
/// memory, tensors in C order without gaps, absent ones null.
struct SsdInputs {
  std::int64_t batch, seqlen, nheads, headdim, dstate, groups, heads_per_group, chunk_size;
  bool dt_softplus;
  float dt_low, dt_high;  ///< dt_limit; 0 and +infinity when the case has none
  bool skip_per_headdim;  ///< D is (H, P)
  DType state_dtype;      ///< f32 but for ssd_chunk_scan_fwd

  const void* x;                ///< (B, L, H, P) io dtype
  const void* dt;               ///< (B, L, H) io dtype
  const float* A;               ///< (H,)
  const void* B;                ///< (B, L, G, N) io dtype
  const void* C;                ///< (B, L, G, N) io dtype
  const float* D;               ///< (H,), (H, P) or null
  const void* z;                ///< (B, L, H, P) io dtype, or null
  const float* dt_bias;         ///< (H,) or null
  const void* initial_states;   ///< (B, H, P, N) state_dtype, or null
  const std::int32_t* seq_idx;  ///< (B, L) or null

  /// initial_states where state_dtype is f32.
  SSMBENCH_HD const float* initial_floats() const { return static_cast<const float*>(initial_states); }
};

/// ssd_chunk_scan_fwd.
struct SsdArgs {
  SsdInputs in;
  void* out;           ///< (B, L, H, P) io dtype
  void* final_states;  ///< (B, H, P, N) state_dtype, or null

  /// final_states where that is f32.
  SSMBENCH_HD float* final_floats() const { return static_cast<float*>(final_states); }
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
