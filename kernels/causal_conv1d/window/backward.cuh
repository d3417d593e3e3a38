#pragma once

// cuda-window, gradients: the second stage of the sums, and the launch of both.

#include "kernels/causal_conv1d/window/backward_channels.cuh"
#include "kernels/causal_conv1d/window/backward_rows.cuh"
#include "kernels/causal_conv1d/window/options.h"
#include "kernels/causal_conv1d/window/shape.h"
#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/hopper/device.h"
#include "kernels/common/launch.cuh"

namespace ssmbench::window {

/// Sums of `count` partial sums each, in their order: 32 threads of a column take every 32nd of them, then
/// one adds up those.
template <int kReach>
__global__ void __launch_bounds__(kWarpThreads* kWarpThreads)
    sum_partials(const ConvBackwardArgs args, std::int64_t count, const float* partials) {
  __shared__ float shared[kWarpThreads][kWarpThreads];
  hopper::wait_for_prerequisites();
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

inline ChannelPlan backward_channel_plan(const ConvShape& shape) {
  return plan_channels(shape.batch, shape.dim, shape.seqlen, kBackwardChannels, kBackwardRun);
}
inline RowPlan backward_row_plan(const ConvShape& shape) {
  return plan_rows(shape.seqlen, kBackwardTiles, shape.element_bytes);
}

/// Partial sums of one channel and tap.
inline std::int64_t partials_of(const ConvShape& shape, bool channels_last) {
  return channels_last ? backward_channel_plan(shape).run_tiles
                       : shape.batch * backward_row_plan(shape).segments;
}

/// The two stages, the second of which waits for the first where a GPU lets it begin early.
template <class Io, int kReach, class Choice>
Launch launch_stages(const ConvBackwardArgs& args, const Choice& options, float* partials) {
  const ConvInputs1d& in = args.in;
  const ConvShape shape{in.batch, in.dim, in.seqlen, in.width, static_cast<int>(sizeof(Io))};
  const DoutStrides strides = args.dout_channels_last ? DoutStrides{in.seqlen * in.dim, 1, in.dim}
                                                      : DoutStrides{in.seqlen * in.dim, in.seqlen, 1};
  Launch gradients;
  if (in.channels_last) {
    const ChannelPlan plan = backward_channel_plan(shape);
    gradients = launch_with_memory(backward_channels<Io, kReach, Choice>, plan.blocks(),
                                   dim3(kChannelThreads), backward_channel_bytes<Io, kReach, Choice>(plan),
                                   args, strides, plan, partials, options);
  } else {
    const RowPlan plan = backward_row_plan(shape);
    gradients = launch_with_memory(backward_rows<Io, kReach, Choice>, plan.blocks(in.batch * in.dim),
                                   dim3(kRowWarps * kWarpThreads), kRowWarps * TileRing<Io>::kBytes, args,
                                   strides, plan, partials, options);
  }
  const std::int64_t blocks = ceil_div((kReach + 1) * in.dim, kWarpThreads);
  const std::int64_t count = partials_of(shape, in.channels_last);
  const auto begin = hopper::wrong_device() ? hopper::Begin::after : hopper::Begin::early;
  return [=](void* stream) {
    gradients(stream);
    hopper::launch_kernel(begin, static_cast<cudaStream_t>(stream), sum_partials<kReach>, blocks,
                          dim3(kWarpThreads, kWarpThreads), 0, args, count, partials);
  };
}

template <class Io>
Launch launch_backward(const ConvBackwardArgs& args, float* partials) {
  const ConvInputs1d& in = args.in;
  const bool by_vectors = !in.channels_last || in.dim % kBackwardChannels == 0;
  return with_options(in, by_vectors, args.dout_channels_last == in.channels_last,
                      [&]<int kReach, class Choice>(const Choice& options) {
                        return launch_stages<Io, kReach>(args, options, partials);
                      });
}

}  // namespace ssmbench::window
