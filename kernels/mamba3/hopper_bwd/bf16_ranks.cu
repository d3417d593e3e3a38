// MIMO's Hopper gradient kernel, bf16.

#include "kernels/mamba3/hopper_bwd/launch.cuh"
#include "kernels/mamba3/hopper_bwd/rank_kernel.cuh"

namespace ssmbench::mamba3_bwd {
namespace {

template <class T>
Launch launch_ranks(const HopperArgs& args) {
  constexpr int kBytes = RankLayout<T>::kBytes;
  allow_shared_bytes(mamba3_rank_gradients_kernel<T>, kBytes);
  const std::int64_t blocks = args.bwd.in.batch * args.plan.chunks * args.bwd.in.groups * args.plan.slices;
  return launch_of(mamba3_rank_gradients_kernel<T>, blocks, dim3(kRankThreads), kBytes, args);
}

}  // namespace

template <int kRanks>
Launch ranked_hopper_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                               const Workspace& work) {
  const HopperArgs all = make_args(args, ssd, plan, work);
  const Launch gradients = plan.dstate_tiles == 1 ? launch_ranks<HopperTraits<Mimo<kRanks>, 64, false>>(all)
                                                  : launch_ranks<HopperTraits<Mimo<kRanks>, 128, false>>(all);
  return launch_with_sums(gradients, all, work);
}

template Launch ranked_hopper_gradients<1>(const Mamba3BwdArgs&, const SsdBwdArgs&, const Plan&,
                                           const Workspace&);
template Launch ranked_hopper_gradients<2>(const Mamba3BwdArgs&, const SsdBwdArgs&, const Plan&,
                                           const Workspace&);
template Launch ranked_hopper_gradients<4>(const Mamba3BwdArgs&, const SsdBwdArgs&, const Plan&,
                                           const Workspace&);
template Launch ranked_hopper_gradients<8>(const Mamba3BwdArgs&, const SsdBwdArgs&, const Plan&,
                                           const Workspace&);

}  // namespace ssmbench::mamba3_bwd
