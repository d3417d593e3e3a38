// cpu-simd: the gradients with vectors as simd.cpp has them. Of each tile x is loaded with the W−1 steps before
// it and the W−1 after it, dout with those after it: g = dout·act'(s) is computed there once more, and dx and
// the sums of g·x̃ follow. A block of channels of all sequences is computed by one thread, batch after batch,
// so results do not depend on how many there are.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_conv1d/cpu/simd_bwd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include "hwy/highway.h"
#include "kernels/causal_conv1d/bind.h"
#include "kernels/causal_conv1d/cpu/simd.h"
#include "kernels/causal_conv1d/cpu/simd_sequence-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

template <bool kOneChannel>
class BlockGradients {
 public:
  BlockGradients(const ConvBackwardArgs& args, DType io, const ConvBlock& block, ConvScratch& scratch)
      : args_(args),
        io_(io),
        in_(args.in),
        block_(block),
        s_(scratch),
        tiles_(args.in, io, block),
        stride_(tiles_.stride()),
        taps_(static_cast<std::size_t>(args.in.taps())) {}

  /// One sequence of the batch; adds to the sums.
  void run() {
    for (std::int64_t begin = 0; begin < in_.seqlen; begin += tiles_.most_steps())
      run_tile(begin, std::min(in_.seqlen, begin + tiles_.most_steps()));
  }

 private:
  void run_tile(std::int64_t begin, std::int64_t end) {
    const auto steps = static_cast<std::size_t>(end - begin);
    tiles_.load(in_.x, in_.initial_states, begin - in_.taps(), end + in_.taps(), s_.x);
    load_dout(begin, end + in_.taps());
    numbers_ = tiles_.load_numbers(begin - in_.taps(), end + in_.taps(), s_.numbers);
    make_adjoints(steps + taps_);
    add_sums(steps);
    make_dx(s_.g, taps_, steps, 0, static_cast<std::size_t>(in_.seqlen - begin));
    add_dfinal(begin, end);
    tiles_.store(s_.out, begin, end, args_.dx);
    if (begin == 0 && args_.dinitial_states != nullptr) store_dinitial();
  }

  /// In the layout that dout has.
  void load_dout(std::int64_t begin, std::int64_t end) {
    if (args_.dout_channels_last == in_.channels_last)
      return tiles_.load(args_.dout, nullptr, begin, end, s_.g);
    for (std::size_t c = 0; c < block_.channels; ++c) {
      const std::int64_t d = block_.channel + static_cast<std::int64_t>(c);
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t at = args_.dout_channels_last ? (block_.batch * in_.seqlen + t) * in_.dim + d
                                                         : (block_.batch * in_.dim + d) * in_.seqlen + t;
        s_.g[static_cast<std::size_t>(t - begin) * stride_ + c] =
            t < in_.seqlen ? load_element(args_.dout, at, io_) : 0.0F;
      }
    }
  }

  /// g in the place of dout.
  void make_adjoints(std::size_t steps) {
    const FloatTag tag;
    for_each_vector<kOneChannel>(
        s_.filter, in_.width, stride_, steps,
        [&](const VectorFilter& filter, std::size_t channel, std::size_t t) {
          float* at = s_.g + t * stride_ + channel;
          auto g = hn::LoadU(tag, at);
          if (in_.silu)
            g = hn::Mul(g, vector_silu_with_slope(
                               convolve<kOneChannel>(filter, in_.width, s_.x + channel, stride_, numbers_, t))
                               .slope);
          hn::StoreU(zero_padding<kOneChannel>(numbers_, t + taps_, g), tag, at);
        });
  }

  void add_sums(std::size_t steps) {
    const FloatTag tag;
    for_each_vector<kOneChannel>(
        s_.filter, in_.width, stride_, steps, [&](const VectorFilter&, std::size_t channel, std::size_t t) {
          // Past the last step there is whatever was there before, maybe NaN.
          const auto is_step = hn::FirstN(tag, kOneChannel ? steps - t : hn::Lanes(tag));
          const auto g = hn::IfThenElseZero(is_step, hn::LoadU(tag, s_.g + t * stride_ + channel));
          for (std::size_t j = 0; j <= taps_; ++j) {
            const auto x = hn::IfThenElseZero(is_step, hn::LoadU(tag, s_.x + (t + j) * stride_ + channel));
            float* sum = s_.sums[j] + channel;
            hn::Store(add_if_same<kOneChannel>(numbers_, t + taps_, t + j, g, x, hn::Load(tag, sum)), tag,
                      sum);
          }
          float* sum = s_.sums[kMaxConvWidth] + channel;
          hn::Store(hn::Add(g, hn::Load(tag, sum)), tag, sum);
        });
  }

  /// dx̃ of `steps` steps, the first of which is `first` rows into the tile of x; g begins W−1 rows into it, and
  /// its rows from `begin` to `end` are those of steps that there are.
  void make_dx(const float* g, std::size_t first, std::size_t steps, std::size_t begin, std::size_t end) {
    const FloatTag tag;
    const std::size_t rows = kOneChannel ? hn::Lanes(tag) : 1;
    for_each_vector<kOneChannel>(
        s_.filter, in_.width, stride_, steps,
        [&](const VectorFilter& filter, std::size_t channel, std::size_t t) {
          auto dx = hn::Zero(tag);
          for (std::size_t j = 0; j <= taps_; ++j) {
            const std::size_t later = t + taps_ - j;
            if (later + rows <= begin || later >= end) continue;
            const auto value = hn::LoadU(tag, g + later * stride_ + channel);
            const auto sum =
                add_if_same<kOneChannel>(numbers_, first + t, first + later, filter.weight[j], value, dx);
            dx = later >= begin && later + rows <= end ? sum : where_step(later, begin, end, sum, dx);
          }
          hn::StoreU(dx, tag, s_.out + t * stride_ + channel);
        });
  }

  /// `sum` in lanes of rows from `begin` to `end`, else `dx`, of a vector that begins at row `row`.
  static FloatVec where_step(std::size_t row, std::size_t begin, std::size_t end, FloatVec sum, FloatVec dx) {
    const FloatTag tag;
    const auto before = hn::FirstN(tag, begin > row ? begin - row : 0);
    const auto until = hn::FirstN(tag, end - row);
    return hn::IfThenElse(hn::AndNot(before, until), sum, dx);
  }

  float dfinal(std::size_t c, std::int64_t t) const {
    const std::int64_t i = t - (in_.seqlen - in_.taps());
    if (args_.dfinal_states == nullptr || i < 0) return 0.0F;
    return load_element(args_.dfinal_states, tiles_.state_offset(c) + i, io_);
  }

  void add_dfinal(std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = std::max(begin, in_.seqlen - in_.taps()); t < end; ++t)
      for (std::size_t c = 0; c < block_.channels; ++c)
        s_.out[static_cast<std::size_t>(t - begin) * stride_ + c] += dfinal(c, t);
  }

  /// From the g of the first tile, before which there are none.
  void store_dinitial() {
    std::copy_backward(s_.g, s_.g + taps_ * stride_, s_.g + 2 * taps_ * stride_);
    std::fill_n(s_.g, taps_ * stride_, 0.0F);
    make_dx(s_.g, 0, taps_, taps_, taps_ + static_cast<std::size_t>(in_.seqlen));
    for (std::size_t c = 0; c < block_.channels; ++c)
      for (int i = 0; i < in_.taps(); ++i)
        store_element(args_.dinitial_states, tiles_.state_offset(c) + i,
                      s_.out[static_cast<std::size_t>(i) * stride_ + c] + dfinal(c, i - in_.taps()), io_);
  }

  const ConvBackwardArgs& args_;
  DType io_;
  const ConvInputs1d& in_;
  ConvBlock block_;
  ConvScratch& s_;
  SequenceTiles<kOneChannel> tiles_;
  std::size_t stride_, taps_;
  const std::int32_t* numbers_ = nullptr;
};

/// Sums of one channel are spread over the lanes of a vector where steps are.
float sum_of(const float* sums, std::size_t channel, bool one_channel) {
  if (!one_channel) return sums[channel];
  float sum = 0.0F;
  for (std::size_t lane = 0; lane < hn::Lanes(FloatTag()); ++lane) sum += sums[lane];
  return sum;
}

template <bool kOneChannel>
void backward_tiles(const ConvBackwardArgs& args, DType io, const ConvFilters& filters,
                    const ConvBlock& block, ConvScratch& s) {
  const ConvInputs1d& in = args.in;
  s.filter.load(filters, block.channel, block.channels, in.width);
  for (auto& row : s.sums) std::ranges::fill(row, 0.0F);
  for (std::int64_t batch = 0; batch < in.batch; ++batch)
    BlockGradients<kOneChannel>(args, io, {batch, block.channel, block.channels}, s).run();
  for (std::size_t c = 0; c < block.channels; ++c) {
    const std::int64_t channel = block.channel + static_cast<std::int64_t>(c);
    for (int j = 0; j < in.width; ++j)
      args.dweight[channel * in.width + j] = sum_of(s.sums[j], c, kOneChannel);
    if (args.dbias != nullptr) args.dbias[channel] = sum_of(s.sums[kMaxConvWidth], c, kOneChannel);
  }
}

void backward_block(const ConvBackwardArgs& args, DType dtype, const ConvFilters& filters,
                    const ConvBlock& block, ConvScratch& scratch) {
  if (args.in.channels_last)
    backward_tiles<false>(args, dtype, filters, block, scratch);
  else
    backward_tiles<true>(args, dtype, filters, block, scratch);
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>

namespace ssmbench::simd::conv_bwd {
namespace {

HWY_EXPORT(backward_block);

/// One thread per element of `scratch`.
void backward(const ConvBackwardArgs& args, DType dtype, std::vector<ConvScratch>& scratch) {
  const auto one = HWY_DYNAMIC_DISPATCH(backward_block);
  const ConvFilters filters = load_filters(args.in.weights, dtype, args.in.dim, args.in.width);
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(scratch.size()))
  for (std::int64_t i = 0; i < conv_blocks(args.in); ++i)
    one(args, dtype, filters, conv_block(args.in, 0, i), scratch[omp_get_thread_num()]);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ConvBackwardArgs args = bind_conv_bwd(problem, tensors);
  const std::int64_t threads = std::min<std::int64_t>(omp_get_max_threads(), conv_blocks(args.in));
  // Shared because a Launch is copyable; launches of one binding must not overlap.
  const auto scratch = std::make_shared<std::vector<ConvScratch>>(threads);
  return [=, dtype = problem.dtype()](void*) { backward(args, dtype, *scratch); };
}

const Registration registration{{.name = "cpu-simd",
                                 .op = "causal_conv1d_bwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "channels or steps across SIMD lanes, all threads (Highway)",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd::conv_bwd

#endif  // HWY_ONCE
