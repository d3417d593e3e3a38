// Tiles of sequences between memory and f32. Compiled once per instruction set.

#if defined(SSMBENCH_CONV_SEQUENCE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_CONV_SEQUENCE_INL_H
#undef SSMBENCH_CONV_SEQUENCE_INL_H
#else
#define SSMBENCH_CONV_SEQUENCE_INL_H
#endif

#include "kernels/causal_conv1d/cpu/simd_tile-inl.h"
#include "kernels/common/cpu/io_elements.h"
#include "kernels/common/cpu/io_types.h"
#include "kernels/common/cpu/simd_matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// One block of channels of one sequence.
template <bool kOneChannel>
class SequenceTiles {
 public:
  SequenceTiles(const ConvInputs1d& in, DType io, const ConvBlock& block) : in_(in), io_(io), block_(block) {}

  /// Floats between steps of a tile.
  std::size_t stride() const { return kOneChannel ? 1 : round_up(block_.channels, hn::Lanes(FloatTag())); }
  static constexpr std::int64_t most_steps() {
    return static_cast<std::int64_t>(kOneChannel ? kConvRowSteps : kConvSteps);
  }

  /// Steps begin to end of the sequence `from`; zeros past its end, and before its begin x̃ of `states`.
  void load(const void* from, const void* states, std::int64_t begin, std::int64_t end, float* to) const {
    const std::int64_t first = std::max<std::int64_t>(begin, 0);
    const std::int64_t last = std::max(first, std::min(end, in_.seqlen));
    with_io_type(io_, [&]<class Io>(Io) {
      const auto* x = static_cast<const typename Io::Storage*>(from);
      if constexpr (kOneChannel)
        load_row<Io>(x + offset(first), static_cast<std::size_t>(last - first), to + (first - begin));
      else
        for (std::int64_t t = first; t < last; ++t)
          load_row<Io>(x + offset(t), block_.channels, to + static_cast<std::size_t>(t - begin) * stride());
    });
    std::fill(to + static_cast<std::size_t>(last - begin) * stride(),
              to + static_cast<std::size_t>(end - begin) * stride(), 0.0F);
    for (std::int64_t t = begin; t < first; ++t)
      load_state(states, t, to + static_cast<std::size_t>(t - begin) * stride());
  }

  void store(const float* from, std::int64_t begin, std::int64_t end, void* to) const {
    with_io_type(io_, [&]<class Io>(Io) {
      auto* out = static_cast<typename Io::Storage*>(to);
      if constexpr (kOneChannel)
        store_row<Io>(from, static_cast<std::size_t>(end - begin), out + offset(begin));
      else
        for (std::int64_t t = begin; t < end; ++t)
          store_row<Io>(from + static_cast<std::size_t>(t - begin) * stride(), block_.channels,
                        out + offset(t));
    });
  }

  /// Numbers of steps begin to end, one that no step has where there is none; null where nothing is packed.
  const std::int32_t* load_numbers(std::int64_t begin, std::int64_t end, std::int32_t* to) const {
    if (in_.seq_idx == nullptr) return nullptr;
    for (std::int64_t t = begin; t < end; ++t)
      to[t - begin] = t >= 0 && t < in_.seqlen ? in_.seq_idx[block_.batch * in_.seqlen + t] : -2;
    return to;
  }

  std::int64_t state_offset(std::size_t c) const {
    return (block_.batch * in_.dim + block_.channel + static_cast<std::int64_t>(c)) * in_.taps();
  }

 private:
  std::int64_t offset(std::int64_t t) const {
    return kOneChannel ? (block_.batch * in_.dim + block_.channel) * in_.seqlen + t
                       : (block_.batch * in_.seqlen + t) * in_.dim + block_.channel;
  }

  void load_state(const void* states, std::int64_t t, float* to) const {
    std::fill_n(to, stride(), 0.0F);
    if (states == nullptr || t + in_.taps() < 0) return;
    for (std::size_t c = 0; c < block_.channels; ++c)
      to[c] = load_element(states, state_offset(c) + t + in_.taps(), io_);
  }

  const ConvInputs1d& in_;
  DType io_;
  ConvBlock block_;
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
