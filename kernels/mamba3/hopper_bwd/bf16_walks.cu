// MIMO's walks over states, bf16: launch.

#include "kernels/common/launch.cuh"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/hopper_bwd/rank_walks.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::mamba3_bwd {
namespace {

template <int kStates, bool kPacked>
Launch walks_for(const RankWalkArgs& args) {
  constexpr int kBytes = RankWalkLayout<kStates>::kBytes;
  const auto kernel = mamba3_rank_walks_kernel<kStates, kPacked>;
  allow_shared_bytes(kernel, kBytes);
  const std::int64_t walks = 2 * args.plan.batch * args.plan.nheads;
  const auto pass = [&](RankWalkPass which) {
    return launch_of(kernel, walks * args.parts, dim3(kWalkThreads), kBytes, args, which);
  };
  return [=, parts = pass(RankWalkPass::parts), images = pass(RankWalkPass::images)](void* stream) {
    if (args.parts > 1) {
      parts(stream);
      launch_join_parts(args.handed, {walks, args.parts, 1, kSteps * kStates / 4},
                        static_cast<cudaStream_t>(stream));
    }
    images(stream);
  };
}

template <int kStates>
Launch walks_for(const RankWalkArgs& args) {
  return args.plan.packed ? walks_for<kStates, true>(args) : walks_for<kStates, false>(args);
}

}  // namespace

Launch rank_walks(const Mamba3BwdArgs& args, const SsdBwdArgs& of_heads, const Plan& plan,
                  const Workspace& work, void* handed) {
  const SsdInputs& in = of_heads.in;
  const auto of_group = [&](const void* data) {
    return ssd::map_sequences(data, in, plan.groups, in.dstate);
  };
  const RankWalkArgs walks{.of_k = of_group(plan.halves ? work.paired_k : args.in.K),
                           .of_q = of_group(plan.halves ? work.paired_q : args.in.Q),
                           .bwd = args,
                           .plan = plan,
                           .work = work,
                           .first_state = in.initial_floats(),
                           .first_dstate = of_heads.dfinal_states,
                           .last_dstate = of_heads.dinitial_states,
                           .handed = handed_states(handed_of(plan), handed),
                           .parts = walk_parts(plan),
                           .maps = static_cast<const ssd::GradientMaps*>(work.sequence_maps)};
  return plan.dstate_tiles == 1 ? walks_for<64>(walks) : walks_for<128>(walks);
}

}  // namespace ssmbench::mamba3_bwd
