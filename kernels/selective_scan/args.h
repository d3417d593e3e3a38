#pragma once

#include <cstdint>

namespace ssmbench {

/// Element strides of a (batch, dim, seqlen) tensor; one of dim and seqlen is 1, by layout.
struct SequenceStrides {
  std::int64_t batch, dim, time;
};

/// Element strides of B or C. Variable: (batch, group, state, time). Constant: channel and state, the rest 0.
struct ProjectionStrides {
  std::int64_t batch, group, channel, state, time;
};

/// selective_scan_fwd as every implementation takes it: plain pointers into the device's memory, strides,
/// sizes. u, delta, z and out share one stride triple. Absent tensors are null. With complex A, what is f32
/// and indexed by a state is c64, and so are variable B and C: pairs (real, imaginary), strides counting
/// pairs.
struct ScanArgs {
  std::int64_t batch, dim, seqlen, dstate, groups, channels_per_group;
  bool delta_softplus;
  bool variable_b, variable_c;

  const void* u;               ///< (B, D, L) io dtype
  const void* delta;           ///< (B, D, L) io dtype
  const void* z;               ///< (B, D, L) io dtype, or null
  const float* A;              ///< (D, N); dense: (D, N, N)
  const void* B;               ///< (B, G, N, L) io dtype when variable, else (D, N) f32
  const void* C;               ///< like B
  const float* D;              ///< (D,) or null
  const float* delta_bias;     ///< (D,) or null
  const float* initial_state;  ///< (B, D, N) or null
  void* out;                   ///< (B, D, L) io dtype
  float* last_state;           ///< (B, D, N)
  float* x;                    ///< (B, ⌈L/8⌉, D, N) or null: left by the scan, given to its gradients

  SequenceStrides sequence;
  ProjectionStrides b_strides, c_strides;
};

/// selective_scan_bwd in the same way. A gradient has the type and the strides of its input, and is null
/// where the input is.
struct ScanGradientArgs {
  ScanArgs scan;  ///< out and last_state are null

  const void* dout;
  const float* dlast_state;  ///< (B, D, N) or null
  void *du, *ddelta, *dz, *dB, *dC;
  float *dA, *dD, *ddelta_bias, *dinitial_state;
};

}  // namespace ssmbench
