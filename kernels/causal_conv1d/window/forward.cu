// cuda-window, causal_conv1d_fwd: registration and launch. The pictures are in forward_channels.cuh and
// forward_rows.cuh.

#include <string>

#include "base/errors.h"
#include "kernels/causal_conv1d/bind.h"
#include "kernels/causal_conv1d/window/forward_channels.cuh"
#include "kernels/causal_conv1d/window/forward_rows.cuh"
#include "kernels/causal_conv1d/window/options.h"
#include "kernels/common/launch.cuh"

namespace ssmbench::window::forward {
namespace {

constexpr int kLeastRun = 8;
constexpr int kMostRun = 64;

ChannelPlan plan_of(const CausalConv1d& conv, DType dtype) {
  const int channels =
      forward_channels_of(reach_of(static_cast<int>(conv.width)), static_cast<int>(size_of(dtype)));
  return plan_channels(conv.batch, conv.dim, conv.seqlen, channels, kLeastRun, kMostRun);
}

template <class Io>
Launch launch_channels(const ConvForwardArgs& args, const ChannelPlan& plan) {
  const ConvInputs1d& in = args.in;
  return with_options(in, in.dim % plan.channels == 0, [&]<int kReach, class Choice>(Choice options) {
    constexpr int kChannels = forward_channels_of(kReach, sizeof(Io));
    return launch_of(forward_channels<Io, kReach, kChannels, Choice>, plan.blocks(in.batch),
                     dim3(kChannelThreads), 0, args, plan, options);
  });
}

template <class Io>
Launch launch_rows(const ConvForwardArgs& args) {
  const ConvInputs1d& in = args.in;
  const RowPlan plan = plan_rows(in.seqlen, kForwardTiles);
  return with_options(in, in.seqlen % kLaneSteps == 0, [&]<int kReach, class Choice>(Choice options) {
    return launch_of(forward_rows<Io, kReach, Choice>, plan.blocks(in.batch * in.dim),
                     dim3(kRowWarps * kWarpThreads), 0, args, plan, options);
  });
}

std::optional<std::string> unsupported(const Problem& problem) {
  const CausalConv1d conv(problem);
  if (conv.channels_last) {
    const ChannelPlan plan = plan_of(conv, problem.dtype());
    return grid_too_large({conv.batch, plan.group_tiles, plan.run_tiles},
                          std::to_string(plan.steps * plan.runs()) + " steps");
  }
  return grid_too_large({plan_rows(conv.seqlen, kForwardTiles).segments, conv.batch, conv.dim},
                        "segment of a channel");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-window " + *reason);
  const ConvForwardArgs args = bind_conv_fwd(problem, tensors);
  return with_io_type(problem.dtype(), [&]<class Io>(std::type_identity<Io>) {
    return args.in.channels_last ? launch_channels<Io>(args, plan_of(CausalConv1d(problem), problem.dtype()))
                                 : launch_rows<Io>(args);
  });
}

const Registration registration{{.name = "cuda-window",
                                 .op = "causal_conv1d_fwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "the steps that a filter reaches back in registers, both layouts",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::window::forward
