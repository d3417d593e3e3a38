// The Hopper gradient kernel of MIMO, bf16.

#include "kernels/mamba3/hopper_bwd/launch.cuh"

namespace ssmbench::mamba3_bwd {

template <int kRanks>
Launch ranked_hopper_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                               const Workspace& work) {
  const HopperArgs all = make_args(args, ssd, plan, work);
  const Launch gradients = plan.dstate_tiles == 1 ? launch_for<HopperTraits<Mimo<kRanks>, 64, false>>(all)
                                                  : launch_for<HopperTraits<Mimo<kRanks>, 128, false>>(all);
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
