#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace ssmbench {

/// weight (D, W) and bias (D,), or null, in C order.
struct ConvWeights {
  const void* weight;
  const void* bias;
  bool are_f32;  ///< else of the io dtype
};

/// What causal_conv1d_fwd and _bwd share. Sequences are (B, D, L), or (B, L, D) where channels are last, of
/// the io dtype; states (B, D, W−1) in C order. Absent tensors are null.
struct ConvInputs1d {
  std::int64_t batch, dim, seqlen;
  int width;
  bool silu;
  bool channels_last;

  const void* x;
  ConvWeights weights;
  const void* initial_states;
  const std::int32_t* seq_idx;  ///< (B, L)

  SSMBENCH_HD int taps() const { return width - 1; }
};

struct ConvForwardArgs {
  ConvInputs1d in;
  void* out;
  void* final_states;
};

struct ConvBackwardArgs {
  ConvInputs1d in;
  const void* dout;
  bool dout_channels_last;
  const void* dfinal_states;
  void* dx;
  float* dweight;  ///< (D, W)
  float* dbias;    ///< (D,)
  void* dinitial_states;
};

struct ConvUpdateArgs {
  std::int64_t batch, dim, tokens, state_len;
  std::int64_t slots;  ///< S
  int width;
  bool silu;
  bool channels_last;  ///< conv_state is (S, K, D) in memory, else (S, D, K)

  const void* x;  ///< (B, T, D)
  ConvWeights weights;
  const std::int32_t* source;       ///< (B,), or null: row b has slot b
  const std::int32_t* destination;  ///< (B,), or null with source
  void* conv_state;                 ///< updated in place
  void* out;                        ///< (B, T, D)

  SSMBENCH_HD int taps() const { return width - 1; }
};

}  // namespace ssmbench
