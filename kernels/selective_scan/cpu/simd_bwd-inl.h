// The gradients of some channels of one batch, tile after tile. Compiled once per instruction set.

#if defined(SSMBENCH_SCAN_SIMD_BWD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SCAN_SIMD_BWD_INL_H
#undef SSMBENCH_SCAN_SIMD_BWD_INL_H
#else
#define SSMBENCH_SCAN_SIMD_BWD_INL_H
#endif

#include <algorithm>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/cpu/simd_bwd.h"
#include "kernels/selective_scan/cpu/simd_channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// kCount states of one vector of channels in a tile. Rows of [step][lane] are one vector each; those of the
/// second state follow those of the first. B and C as in ScanBwdScratch.
template <bool kVariableB, bool kVariableC, std::size_t kCount>
struct StatesOfVector {
  std::size_t steps;
  const float *delta, *delta_u, *dy;
  float *y, *dw, *ddelta;
  const float *A, *B, *C, *entering;
  float *carry, *dA, *dB, *dC;      // dB and dC where constant
  float *decays, *states, *shares;  // shares of dB, then dC, where variable
};

inline FloatVec row(const float* rows, std::size_t index) {
  return hn::Load(FloatTag(), rows + index * hn::Lanes(FloatTag()));
}
inline void set_row(FloatVec x, float* rows, std::size_t index) {
  hn::Store(x, FloatTag(), rows + index * hn::Lanes(FloatTag()));
}
inline void add_to_row(FloatVec x, float* rows, std::size_t index) {
  set_row(hn::Add(row(rows, index), x), rows, index);
}

/// B or C of the k-th state.
template <bool kVariable>
FloatVec projection(const float* rows, std::size_t k, std::size_t step) {
  return projection<kVariable>(rows + k * (kVariable ? kBwdTile : hn::Lanes(FloatTag())), step);
}

/// Adds a·b to the lanes' sums at a step, or over steps.
template <bool kVariable>
void add_share(FloatVec a, FloatVec b, float* rows, std::size_t at_step, FloatVec& over_steps) {
  if constexpr (kVariable)
    set_row(hn::MulAdd(a, b, row(rows, at_step)), rows, at_step);
  else
    over_steps = hn::MulAdd(a, b, over_steps);
}

/// h and Ā of every step, from the states that enter. The pointers come as a copy, to which no store of a
/// vector can lead.
template <bool kVariableB, bool kVariableC, std::size_t kCount>
void make_states(const StatesOfVector<kVariableB, kVariableC, kCount> s) {
  FloatVec h[kCount];
  for (std::size_t k = 0; k < kCount; ++k) {
    h[k] = row(s.entering, k);
    set_row(h[k], s.states, k * (kBwdTile + 1));
  }
  for (std::size_t t = 0; t < s.steps; ++t) {
    const auto delta = row(s.delta, t);
    const auto input = row(s.delta_u, t);
    for (std::size_t k = 0; k < kCount; ++k) {
      const auto decay = exponential(hn::Mul(delta, row(s.A, k)));
      h[k] = hn::MulAdd(decay, h[k], hn::Mul(input, projection<kVariableB>(s.B, k, t)));
      set_row(decay, s.decays, k * kBwdTile + t);
      set_row(h[k], s.states, k * (kBwdTile + 1) + t + 1);
    }
  }
}

template <bool kVariableB, bool kVariableC, std::size_t kCount>
void make_adjoint(const StatesOfVector<kVariableB, kVariableC, kCount> s) {
  FloatVec h[kCount], carry[kCount], dA[kCount], dB[kCount], dC[kCount];
  for (std::size_t k = 0; k < kCount; ++k) {
    h[k] = row(s.states, k * (kBwdTile + 1) + s.steps);
    carry[k] = row(s.carry, k);
    dA[k] = dB[k] = dC[k] = hn::Zero(FloatTag());
  }
  for (std::size_t t = s.steps; t-- > 0;) {
    const auto delta = row(s.delta, t);
    const auto input = row(s.delta_u, t);
    const auto dy = row(s.dy, t);
    auto y = row(s.y, t);
    auto dw = row(s.dw, t);
    auto ddelta = row(s.ddelta, t);
    for (std::size_t k = 0; k < kCount; ++k) {
      const auto C = projection<kVariableC>(s.C, k, t);
      const auto g = hn::MulAdd(dy, C, carry[k]);
      const auto before = row(s.states, k * (kBwdTile + 1) + t);
      carry[k] = hn::Mul(row(s.decays, k * kBwdTile + t), g);
      const auto of_exponent = hn::Mul(carry[k], before);
      dA[k] = hn::MulAdd(delta, of_exponent, dA[k]);
      ddelta = hn::MulAdd(row(s.A, k), of_exponent, ddelta);
      dw = hn::MulAdd(g, projection<kVariableB>(s.B, k, t), dw);
      y = hn::MulAdd(C, h[k], y);
      add_share<kVariableB>(g, input, s.shares, 2 * k * kBwdTile + t, dB[k]);
      add_share<kVariableC>(dy, h[k], s.shares, (2 * k + 1) * kBwdTile + t, dC[k]);
      h[k] = before;
    }
    set_row(y, s.y, t);
    set_row(dw, s.dw, t);
    set_row(ddelta, s.ddelta, t);
  }
  for (std::size_t k = 0; k < kCount; ++k) {
    set_row(carry[k], s.carry, k);
    add_to_row(dA[k], s.dA, k);
    if constexpr (!kVariableB) add_to_row(dB[k], s.dB, k);
    if constexpr (!kVariableC) add_to_row(dC[k], s.dC, k);
  }
}

/// to[step] += the sum over lanes of row `step`; up to a multiple of 4 steps.
inline void add_sums_of_rows(const float* rows, std::size_t steps, float* to) {
  const std::size_t lanes = hn::Lanes(FloatTag());
#if HWY_TARGET == HWY_SCALAR  // has no vectors of 4
  for (std::size_t t = 0; t < steps; ++t)
    for (std::size_t i = 0; i < lanes; ++i) to[t] += rows[t * lanes + i];
#else
  const FloatTag tag;
  const hn::FixedTag<float, 4> four;
  const auto row_sums = [&](FloatVec a, FloatVec b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b));
  };
  for (std::size_t t = 0; t < steps; t += 4) {
    const auto even = row_sums(row(rows, t), row(rows, t + 2));
    const auto odd = row_sums(row(rows, t + 1), row(rows, t + 3));
    alignas(64) float blocks[kMaxLanes];  // of 4 lanes, with the sums of theirs for each of the 4 steps
    hn::Store(row_sums(even, odd), tag, blocks);
    auto sums = hn::LoadU(four, to + t);
    for (std::size_t i = 0; i < lanes; i += 4) sums = hn::Add(sums, hn::Load(four, blocks + i));
    hn::StoreU(sums, four, to + t);
  }
#endif
}

/// Channels [first_channel, first_channel + channels) of a batch, all in one group, at most kBwdChannels.
class ChannelGradients {
 public:
  /// `projections`: the task's sums for dB and dC, [state][time]. `checkpoints`: the thread's.
  /// `channel_sums`: those of the first channel.
  ChannelGradients(const SimdGradientArgs& args, DType io, const ScanBwdPlan& plan, const ChannelRun& run,
                   float* const (&projections)[2], float* checkpoints, float* channel_sums,
                   ScanBwdScratch& scratch)
      : args_(args),
        in_(args.scan),
        plan_(plan),
        channels_(args.scan, io, run, scratch.staging),
        dB_(projections[0]),
        dC_(projections[1]),
        checkpoints_(checkpoints),
        channel_sums_(channel_sums),
        s_(scratch),
        in_use_(round_up(run.channels, lanes_) * round_up(states_, 4)) {}

  void run() {
    channels_.load_constants(s_.A, s_.B, s_.C, s_.state);
    for (std::int64_t tile = 0; tile < plan_.tiles; ++tile) {
      std::copy_n(s_.state, in_use_, checkpoints_ + tile * plan_.checkpoint);
      if (tile + 1 < plan_.tiles) go_forward(tile);
    }
    channels_.load_batch_states(args_.dlast_state, s_.carry);
    for (float* zeros : {s_.dA, s_.dB, s_.dC}) std::fill_n(zeros, in_use_, 0.0F);
    for (float* zeros : {s_.dD, s_.ddelta_bias}) std::fill_n(zeros, kBwdChannels, 0.0F);
    for (std::int64_t tile = plan_.tiles - 1; tile >= 0; --tile) go_back(tile);
    if (args_.dinitial_state != nullptr) channels_.store_states(s_.carry, args_.dinitial_state);
    channels_.for_each_vector([&](const ChannelVector& v) { store_sums(v); });
  }

 private:
  /// Where the rows of a vector's tile begin.
  static std::size_t step_rows(const ChannelVector& v) { return v.first * kBwdTile; }

  void start_tile(std::int64_t tile) {
    steps_ = channels_.tile_at(tile * static_cast<std::int64_t>(kBwdTile), kBwdTile);
    if (in_.variable_b) channels_.load_projection(in_.B, in_.b_strides, steps_, s_.B, kBwdTile);
  }

  void load_sequence(const void* from, const ChannelVector& v, float* rows) {
    channels_.load_sequence(from, v, steps_, rows + step_rows(v));
  }
  void store_sequence(const float* rows, const ChannelVector& v, void* to) {
    channels_.store_sequence(rows + step_rows(v), v, steps_, to);
  }

  template <class Function>
  void for_each_step(const ChannelVector& v, const Function& function) const {
    for (std::size_t t = 0; t < steps_.count; ++t) function(step_rows(v) + t * lanes_);
  }

  /// u, Δ, Δ·u and ∂Δ/∂delta.
  void load_steps(const ChannelVector& v) {
    const FloatTag tag;
    load_sequence(in_.u, v, s_.u);
    load_sequence(in_.delta, v, s_.delta);
    const auto bias = channels_.per_channel(in_.delta_bias, v);
    const auto in_use = hn::FirstN(tag, v.channels);
    for_each_step(v, [&](std::size_t i) HWY_ATTR {
      const auto x = hn::Add(hn::Load(tag, s_.delta + i), bias);
      VectorSoftplus delta{x, hn::Set(tag, 1.0F)};
      if (in_.delta_softplus) delta = vector_softplus_with_slope(x);
      delta.value = hn::IfThenElseZero(in_use, delta.value);
      hn::Store(delta.value, tag, s_.delta + i);
      hn::Store(delta.slope, tag, s_.delta_slope + i);
      hn::Store(hn::Mul(delta.value, hn::Load(tag, s_.u + i)), tag, s_.delta_u + i);
    });
  }

  /// dy = dout·silu(z) and, for dz, dout·silu'(z).
  void load_gradients(const ChannelVector& v) {
    const FloatTag tag;
    load_sequence(args_.dout, v, s_.dy);
    if (in_.z == nullptr) return;
    load_sequence(in_.z, v, s_.dz_factor);
    for_each_step(v, [&](std::size_t i) HWY_ATTR {
      const auto dout = hn::Load(tag, s_.dy + i);
      const VectorSilu gate = vector_silu_with_slope(hn::Load(tag, s_.dz_factor + i));
      hn::Store(hn::Mul(dout, gate.value), tag, s_.dy + i);
      hn::Store(hn::Mul(dout, gate.slope), tag, s_.dz_factor + i);
    });
  }

  /// Calls function(constant for variable B, constant for variable C), std::bool_constants.
  template <class Function>
  void with_projections(const Function& function) const {
    const auto with_b = [&](auto b) {
      if (in_.variable_c) return function(b, std::true_type());
      function(b, std::false_type());
    };
    if (in_.variable_b) return with_b(std::true_type());
    with_b(std::false_type());
  }

  /// Calls function(first state, constant for their number) for all states, kBwdStates at a time.
  template <class Function>
  void for_each_states(const Function& function) const {
    std::size_t n = 0;
    for (; n + kBwdStates <= states_; n += kBwdStates)
      function(n, std::integral_constant<std::size_t, kBwdStates>());
    for (; n < states_; ++n) function(n, std::integral_constant<std::size_t, 1>());
  }

  template <bool kVariableB, bool kVariableC, std::size_t kCount>
  StatesOfVector<kVariableB, kVariableC, kCount> states_of(const ChannelVector& v, std::size_t n,
                                                           const float* entering) const {
    const std::size_t at = channels_.state_rows(v) + n * lanes_;
    return {.steps = steps_.count,
            .delta = s_.delta + step_rows(v),
            .delta_u = s_.delta_u + step_rows(v),
            .dy = s_.dy + step_rows(v),
            .y = s_.y + step_rows(v),
            .dw = s_.dw + step_rows(v),
            .ddelta = s_.ddelta + step_rows(v),
            .A = s_.A + at,
            .B = s_.B + (kVariableB ? n * kBwdTile : at),
            .C = s_.C + (kVariableC ? n * kBwdTile : at),
            .entering = entering + at,
            .carry = s_.carry + at,
            .dA = s_.dA + at,
            .dB = s_.dB + at,
            .dC = s_.dC + at,
            .decays = s_.decays,
            .states = s_.states,
            .shares = s_.shares};
  }

  /// Takes s_.state through a tile.
  void go_forward(std::int64_t tile) {
    start_tile(tile);
    channels_.for_each_vector([&](const ChannelVector& v) {
      load_steps(v);
      with_projections([&](auto b, auto c) {
        for_each_states([&](std::size_t n, auto count) {
          const auto states =
              states_of<decltype(b)::value, decltype(c)::value, decltype(count)::value>(v, n, s_.state);
          make_states(states);
          for (std::size_t k = 0; k < count; ++k)
            set_row(row(s_.states, k * (kBwdTile + 1) + steps_.count), s_.state + channels_.state_rows(v),
                    n + k);
        });
      });
    });
  }

  void go_back(std::int64_t tile) {
    start_tile(tile);
    if (in_.variable_c) channels_.load_projection(in_.C, in_.c_strides, steps_, s_.C, kBwdTile);
    channels_.for_each_vector([&](const ChannelVector& v) {
      load_steps(v);
      load_gradients(v);
      for (float* zeros : {s_.y, s_.dw, s_.ddelta})
        std::fill_n(zeros + step_rows(v), steps_.count * lanes_, 0.0F);
    });
    const float* entering = checkpoints_ + tile * plan_.checkpoint;
    with_projections([&](auto b, auto c) {
      for_each_states([&](std::size_t n, auto count) {
        std::fill_n(s_.shares, 2 * count * kBwdTile * lanes_, 0.0F);
        channels_.for_each_vector([&](const ChannelVector& v) {
          const auto states =
              states_of<decltype(b)::value, decltype(c)::value, decltype(count)::value>(v, n, entering);
          make_states(states);
          make_adjoint(states);
        });
        for (std::size_t k = 0; k < count; ++k) add_shares(n + k, s_.shares + 2 * k * kBwdTile * lanes_);
      });
    });
    channels_.for_each_vector([&](const ChannelVector& v) { finish_steps(v); });
  }

  /// Adds the lanes' shares of dB and dC of state n.
  void add_shares(std::size_t n, const float* shares) const {
    const std::size_t at =
        n * static_cast<std::size_t>(plan_.tiles) * kBwdTile + static_cast<std::size_t>(steps_.begin);
    if (in_.variable_b) add_sums_of_rows(shares, steps_.count, dB_ + at);
    if (in_.variable_c) add_sums_of_rows(shares + kBwdTile * lanes_, steps_.count, dC_ + at);
  }

  /// du, ddelta and dz of a tile, and sums for dD and ddelta_bias.
  void finish_steps(const ChannelVector& v) {
    const FloatTag tag;
    const auto D = channels_.per_channel(in_.D, v);
    auto dD = hn::Zero(tag);
    auto dbias = hn::Zero(tag);
    for_each_step(v, [&](std::size_t i) HWY_ATTR {
      const auto u = hn::Load(tag, s_.u + i);
      const auto dy = hn::Load(tag, s_.dy + i);
      const auto dw = hn::Load(tag, s_.dw + i);
      const auto ddelta =
          hn::Mul(hn::MulAdd(u, dw, hn::Load(tag, s_.ddelta + i)), hn::Load(tag, s_.delta_slope + i));
      dbias = hn::Add(dbias, ddelta);
      dD = hn::MulAdd(dy, u, dD);
      hn::Store(ddelta, tag, s_.ddelta + i);
      hn::Store(hn::MulAdd(hn::Load(tag, s_.delta + i), dw, hn::Mul(D, dy)), tag, s_.dw + i);
      const auto y = hn::MulAdd(D, u, hn::Load(tag, s_.y + i));
      hn::Store(hn::Mul(y, hn::Load(tag, s_.dz_factor + i)), tag, s_.y + i);
    });
    hn::Store(hn::Add(hn::Load(tag, s_.dD + v.first), dD), tag, s_.dD + v.first);
    hn::Store(hn::Add(hn::Load(tag, s_.ddelta_bias + v.first), dbias), tag, s_.ddelta_bias + v.first);
    store_sequence(s_.dw, v, args_.du);
    store_sequence(s_.ddelta, v, args_.ddelta);
    if (args_.dz != nullptr) store_sequence(s_.y, v, args_.dz);
  }

  /// What is still to be added over batches.
  void store_sums(const ChannelVector& v) {
    float* sums = channel_sums_ + static_cast<std::int64_t>(v.first) * plan_.channel_sums;
    for (const float* from : {s_.dA, s_.dB, s_.dC}) {
      store_matrix<F32>(from + channels_.state_rows(v), lanes_, states_, v.channels, sums,
                        {1, plan_.channel_sums}, s_.staging);
      sums += in_.dstate;
    }
    for (std::size_t i = 0; i < v.channels; ++i) {
      float* of_channel = sums + static_cast<std::int64_t>(i) * plan_.channel_sums;
      of_channel[0] = s_.dD[v.first + i];
      of_channel[1] = s_.ddelta_bias[v.first + i];
    }
  }

  const SimdGradientArgs& args_;
  const ScanArgs& in_;
  const ScanBwdPlan& plan_;
  Channels channels_;
  float *dB_, *dC_, *checkpoints_, *channel_sums_;
  ScanBwdScratch& s_;
  std::size_t states_ = channels_.states();
  std::size_t lanes_ = channels_.lanes();
  std::size_t in_use_;  // of [vector][state][lane]
  TileSteps steps_{};
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
