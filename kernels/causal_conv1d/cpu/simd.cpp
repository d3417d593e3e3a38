// cpu-simd: the forward convolution and the decoding step with vectors along channels (layout bld, steps) or
// along time (bdl). Tiles are converted to f32 with the W−1 steps before them and convolved there. A block of
// channels of a sequence, or a row of a step, is computed by one thread, so results do not depend on how many
// there are.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_conv1d/cpu/simd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include "hwy/highway.h"
#include "kernels/causal_conv1d/bind.h"
#include "kernels/causal_conv1d/cpu/simd.h"
#include "kernels/causal_conv1d/cpu/simd_sequence-inl.h"
#include "kernels/common/cpu/simd_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// out of `steps` steps from x, whose first row is the oldest tap of the first step.
template <bool kOneChannel>
void convolve_tile(const ConvTileFilter& all, int width, bool use_silu, std::size_t stride,
                   const std::int32_t* numbers, std::size_t steps, const float* x, float* out) {
  const FloatTag tag;
  for_each_vector<kOneChannel>(
      all, width, stride, steps, [&](const VectorFilter& filter, std::size_t channel, std::size_t t) {
        auto value = convolve<kOneChannel>(filter, width, x + channel, stride, numbers, t);
        if (use_silu) value = vector_silu(value);
        value = zero_padding<kOneChannel>(numbers, t + width - 1, value);
        hn::StoreU(value, tag, out + t * stride + channel);
      });
}

template <bool kOneChannel>
void forward_tiles(const ConvForwardArgs& args, DType io, const ConvFilters& filters, const ConvBlock& block,
                   ConvScratch& s) {
  const ConvInputs1d& in = args.in;
  const SequenceTiles<kOneChannel> tiles(in, io, block);
  s.filter.load(filters, block.channel, block.channels, in.width);
  for (std::int64_t begin = 0; begin < in.seqlen; begin += tiles.most_steps()) {
    const std::int64_t end = std::min(in.seqlen, begin + tiles.most_steps());
    tiles.load(in.x, in.initial_states, begin - in.taps(), end, s.x);
    const std::int32_t* numbers = tiles.load_numbers(begin - in.taps(), end, s.numbers);
    convolve_tile<kOneChannel>(s.filter, in.width, in.silu, tiles.stride(), numbers,
                               static_cast<std::size_t>(end - begin), s.x, s.out);
    tiles.store(s.out, begin, end, args.out);
  }
  if (args.final_states == nullptr) return;
  tiles.load(in.x, in.initial_states, in.seqlen - in.taps(), in.seqlen, s.x);
  for (std::size_t c = 0; c < block.channels; ++c)
    for (int i = 0; i < in.taps(); ++i)
      store_element(args.final_states, tiles.state_offset(c) + i,
                    s.x[static_cast<std::size_t>(i) * tiles.stride() + c], io);
}

void forward_block(const ConvForwardArgs& args, DType dtype, const ConvFilters& filters,
                   const ConvBlock& block, ConvScratch& scratch) {
  if (args.in.channels_last)
    forward_tiles<false>(args, dtype, filters, block, scratch);
  else
    forward_tiles<true>(args, dtype, filters, block, scratch);
}

/// A row of a decoding step: conv_state ++ x of a block of channels, then the steps of x a tile at a time.
class UpdateRow {
 public:
  UpdateRow(const ConvUpdateArgs& args, DType io, std::int64_t row, std::int64_t channel,
            std::size_t channels, UpdateScratch& scratch)
      : args_(args), io_(io), row_(row), channel_(channel), channels_(channels), s_(scratch) {
    s_.steps.resize(static_cast<std::size_t>(args.state_len + args.tokens) * stride_);
    s_.out.resize(static_cast<std::size_t>(args.tokens) * stride_);
    s_.state.resize(round_up(channels * static_cast<std::size_t>(args.state_len), kMaxLanes));
  }

  void run(std::int64_t source, std::int64_t destination) {
    load_state(source);
    for (std::int64_t t = 0; t < args_.tokens; ++t)
      load_row_at(args_.x, at(t), io_, channels_, step(args_.state_len + t));
    convolve_tile<false>(s_.filter, args_.width, args_.silu, stride_, nullptr,
                         static_cast<std::size_t>(args_.tokens), step(args_.state_len - args_.taps()),
                         s_.out.data());
    for (std::int64_t t = 0; t < args_.tokens; ++t)
      store_row_at(s_.out.data() + static_cast<std::size_t>(t) * stride_, channels_, args_.out, at(t), io_);
    if (destination >= 0) store_state(destination);
  }

  void run_padding() const {
    for (std::int64_t t = 0; t < args_.tokens; ++t)
      for (std::size_t c = 0; c < channels_; ++c)
        store_element(args_.out, at(t) + static_cast<std::int64_t>(c), 0.0F, io_);
  }

 private:
  std::int64_t at(std::int64_t t) const { return (row_ * args_.tokens + t) * args_.dim + channel_; }
  float* step(std::int64_t k) { return s_.steps.data() + static_cast<std::size_t>(k) * stride_; }
  std::int64_t state_at(std::int64_t slot, std::int64_t k) const {
    return args_.channels_last ? (slot * args_.state_len + k) * args_.dim + channel_
                               : (slot * args_.dim + channel_) * args_.state_len + k;
  }

  void load_state(std::int64_t slot) {
    if (args_.channels_last) {
      for (std::int64_t k = 0; k < args_.state_len; ++k)
        load_row_at(args_.conv_state, state_at(slot, k), io_, channels_, step(k));
      return;
    }
    const auto length = static_cast<std::size_t>(args_.state_len);
    load_row_at(args_.conv_state, state_at(slot, 0), io_, channels_ * length, s_.state.data());
    for (std::size_t c = 0; c < channels_; ++c)
      for (std::size_t k = 0; k < length; ++k) s_.steps[k * stride_ + c] = s_.state[c * length + k];
  }

  void store_state(std::int64_t slot) {
    if (args_.channels_last) {
      for (std::int64_t k = 0; k < args_.state_len; ++k)
        store_row_at(step(args_.tokens + k), channels_, args_.conv_state, state_at(slot, k), io_);
      return;
    }
    const auto length = static_cast<std::size_t>(args_.state_len);
    const auto tokens = static_cast<std::size_t>(args_.tokens);
    for (std::size_t c = 0; c < channels_; ++c)
      for (std::size_t k = 0; k < length; ++k)
        s_.state[c * length + k] = s_.steps[(tokens + k) * stride_ + c];
    store_row_at(s_.state.data(), channels_ * length, args_.conv_state, state_at(slot, 0), io_);
  }

  const ConvUpdateArgs& args_;
  DType io_;
  std::int64_t row_, channel_;
  std::size_t channels_;
  UpdateScratch& s_;
  std::size_t stride_ = kConvChannels;
};

/// A block of channels of the rows from `first` to `last`.
void update_rows(const ConvUpdateArgs& args, DType dtype, const ConvFilters& filters, std::int64_t block,
                 std::int64_t first, std::int64_t last, UpdateScratch& scratch) {
  const std::int64_t channel = block * static_cast<std::int64_t>(kConvChannels);
  const auto channels = static_cast<std::size_t>(std::min<std::int64_t>(kConvChannels, args.dim - channel));
  scratch.filter.load(filters, channel, channels, args.width);
  for (std::int64_t row = first; row < last; ++row) {
    UpdateRow update(args, dtype, row, channel, channels, scratch);
    const std::int64_t source = args.source == nullptr ? row : args.source[row];
    if (source < 0)
      update.run_padding();
    else
      update.run(source, args.destination == nullptr ? row : args.destination[row]);
  }
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>

namespace ssmbench::simd::conv_fwd {
namespace {

HWY_EXPORT(forward_block);
HWY_EXPORT(update_rows);

/// One thread per element of `scratch`.
void forward(const ConvForwardArgs& args, DType dtype, std::vector<ConvScratch>& scratch) {
  const auto one = HWY_DYNAMIC_DISPATCH(forward_block);
  const ConvFilters filters = load_filters(args.in.weights, dtype, args.in.dim, args.in.width);
  const std::int64_t blocks = conv_blocks(args.in);
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(scratch.size()))
  for (std::int64_t i = 0; i < args.in.batch * blocks; ++i)
    one(args, dtype, filters, conv_block(args.in, i / blocks, i % blocks), scratch[omp_get_thread_num()]);
}

/// Rows that share a block's filter.
constexpr std::int64_t kUpdateRows = 16;

void update(const ConvUpdateArgs& args, DType dtype, std::vector<UpdateScratch>& scratch) {
  const auto some = HWY_DYNAMIC_DISPATCH(update_rows);
  const ConvFilters filters = load_filters(args.weights, dtype, args.dim, args.width);
  const auto channels = static_cast<std::int64_t>(kConvChannels);
  const std::int64_t blocks = (args.dim + channels - 1) / channels;
  const std::int64_t runs = (args.batch + kUpdateRows - 1) / kUpdateRows;
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(scratch.size()))
  for (std::int64_t i = 0; i < runs * blocks; ++i) {
    const std::int64_t first = i / blocks * kUpdateRows;
    some(args, dtype, filters, i % blocks, first, std::min(args.batch, first + kUpdateRows),
         scratch[omp_get_thread_num()]);
  }
}

std::int64_t threads_for(std::int64_t tasks) {
  return std::min<std::int64_t>(omp_get_max_threads(), tasks);
}

// Scratch is shared because a Launch is copyable; launches of one binding must not overlap.

Launch bind_forward(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ConvForwardArgs args = bind_conv_fwd(problem, tensors);
  const auto scratch =
      std::make_shared<std::vector<ConvScratch>>(threads_for(args.in.batch * conv_blocks(args.in)));
  return [=, dtype = problem.dtype()](void*) { forward(args, dtype, *scratch); };
}

Launch bind_update(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ConvUpdateArgs args = bind_conv_update(problem, tensors);
  const auto scratch = std::make_shared<std::vector<UpdateScratch>>(threads_for(args.batch * args.dim));
  return [=, dtype = problem.dtype()](void*) { update(args, dtype, *scratch); };
}

Implementation vectors(const char* op, const char* summary,
                       Launch (*bind)(const Problem&, const TensorSet&, void*)) {
  return {.name = "cpu-simd",
          .op = op,
          .device = DeviceKind::cpu,
          .summary = summary,
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = bind};
}

const Registration registration_of_forward{
    vectors("causal_conv1d_fwd", "channels or steps across SIMD lanes, all threads (Highway)", bind_forward)};
const Registration registration_of_update{
    vectors("causal_conv1d_update", "channels across SIMD lanes, all threads (Highway)", bind_update)};

}  // namespace
}  // namespace ssmbench::simd::conv_fwd

#endif  // HWY_ONCE
