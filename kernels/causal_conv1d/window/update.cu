// cuda-window, causal_conv1d_update: registration and launch. The picture is in update.cuh.

#include "kernels/causal_conv1d/window/update.cuh"

#include "base/errors.h"
#include "kernels/causal_conv1d/bind.h"
#include "kernels/common/launch.cuh"

namespace ssmbench::window::update {
namespace {

constexpr int kMostRows = 4;

/// A state that is as long as the filter reaches.
bool is_plain(const ConvUpdateArgs& args) {
  return args.state_len == args.taps() && args.width <= 4;
}

bool by_vectors(const ConvUpdateArgs& args) {
  return args.channels_last && args.dim % kUpdateChannels == 0;
}

UpdatePlan plan_of(const ConvUpdateArgs& args) {
  const bool has_vectors = is_plain(args) || by_vectors(args);
  return plan_update(args.batch, args.dim, has_vectors ? kUpdateChannels : 1,
                     is_plain(args) && args.tokens == 1 ? kMostRows : 1);
}

template <class Io, bool kChannelsLast, bool kAligned>
Launch launch_plain(const ConvUpdateArgs& args, const UpdatePlan& plan) {
  const auto launch = [&]<int kTaps>() {
    const auto kernel = args.tokens == 1 ? step_update<Io, kChannelsLast, kTaps, kAligned>
                                         : tokens_update<Io, kChannelsLast, kTaps, kAligned>;
    return launch_of(kernel, plan.blocks(), dim3(kUpdateThreads), 0, args, plan);
  };
  switch (args.width) {
    case 2:
      return launch.template operator()<1>();
    case 3:
      return launch.template operator()<2>();
    default:
      return launch.template operator()<3>();
  }
}

template <class Io>
Launch launch_steps(const ConvUpdateArgs& args, const UpdatePlan& plan) {
  const auto launch = [&]<int kReach, int kChannels, bool kVector>() {
    return launch_of(steps_update<Io, kReach, kChannels, kVector>, plan.blocks(), dim3(kUpdateThreads), 0,
                     args, plan);
  };
  const bool is_short = reach_of(args.width) == 4;
  if (by_vectors(args))
    return is_short ? launch.template operator()<4, kUpdateChannels, true>()
                    : launch.template operator()<8, kUpdateChannels, true>();
  return is_short ? launch.template operator()<4, 1, false>() : launch.template operator()<8, 1, false>();
}

std::optional<std::string> unsupported(const Problem& problem) {
  const ConvUpdate update(problem);
  return grid_too_large({update.batch, ceil_div(update.dim, kUpdateThreads)}, "row and 128 channels");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-window " + *reason);
  const ConvUpdateArgs args = bind_conv_update(problem, tensors);
  const UpdatePlan plan = plan_of(args);
  return with_io_type(problem.dtype(), [&]<class Io>(std::type_identity<Io>) {
    if (!is_plain(args)) return launch_steps<Io>(args, plan);
    if (args.dim % kUpdateChannels == 0)
      return args.channels_last ? launch_plain<Io, true, true>(args, plan)
                                : launch_plain<Io, false, true>(args, plan);
    return args.channels_last ? launch_plain<Io, true, false>(args, plan)
                              : launch_plain<Io, false, false>(args, plan);
  });
}

const Registration registration{
    {.name = "cuda-window",
     .op = "causal_conv1d_update",
     .device = DeviceKind::cuda,
     .summary = "states by 16-byte vectors in both layouts, weights once for many rows",
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::window::update
