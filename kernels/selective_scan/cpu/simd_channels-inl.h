// Channels of a (batch, group) as vectors, and their tensors' way between memory and rows of lanes. Compiled
// once per instruction set.

#if defined(SSMBENCH_SCAN_SIMD_CHANNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SCAN_SIMD_CHANNELS_INL_H
#undef SSMBENCH_SCAN_SIMD_CHANNELS_INL_H
#else
#define SSMBENCH_SCAN_SIMD_CHANNELS_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// B or C of one state at a step: one value for all lanes when variable, one per lane when constant.
template <bool kVariable>
FloatVec projection(const float* row, std::size_t step) {
  return kVariable ? hn::Set(FloatTag(), row[step]) : hn::Load(FloatTag(), row);
}

/// One vector of a run's channels.
struct ChannelVector {
  std::size_t first;     ///< channel, counted from the run's
  std::size_t channels;  ///< in use, at most the lanes
};

/// Steps of a tile.
struct TileSteps {
  std::int64_t begin;
  std::size_t count;
};

/// Brings a run's tensors to rows of one vector each, and back. Lanes without a channel are loaded as
/// zeros.
class Channels {
 public:
  /// `staging`: room for a matrix before transposition.
  Channels(const ScanArgs& args, DType io, const ChannelRun& run, float* staging)
      : args_(args), io_(io), run_(run), staging_(staging), states_(static_cast<std::size_t>(args.dstate)) {}

  std::size_t lanes() const { return lanes_; }
  std::size_t states() const { return states_; }

  /// Calls function(v) for the run's vectors of channels.
  template <class Function>
  void for_each_vector(const Function& function) const {
    for (std::size_t c = 0; c < run_.channels; c += lanes_)
      function(ChannelVector{c, std::min(lanes_, run_.channels - c)});
  }

  /// Where the rows of a vector begin in [vector][state][lane].
  std::size_t state_rows(const ChannelVector& v) const { return v.first * round_up(states_, 4); }

  /// The tile of `most` steps from `begin` on, as far as there are; begin < L.
  TileSteps tile_at(std::int64_t begin, std::size_t most) const {
    return {begin, std::min(most, static_cast<std::size_t>(args_.seqlen - begin))};
  }

  /// A, the states before the first step and, where they are constant, B and C: [vector][state][lane].
  void load_constants(float* A, float* B, float* C, float* state) {
    for_each_vector([&](const ChannelVector& v) {
      load_states(args_.A, v, A);
      if (!args_.variable_b) load_states(static_cast<const float*>(args_.B), v, B);
      if (!args_.variable_c) load_states(static_cast<const float*>(args_.C), v, C);
    });
    load_batch_states(args_.initial_state, state);
  }

  /// (B, D, N) f32 to [vector][state][lane]; zeros where it is absent.
  void load_batch_states(const float* from, float* to) {
    for_each_vector([&](const ChannelVector& v) {
      if (from != nullptr)
        load_states(from + of_batch(), v, to);
      else
        std::fill_n(to + state_rows(v), states_ * lanes_, 0.0F);
    });
  }

  /// [vector][state][lane] to (B, D, N) f32.
  void store_states(const float* from, float* to) {
    for_each_vector([&](const ChannelVector& v) {
      store_matrix<F32>(from + state_rows(v), lanes_, states_, v.channels,
                        to + of_batch() + channel(v) * args_.dstate, {1, args_.dstate}, staging_);
    });
  }

  /// Variable B or C of a tile, [state][step], rows `stride` apart.
  void load_projection(const void* from, const ProjectionStrides& s, const TileSteps& steps, float* to,
                       std::size_t stride) {
    const std::int64_t first = run_.batch * s.batch + run_.group * s.group + steps.begin * s.time;
    load_matrix_at(from, first, io_, {s.state, s.time}, states_, steps.count, to, stride, staging_);
  }

  /// A tile of a (B, D, L) tensor as [step][lane].
  void load_sequence(const void* from, const ChannelVector& v, const TileSteps& steps, float* to) {
    load_matrix_at(from, sequence_offset(v, steps), io_, sequence_strides(), steps.count, v.channels, to,
                   lanes_, staging_);
    clear_other_lanes(v, steps.count, to);
  }
  void store_sequence(const float* from, const ChannelVector& v, const TileSteps& steps, void* to) {
    store_matrix_at(from, lanes_, steps.count, v.channels, to, sequence_offset(v, steps), io_,
                    sequence_strides(), staging_);
  }

  /// A (D,) tensor's values for a vector's channels; zeros where it is absent.
  FloatVec per_channel(const float* values, const ChannelVector& v) const {
    alignas(64) float row[kMaxLanes] = {};
    if (values != nullptr) load_row<F32>(values + channel(v), v.channels, row);
    return hn::Load(FloatTag(), row);
  }

 private:
  std::int64_t channel(const ChannelVector& v) const {
    return run_.first_channel + static_cast<std::int64_t>(v.first);
  }

  /// Elements of (B, D, N) before the batch's.
  std::int64_t of_batch() const { return run_.batch * args_.dim * args_.dstate; }

  std::int64_t sequence_offset(const ChannelVector& v, const TileSteps& steps) const {
    const auto& s = args_.sequence;
    return run_.batch * s.batch + channel(v) * s.dim + steps.begin * s.time;
  }
  MatrixStrides sequence_strides() const { return {args_.sequence.time, args_.sequence.dim}; }

  /// (D, N) data to [state][lane].
  void load_states(const float* from, const ChannelVector& v, float* to) {
    load_matrix<F32>(from + channel(v) * args_.dstate, {1, args_.dstate}, states_, v.channels,
                     to + state_rows(v), lanes_, staging_);
    clear_other_lanes(v, states_, to + state_rows(v));
  }

  void clear_other_lanes(const ChannelVector& v, std::size_t rows, float* matrix) const {
    if (v.channels == lanes_) return;
    const FloatTag tag;
    const auto in_use = hn::FirstN(tag, v.channels);
    for (std::size_t i = 0; i < rows * lanes_; i += lanes_)
      hn::Store(hn::IfThenElseZero(in_use, hn::Load(tag, matrix + i)), tag, matrix + i);
  }

  const ScanArgs& args_;
  DType io_;
  const ChannelRun& run_;
  float* staging_;
  std::size_t states_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
