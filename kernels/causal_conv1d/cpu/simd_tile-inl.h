// A tile of steps and channels in f32, and the convolution over it. Compiled once per instruction set.
//
// A step is a row of `stride` floats: the channels of a block (layout bld), one float (bdl). Vectors lie along
// the channels of a step, or along steps of the one channel, which then share their weights; what is loaded
// for a tap j is `stride·j` floats further either way.

#if defined(SSMBENCH_CONV_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_CONV_TILE_INL_H
#undef SSMBENCH_CONV_TILE_INL_H
#else
#define SSMBENCH_CONV_TILE_INL_H
#endif

#include "hwy/highway.h"
#include "kernels/causal_conv1d/cpu/simd.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;

/// Weights and bias of a vector of channels, or of one channel in all lanes.
struct VectorFilter {
  FloatVec weight[kMaxConvWidth];
  FloatVec bias;
};

template <bool kOneChannel>
VectorFilter filter_at(const ConvTileFilter& filter, std::size_t channel, int width) {
  const FloatTag tag;
  VectorFilter all;
  for (int j = 0; j < width; ++j)
    all.weight[j] =
        kOneChannel ? hn::Set(tag, filter.weight[j][0]) : hn::Load(tag, filter.weight[j] + channel);
  all.bias = kOneChannel ? hn::Set(tag, filter.bias[0]) : hn::Load(tag, filter.bias + channel);
  return all;
}

/// Numbers of the sequences of the steps of a vector that begins at step t.
template <bool kOneChannel>
hn::Vec<IntTag> numbers_at(const std::int32_t* numbers, std::size_t t) {
  const IntTag tag;
  return kOneChannel ? hn::LoadU(tag, numbers + t) : hn::Set(tag, numbers[t]);
}

/// sum + a·b where steps t and `other` are of one sequence and no padding, else the sum: a product by a mask of
/// 0 would let a NaN through.
template <bool kOneChannel>
FloatVec add_if_same(const std::int32_t* numbers, std::size_t t, std::size_t other, FloatVec a, FloatVec b,
                     FloatVec sum) {
  const auto added = hn::MulAdd(a, b, sum);
  if (numbers == nullptr) return added;
  const auto own = numbers_at<kOneChannel>(numbers, t);
  const auto same =
      hn::AndNot(hn::Lt(own, hn::Zero(IntTag())), hn::Eq(own, numbers_at<kOneChannel>(numbers, other)));
  return hn::IfThenElse(hn::RebindMask(FloatTag(), same), added, sum);
}

template <bool kOneChannel>
FloatVec zero_padding(const std::int32_t* numbers, std::size_t t, FloatVec value) {
  if (numbers == nullptr) return value;
  const auto padding = hn::Lt(numbers_at<kOneChannel>(numbers, t), hn::Zero(IntTag()));
  return hn::IfThenZeroElse(hn::RebindMask(FloatTag(), padding), value);
}

/// s of the vector that begins at step t: row t of `x` is that of the oldest tap.
template <bool kOneChannel>
FloatVec convolve(const VectorFilter& filter, int width, const float* x, std::size_t stride,
                  const std::int32_t* numbers, std::size_t t) {
  auto s = filter.bias;
  for (int j = 0; j < width; ++j) {
    const auto tap = hn::LoadU(FloatTag(), x + (t + j) * stride);
    s = add_if_same<kOneChannel>(numbers, t + width - 1, t + j, filter.weight[j], tap, s);
  }
  return s;
}

/// Calls visit(filter, channel, step) for every vector of a tile of `steps` steps.
template <bool kOneChannel, class Visit>
void for_each_vector(const ConvTileFilter& filter, int width, std::size_t stride, std::size_t steps,
                     const Visit& visit) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  for (std::size_t channel = 0; channel < stride; channel += lanes) {
    const VectorFilter of_channels = filter_at<kOneChannel>(filter, channel, width);
    for (std::size_t t = 0; t < steps; t += kOneChannel ? lanes : 1) visit(of_channels, channel, t);
  }
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
