#pragma once

// cuda-chunked backward, before the gradients: what the steps need to know of time, and the states and
// gradients of states at the chunks' borders.

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/bwd_step.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/tile.cuh"

namespace ssmbench {

/// seq_idx of a step; 0 without seq_idx and before the first step: initial_states belong to sequence 0.
__device__ inline int sequence_at(const SsdBwdArgs& args, std::int64_t b, std::int64_t t) {
  return args.in.seq_idx == nullptr || t < 0 ? 0 : args.in.seq_idx[b * args.in.seqlen + t];
}

inline constexpr int kStepsThreads = 256;

/// One warp per row (batch, chunk, head); lane i has steps 2i and 2i + 1.
template <class T>
__global__ void __launch_bounds__(kStepsThreads)
    ssd_steps_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan, float* all_steps) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kStepsThreads / 32) + threadIdx.x / 32;
  if (row >= plan.rows) return;
  const int lane = threadIdx.x % 32;
  const std::int64_t head = row % args.in.nheads;
  const std::int64_t start = row / args.in.nheads % plan.chunks * kSsdTile;
  const std::int64_t b = row / args.in.nheads / plan.chunks;
  const T* dt = static_cast<const T*>(args.in.dt) + b * args.in.seqlen * args.in.nheads + head;
  const int last = steps_within(start, kSsdTile, args.in.seqlen) - 1;

  float delta[2], decay[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    delta[i] = t <= last ? ssd_delta(args.in, head, to_float(dt[(start + t) * args.in.nheads])).value : 0.0F;
    decay[i] = delta[i] * args.in.A[head];
  }
  decay[1] += decay[0];
  float before = decay[1];  // of the lanes below, once scanned and shifted
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other = __shfl_up_sync(0xFFFFFFFFU, before, distance);
    if (lane >= distance) before += other;
  }
  before = __shfl_up_sync(0xFFFFFFFFU, before, 1);
  if (lane == 0) before = 0.0F;
  decay[0] += before;
  decay[1] += before;
  // As the last step has it, rounded alike: its own weight in the state that leaves is exactly 1.
  const float total = __shfl_sync(0xFFFFFFFFU, last % 2 == 0 ? decay[0] : decay[1], last / 2);

  const int sequence_before = sequence_at(args, b, start - 1);
  const int sequence_last = sequence_at(args, b, start + last);
  float* steps = all_steps + row * kStepRows * kSsdTile;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const int sequence = sequence_at(args, b, start + min(t, last));
    steps[kStepDelta * kSsdTile + t] = delta[i];
    steps[kStepDecay * kSsdTile + t] = decay[i];
    steps[kStepEnter * kSsdTile + t] = sequence == sequence_before ? expf(decay[i]) : 0.0F;
    steps[kStepLeave * kSsdTile + t] = sequence == sequence_last ? expf(total - decay[i]) : 0.0F;
  }
}

/// Time walks forward for the states, backward for their gradients:
///   state_after   = e^decay_last · state_before + Σ_t leave_t·Δ_t·x_t ⊗ B_t
///   dstate_before = e^decay_last · dstate_after + Σ_t enter_t·dy_t ⊗ C_t,   dy = dout·silu(z)
enum class Walk { forward, backward };

inline constexpr int kStatesThreads = 128;

/// Shared memory: two stages of what is loaded (tiles of x and B, or dout, C and z, and the steps), and the
/// state on its way out: 58 KB with 16-bit elements, four blocks per SM except for f32.
template <class T>
struct StatesShared {
  struct Stage {
    T left[kSsdTileElements], gate[kSsdTileElements], right[kSsdTileElements];
    float steps[kStepRows][kSsdTile];
  };
  Stage stages[2];
  T state[kSsdTileElements];
  float largest[kStatesThreads / 32];  ///< per warp, of the state
};

//   grid    one block per (batch, head, tile of P, tile of N); it walks the chunks one after the other
//   block   4 warps; warp w has rows p = 16w .. 16w + 15 of the 64 × 64 tile of the state in registers, f32
//   chunk   the state is stored, rounded, for the gradient kernel; then state = decay·state + leftᵀ·right on
//           the tensor cores while the next chunk's tiles arrive
//
// In f16 the state is stored, and left is weighted, with a power of two of their own in each chunk: Δ may be
// 1e-7, a state as small, and where decays are strong the gradient of a state anything down to 0.
template <class T, Walk kWalk>
__global__ void __launch_bounds__(kStatesThreads, sizeof(T) == 2 ? 4 : 1)
    ssd_states_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan, const ChunkedBwdWorkspace workspace) {
  constexpr bool kForward = kWalk == Walk::forward;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  auto& shared = *reinterpret_cast<StatesShared<T>*>(dynamic_shared);

  std::int64_t block = blockIdx.x;
  const int n_tile = static_cast<int>(block % plan.dstate_tiles);
  block /= plan.dstate_tiles;
  const int p_tile = static_cast<int>(block % plan.headdim_tiles);
  block /= plan.headdim_tiles;
  const std::int64_t head = block % args.in.nheads;
  const std::int64_t b = block / args.in.nheads;
  const std::int64_t group = head / args.in.heads_per_group;
  const int p_valid = steps_within(p_tile * kSsdTile, kSsdTile, args.in.headdim);
  const int n_valid = steps_within(n_tile * kSsdTile, kSsdTile, args.in.dstate);
  const T* const left = static_cast<const T*>(kForward ? args.in.x : args.dout);
  const T* const gate = static_cast<const T*>(kForward ? nullptr : args.in.z);
  const T* const right = static_cast<const T*>(kForward ? args.in.B : args.in.C);
  T* const images = static_cast<T*>(kForward ? workspace.states : workspace.dstates);
  const float* const first = kForward ? args.in.initial_states : args.dfinal_states;
  const Patch at{static_cast<int>(threadIdx.x) / 32 * 16, 0, static_cast<int>(threadIdx.x) % 32};

  const auto chunk_of = [&](std::int64_t i) { return kForward ? i : plan.chunks - 1 - i; };
  const auto row_of = [&](std::int64_t i) { return plan.row(b, chunk_of(i), head, args.in.nheads); };
  const auto load = [&](std::int64_t i) {
    const std::int64_t start = chunk_of(i) * kSsdTile;
    const int valid = steps_within(start, kSsdTile, args.in.seqlen);
    auto& stage = shared.stages[i % 2];
    const std::int64_t sequence =
        ((b * args.in.seqlen + start) * args.in.nheads + head) * args.in.headdim + p_tile * kSsdTile;
    const std::int64_t projection =
        ((b * args.in.seqlen + start) * args.in.groups + group) * args.in.dstate + n_tile * kSsdTile;
    const std::int64_t sequence_pitch = args.in.nheads * args.in.headdim;
    const bool aligned = parts_aligned<T>(args.in.headdim);
    load_tile<kStatesThreads>(stage.left,
                              TileSource<const T>{left + sequence, sequence_pitch, valid, p_valid, aligned});
    if (gate != nullptr)
      load_tile<kStatesThreads>(
          stage.gate, TileSource<const T>{gate + sequence, sequence_pitch, valid, p_valid, aligned});
    load_tile<kStatesThreads>(
        stage.right, TileSource<const T>{right + projection, args.in.groups * args.in.dstate, valid, n_valid,
                                         parts_aligned<T>(args.in.dstate)});
    if (threadIdx.x < kStepRows * kSsdTile / 4)
      copy_async_16(shared_address(&stage.steps[0][0] + threadIdx.x * 4),
                    workspace.steps + row_of(i) * kStepRows * kSsdTile + threadIdx.x * 4, 16);
    copy_async_commit();
  };

  // State elements of this thread outside the tensors: P × N is a part of the padded tile.
  const std::int64_t state_base = (b * args.in.nheads + head) * args.in.headdim * args.in.dstate +
                                  p_tile * kSsdTile * args.in.dstate + n_tile * kSsdTile;
  Fragments<8> state;
#pragma unroll
  for (int e = 0; e < 8; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int p = at.row_of(i);
      const int n = at.column_of(e, i);
      const bool exists = first != nullptr && p < p_valid && n < n_valid;
      state[e][i] = exists ? first[state_base + p * args.in.dstate + n] : 0.0F;
    }

  load(0);
  for (std::int64_t i = 0; i < plan.chunks; ++i) {
    auto& stage = shared.stages[i % 2];
    const std::int64_t tile = plan.state_tile(row_of(i), p_tile, n_tile);
    T* const image = images + tile * kSsdTileElements;
    SsdScale of_state{1.0F, 1.0F}, of_weights{1.0F, 1.0F};
    if constexpr (kNarrowRange<T>) {
      of_state =
          scale_to(largest_of_block<kStatesThreads / 32>(largest<8>(state), shared.largest), kTileTarget);
      if (threadIdx.x == 0)
        workspace.unscales[tile * kUnscales + (kForward ? kUnscaleState : kUnscaleGradient)] = of_state.down;
    }
    store_patch<8>(shared.state, state, at, of_state.up);
    copy_async_wait<0>();
    __syncthreads();  // the tiles are there, and nobody reads the other stage any more
    if (i + 1 < plan.chunks) load(i + 1);

    const auto weight_of = [&](int t) {
      return kForward ? stage.steps[kStepDelta][t] * stage.steps[kStepLeave][t] : stage.steps[kStepEnter][t];
    };
    if constexpr (kNarrowRange<T>)
      of_weights = scale_to(largest_of_warp(fmaxf(fabsf(weight_of(at.lane)), fabsf(weight_of(at.lane + 32)))),
                            kWeightTarget);
    for_parts<kStatesThreads, T>([&](int part) {
      const int t = part / (kSsdTile / kPart<T>);
      const int offset = part_offset<T>(part);
      *reinterpret_cast<uint4*>(image + part * kPart<T>) =
          *reinterpret_cast<const uint4*>(shared.state + part * kPart<T>);
      const float weight = of_weights.up * weight_of(t);
      float x[kPart<T>];
      load_part(x, stage.left + offset);
      if (gate != nullptr) {
        float z[kPart<T>];
        load_part(z, stage.gate + offset);
#pragma unroll
        for (int j = 0; j < kPart<T>; ++j) x[j] *= silu_with_slope(z[j]).value;
      }
#pragma unroll
      for (int j = 0; j < kPart<T>; ++j) x[j] *= weight;
      store_part(stage.left + offset, x);
    });
    const float decay = stage.steps[kStepEnter][kSsdTile - 1];
#pragma unroll
    for (int e = 0; e < 8; ++e)
#pragma unroll
      for (int j = 0; j < 4; ++j) state[e][j] *= decay;
    __syncthreads();
    multiply<Lies::across_k, Lies::across_k, 8>(state, stage.left, stage.right, at, of_weights.down);
  }

  if constexpr (!kForward) {
    if (args.dinitial_states == nullptr) return;
#pragma unroll
    for (int e = 0; e < 8; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int p = at.row_of(i);
        const int n = at.column_of(e, i);
        if (p < p_valid && n < n_valid)
          args.dinitial_states[state_base + p * args.in.dstate + n] = state[e][i];
      }
  }
}

}  // namespace ssmbench
