// cuda-window, causal_conv1d_bwd: registration. The pictures are in backward_channels.cuh and
// backward_rows.cuh.

#include <string>

#include "base/errors.h"
#include "kernels/causal_conv1d/bind.h"
#include "kernels/causal_conv1d/window/backward.cuh"

namespace ssmbench::window::backward {
namespace {

std::optional<std::string> unsupported(const Problem& problem) {
  const CausalConv1d conv(problem);
  const ConvShape shape = shape_of(conv, problem.dtype());
  if (conv.channels_last) {
    const ChannelPlan plan = backward_channel_plan(shape);
    return grid_too_large({plan.group_tiles, plan.run_tiles},
                          std::to_string(plan.steps * plan.runs()) + " steps");
  }
  return grid_too_large({backward_row_plan(shape).segments, conv.batch, conv.dim}, "segment of a channel");
}

std::size_t workspace_bytes(const Problem& problem) {
  const CausalConv1d conv(problem);
  const std::int64_t terms = (reach_of(static_cast<int>(conv.width)) + 1) * conv.dim;
  return static_cast<std::size_t>(partials_of(shape_of(conv, problem.dtype()), conv.channels_last) * terms) *
         sizeof(float);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-window " + *reason);
  const ConvBackwardArgs args = bind_conv_bwd(problem, tensors);
  auto* const partials = static_cast<float*>(workspace);
  return with_io_type(problem.dtype(),
                      [&]<class Io>(std::type_identity<Io>) { return launch_backward<Io>(args, partials); });
}

const Registration registration{{.name = "cuda-window",
                                 .op = "causal_conv1d_bwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "windows of x and of gradients in registers, sums in two stages",
                                 .unsupported = unsupported,
                                 .workspace_bytes = workspace_bytes,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::window::backward
