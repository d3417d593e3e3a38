#pragma once

// Launch of the Hopper gradient kernel, bf16.

#include "kernels/common/launch.cuh"
#include "kernels/mamba3/hopper_bwd/kernel.cuh"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/sums.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::mamba3_bwd {

inline HopperArgs make_args(const Mamba3BwdArgs& args, const SsdBwdArgs& of_heads, const Plan& plan,
                            const Workspace& work) {
  const bool is_mimo = args.in.scan.is_mimo;
  HopperArgs to{{},          work,          plan.angles,   plan.angle_tiles, plan.sums,
                plan.halves, args.dfinal_k, args.dfinal_v, args.in.Q_bias,   args.in.K_bias};
  SsdBwdArgs& bwd = to.bwd;
  bwd = of_heads;
  bwd.in.groups = plan.groups;
  bwd.in.heads_per_group = plan.nheads / plan.groups;
  if (!is_mimo) {  // whose skip and gates are factors.h's
    bwd.in.D = args.in.D;
    bwd.dx = args.dV;
    bwd.dz = args.dZ;
  }
  bwd.dB = args.dK;
  bwd.dC = args.dQ;
  const SsdInputs& in = bwd.in;
  if (!is_mimo) {
    const auto inputs = [&](const void* data) { return ssd::map_sequences(data, in, in.nheads, in.headdim); };
    to.x = inputs(in.x);
    to.dout = inputs(bwd.dout);
    to.dx = inputs(bwd.dx);
    if (in.z != nullptr) {
      to.z = inputs(in.z);
      to.dz = inputs(bwd.dz);
    }
  }
  const auto of_group = [&](const void* data) {
    return ssd::map_sequences(data, in, plan.groups, in.dstate);
  };
  to.B = of_group(plan.halves ? work.paired_k : args.in.K);
  to.C = of_group(plan.halves ? work.paired_q : args.in.Q);
  static_cast<ChunkGrid&>(to.plan) = plan;
  to.plan.slices = plan.slices;
  to.plan.per_slice = plan.per_slice;
  to.workspace.projections = work.slice_sums;
  return to;
}

template <class T>
Launch launch_for(const HopperArgs& args) {
  constexpr int kBytes = HopperLayout<T>::kBytes;
  allow_shared_bytes(mamba3_hopper_gradients_kernel<T>, kBytes);
  const std::int64_t blocks = args.bwd.in.batch * args.plan.chunks * args.bwd.in.groups * args.plan.slices;
  return launch_of(mamba3_hopper_gradients_kernel<T>, blocks, dim3(ssd::kThreads), kBytes, args);
}

/// `gradients`: launch_for() of the kernel for the number of states.
inline Launch launch_with_sums(const Launch& gradients, const HopperArgs& args, const Workspace& work) {
  return [=, slices = args.plan.slices](void* stream) {
    gradients(stream);
    if (slices > 1)
      launch_projections<__nv_bfloat16>(args.bwd, slices, work.slice_sums, static_cast<cudaStream_t>(stream));
  };
}

}  // namespace ssmbench::mamba3_bwd
