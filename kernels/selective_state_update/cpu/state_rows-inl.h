// Rows of states between memory in any state dtype and f32: rounded to nearest or stochastically, with a
// scale for each row where the dtype needs one. Compiled once per instruction set.

#if defined(SSMBENCH_STATE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_STATE_ROWS_INL_H
#undef SSMBENCH_STATE_ROWS_INL_H
#else
#define SSMBENCH_STATE_ROWS_INL_H
#endif

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"
#include "hwy/highway.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/selective_state_update/args.h"
#include "kernels/selective_state_update/cpu/step.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// Uniform numbers in [0, 1), one for each element of a cache: element i is word i mod 4 of Philox4x32-10 at
/// counter (i div 4, `stream`), with the seed as its key.
class RoundingDraws {
 public:
  RoundingDraws(std::int64_t seed, std::uint32_t stream)
      : key_{static_cast<std::uint32_t>(seed),
             static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed) >> 32U)},
        stream_(stream) {}

  float at(std::int64_t element) {
    const auto block = static_cast<std::uint64_t>(element) / 4;
    if (block != block_) {
      block_ = block;
      words_ = philox4x32_10(
          {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), stream_, 0}, key_);
    }
    return static_cast<float>(words_[static_cast<std::size_t>(element) % 4] >> 8U) * 0x1p-24F;
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t stream_;
  std::uint64_t block_ = ~std::uint64_t{0};
  std::array<std::uint32_t, 4> words_{};
};

/// x to a multiple of `step`, a power of 2, towards or away from zero: away where `draw` < the part that is
/// left. Exact, whatever the size of x.
inline float round_to_step(float x, float step, float draw) {
  const float steps = std::abs(x) / step;
  const float low = std::floor(steps);
  return std::copysign((low + (draw < steps - low ? 1.0F : 0.0F)) * step, x);
}

/// An ulp of a float type with `bits` significand bits, whose smallest normal number is 2^least.
inline float ulp_of(float x, int bits, int least) {
  const int exponent = x == 0 || !std::isfinite(x) ? least : std::max(std::ilogb(x), least);
  return std::ldexp(1.0F, exponent - bits + 1);
}

/// Rows of one tensor of states.
class StateRows {
 public:
  /// `stream` of random numbers: tensors that are rounded stochastically have one each.
  StateRows(void* states, const StateStorage& storage, std::size_t dstate, std::uint32_t stream)
      : states_(states), storage_(storage), dstate_(dstate), stream_(stream) {}

  /// h[n] = states of the row, zeros up to a multiple of the lanes.
  void load(std::int64_t row, float* h) const {
    if (storage_.scale == nullptr)
      return with_io_type(storage_.dtype, [&](auto type) {
        load_row<decltype(type)>(row_of<typename decltype(type)::Storage>(row), dstate_, h);
      });
    const float scale = storage_.scale[row];
    std::fill_n(h + dstate_, round_up(dstate_, hn::Lanes(FloatTag())) - dstate_, 0.0F);
    if (storage_.dtype == DType::i8) return load_numbers(row_of<std::int8_t>(row), scale, h);
    if (storage_.dtype == DType::i16) return load_numbers(row_of<std::int16_t>(row), scale, h);
    const auto* codes = row_of<std::uint8_t>(row);
    for (std::size_t n = 0; n < dstate_; ++n) h[n] = e4m3_to_float(codes[n]) * scale;
  }

  void store(const float* h, std::int64_t row) const {
    if (storage_.scale != nullptr) return store_scaled(h, row);
    if (storage_.seed == nullptr)
      return with_io_type(storage_.dtype, [&](auto type) {
        store_row<decltype(type)>(h, dstate_, row_of<typename decltype(type)::Storage>(row));
      });
    RoundingDraws draws(*storage_.seed, stream_);
    auto* to = row_of<std::uint16_t>(row);
    for (std::size_t n = 0; n < dstate_; ++n)
      to[n] = float_to_f16(round_to_step(h[n], ulp_of(h[n], 11, -14), draws.at(element(row, n))));
  }

 private:
  template <class Number>
  Number* row_of(std::int64_t row) const {
    return static_cast<Number*>(states_) + row * static_cast<std::int64_t>(dstate_);
  }
  std::int64_t element(std::int64_t row, std::size_t n) const {
    return row * static_cast<std::int64_t>(dstate_) + static_cast<std::int64_t>(n);
  }

  template <class Number>
  void load_numbers(const Number* numbers, float scale, float* h) const {
    for (std::size_t n = 0; n < dstate_; ++n) h[n] = static_cast<float>(numbers[n]) * scale;
  }

  void store_scaled(const float* h, std::int64_t row) const {
    float largest = 0;
    for (std::size_t n = 0; n < dstate_; ++n) largest = std::max(largest, std::abs(h[n]));
    const auto most = static_cast<float>(largest_in_scale(storage_.dtype));
    const float scale = largest > 0 ? largest / most : 1;
    storage_.scale[row] = scale;
    alignas(64) float quotients[kStepStates];
    for (std::size_t n = 0; n < dstate_; ++n) {
      const float quotient = scale > 0 ? h[n] / scale : 0;  // 0: it has underflowed
      quotients[n] = std::min(std::max(quotient, -most), most);
    }
    if (storage_.seed != nullptr) round_stochastically(row, quotients);
    if (storage_.dtype == DType::i8) return store_integers(quotients, row_of<std::int8_t>(row));
    if (storage_.dtype == DType::i16) return store_integers(quotients, row_of<std::int16_t>(row));
    auto* to = row_of<std::uint8_t>(row);
    for (std::size_t n = 0; n < dstate_; ++n) to[n] = float_to_e4m3(quotients[n]);
  }

  void round_stochastically(std::int64_t row, float* quotients) const {
    RoundingDraws draws(*storage_.seed, stream_);
    const bool is_float8 = storage_.dtype == DType::e4m3;
    for (std::size_t n = 0; n < dstate_; ++n)
      quotients[n] = round_to_step(quotients[n], is_float8 ? ulp_of(quotients[n], 4, -6) : 1.0F,
                                   draws.at(element(row, n)));
  }

  template <class Integer>
  void store_integers(const float* quotients, Integer* to) const {
    for (std::size_t n = 0; n < dstate_; ++n) to[n] = static_cast<Integer>(std::nearbyint(quotients[n]));
  }

  void* states_;
  const StateStorage& storage_;
  std::size_t dstate_;
  std::uint32_t stream_;
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
