#pragma once

// cuda-window, gradients: the second stage of the sums, and the launch of both.

#include "kernels/causal_conv1d/window/backward_channels.cuh"
#include "kernels/causal_conv1d/window/backward_rows.cuh"
#include "kernels/causal_conv1d/window/options.h"
#include "kernels/common/launch.cuh"

namespace ssmbench::window {

/// Sums of `count` partial sums each, in their order: 32 threads of a column take every 32nd of them, then
/// one adds up those.
template <int kReach>
__global__ void __launch_bounds__(kWarpThreads* kWarpThreads)
    sum_partials(const ConvBackwardArgs args, std::int64_t count, const float* partials) {
  __shared__ float shared[kWarpThreads][kWarpThreads];
  const std::int64_t columns = (kReach + 1) * args.in.dim;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarpThreads + threadIdx.x;
  float sum = 0.0F;
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t i = threadIdx.y; i < count; i += kWarpThreads) sum += partials[i * columns + column];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  sum = 0.0F;
  for (int i = 0; i < kWarpThreads; ++i) sum += shared[i][threadIdx.x];
  const std::int64_t channel = column % args.in.dim;
  const int tap = static_cast<int>(column / args.in.dim) - (kReach - args.in.width);
  if (tap == args.in.width) {
    if (args.dbias != nullptr) args.dbias[channel] = sum;
  } else if (tap >= 0) {
    args.dweight[channel * args.in.width + tap] = sum;
  }
}

inline ChannelPlan backward_channel_plan(std::int64_t batch, std::int64_t dim, std::int64_t seqlen) {
  return plan_channels(batch, dim, seqlen, kBackwardChannels, 16, 128);
}

/// Partial sums of one channel and tap.
inline std::int64_t partials_of(bool channels_last, std::int64_t batch, std::int64_t dim,
                                std::int64_t seqlen) {
  return batch * (channels_last ? backward_channel_plan(batch, dim, seqlen).run_tiles
                                : plan_rows(seqlen, kBackwardTiles).segments);
}

template <class Io>
Launch launch_backward(const ConvBackwardArgs& args, float* partials) {
  const ConvInputs1d& in = args.in;
  const DoutStrides strides = args.dout_channels_last ? DoutStrides{in.seqlen * in.dim, 1, in.dim}
                                                      : DoutStrides{in.seqlen * in.dim, in.seqlen, 1};
  const bool is_aligned = in.channels_last ? in.dim % kBackwardChannels == 0 : in.seqlen % kLaneSteps == 0;
  const bool by_vectors = is_aligned && args.dout_channels_last == in.channels_last;
  const std::int64_t count = partials_of(in.channels_last, in.batch, in.dim, in.seqlen);
  return with_options(in, by_vectors, [&]<int kReach, class Choice>(const Choice& options) -> Launch {
    const Launch sum = launch_of(sum_partials<kReach>, ceil_div((kReach + 1) * in.dim, kWarpThreads),
                                 dim3(kWarpThreads, kWarpThreads), 0, args, count, partials);
    Launch gradients;
    if (in.channels_last) {
      const ChannelPlan plan = backward_channel_plan(in.batch, in.dim, in.seqlen);
      gradients = launch_of(backward_channels<Io, kReach, Choice>, plan.blocks(in.batch),
                            dim3(kChannelThreads), 0, args, strides, plan, partials, options);
    } else {
      const RowPlan plan = plan_rows(in.seqlen, kBackwardTiles);
      gradients = launch_of(backward_rows<Io, kReach, Choice>, plan.blocks(in.batch * in.dim),
                            dim3(kRowWarps * kWarpThreads), 0, args, strides, plan, partials, options);
    }
    return [=](void* stream) {
      gradients(stream);
      sum(stream);
    };
  });
}

}  // namespace ssmbench::window
