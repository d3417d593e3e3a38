#pragma once

// cuda-hopper's gradients of Mamba-3: the gradients of a chunk by the instructions of compute capability 9.0. The
// formulas are those of tensor_bwd/gradients.cuh, the parts those of SSD's (ssd_chunk_scan/hopper_bwd), with these
// differences: q and k are loaded with each head, and dq and dk are turned back before they are added over heads.
//
//   grid    one block per (batch, chunk, group, slice of the group's heads); it walks the heads of its slice, so that
//           dQ and dK stay in registers, and sums over heads have one order
//
//     warpgroup    registers  role
//     0 producer          48  warp 0 loads, warp 3 stores dV and dZ, warp 2 what sums over time are made from
//     1 queries          224  dy, M, X, y, dZ; dQ in 64 registers (queries.cuh)
//     2 keys             232  dV, ⟨S', S⟩, dθ; dK in 64 registers (keys.cuh)
//
// Shared memory with Z and N = 128, in KB: V, Z, dout, q, k, S and S' 2 × 88, and their steps 2 × 1.3; dy, M and X 24;
// dθ of q 8; flows 2 × 6.8.

#include "kernels/mamba3/hopper_bwd/keys.cuh"
#include "kernels/mamba3/hopper_bwd/producer.cuh"
#include "kernels/mamba3/hopper_bwd/queries.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/roles.cuh"

namespace ssmbench::mamba3_bwd {

template <class T>
__global__ void __launch_bounds__(ssd::kThreads, 1)
    mamba3_hopper_gradients_kernel(const __grid_constant__ HopperArgs args) {
  using Shared = HopperShared<T>;
  ssd::run_roles<Shared, QueryWarpgroup<T>, KeyWarpgroup<T>>(
      args, [&](const Shared& shared) { load_heads<T>(args, shared); },
      [&](const Shared& shared) {
        if constexpr (T::kIsMimo)
          release_inputs<T>(args, shared);
        else
          ssd::store_gradients<T>(args, shared);
      },
      [&](const Shared& shared, int lane) { write_flows<T>(args, shared, lane); });
}

}  // namespace ssmbench::mamba3_bwd
