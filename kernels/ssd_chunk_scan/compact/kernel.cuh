#pragma once

// The small kernels of cuda-chunked-f32: f32 arithmetic on tensors in f32 in 27 KB of shared memory per
// block, without anything that needs compute capability 8.0. Three kernels, by chunks of 32 steps:
//
//   ssd_steps_kernel    Δ and decays of all steps
//   ssd_states_kernel   walks over time: the states that enter all chunks, to the workspace; final_states
//   ssd_outputs_kernel  y = enter ∘ (C·Hᵀ) + ((C·Bᵀ) ∘ L ∘ Δ)·x       out = (y + D·x)·silu(z)
//
// with L[t][s] = e^(decay_t − decay_s), s ≤ t in one sequence, and H the state that enters the chunk. The
// first two are those of the gradients (states.cuh). Of the third:
//
//   grid    one block per (batch, chunk, head, tile of P)
//   block   4 warps; each has a patch of 16 × 16 of every 32 × 32 product in registers
//   time    for each tile of N: load B, C and H; C·Bᵀ and C·Hᵀ. Then the weights as a tile to shared memory,
//           times x; out
//
// Source of the decomposition: Dao & Gu, "Transformers are SSMs" (2024), section 6.

#include "base/cuda_check.h"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/compact/map.h"
#include "kernels/ssd_chunk_scan/states.cuh"

namespace ssmbench {

inline constexpr int kOutputsThreads = 128;

struct OutputsShared {
  CompactF32 x[kTileElements<CompactF32>];
  CompactF32 B[kTileElements<CompactF32>];
  CompactF32 C[kTileElements<CompactF32>];
  CompactF32 state[kTileElements<CompactF32>];
  CompactF32 weights[kTileElements<CompactF32>];
  float steps[kStepRows<CompactF32>][kSide<CompactF32>];
};

/// A block of the outputs kernel as one of its threads sees it: coordinates and phases.
struct OutputsBlock {
  using T = CompactF32;
  static constexpr int kAtoms = 2;
  using PatchFragments = Fragments<kAtoms>;

  const SsdArgs& args;
  const SsdInputs& in;
  const ChunkGrid& grid;
  OutputsShared& shared;
  std::int64_t b, chunk, head, row;
  std::int64_t start;  ///< first step
  int p_tile, valid;   ///< steps that exist
  Patch at;

  __device__ __forceinline__ OutputsBlock(const SsdArgs& all, const ChunkGrid& cut, OutputsShared& memory)
      : args(all), in(all.in), grid(cut), shared(memory) {
    std::int64_t index = blockIdx.x;
    p_tile = static_cast<int>(index % grid.headdim_tiles);
    index /= grid.headdim_tiles;
    head = index % in.nheads;
    index /= in.nheads;
    chunk = index % grid.chunks;
    b = index / grid.chunks;
    row = grid.row(b, chunk, head, in.nheads);
    start = chunk * kSide<T>;
    valid = steps_within(start, kSide<T>, in.seqlen);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    at = {warp % 2 * 16, warp / 2 * 16, static_cast<int>(threadIdx.x) % 32};
  }

  /// Where (step `start`, first p of the tile) lies in x, z and out.
  __device__ __forceinline__ std::int64_t sequence_offset() const {
    return ((b * in.seqlen + start) * in.nheads + head) * in.headdim + p_tile * kSide<T>;
  }

  __device__ __forceinline__ void load_sequence(const float* all_steps) const {
    load_tile<kOutputsThreads>(
        shared.x, TileSource<const T>{static_cast<const T*>(in.x) + sequence_offset(), in.nheads * in.headdim,
                                      valid, steps_within(p_tile * kSide<T>, kSide<T>, in.headdim),
                                      vectors_aligned<T>(in.headdim)});
    if (threadIdx.x < kStepRows<T> * kSide<T> / 4)
      copy_async_16(shared_address(&shared.steps[0][0] + threadIdx.x * 4),
                    all_steps + row * kStepRows<T> * kSide<T> + threadIdx.x * 4, 16);
  }

  __device__ __forceinline__ void load_states(const T* states, int n_tile) const {
    const std::int64_t group = head / in.heads_per_group;
    const std::int64_t offset = ((b * in.seqlen + start) * in.groups + group) * in.dstate + n_tile * kSide<T>;
    TileSource<const T> source{static_cast<const T*>(in.B) + offset, in.groups * in.dstate, valid,
                               steps_within(n_tile * kSide<T>, kSide<T>, in.dstate),
                               vectors_aligned<T>(in.dstate)};
    load_tile<kOutputsThreads>(shared.B, source);
    source.data = static_cast<const T*>(in.C) + offset;
    load_tile<kOutputsThreads>(shared.C, source);
    load_image<kOutputsThreads>(shared.state,
                                states + grid.state_tile(row, p_tile, n_tile) * kTileElements<T>);
  }

  /// (C·Bᵀ) ∘ L ∘ Δ as a tile.
  __device__ __forceinline__ void store_weights(const PatchFragments& cb) const {
    PatchFragments weights;
    decays_between_steps<T, kAtoms>(weights, shared.steps, at, causal_pairs<kAtoms>(in, b, start, valid, at));
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[e][i] *= cb[e][i] * shared.steps[kStepDelta][at.column_of(e, i)];
    store_fragments<kAtoms>(shared.weights, weights, at, 1.0F);
  }

  __device__ __forceinline__ void write_out(const PatchFragments& y) const {
    const std::int64_t offset = sequence_offset();
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = at.row_of(i);
        const int p = p_tile * kSide<T> + at.column_of(e, i);
        if (t >= valid || p >= in.headdim) continue;
        const std::int64_t element = offset + t * in.nheads * in.headdim + at.column_of(e, i);
        float value = y[e][i];
        if (in.D != nullptr)
          value += in.D[in.skip_per_headdim ? head * in.headdim + p : head] *
                   shared.x[tile_offset<T>(t, at.column_of(e, i))].value;
        if (in.z != nullptr) value *= silu(to_float(static_cast<const T*>(in.z)[element]));
        static_cast<T*>(args.out)[element] = from_float<T>(value);
      }
  }
};

/// `steps`, `states`: of the workspace.
__global__ void __launch_bounds__(kOutputsThreads)
    ssd_outputs_kernel(const SsdArgs args, const ChunkGrid grid, const float* steps,
                       const CompactF32* states) {
  __shared__ __align__(16) OutputsShared shared;
  const OutputsBlock block(args, grid, shared);
  constexpr int kAtoms = OutputsBlock::kAtoms;

  Fragments<kAtoms> cb, y;
  clear<kAtoms>(cb);
  clear<kAtoms>(y);
  block.load_sequence(steps);
  for (int n = 0; n < grid.dstate_tiles; ++n) {
    if (n > 0) __syncthreads();  // everyone is done with the tiles before
    block.load_states(states, n);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    multiply<Major::k, Major::k, kAtoms>(cb, shared.C, shared.B, block.at);
    multiply<Major::k, Major::k, kAtoms>(y, shared.C, shared.state, block.at);
  }

  block.store_weights(cb);
#pragma unroll
  for (int e = 0; e < kAtoms; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) y[e][i] *= shared.steps[kStepEnter][block.at.row_of(i)];
  __syncthreads();
  multiply<Major::k, Major::mn, kAtoms>(y, shared.weights, shared.x, block.at);
  block.write_out(y);
}

inline void launch_compact(const SsdArgs& args, const CompactPlan& plan, void* workspace,
                           cudaStream_t stream) {
  auto* const base = static_cast<unsigned char*>(workspace);
  auto* const steps = reinterpret_cast<float*>(base + plan.steps);
  auto* const states = reinterpret_cast<CompactF32*>(base + plan.states);
  launch_steps<CompactF32, CompactF32>(args.in, plan, steps, stream);
  launch_states<CompactF32, CompactF32, Walk::forward>(args.in,
                                                       {.left = args.in.x,
                                                        .gate = nullptr,
                                                        .right = args.in.B,
                                                        .first = args.in.initial_floats(),
                                                        .last = args.final_floats(),
                                                        .steps = steps,
                                                        .images = states,
                                                        .unscales = nullptr},
                                                       plan, stream);
  ssd_outputs_kernel<<<static_cast<unsigned>(plan.rows * plan.headdim_tiles), kOutputsThreads, 0, stream>>>(
      args, plan, steps, states);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
