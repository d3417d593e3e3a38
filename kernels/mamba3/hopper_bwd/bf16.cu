// The Hopper gradient kernel of SISO, bf16.

#include "kernels/mamba3/hopper_bwd/launch.cuh"

namespace ssmbench::mamba3_bwd {

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
