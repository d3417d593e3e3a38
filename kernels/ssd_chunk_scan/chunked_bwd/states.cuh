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

/// A block of the states kernel as one of its threads sees it: coordinates and phases.
template <class T, Walk kWalk>
struct StatesBlock {
  static constexpr bool kForward = kWalk == Walk::forward;
  using State = Fragments<8>;

  const SsdBwdArgs& args;
  const ChunkedBwdPlan& plan;
  const ChunkedBwdWorkspace& workspace;
  StatesShared<T>& shared;

  std::int64_t b, head, group;
  int p_tile, n_tile;
  int p_valid, n_valid;
  Patch at;
  const T* left;   ///< x, or dout
  const T* gate;   ///< z of dout, or null
  const T* right;  ///< B, or C
  std::int64_t state_base;

  __device__ __forceinline__ StatesBlock(const SsdBwdArgs& all, const ChunkedBwdPlan& cut,
                                         const ChunkedBwdWorkspace& places, StatesShared<T>& memory)
      : args(all), plan(cut), workspace(places), shared(memory) {
    std::int64_t index = blockIdx.x;
    n_tile = static_cast<int>(index % plan.dstate_tiles);
    index /= plan.dstate_tiles;
    p_tile = static_cast<int>(index % plan.headdim_tiles);
    index /= plan.headdim_tiles;
    head = index % args.in.nheads;
    b = index / args.in.nheads;
    group = head / args.in.heads_per_group;
    p_valid = steps_within(p_tile * kSsdTile, kSsdTile, args.in.headdim);
    n_valid = steps_within(n_tile * kSsdTile, kSsdTile, args.in.dstate);
    at = {static_cast<int>(threadIdx.x) / 32 * 16, 0, static_cast<int>(threadIdx.x) % 32};
    left = static_cast<const T*>(kForward ? args.in.x : args.dout);
    gate = static_cast<const T*>(kForward ? nullptr : args.in.z);
    right = static_cast<const T*>(kForward ? args.in.B : args.in.C);
    state_base = (b * args.in.nheads + head) * args.in.headdim * args.in.dstate +
                 p_tile * kSsdTile * args.in.dstate + n_tile * kSsdTile;
  }

  __device__ __forceinline__ std::int64_t chunk_of(std::int64_t i) const {
    return kForward ? i : plan.chunks - 1 - i;
  }
  __device__ __forceinline__ std::int64_t row_of(std::int64_t i) const {
    return plan.row(b, chunk_of(i), head, args.in.nheads);
  }

  /// Starts the copies of the i-th chunk of the walk into its stage.
  __device__ __forceinline__ void load(std::int64_t i) const {
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
  }

  /// initial_states, or dfinal_states: zeros where the tensor is absent, and around P × N in the padded tile.
  __device__ __forceinline__ void load_first(State& state) const {
    const float* const first = kForward ? args.in.initial_states : args.dfinal_states;
    const std::int64_t dstate = args.in.dstate;
#pragma unroll
    for (int e = 0; e < 8; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int p = at.row_of(i);
        const int n = at.column_of(e, i);
        const bool exists = first != nullptr && p < p_valid && n < n_valid;
        state[e][i] = exists ? first[state_base + p * dstate + n] : 0.0F;
      }
  }

  /// The state, scaled into the range of T and rounded, to shared memory. `tile`: of the workspace.
  __device__ __forceinline__ void store_image(const State& state, std::int64_t tile) const {
    SsdScale of_state{1.0F, 1.0F};
    if constexpr (kNarrowRange<T>) {
      of_state =
          scale_to(largest_of_block<kStatesThreads / 32>(largest<8>(state), shared.largest), kTileTarget);
      if (threadIdx.x == 0)
        workspace.unscales[tile * kUnscales + (kForward ? kUnscaleState : kUnscaleGradient)] = of_state.down;
    }
    store_patch<8>(shared.state, state, at, of_state.up);
  }

  /// Step t's weight in the sum.
  __device__ __forceinline__ float weight_of(const typename StatesShared<T>::Stage& stage, int t) const {
    return kForward ? stage.steps[kStepDelta][t] * stage.steps[kStepLeave][t] : stage.steps[kStepEnter][t];
  }

  /// Writes the state's image out, and weighs the rows of `left`. Returns the scale of the weights.
  __device__ __forceinline__ SsdScale weigh(typename StatesShared<T>::Stage& stage, T* image) const {
    SsdScale of_weights{1.0F, 1.0F};
    if constexpr (kNarrowRange<T>)
      of_weights = scale_to(
          largest_of_warp(fmaxf(fabsf(weight_of(stage, at.lane)), fabsf(weight_of(stage, at.lane + 32)))),
          kWeightTarget);
    for_parts<kStatesThreads, T>([&](int part) {
      const int t = part / (kSsdTile / kPart<T>);
      const int offset = part_offset<T>(part);
      *reinterpret_cast<uint4*>(image + part * kPart<T>) =
          *reinterpret_cast<const uint4*>(shared.state + part * kPart<T>);
      const float weight = of_weights.up * weight_of(stage, t);
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
    return of_weights;
  }

  __device__ __forceinline__ void store_last(const State& state) const {
    if (args.dinitial_states == nullptr) return;
    const std::int64_t dstate = args.in.dstate;
#pragma unroll
    for (int e = 0; e < 8; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int p = at.row_of(i);
        const int n = at.column_of(e, i);
        if (p < p_valid && n < n_valid) args.dinitial_states[state_base + p * dstate + n] = state[e][i];
      }
  }
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
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  auto& shared = *reinterpret_cast<StatesShared<T>*>(dynamic_shared);
  const StatesBlock<T, kWalk> block(args, plan, workspace, shared);
  T* const images = static_cast<T*>(kWalk == Walk::forward ? workspace.states : workspace.dstates);

  typename StatesBlock<T, kWalk>::State state;
  block.load_first(state);
  block.load(0);
  for (std::int64_t i = 0; i < plan.chunks; ++i) {
    auto& stage = shared.stages[i % 2];
    const std::int64_t tile = plan.state_tile(block.row_of(i), block.p_tile, block.n_tile);
    block.store_image(state, tile);
    copy_async_wait<0>();
    __syncthreads();  // the tiles are there, and nobody reads the other stage any more
    if (i + 1 < plan.chunks) block.load(i + 1);

    const SsdScale of_weights = block.weigh(stage, images + tile * kSsdTileElements);
    const float decay = stage.steps[kStepEnter][kSsdTile - 1];
#pragma unroll
    for (int e = 0; e < 8; ++e)
#pragma unroll
      for (int j = 0; j < 4; ++j) state[e][j] *= decay;
    __syncthreads();
    multiply<Lies::across_k, Lies::across_k, 8>(state, stage.left, stage.right, block.at, of_weights.down);
  }
  if constexpr (kWalk == Walk::backward) block.store_last(state);
}

}  // namespace ssmbench
