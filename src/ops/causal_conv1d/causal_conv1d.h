#pragma once

#include <cstdint>

namespace ssmbench {

class Problem;
struct OpSpec;

/// The short convolution in front of a scan: each channel on its own, causal, with an activation. With x̃ the
/// sequence preceded by what came before it, x̃_t = x_t for t ≥ 0 and initial_states_{W−1+t}, or 0, for t < 0:
///   s_t = bias + Σ_{j<W} weight_j·x̃_{t−W+1+j};   out_t = silu(s_t), or s_t;   final_states_i = x̃_{L−W+1+i}
/// With seq_idx a tap of another number than that of step t counts 0, and where the number is negative out_t
/// is 0.
/// Layout bdl: x, out (B, D, L); bld: (B, L, D), channels innermost. weight (D, W) with the taps from the
/// oldest to the newest, bias (D,), in weight_dtype: io or f32. initial_states, final_states (B, D, W−1), in C
/// order. seq_idx (B, L) i32; it does not go together with states. All others have the io dtype.
/// Source: causal_conv1d_fn of Dao-AILab's causal-conv1d, whose names the tensors have.
const OpSpec& causal_conv1d_fwd();

/// Its gradients: from the inputs of causal_conv1d_fwd, dout = ∂loss/∂out and, where the forward operation has
/// final_states, dfinal_states: dx, dweight, dbias, dinitial_states, where the input exists, each with the
/// shape of its input; dweight and dbias are f32, the others have the io dtype. dout lies in memory as x does
/// (dout_layout same) or as in the other layout.
const OpSpec& causal_conv1d_bwd();

/// One or several steps with the state of a cache updated in place: x̃ = conv_state ++ x, out the last T of the
/// convolution, conv_state the last K of x̃, K ≥ W−1.
/// x, out (B, D), or (B, T, D) for T > 1 tokens; weight, bias as above; conv_state (S, D, K), io dtype, in that
/// order in memory (layout sdk) or with channels innermost (skd). store own: S = B and row b has state b.
/// Otherwise row b reads slot source_b and writes slot destination_b, both (B,) i32: store last draws
/// destination = source, apart another slot, none -1, which stores nothing. Source -1 is padding: its
/// destination is -1 too, and what is in its out is not judged. No destination occurs twice or is the source
/// of another row. Slots that no destination names keep their bits.
const OpSpec& causal_conv1d_update();

inline constexpr std::int64_t kMinConvWidth = 2;
inline constexpr std::int64_t kMaxConvWidth = 8;
/// Indices are drawn as f32, which holds them exactly up to here.
inline constexpr std::int64_t kMaxConvSlots = std::int64_t{1} << 24;

/// The axes of a causal_conv1d_fwd or _bwd problem as plain numbers.
struct CausalConv1d {
  std::int64_t batch, dim, seqlen, width;
  bool has_bias, silu, has_initial_states, has_final_states, has_seq_idx;
  bool channels_last;       ///< layout bld
  bool dout_channels_last;  ///< that of dout; false for the forward operation
  bool weight_is_f32;       ///< whatever the io dtype

  explicit CausalConv1d(const Problem& problem);
  std::int64_t taps() const { return width - 1; }  ///< steps before the first that reach into it
  double elements() const {
    return static_cast<double>(batch) * static_cast<double>(dim) * static_cast<double>(seqlen);
  }
};

/// The axes of a causal_conv1d_update problem as plain numbers.
struct ConvUpdate {
  enum class Store { own, last, apart, none };

  std::int64_t batch, dim, tokens, width, state_len;
  std::int64_t slots;  ///< S
  Store store;
  bool pads;  ///< every fourth row is padding
  bool has_bias, silu;
  bool channels_last;  ///< layout skd
  bool weight_is_f32;

  explicit ConvUpdate(const Problem& problem);
  bool has_indices() const { return store != Store::own; }
  std::int64_t taps() const { return width - 1; }
  bool is_pad(std::int64_t row) const { return pads && row % 4 == 3; }  ///< as inputs are drawn
};

}  // namespace ssmbench
