#pragma once

// cuda-blockscan: a block-wide parallel scan along time, state by state; the structure of mamba_ssm's kernel.
//
//   grid     one block per row (b, d)
//   block    walks the row in tiles of threads × items steps; the states n one after the other in each tile
//   thread   `items` neighbouring steps:
//
//     time in tile    0 .. items-1 | items .. 2·items-1 | ...
//     thread                0      |         1          | ...
//
// Each step is the map h ↦ e^(Δ·A)·h + Δ·B·u. BlockScan composes the maps up to every step; the state that
// entered the tile is the scan's prefix and waits in shared memory, per n, for the next tile. Meant for
// negative A: a growing product of decays can overflow before h does, and infinity times an empty state is
// NaN.
//
// Registers: Δ, Δ·u, y, B, C and the (decay, value) pairs of 16 steps are 112, and 195 with all else, so 16
// items per thread are the most. Shared memory: the transposes of one sequence tensor, of B and of C, and 1
// KB of states: 26 KB at most. Global access is coalesced: a warp loads its steps striped and transposes
// them.

#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>

#include "kernels/common/index_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/blockscan/map.h"
#include "kernels/selective_scan/scan_row.h"

namespace ssmbench::blockscan {

/// The prefix of a tile's scan is the state that enters it. CUB calls this from one warp; thread 0's copy
/// counts.
struct StatePrefix {
  float state;

  __device__ DecayValue operator()(DecayValue tile) {
    const DecayValue entering{1.0F, state};
    state = combine(entering, tile).value;
    return entering;
  }
};

struct Combine {
  __device__ DecayValue operator()(DecayValue first, DecayValue second) const {
    return combine(first, second);
  }
};

/// `valid` elements from `source` on, blocked over threads, as f32; zeros past them.
template <class Load, class T, int kItems>
__device__ void load_steps(typename Load::TempStorage& storage, const T* source, int valid,
                           float (&steps)[kItems]) {
  T loaded[kItems];
  Load(storage).Load(source, loaded, valid, from_float<T>(0.0F));
#pragma unroll
  for (int i = 0; i < kItems; ++i) steps[i] = to_float(loaded[i]);
}

template <int kItems>
__device__ void fill(float (&steps)[kItems], float value) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) steps[i] = value;
}

template <class T, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) blockscan_kernel(const ScanArgs args) {
  using Load = cub::BlockLoad<T, kThreads, kItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<T, kThreads, kItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<DecayValue, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  constexpr int kTileSteps = kThreads * kItems;

  // Every use of `step` is followed by a barrier; one barrier per state is enough for B, C and the scan.
  __shared__ union {
    typename Load::TempStorage load;
    typename Scan::TempStorage scan;
    typename Store::TempStorage store;
  } step;
  __shared__ typename Load::TempStorage load_b;
  __shared__ typename Load::TempStorage load_c;
  __shared__ float states[kMaxDState];  // thread 0 alone uses them between the first and the last barrier

  const auto [b, d, g] = scan_row(blockIdx.x, args.dim, args.channels_per_group);
  const std::int64_t row = b * args.sequence.batch + d * args.sequence.dim;
  const std::int64_t state_row = blockIdx.x * args.dstate;
  const T* u_row = static_cast<const T*>(args.u) + row;
  const T* delta_row = static_cast<const T*>(args.delta) + row;
  const T* B_row = static_cast<const T*>(args.B) + b * args.b_strides.batch + g * args.b_strides.group;
  const T* C_row = static_cast<const T*>(args.C) + b * args.c_strides.batch + g * args.c_strides.group;
  const float* A_row = args.A + d * args.dstate;
  const float bias = args.delta_bias != nullptr ? args.delta_bias[d] : 0.0F;
  const float skip = args.D != nullptr ? args.D[d] : 0.0F;

  for (int n = threadIdx.x; n < args.dstate; n += kThreads)
    states[n] = args.initial_state != nullptr ? args.initial_state[state_row + n] : 0.0F;
  __syncthreads();

  for (std::int64_t start = 0; start < args.seqlen; start += kTileSteps) {
    const int valid = steps_within(start, kTileSteps, args.seqlen);
    float u[kItems], delta[kItems], delta_u[kItems], y[kItems];
    load_steps<Load>(step.load, u_row + start, valid, u);
    __syncthreads();
    load_steps<Load>(step.load, delta_row + start, valid, delta);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      delta[i] += bias;
      if (args.delta_softplus) delta[i] = softplus(delta[i]);
      // Past the row's end the map has to be the identity, and softplus(bias) would not make it so.
      if (static_cast<int>(threadIdx.x) * kItems + i >= valid) delta[i] = 0.0F;
      delta_u[i] = delta[i] * u[i];
      y[i] = skip * u[i];
    }

    for (int n = 0; n < args.dstate; ++n) {
      float B[kItems], C[kItems];
      if (args.variable_b)
        load_steps<Load>(load_b, B_row + n * args.b_strides.state + start, valid, B);
      else
        fill(B, static_cast<const float*>(args.B)[d * args.b_strides.channel + n * args.b_strides.state]);
      if (args.variable_c)
        load_steps<Load>(load_c, C_row + n * args.c_strides.state + start, valid, C);
      else
        fill(C, static_cast<const float*>(args.C)[d * args.c_strides.channel + n * args.c_strides.state]);

      const float A = A_row[n];
      DecayValue maps[kItems];
#pragma unroll
      for (int i = 0; i < kItems; ++i) maps[i] = {expf(delta[i] * A), delta_u[i] * B[i]};

      StatePrefix prefix{threadIdx.x == 0 ? states[n] : 0.0F};
      Scan(step.scan).InclusiveScan(maps, maps, Combine(), prefix);
      if (threadIdx.x == 0) states[n] = prefix.state;
#pragma unroll
      for (int i = 0; i < kItems; ++i) y[i] += C[i] * maps[i].value;
      __syncthreads();
    }

    if (args.z != nullptr) {
      float z[kItems];
      load_steps<Load>(step.load, static_cast<const T*>(args.z) + row + start, valid, z);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kItems; ++i) y[i] *= silu(z[i]);
    }
    T out[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) out[i] = from_float<T>(y[i]);
    Store(step.store).Store(static_cast<T*>(args.out) + row + start, out, valid);
    __syncthreads();
  }

  for (int n = threadIdx.x; n < args.dstate; n += kThreads) args.last_state[state_row + n] = states[n];
}

}  // namespace ssmbench::blockscan
