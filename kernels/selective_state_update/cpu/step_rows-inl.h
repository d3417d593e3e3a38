// One token of rows of states, from memory to memory. Compiled once per instruction set.

#if defined(SSMBENCH_STEP_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_STEP_ROWS_INL_H
#undef SSMBENCH_STEP_ROWS_INL_H
#else
#define SSMBENCH_STEP_ROWS_INL_H
#endif

#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/selective_state_update/cpu/step.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// NaN with nothing in the lower half, which arithmetic hands on; numbers as they are.
inline float quiet(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
}

/// Neighbouring states of a row that are read and written together, in the order of memory.
template <class State>
struct StateBlock {
  using Storage = typename State::Storage;
  static constexpr std::size_t kVectors = 1;

  static void load(const Storage* from, FloatVec* to) { to[0] = promote(State{}, from); }
  static void store(const FloatVec* from, Storage* to) { demote(State{}, from[0], to); }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
/// A vector of f16, by the processor's own conversions, which round to nearest even and know subnormal numbers.
/// (They keep the bits of NaN, where those of demote() are always the same.)
template <>
struct StateBlock<F16> {
  using Storage = F16::Storage;
  using Tag = hn::Rebind<hwy::float16_t, FloatTag>;
  static constexpr std::size_t kVectors = 1;

  static void load(const Storage* from, FloatVec* to) {
    to[0] = hn::PromoteTo(FloatTag(), hn::LoadU(Tag(), reinterpret_cast<const hwy::float16_t*>(from)));
  }
  static void store(const FloatVec* from, Storage* to) {
    hn::StoreU(hn::DemoteTo(Tag(), from[0]), Tag(), reinterpret_cast<hwy::float16_t*>(to));
  }
};

/// Two vectors of f16, which are one of memory: whole lines are stored where vectors have 64 bytes.
struct F16Pair {
  using Storage = F16::Storage;
  using Tag = StateBlock<F16>::Tag;
  using Words = hn::Rebind<std::uint16_t, FloatTag>;
  using Both = hn::Repartition<std::uint16_t, FloatTag>;
  static constexpr std::size_t kVectors = 2;

  static void load(const Storage* from, FloatVec* to) {
    const auto both = hn::LoadU(Both(), from);
    to[0] = hn::PromoteTo(FloatTag(), hn::BitCast(Tag(), hn::LowerHalf(Words(), both)));
    to[1] = hn::PromoteTo(FloatTag(), hn::BitCast(Tag(), hn::UpperHalf(Words(), both)));
  }
  static void store(const FloatVec* from, Storage* to) {
    const auto low = hn::BitCast(Words(), hn::DemoteTo(Tag(), from[0]));
    const auto high = hn::BitCast(Words(), hn::DemoteTo(Tag(), from[1]));
    hn::StoreU(hn::Combine(Both(), high, low), Both(), to);
  }
};
#else
using F16Pair = StateBlock<F16>;
#endif

/// Two vectors of bf16: the even states and the odd ones. A word of 32 bits has one of either where f32 has
/// it, so that nothing moves between lanes. NaN are not looked at: the lower half of theirs has to be zero,
/// which rounding leaves alone.
struct Bf16Pairs {
  using Storage = Bf16::Storage;
  static constexpr std::size_t kVectors = 2;

  static void load(const Storage* from, FloatVec* to) {
    const BitsTag tag;
    const auto both = hn::LoadU(tag, reinterpret_cast<const std::uint32_t*>(from));
    to[0] = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(both));
    to[1] = hn::BitCast(FloatTag(), hn::And(both, hn::Set(tag, 0xFFFF0000U)));
  }
  static void store(const FloatVec* from, Storage* to) {
    const BitsTag tag;
    const auto both =
        hn::Or(hn::ShiftRight<16>(rounded(from[0])), hn::And(rounded(from[1]), hn::Set(tag, 0xFFFF0000U)));
    hn::StoreU(both, tag, reinterpret_cast<std::uint32_t*>(to));
  }
  /// In the upper half of each word, to nearest even.
  static hn::Vec<BitsTag> rounded(FloatVec value) {
    const BitsTag tag;
    const auto bits = hn::BitCast(tag, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(tag, 1));
    return hn::Add(bits, hn::Add(hn::Set(tag, 0x7FFF), odd));
  }

  /// B or C in the order of the vectors: of each 2·lanes the even ones first.
  static void separate(float* values, std::size_t count) {
    const std::size_t lanes = hn::Lanes(FloatTag());
    float block[2 * kMaxLanes];
    for (std::size_t first = 0; first < count; first += 2 * lanes) {
      for (std::size_t i = 0; i < 2 * lanes; ++i) block[i] = quiet(values[first + i]);
      for (std::size_t i = 0; i < 2 * lanes; ++i) values[first + i % 2 * lanes + i / 2] = block[i];
    }
  }
};

/// One token of kRows rows of `dstate` states, in whole blocks, from `from` to `to`, which may be the same
/// ones; y[r] = Σ C·h. `delta_x`: one of each row.
template <std::size_t kRows, class Block>
void advance_rows(const HeadToken& token, const float* delta_x, std::size_t dstate,
                  const typename Block::Storage* from, typename Block::Storage* to, float* y) {
  const FloatTag tag;
  const std::size_t lanes = hn::Lanes(tag);
  FloatVec inputs[kRows], sums[kRows];
  for (std::size_t r = 0; r < kRows; ++r) {
    inputs[r] = hn::Set(tag, delta_x[r]);
    sums[r] = hn::Zero(tag);
  }
  for (std::size_t n = 0; n < dstate; n += Block::kVectors * lanes) {
    for (std::size_t r = 0; r < kRows; ++r) {
      FloatVec h[Block::kVectors];
      Block::load(from + r * dstate + n, h);
      for (std::size_t v = 0; v < Block::kVectors; ++v) {
        const std::size_t at = n + v * lanes;
        h[v] = hn::MulAdd(hn::Load(tag, token.decay + at), h[v],
                          hn::Mul(inputs[r], hn::Load(tag, token.B + at)));
        sums[r] = hn::MulAdd(hn::Load(tag, token.C + at), h[v], sums[r]);
      }
      Block::store(h, to + r * dstate + n);
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) y[r] = hn::GetLane(hn::SumOfLanes(tag, sums[r]));
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
