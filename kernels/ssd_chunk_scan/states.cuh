#pragma once

// What the steps of a chunk need to know of time, and the states and gradients of states at the chunks'
// borders.

#include "base/cuda_check.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/tile.cuh"

namespace ssmbench {

/// seq_idx of a step; 0 without seq_idx and before the first step: initial_states belong to sequence 0.
__device__ inline int sequence_at(const SsdInputs& in, std::int64_t b, std::int64_t t) {
  return in.seq_idx == nullptr || t < 0 ? 0 : in.seq_idx[b * in.seqlen + t];
}

inline constexpr int kStepsThreads = 256;

/// One warp per row (batch, chunk, head); a lane has the kSide / 32 steps from kSide / 32 · lane on.
template <class T, class Io>
__global__ void __launch_bounds__(kStepsThreads)
    ssd_steps_kernel(const SsdInputs in, const ChunkGrid plan, float* all_steps) {
  constexpr int kOwn = kSide<T> / 32;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kStepsThreads / 32) + threadIdx.x / 32;
  if (row >= plan.rows) return;
  const int lane = threadIdx.x % 32;
  const std::int64_t head = row % in.nheads;
  const std::int64_t start = row / in.nheads % plan.chunks * kSide<T>;
  const std::int64_t b = row / in.nheads / plan.chunks;
  const Io* dt = static_cast<const Io*>(in.dt) + b * in.seqlen * in.nheads + head;
  const int last = steps_within(start, kSide<T>, in.seqlen) - 1;

  using Sum = std::conditional_t<kSplitSums<T>, double, float>;
  float delta[kOwn];
  Sum decay[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int t = kOwn * lane + i;
    delta[i] = t <= last ? step_size_slope(in, head, to_float(dt[(start + t) * in.nheads])).value : 0.0F;
    decay[i] = static_cast<Sum>(delta[i]) * in.A[head];
    if (i > 0) decay[i] += decay[i - 1];
  }
  Sum before = decay[kOwn - 1];  // the sum over the lanes below, once scanned and shifted
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Sum other = __shfl_up_sync(0xFFFFFFFFU, before, distance);
    if (lane >= distance) before += other;
  }
  before = __shfl_up_sync(0xFFFFFFFFU, before, 1);
  if (lane == 0) before = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) decay[i] += before;
  // As the last step has it, rounded alike: its own weight in the state that leaves is exactly 1.
  const Sum total = __shfl_sync(0xFFFFFFFFU, last % kOwn == 0 ? decay[0] : decay[kOwn - 1], last / kOwn);

  const int sequence_before = sequence_at(in, b, start - 1);
  const int sequence_last = sequence_at(in, b, start + last);
  float* steps = all_steps + row * kStepRows<T> * kSide<T>;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int t = kOwn * lane + i;
    const int sequence = sequence_at(in, b, start + min(t, last));
    steps[kStepDelta * kSide<T> + t] = delta[i];
    const auto rounded = static_cast<float>(decay[i]);
    steps[kStepDecay * kSide<T> + t] = rounded;
    if constexpr (kSplitSums<T>)
      steps[kStepDecayRest * kSide<T> + t] = static_cast<float>(decay[i] - static_cast<Sum>(rounded));
    steps[kStepEnter * kSide<T> + t] = sequence == sequence_before ? expf(rounded) : 0.0F;
    steps[kStepLeave * kSide<T> + t] =
        sequence == sequence_last ? expf(static_cast<float>(total - decay[i])) : 0.0F;
  }
}

/// Time walks forward for the states, backward for their gradients:
///   state_after   = e^decay_last · state_before + Σ_t leave_t·Δ_t·x_t ⊗ B_t
///   dstate_before = e^decay_last · dstate_after + Σ_t enter_t·dy_t ⊗ C_t,   dy = dout·silu(z)
enum class Walk { forward, backward };

/// What a walk reads and writes besides its steps.
struct WalkTensors {
  const void* left;    ///< x, or dout
  const void* gate;    ///< z of dout, or null
  const void* right;   ///< B, or C
  const float* first;  ///< (B, H, P, N), the state that the walk starts from, or null
  float* last;         ///< the same of the one that it ends with

  // In the workspace.
  const float* steps;  ///< [row][kStepRows][step]
  void* images;        ///< [row][headdim tile][dstate tile]: of the states before each chunk of the walk
  float* unscales;     ///< [row][headdim tile][dstate tile][kUnscales], where images are scaled
};

inline constexpr int kStatesThreads = 128;

/// Shared memory: two stages of what is loaded (tiles of x and B, or dout, C and z, and the steps), and the
/// state on its way out: 58 KB with 16-bit elements, four blocks per SM except for f32.
template <class T>
struct StatesShared {
  struct Stage {
    T left[kTileElements<T>], gate[kTileElements<T>], right[kTileElements<T>];
    float steps[kStepRows<T>][kSide<T>];
  };
  Stage stages[2];
  T state[kTileElements<T>];
  float largest[kStatesThreads / 32];  ///< per warp, of the state
};

/// A chunk of a walk.
struct WalkChunk {
  std::int64_t start;  ///< first step
  int steps;
  std::int64_t sequence;  ///< of the tensors of states
  bool begins, ends;      ///< the walk of the sequence
};

/// The chunks of batches: a walk has one sequence. (Others, of which a walk has several, are kPacked.)
struct BatchChunks {
  static constexpr bool kPacked = false;
};

/// A block of the states kernel as one of its threads sees it: coordinates and phases. Chunks: BatchChunks, or one with
/// count() and at<kWalk>(chunk), a WalkChunk.
template <class T, class Io, Walk kWalk, class Chunks>
struct StatesBlock {
  static constexpr bool kForward = kWalk == Walk::forward;
  /// PatchFragments of 16 rows: of whole rows in a 64 × 64 tile, of half of them in one of 32 × 32.
  static constexpr int kAtoms = kSide<T> == 64 ? 8 : 2;
  using State = Fragments<kAtoms>;

  const SsdInputs& in;
  const WalkTensors& tensors;
  const ChunkGrid& plan;
  const Chunks& chunks;
  StatesShared<T>& shared;

  std::int64_t b, head, group;
  int p_tile, n_tile;
  int p_valid, n_valid;
  PatchOf<T> at;
  const Io* left;
  const Io* gate;
  const Io* right;
  std::int64_t state_base;

  __device__ __forceinline__ StatesBlock(const SsdInputs& inputs, const WalkTensors& walk,
                                         const ChunkGrid& cut, const Chunks& of_walk, StatesShared<T>& memory)
      : in(inputs), tensors(walk), plan(cut), chunks(of_walk), shared(memory) {
    std::int64_t index = blockIdx.x;
    n_tile = static_cast<int>(index % plan.dstate_tiles);
    index /= plan.dstate_tiles;
    p_tile = static_cast<int>(index % plan.headdim_tiles);
    index /= plan.headdim_tiles;
    head = index % in.nheads;
    b = index / in.nheads;
    group = head / in.heads_per_group;
    p_valid = steps_within(p_tile * kSide<T>, kSide<T>, in.headdim);
    n_valid = steps_within(n_tile * kSide<T>, kSide<T>, in.dstate);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    constexpr int kRows = kSide<T> / 16;
    static_cast<Patch&>(at) = {warp % kRows * 16, warp / kRows * kAtoms * 8,
                               static_cast<int>(threadIdx.x) % 32};
    left = static_cast<const Io*>(tensors.left);
    gate = kForward ? nullptr : static_cast<const Io*>(tensors.gate);
    right = static_cast<const Io*>(tensors.right);
    state_base = state_base_of(b);
  }

  __device__ __forceinline__ std::int64_t state_base_of(std::int64_t sequence) const {
    return (sequence * in.nheads + head) * in.headdim * in.dstate + p_tile * kSide<T> * in.dstate +
           n_tile * kSide<T>;
  }
  __device__ __forceinline__ std::int64_t count() const {
    if constexpr (Chunks::kPacked)
      return chunks.count();
    else
      return plan.chunks;
  }
  __device__ __forceinline__ std::int64_t chunk_of(std::int64_t i) const {
    return kForward ? i : count() - 1 - i;
  }
  /// Chunk i of the walk, as packed ones have it.
  __device__ __forceinline__ WalkChunk chunk(std::int64_t i) const {
    return chunks.template at<kWalk>(chunk_of(i));
  }
  __device__ __forceinline__ std::int64_t row_of(std::int64_t i) const {
    return plan.row(b, chunk_of(i), head, in.nheads);
  }

  /// Starts the copies of the i-th chunk of the walk into its stage.
  __device__ __forceinline__ void load(std::int64_t i) const {
    std::int64_t start = chunk_of(i) * kSide<T>;
    int valid = 0;
    if constexpr (Chunks::kPacked) {
      const WalkChunk of = chunk(i);
      start = of.start;
      valid = of.steps;
    } else {
      valid = steps_within(start, kSide<T>, in.seqlen);
    }
    auto& stage = shared.stages[i % 2];
    const std::int64_t sequence =
        ((b * in.seqlen + start) * in.nheads + head) * in.headdim + p_tile * kSide<T>;
    const std::int64_t projection =
        ((b * in.seqlen + start) * in.groups + group) * in.dstate + n_tile * kSide<T>;
    const std::int64_t sequence_pitch = in.nheads * in.headdim;
    const bool aligned = vectors_aligned<Io>(in.headdim);
    load_tile<kStatesThreads>(stage.left,
                              TileSource<const Io>{left + sequence, sequence_pitch, valid, p_valid, aligned});
    if (gate != nullptr)
      load_tile<kStatesThreads>(
          stage.gate, TileSource<const Io>{gate + sequence, sequence_pitch, valid, p_valid, aligned});
    load_tile<kStatesThreads>(stage.right,
                              TileSource<const Io>{right + projection, in.groups * in.dstate, valid, n_valid,
                                                   vectors_aligned<Io>(in.dstate)});
    if (threadIdx.x < kStepRows<T> * kSide<T> / 4)
      copy_async_16(shared_address(&stage.steps[0][0] + threadIdx.x * 4),
                    tensors.steps + row_of(i) * kStepRows<T> * kSide<T> + threadIdx.x * 4, 16);
    copy_async_commit();
  }

  /// Zeros where the tensor is absent, and around P × N in the padded tile.
  __device__ __forceinline__ void load_first(State& state, std::int64_t base) const {
    const float* const first = tensors.first;
    const std::int64_t dstate = in.dstate;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int p = at.row_of(i);
        const int n = at.column_of(e, i);
        const bool exists = first != nullptr && p < p_valid && n < n_valid;
        state[e][i] = exists ? first[base + p * dstate + n] : 0.0F;
      }
  }

  /// The state, scaled into the range of T and rounded, to shared memory. `tile`: of the workspace.
  __device__ __forceinline__ void store_image(const State& state, std::int64_t tile) const {
    SsdScale of_state{1.0F, 1.0F};
    if constexpr (kNarrowRange<T>) {
      of_state = scale_to(largest_of_block<kStatesThreads / 32>(largest<kAtoms>(state), shared.largest),
                          kTileTarget);
      if (threadIdx.x == 0)
        tensors.unscales[tile * kUnscales + (kForward ? kUnscaleState : kUnscaleGradient)] = of_state.down;
    }
    store_fragments<kAtoms>(shared.state, state, at, of_state.up);
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
    for_vectors<kStatesThreads, T>([&](int vector) {
      const int t = vector / (kSide<T> / kVectorElements<T>);
      const int offset = vector_offset<T>(vector);
      *reinterpret_cast<uint4*>(image + vector * kVectorElements<T>) =
          *reinterpret_cast<const uint4*>(shared.state + vector * kVectorElements<T>);
      const float weight = of_weights.up * weight_of(stage, t);
      float x[kVectorElements<T>];
      load_vector(x, stage.left + offset);
      if (gate != nullptr) {
        float z[kVectorElements<T>];
        load_vector(z, stage.gate + offset);
#pragma unroll
        for (int j = 0; j < kVectorElements<T>; ++j) x[j] *= silu_slope(z[j]).value;
      }
#pragma unroll
      for (int j = 0; j < kVectorElements<T>; ++j) x[j] *= weight;
      store_vector(stage.left + offset, x);
    });
    return of_weights;
  }

  __device__ __forceinline__ void store_last(const State& state, std::int64_t base) const {
    float* const last = tensors.last;
    if (last == nullptr) return;
    const std::int64_t dstate = in.dstate;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int p = at.row_of(i);
        const int n = at.column_of(e, i);
        if (p < p_valid && n < n_valid) last[base + p * dstate + n] = state[e][i];
      }
  }
};

//   grid    one block per (batch, head, tile of P, tile of N); it walks the chunks one after the other
//   block   4 warps; warp w has rows p = 16w .. 16w + 15 of the 64 × 64 tile of the state in registers, f32
//           (of a 32 × 32 tile a quarter)
//   chunk   the state is stored, rounded, for the gradient kernel; then state = decay·state + leftᵀ·right on
//           the tensor cores while the next chunk's tiles arrive
//
// In f16 the state is stored, and left is weighted, with a power of two of their own in each chunk: Δ may be
// 1e-7, a state as small, and where decays are strong the gradient of a state anything down to 0.
template <class T, class Io, Walk kWalk, class Chunks>
__global__ void __launch_bounds__(kStatesThreads, sizeof(T) == 2 ? 4 : 1)
    ssd_states_kernel(const SsdInputs in, const WalkTensors tensors, const ChunkGrid plan,
                      const Chunks chunks) {
  using Block = StatesBlock<T, Io, kWalk, Chunks>;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  auto& shared = *reinterpret_cast<StatesShared<T>*>(dynamic_shared);
  const Block block(in, tensors, plan, chunks, shared);
  T* const images = static_cast<T*>(tensors.images);

  typename Block::State state;
  if constexpr (!Chunks::kPacked) block.load_first(state, block.state_base);
  block.load(0);
  for (std::int64_t i = 0; i < block.count(); ++i) {
    if constexpr (Chunks::kPacked)
      if (const WalkChunk of = block.chunk(i); of.begins)
        block.load_first(state, block.state_base_of(of.sequence));
    auto& stage = shared.stages[i % 2];
    const std::int64_t tile = plan.state_tile(block.row_of(i), block.p_tile, block.n_tile);
    block.store_image(state, tile);
    copy_async_wait<0>();
    __syncthreads();  // the tiles are there, and nobody reads the other stage any more
    if (i + 1 < block.count()) block.load(i + 1);

    const SsdScale of_weights = block.weigh(stage, images + tile * kTileElements<T>);
    const float decay = stage.steps[kStepEnter][kSide<T> - 1];
#pragma unroll
    for (int e = 0; e < Block::kAtoms; ++e)
#pragma unroll
      for (int j = 0; j < 4; ++j) state[e][j] *= decay;
    __syncthreads();
    multiply<Major::mn, Major::mn, Block::kAtoms>(state, stage.left, stage.right, block.at, of_weights.down);
    if constexpr (Chunks::kPacked)
      if (const WalkChunk of = block.chunk(i); of.ends)
        block.store_last(state, block.state_base_of(of.sequence));
  }
  if constexpr (!Chunks::kPacked) block.store_last(state, block.state_base);
}

/// Bit 4e + i says whether a thread's element (t, s) of a product over a chunk's time has s ≤ t in one
/// sequence. The chunk has `valid` steps from `start` on.
template <int kAtoms, class At>
__device__ __forceinline__ unsigned causal_pairs(const SsdInputs& in, std::int64_t b, std::int64_t start,
                                                 int valid, const At& at) {
  unsigned pairs = 0;
#pragma unroll
  for (int e = 0; e < kAtoms; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = min(at.row_of(i), valid - 1);
      const int s = at.column_of(e, i);
      if (s <= t && sequence_at(in, b, start + s) == sequence_at(in, b, start + t))
        pairs |= 1U << (e * 4 + i);
    }
  return pairs;
}

/// e^(decay_t − decay_s) at a thread's elements (t, s), 0 outside of `pairs`.
template <class T, int kAtoms>
__device__ __forceinline__ void decays_between_steps(Fragments<kAtoms>& L,
                                                     const float (&steps)[kStepRows<T>][kSide<T>],
                                                     const PatchOf<T>& at, unsigned pairs) {
  const float decay[2] = {steps[kStepDecay][at.row_of(0)], steps[kStepDecay][at.row_of(2)]};
  float rest[2] = {0.0F, 0.0F};
  if constexpr (kSplitSums<T>) {
    rest[0] = steps[kStepDecayRest][at.row_of(0)];
    rest[1] = steps[kStepDecayRest][at.row_of(2)];
  }
#pragma unroll
  for (int e = 0; e < kAtoms; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float exponent = decay[i / 2] - steps[kStepDecay][at.column_of(e, i)];
      if constexpr (kSplitSums<T>) exponent += rest[i / 2] - steps[kStepDecayRest][at.column_of(e, i)];
      const float between = __expf(exponent);
      L[e][i] = pairs >> (e * 4 + i) & 1U ? between : 0.0F;
    }
}

/// One warp per row.
inline unsigned steps_blocks(const ChunkGrid& plan) {
  return static_cast<unsigned>(ceil_div(plan.rows, kStepsThreads / 32));
}

template <class Kernel>
void allow_shared_bytes(Kernel kernel, int bytes) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

template <class T, class Io>
void launch_steps(const SsdInputs& in, const ChunkGrid& plan, float* steps, cudaStream_t stream) {
  ssd_steps_kernel<T, Io><<<steps_blocks(plan), kStepsThreads, 0, stream>>>(in, plan, steps);
  check_cuda(cudaGetLastError());
}

template <class T, class Io, Walk kWalk, class Chunks = BatchChunks>
void launch_states(const SsdInputs& in, const WalkTensors& tensors, const ChunkGrid& plan,
                   cudaStream_t stream, const Chunks& chunks = {}) {
  constexpr int kBytes = sizeof(StatesShared<T>);
  const auto kernel = ssd_states_kernel<T, Io, kWalk, Chunks>;
  allow_shared_bytes(kernel, kBytes);
  const std::int64_t blocks = in.batch * in.nheads * plan.headdim_tiles * plan.dstate_tiles;
  kernel<<<static_cast<unsigned>(blocks), kStatesThreads, kBytes, stream>>>(in, tensors, plan, chunks);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
