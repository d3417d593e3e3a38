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
#include "kernels/cpu/scan_simd_bwd.h"
#include "kernels/cpu/simd_math-inl.h"
#include "kernels/cpu/simd_matrix-inl.h"
#include "kernels/selective_scan/args.h"

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

/// B or C of the k-th state: one value for all lanes when variable, one per lane when constant.
template <bool kVariable>
FloatVec projection(const float* rows, std::size_t k, std::size_t step) {
  return kVariable ? hn::Set(FloatTag(), rows[k * kBwdTile + step]) : row(rows, k);
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
  const hn::FixedTag<float, 4> four;
  const auto fold = [&](std::size_t t) HWY_ATTR {
    auto sum = hn::Load(four, rows + t * lanes);
    for (std::size_t i = 4; i < lanes; i += 4) sum = hn::Add(sum, hn::Load(four, rows + t * lanes + i));
    return sum;
  };
  for (std::size_t t = 0; t < steps; t += 4) {
    const auto row0 = fold(t);
    const auto row1 = fold(t + 1);
    const auto row2 = fold(t + 2);
    const auto row3 = fold(t + 3);
    const auto even = hn::Add(hn::InterleaveLower(four, row0, row2), hn::InterleaveUpper(four, row0, row2));
    const auto odd = hn::Add(hn::InterleaveLower(four, row1, row3), hn::InterleaveUpper(four, row1, row3));
    const auto sums = hn::Add(hn::InterleaveLower(four, even, odd), hn::InterleaveUpper(four, even, odd));
    hn::StoreU(hn::Add(hn::LoadU(four, to + t), sums), four, to + t);
  }
#endif
}

/// Channels [first_channel, first_channel + channels) of a batch, all in one group, at most kBwdChannels.
template <class Io>
class ChannelGradients {
 public:
  /// `projections`: the task's sums for dB and dC, [state][time]. `checkpoints`: the thread's.
  /// `channel_sums`: those of the first channel.
  ChannelGradients(const ScanGradientArgs& args, const ScanBwdPlan& plan, const Piece& piece,
                   float* const (&projections)[2], float* checkpoints, float* channel_sums,
                   ScanBwdScratch& scratch)
      : args_(args),
        in_(args.scan),
        plan_(plan),
        piece_(piece),
        dB_(projections[0]),
        dC_(projections[1]),
        checkpoints_(checkpoints),
        channel_sums_(channel_sums),
        s_(scratch),
        states_(static_cast<std::size_t>(in_.dstate)),
        in_use_(round_up(piece.channels, lanes_) * round_up(states_, 4)) {}

  void run() {
    for_each_vector([&](const Vector& v) { load_channels(v); });
    for (std::int64_t tile = 0; tile < plan_.tiles; ++tile) {
      std::copy_n(s_.state, in_use_, checkpoints_ + tile * plan_.checkpoint);
      if (tile + 1 < plan_.tiles) go_forward(tile);
    }
    for (float* zeros : {s_.carry, s_.dA, s_.dB, s_.dC}) std::fill_n(zeros, in_use_, 0.0F);
    for (float* zeros : {s_.dD, s_.ddelta_bias}) std::fill_n(zeros, kBwdChannels, 0.0F);
    for (std::int64_t tile = plan_.tiles - 1; tile >= 0; --tile) go_back(tile);
    for_each_vector([&](const Vector& v) { store_sums(v); });
  }

 private:
  using Storage = typename Io::Storage;

  /// One vector of channels, and where its rows are in the scratch memory.
  struct Vector {
    std::int64_t first_channel;
    std::size_t channels;  // in use, at most the lanes
    std::size_t first;     // counted from the piece's
    std::size_t rows;      // of a tile's steps
    std::size_t states;
  };

  template <class Function>
  void for_each_vector(const Function& function) {
    for (std::size_t c = 0; c < piece_.channels; c += lanes_)
      function(Vector{piece_.first_channel + static_cast<std::int64_t>(c),
                      std::min(lanes_, piece_.channels - c), c, c * kBwdTile, c * round_up(states_, 4)});
  }

  void clear_other_lanes(const Vector& v, std::size_t rows, float* matrix) const {
    if (v.channels == lanes_) return;
    const FloatTag tag;
    const auto in_use = hn::FirstN(tag, v.channels);
    for (std::size_t i = 0; i < rows * lanes_; i += lanes_)
      hn::Store(hn::IfThenElseZero(in_use, hn::Load(tag, matrix + i)), tag, matrix + i);
  }

  /// (D, N) or (B, D, N) data from the row of the vector's first channel, as [state][lane].
  void load_per_state(const float* from, const Vector& v, float* to) {
    load_matrix<F32>(from, {1, in_.dstate}, states_, v.channels, to + v.states, lanes_, s_.staging);
    clear_other_lanes(v, states_, to + v.states);
  }

  std::int64_t state_row(const Vector& v) const {
    return (piece_.batch * in_.dim + v.first_channel) * in_.dstate;
  }

  void load_channels(const Vector& v) {
    const std::int64_t row = v.first_channel * in_.dstate;
    load_per_state(in_.A + row, v, s_.A);
    if (!in_.variable_b) load_per_state(static_cast<const float*>(in_.B) + row, v, s_.B);
    if (!in_.variable_c) load_per_state(static_cast<const float*>(in_.C) + row, v, s_.C);
    if (in_.initial_state != nullptr)
      load_per_state(in_.initial_state + state_row(v), v, s_.state);
    else
      std::fill_n(s_.state + v.states, states_ * lanes_, 0.0F);
  }

  void start_tile(std::int64_t tile) {
    begin_ = tile * static_cast<std::int64_t>(kBwdTile);
    steps_ = static_cast<std::size_t>(steps_within(begin_, kBwdTile, in_.seqlen));
    if (in_.variable_b) load_projection(in_.B, in_.b_strides, s_.B);
  }

  void load_projection(const void* from, const ProjectionStrides& s, float* to) {
    const auto* first =
        static_cast<const Storage*>(from) + piece_.batch * s.batch + piece_.group * s.group + begin_ * s.time;
    load_matrix<Io>(first, {s.state, s.time}, states_, steps_, to, kBwdTile, s_.staging);
  }

  std::int64_t sequence_offset(const Vector& v) const {
    const auto& s = in_.sequence;
    return piece_.batch * s.batch + v.first_channel * s.dim + begin_ * s.time;
  }
  void load_sequence(const void* from, const Vector& v, float* rows) {
    load_matrix<Io>(static_cast<const Storage*>(from) + sequence_offset(v),
                    {in_.sequence.time, in_.sequence.dim}, steps_, v.channels, rows + v.rows, lanes_,
                    s_.staging);
    clear_other_lanes(v, steps_, rows + v.rows);
  }
  void store_sequence(const float* rows, const Vector& v, void* to) {
    store_matrix<Io>(rows + v.rows, lanes_, steps_, v.channels,
                     static_cast<Storage*>(to) + sequence_offset(v), {in_.sequence.time, in_.sequence.dim},
                     s_.staging);
  }

  /// A (D,) tensor's values for the vector's channels; zeros where it is absent.
  FloatVec per_channel(const float* values, const Vector& v) const {
    alignas(64) float row[kMaxLanes] = {};
    if (values != nullptr) load_row<F32>(values + v.first_channel, v.channels, row);
    return hn::Load(FloatTag(), row);
  }

  template <class Function>
  void for_each_step(const Vector& v, const Function& function) const {
    for (std::size_t t = 0; t < steps_; ++t) function(v.rows + t * lanes_);
  }

  /// u, Δ, Δ·u and ∂Δ/∂delta.
  void load_steps(const Vector& v) {
    const FloatTag tag;
    load_sequence(in_.u, v, s_.u);
    load_sequence(in_.delta, v, s_.delta);
    const auto bias = per_channel(in_.delta_bias, v);
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
  void load_gradients(const Vector& v) {
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
  StatesOfVector<kVariableB, kVariableC, kCount> states_of(const Vector& v, std::size_t n,
                                                           const float* entering) const {
    const std::size_t at = v.states + n * lanes_;
    return {.steps = steps_,
            .delta = s_.delta + v.rows,
            .delta_u = s_.delta_u + v.rows,
            .dy = s_.dy + v.rows,
            .y = s_.y + v.rows,
            .dw = s_.dw + v.rows,
            .ddelta = s_.ddelta + v.rows,
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
    for_each_vector([&](const Vector& v) {
      load_steps(v);
      with_projections([&](auto b, auto c) {
        for_each_states([&](std::size_t n, auto count) {
          const auto states =
              states_of<decltype(b)::value, decltype(c)::value, decltype(count)::value>(v, n, s_.state);
          make_states(states);
          for (std::size_t k = 0; k < count; ++k)
            set_row(row(s_.states, k * (kBwdTile + 1) + steps_), s_.state + v.states, n + k);
        });
      });
    });
  }

  void go_back(std::int64_t tile) {
    start_tile(tile);
    if (in_.variable_c) load_projection(in_.C, in_.c_strides, s_.C);
    for_each_vector([&](const Vector& v) {
      load_steps(v);
      load_gradients(v);
    });
    for (float* zeros : {s_.y, s_.dw, s_.ddelta}) std::fill_n(zeros, ScanBwdScratch::kRows, 0.0F);
    const float* entering = checkpoints_ + tile * plan_.checkpoint;
    with_projections([&](auto b, auto c) {
      for_each_states([&](std::size_t n, auto count) {
        std::fill_n(s_.shares, 2 * count * kBwdTile * lanes_, 0.0F);
        for_each_vector([&](const Vector& v) {
          const auto states =
              states_of<decltype(b)::value, decltype(c)::value, decltype(count)::value>(v, n, entering);
          make_states(states);
          make_adjoint(states);
        });
        for (std::size_t k = 0; k < count; ++k) add_shares(n + k, s_.shares + 2 * k * kBwdTile * lanes_);
      });
    });
    for_each_vector([&](const Vector& v) { finish_steps(v); });
  }

  /// Adds the lanes' shares of dB and dC of state n.
  void add_shares(std::size_t n, const float* shares) const {
    const std::size_t at =
        n * static_cast<std::size_t>(plan_.tiles) * kBwdTile + static_cast<std::size_t>(begin_);
    if (in_.variable_b) add_sums_of_rows(shares, steps_, dB_ + at);
    if (in_.variable_c) add_sums_of_rows(shares + kBwdTile * lanes_, steps_, dC_ + at);
  }

  /// du, ddelta and dz of a tile, and sums for dD and ddelta_bias.
  void finish_steps(const Vector& v) {
    const FloatTag tag;
    const auto D = per_channel(in_.D, v);
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

  /// dinitial_state, and what is still to be added over batches.
  void store_sums(const Vector& v) {
    const auto store_states = [&](const float* from, float* to, std::int64_t stride) {
      store_matrix<F32>(from + v.states, lanes_, states_, v.channels, to, {1, stride}, s_.staging);
    };
    if (args_.dinitial_state != nullptr)
      store_states(s_.carry, args_.dinitial_state + state_row(v), in_.dstate);
    float* sums = channel_sums_ + static_cast<std::int64_t>(v.first) * plan_.channel_sums;
    for (const float* from : {s_.dA, s_.dB, s_.dC}) {
      store_states(from, sums, plan_.channel_sums);
      sums += in_.dstate;
    }
    for (std::size_t i = 0; i < v.channels; ++i) {
      float* of_channel = sums + static_cast<std::int64_t>(i) * plan_.channel_sums;
      of_channel[0] = s_.dD[v.first + i];
      of_channel[1] = s_.ddelta_bias[v.first + i];
    }
  }

  const ScanGradientArgs& args_;
  const ScanArgs& in_;
  const ScanBwdPlan& plan_;
  const Piece& piece_;
  float *dB_, *dC_, *checkpoints_, *channel_sums_;
  ScanBwdScratch& s_;
  std::size_t states_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t in_use_;      // of [vector][state][lane]
  std::int64_t begin_ = 0;  // of the tile
  std::size_t steps_ = 0;
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
