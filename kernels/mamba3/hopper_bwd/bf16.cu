// SISO's gradient kernel and walks for Hopper, bf16.

#include <algorithm>

#include "kernels/mamba3/hopper_bwd/launch.cuh"
#include "kernels/mamba3/hopper_bwd/walks.cuh"

namespace ssmbench::mamba3_bwd {
namespace {

template <int kStates, bool kGated, bool kPacked>
Launch walks_for(const TurningWalkArgs& args, int dstate_tiles) {
  constexpr int kBytes = std::max(TurningWalkLayout<ssd::Traits<__nv_bfloat16, kStates, false>>::kBytes,
                                  TurningWalkLayout<ssd::Traits<__nv_bfloat16, kStates, kGated>>::kBytes);
  const ssd::WalkArgs& forward = args.forward;
  const std::int64_t walks = 2 * forward.in.batch * forward.in.nheads;
  const auto launch_pass = [&](auto kernel) {
    allow_shared_bytes(kernel, kBytes);
    return launch_of(kernel, walks * forward.parts, dim3(kTurningWalkThreads), kBytes, args);
  };
  return [=, parts = launch_pass(mamba3_turning_walks_kernel<kStates, kGated, ssd::WalkPass::parts, kPacked>),
          images = launch_pass(mamba3_turning_walks_kernel<kStates, kGated, ssd::WalkPass::images, kPacked>),
          handed = forward.handed, all = forward.parts](void* stream) {
    if (all > 1) {
      parts(stream);
      launch_join_parts(handed, {walks, all, 1, kSteps * 64 * dstate_tiles / 4},
                        static_cast<cudaStream_t>(stream));
    }
    images(stream);
  };
}

template <int kStates, bool kGated>
Launch walks_for(const TurningWalkArgs& args, int dstate_tiles) {
  return args.table.spans == nullptr ? walks_for<kStates, kGated, false>(args, dstate_tiles)
                                     : walks_for<kStates, kGated, true>(args, dstate_tiles);
}

}  // namespace

Launch hopper_sequences(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                        const Workspace& work) {
  const bool is_mimo = args.in.scan.is_mimo;
  const unsigned inputs = is_mimo ? 0U : kMapsOfInputs | (args.in.Z == nullptr ? 0U : kMapsOfGates);
  const std::int64_t blocks = 1 + ceil_div(plan.sequences * kSequenceMaps, kSequenceThreads);
  return launch_of(mamba3_sequences_kernel, blocks, dim3(kSequenceThreads), 0,
                   make_args(args, ssd, plan, work), inputs | kMapsOfVectors, args.in.cu_seqlens,
                   plan.sequences, plan.spans, plan.ranks, work.table, work.sequence_maps);
}

Launch turning_walks(const Mamba3BwdArgs& args, const ssd::Walks& walks, const Plan& plan,
                     const Workspace& work) {
  const TurningWalkArgs all{.forward = walks.forward,
                            .backward = walks.backward,
                            .k_bias = args.in.K_bias,
                            .q_bias = args.in.Q_bias,
                            .phases = reinterpret_cast<const PhaseTile*>(work.phases),
                            .angle_tiles = plan.angle_tiles,
                            .table = work.table,
                            .maps = static_cast<const ssd::GradientMaps*>(work.sequence_maps),
                            .sequences = static_cast<int>(plan.sequences)};
  const int tiles = plan.dstate_tiles;
  if (args.in.Z != nullptr)
    return tiles == 1 ? walks_for<64, true>(all, tiles) : walks_for<128, true>(all, tiles);
  return tiles == 1 ? walks_for<64, false>(all, tiles) : walks_for<128, false>(all, tiles);
}

Launch hopper_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                        const Workspace& work) {
  const HopperArgs all = make_args(args, ssd, plan, work);
  const bool gated = all.bwd.in.z != nullptr;
  const Launch gradients = plan.dstate_tiles == 1 ? (gated ? launch_for<HopperTraits<Siso, 64, true>>(all)
                                                           : launch_for<HopperTraits<Siso, 64, false>>(all))
                                                  : (gated ? launch_for<HopperTraits<Siso, 128, true>>(all)
                                                           : launch_for<HopperTraits<Siso, 128, false>>(all));
  return launch_with_sums(gradients, all, work);
}

}  // namespace ssmbench::mamba3_bwd
