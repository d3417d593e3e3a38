#pragma once

#include <cstdint>

#include "ops/mamba3/mamba3.h"

namespace ssmbench {

/// Mamba-3's operations as every implementation takes them: plain pointers into the device's memory,
/// tensors in C order without gaps, absent ones null. A step is a sequence of one, whose states are updated
/// in place. Without MIMO R is 1 and the axis of ranks has one element.
struct Mamba3Args {
  Mamba3 scan;

  const void* Q;                   ///< (B, L, R, G, N) io dtype
  const void* K;                   ///< (B, L, R, G, N) io dtype
  const void* V;                   ///< (B, L, H, P) io dtype
  const float* adt;                ///< (B, H, L)
  const float* dt;                 ///< (B, H, L)
  const void* trap;                ///< (B, H, L) io dtype
  const void* rates;               ///< (B, L, H, S), io dtype, f32 with MIMO
  const float* Q_bias;             ///< (H, R, N)
  const float* K_bias;             ///< (H, R, N)
  const float* mimo_v;             ///< (H, R, P) or null
  const float* mimo_z;             ///< (H, R, P) or null
  const float* mimo_out;           ///< (H, R, P) or null
  const float* D;                  ///< (H,) or null
  const void* Z;                   ///< (B, L, H, P) io dtype, or null
  const float* norm;               ///< (H, P) or null
  const std::int32_t* cu_seqlens;  ///< (M + 1,) or null

  const float* input_angle;  ///< (M, H, S) or null; then the other three are, too
  const float* input_ssm;    ///< (M, H, P, N)
  const float* input_k;      ///< (M, R, H, N)
  const float* input_v;      ///< (M, H, P)

  void* out;           ///< (B, L, H, P), or (B, L, R, H, P) io dtype
  float* final_angle;  ///< (M, H, S) or null; then the other three are, too
  float* final_ssm;    ///< (M, H, P, N)
  float* final_k;      ///< (M, R, H, N)
  void* final_v;       ///< (M, H, P) io dtype, f32 of a step
};

/// The gradients of the scans, each of the shape and dtype of its input, null where that is.
struct Mamba3BwdArgs {
  Mamba3Args in;  ///< without outputs

  const void* dout;           ///< (B, L, H, P), or (B, L, R, H, P) io dtype
  const float* dfinal_angle;  ///< (M, H, S) or null; then the other three are, too
  const float* dfinal_ssm;    ///< (M, H, P, N)
  const float* dfinal_k;      ///< (M, R, H, N)
  const void* dfinal_v;       ///< (M, H, P) io dtype

  void* dQ;
  void* dK;
  void* dV;
  float* dadt;
  float* ddt;
  void* dtrap;
  void* drates;
  float* dQ_bias;
  float* dK_bias;
  float* dmimo_v;
  float* dmimo_z;
  float* dmimo_out;
  float* dD;
  void* dZ;
  float* dnorm;
  float* dinput_angle;
  float* dinput_ssm;
  float* dinput_k;
  float* dinput_v;
};

}  // namespace ssmbench
