// The Hopper gradient kernel, bf16: instantiations of kernel.cuh, and their launch.

#include "kernels/common/launch.cuh"
#include "kernels/mamba3/hopper_bwd/kernel.cuh"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/sums.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::mamba3_bwd {
namespace {

HopperArgs make_args(const Mamba3BwdArgs& args, const SsdBwdArgs& of_heads, const Plan& plan,
                     const Workspace& work) {
  HopperArgs to{{}, work, plan.angles, plan.angle_tiles, plan.sums, args.dfinal_k, args.dfinal_v};
  SsdBwdArgs& bwd = to.bwd;
  bwd = of_heads;
  bwd.in.groups = plan.groups;
  bwd.in.heads_per_group = plan.nheads / plan.groups;
  bwd.in.D = args.in.D;
  bwd.dx = args.dV;
  bwd.dz = args.dZ;
  bwd.dB = args.dK;
  bwd.dC = args.dQ;
  const SsdInputs& in = bwd.in;
  const auto inputs = [&](const void* data) { return ssd::map_sequences(data, in, in.nheads, in.headdim); };
  to.x = inputs(in.x);
  to.dout = inputs(bwd.dout);
  to.dx = inputs(bwd.dx);
  if (in.z != nullptr) {
    to.z = inputs(in.z);
    to.dz = inputs(bwd.dz);
  }
  to.B = ssd::map_sequences(work.k, in, in.nheads, in.dstate);
  to.C = ssd::map_sequences(work.q, in, in.nheads, in.dstate);
  static_cast<ChunkGrid&>(to.plan) = plan;
  to.plan.slices = plan.slices;
  to.plan.per_slice = plan.per_slice;
  to.workspace.projections = work.slice_sums;
  return to;
}

template <int kStates, bool kGated>
Launch launch_for(const HopperArgs& args) {
  using T = HopperTraits<kStates, kGated>;
  constexpr int kBytes = HopperLayout<T>::kBytes;
  allow_shared_bytes(mamba3_hopper_gradients_kernel<T>, kBytes);
  const std::int64_t blocks = args.bwd.in.batch * args.plan.chunks * args.bwd.in.groups * args.plan.slices;
  return launch_of(mamba3_hopper_gradients_kernel<T>, blocks, dim3(ssd::kThreads), kBytes, args);
}

}  // namespace

Launch hopper_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                        const Workspace& work) {
  const HopperArgs all = make_args(args, ssd, plan, work);
  const bool gated = all.bwd.in.z != nullptr;
  const Launch gradients = plan.dstate_tiles == 1
                               ? (gated ? launch_for<64, true>(all) : launch_for<64, false>(all))
                               : (gated ? launch_for<128, true>(all) : launch_for<128, false>(all));
  return [=](void* stream) {
    gradients(stream);
    if (plan.slices > 1)
      launch_projections<__nv_bfloat16>(all.bwd, plan.slices, work.slice_sums,
                                        static_cast<cudaStream_t>(stream));
  };
}

}  // namespace ssmbench::mamba3_bwd
