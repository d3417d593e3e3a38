// cuda-window, causal_conv1d_fwd: registration and launch. The pictures are in forward_channels.cuh and
// forward_rows.cuh.

#include <string>

#include "base/errors.h"
#include "kernels/causal_conv1d/bind.h"
#include "kernels/causal_conv1d/window/forward_channels.cuh"
#include "kernels/causal_conv1d/window/forward_rows.cuh"
#include "kernels/causal_conv1d/window/options.h"
#include "kernels/causal_conv1d/window/shape.h"

namespace ssmbench::window::forward {
namespace {

ChannelPlan channel_plan_of(const ConvShape& shape) {
  return plan_channels(shape.batch, shape.dim, shape.seqlen,
                       forward_channels_of(reach_of(shape.width), shape.element_bytes), kForwardRun);
}
RowPlan row_plan_of(const ConvShape& shape) {
  return plan_rows(shape.seqlen, kForwardTiles, shape.element_bytes);
}

template <class Io>
Launch launch_forward(const ConvForwardArgs& args) {
  const ConvInputs1d& in = args.in;
  const ConvShape shape{in.batch, in.dim, in.seqlen, in.width, static_cast<int>(sizeof(Io))};
  const int channels = forward_channels_of(reach_of(in.width), sizeof(Io));
  const bool by_vectors = !in.channels_last || in.dim % channels == 0;
  return with_options(in, by_vectors, true, [&]<int kReach, class Choice>(const Choice& options) -> Launch {
    if (!in.channels_last) {
      const RowPlan plan = row_plan_of(shape);
      return launch_of(forward_rows<Io, kReach, Choice>, plan.blocks(in.batch * in.dim),
                       dim3(kRowWarps * kWarpThreads), 0, args, plan, options);
    }
    constexpr int kChannels = forward_channels_of(kReach, sizeof(Io));
    const ChannelPlan plan = channel_plan_of(shape);
    return launch_with_memory(forward_channels<Io, kReach, kChannels, Choice>, plan.blocks(),
                              dim3(kChannelThreads), StepRing<Io, kChannels, Choice, kReach, 1>::bytes(plan),
                              args, plan, options);
  });
}

std::optional<std::string> unsupported(const Problem& problem) {
  const CausalConv1d conv(problem);
  const ConvShape shape = shape_of(conv, problem.dtype());
  if (conv.channels_last) {
    const ChannelPlan plan = channel_plan_of(shape);
    return grid_too_large({plan.group_tiles, plan.run_tiles},
                          std::to_string(plan.steps * plan.runs()) + " steps");
  }
  return grid_too_large({row_plan_of(shape).segments, conv.batch, conv.dim}, "segment of a channel");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-window " + *reason);
  const ConvForwardArgs args = bind_conv_fwd(problem, tensors);
  return with_io_type(problem.dtype(),
                      [&]<class Io>(std::type_identity<Io>) { return launch_forward<Io>(args); });
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
