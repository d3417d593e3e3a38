#pragma once

// cuda-hopper backward: the gradients of a chunk by the instructions of compute capability 9.0. The formulas
// are those of chunked_bwd/gradients.cuh, and so are the workspace and the kernels after it. States and their
// gradients come from states.cuh.
//
//   grid    one block per (batch, chunk, group, slice of the group's heads); it walks the heads of its slice,
//           so that C·Bᵀ, Q, dB and dC are there once, and sums over heads have one order
//
//     warpgroup    registers  role
//     0 producer          48  warp 0 prepares decays and has ⟨S', S⟩, warp 1 writes what ddt, dA and dD are made
//                             from, warp 2 loads, warp 3 stores dx and dz
//     1 queries          224  dy, M, y, dz, Q; dC in 64 registers (queries.cuh)
//     2 keys             232  dx; dB in 64 registers (keys.cuh)
//
// Below the squares of 16 × 16 on the diagonal a decay is the product of a row's and a column's factor. M goes
// without its diagonal, which no decay is in; it is added to y and dx in f32, as D is.
//
// The code of all loops has to fit in the instruction cache of a quarter of a multiprocessor, 32 KB or somewhat
// more: what does not is fetched at half of the rate at which it could be issued.
//
// Shared memory with z and N = 128, in KB: B and C 32; x, z, dout, S and S' 2 × 56, and their steps and factors
// 2 × 2; dy and M 2 × 16; lower triangles of C·Bᵀ and Q in f32 20; dy in f32 16; flows 2 × 3. States lie in the
// workspace as tiles do in shared memory, so that they are copied as plain bytes.

#include "kernels/ssd_chunk_scan/hopper_bwd/keys.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/queries.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/roles.cuh"

namespace ssmbench::ssd_hopper_bwd {

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    ssd_hopper_gradients_kernel(const __grid_constant__ GradientArgs args) {
  using Shared = SharedMemory<T>;
  run_roles<Shared, QueryWarpgroup<T>, KeyWarpgroup<T>>(
      args, [&](const Shared& shared) { load_inputs<T>(args, shared); },
      [&](const Shared& shared) { store_gradients<T>(args, shared); },
      [&](const Shared& shared, int lane) { write_flows<T>(args, shared, lane); },
      [&](const Shared& shared, int lane) { prepare_heads<T>(args, shared, lane); });
}

}  // namespace ssmbench::ssd_hopper_bwd
