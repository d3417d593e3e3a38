#pragma once

// cuda-sequential: Mamba-3's scans step by step in f32, every option and size.
//
//   block    up to 32 rows (head dims) of one head of one sequence, which it takes through all steps
//   thread   8 threads hold a row of the state in registers, neighbouring lanes neighbouring 16 bytes
//   tile     up to 16 steps whose q, k, V and scalars are in shared memory
//
//   for each tile:
//     angles: a thread for each (step, pair) makes an increment, one for each pair adds them up, as wrapping
//             integers
//     q, k:   a thread for each (step, pair) takes one sine and cosine to all ranks of Q and K
//     steps:  no barrier; a warp goes on at its own pace, y to shared memory
//     out:    a thread for each (step, row); with a norm, which needs all rows of a head, y goes to the
//             workspace and norm_kernel makes out of it
//
// The state that a thread carries already has the weight that all later steps see: with s_t = γ_t +
// (1 − λ_{t+1})·DT_{t+1},
//     U ← α_t·U,   y^r = (U + γ_t·Σ V^r ⊗ k^r)·q^r,   U ← U + s_t·Σ V^r ⊗ k^r
// which after the last step, where s = γ, is S.

#include "kernels/common/vector.cuh"
#include "kernels/mamba3/output.cuh"
#include "kernels/mamba3/sequential/map.h"
#include "kernels/mamba3/vectors.cuh"

namespace ssmbench::mamba3 {

/// The tile in shared memory; strides in floats.
struct Tile {
  float *q, *k;                    ///< [step][rank][padded]
  float* v;                        ///< [step][row]
  float* y;                        ///< [step][rank][row]
  float* scalars;                  ///< [step]: α, γ, s
  float* ups;                      ///< [rank][row]
  std::uint32_t *phases, *angles;  ///< [step][pair], and [pair] of the step before the tile

  __device__ Tile(float* memory, const SequentialPlan& plan, const Mamba3& scan) {
    const auto rank = static_cast<int>(scan.rank);
    q = memory;
    k = q + plan.steps * rank * plan.padded;
    v = k + plan.steps * rank * plan.padded;
    y = v + plan.steps * plan.rows;
    ups = y + plan.steps * rank * plan.rows;
    scalars = ups + rank * plan.rows;
    phases = reinterpret_cast<std::uint32_t*>(scalars + 3 * plan.steps);
    angles = phases + plan.steps * scan.angles;
  }
};

/// What a block works on.
struct BlockWork {
  HeadAt at;
  std::int64_t begin, end;
  int first_row, rows;  ///< those that there are
};

__device__ inline BlockWork work_of(const Mamba3Args& args, const SequentialPlan& plan) {
  const Mamba3& scan = args.scan;
  const std::int64_t one = blockIdx.x / plan.slabs;
  BlockWork work{};
  work.at.index = one / scan.nheads;
  work.at.head = one % scan.nheads;
  const bool packed = args.cu_seqlens != nullptr;
  work.at.batch = packed ? 0 : work.at.index;
  work.begin = packed ? args.cu_seqlens[work.at.index] : 0;
  work.end = packed ? args.cu_seqlens[work.at.index + 1] : scan.seqlen;
  work.first_row = static_cast<int>(blockIdx.x % plan.slabs) * plan.rows;
  work.rows = min(plan.rows, static_cast<int>(scan.headdim) - work.first_row);
  return work;
}

/// Increments of the angles and scalars of the tile's steps, V of its rows.
__device__ inline void load_steps(const Mamba3Args& args, const SequentialPlan& plan, const BlockWork& work,
                                  std::int64_t start, int steps, const Tile& tile) {
  const Mamba3& scan = args.scan;
  const auto angles = static_cast<int>(scan.angles);
  for (int each = static_cast<int>(threadIdx.x); each < steps * angles;
       each += static_cast<int>(blockDim.x)) {
    const std::int64_t t = start + each / angles;
    const float rate = rate_of<float>(args, work.at.step(scan, t) * angles + each % angles);
    tile.phases[each] = phase_step(args.dt[work.at.scalar(scan, t)], rate);
  }
  for (int t = static_cast<int>(threadIdx.x); t < steps; t += static_cast<int>(blockDim.x)) {
    const StepScalars here = scalars_of<float>(args, work.at.scalar(scan, start + t));
    const bool last = start + t + 1 == work.end;
    const float later = last ? 0.0F : scalars_of<float>(args, work.at.scalar(scan, start + t + 1)).previous;
    tile.scalars[3 * t] = here.alpha;
    tile.scalars[3 * t + 1] = here.gamma;
    tile.scalars[3 * t + 2] = here.gamma + later;
  }
  for (int i = static_cast<int>(threadIdx.x); i < steps * plan.rows; i += static_cast<int>(blockDim.x)) {
    const int row = i % plan.rows;
    const std::int64_t from = work.at.step(scan, start + i / plan.rows) * scan.headdim + work.first_row + row;
    tile.v[i] = row < work.rows ? load<float>(args.V, from) : 0.0F;
  }
}

/// Increments to angles.
__device__ inline void add_up(const Mamba3& scan, int steps, const Tile& tile) {
  const auto angles = static_cast<int>(scan.angles);
  for (int i = static_cast<int>(threadIdx.x); i < angles; i += static_cast<int>(blockDim.x)) {
    std::uint32_t phase = tile.angles[i];
    for (int t = 0; t < steps; ++t) tile.phases[t * angles + i] = phase += tile.phases[t * angles + i];
    tile.angles[i] = phase;
  }
}

/// q and k of the tile's steps, for all ranks.
__device__ inline void load_vectors(const Mamba3Args& args, const SequentialPlan& plan, const BlockWork& work,
                                    std::int64_t start, int steps, const Tile& tile) {
  const Mamba3& scan = args.scan;
  const auto pairs = static_cast<int>(scan.dstate) / 2;
  const auto angles = static_cast<int>(scan.angles);
#pragma unroll 4
  for (int each = static_cast<int>(threadIdx.x); each < steps * pairs; each += static_cast<int>(blockDim.x)) {
    const int t = each / pairs;
    const int i = each % pairs;
    const Pair pair = pair_of(scan, i);
    float sine = 0.0F;
    float cosine = 1.0F;
    if (i < angles) sincospif(2.0F * turns_of_phase(tile.phases[t * angles + i]), &sine, &cosine);
    for (int r = 0; r < scan.rank; ++r) {
      const std::int64_t row = work.at.row(scan, plan.heads_per_group, start + t, r);
      const std::int64_t bias = work.at.factor(scan, r, scan.dstate);
      const auto to = (t * static_cast<int>(scan.rank) + r) * plan.padded;
      store_rotated<float>(args.Q, row, args.Q_bias + bias, pair, sine, cosine, tile.q + to);
      store_rotated<float>(args.K, row, args.K_bias + bias, pair, sine, cosine, tile.k + to);
    }
  }
}

/// A thread's states of a row of shared memory.
template <int kStates>
__device__ void load_row(float (&to)[kStates], const float* row, int lane) {
#pragma unroll
  for (int j = 0; j < kStates; j += 4) load_vector(to + j, row + state_of(lane, j));
}

/// One step of a row: y of all ranks.
template <int kStates>
__device__ void do_step(float (&state)[kStates], const Tile& tile, const SequentialPlan& plan, int rank,
                        int t, int row, int lane) {
  const float alpha = tile.scalars[3 * t];
  const float v = tile.v[t * plan.rows + row];
  const float own = tile.scalars[3 * t + 1] * v;
  const float later = tile.scalars[3 * t + 2] * v;
  float read[kStates];  // the state that this step reads
#pragma unroll
  for (int j = 0; j < kStates; ++j) read[j] = state[j] = alpha * state[j];
  for (int r = 0; r < rank; ++r) {
    float k[kStates];
    load_row(k, tile.k + (t * rank + r) * plan.padded, lane);
    const float up = tile.ups[r * plan.rows + row];
#pragma unroll
    for (int j = 0; j < kStates; ++j) {
      read[j] += own * up * k[j];
      state[j] += later * up * k[j];
    }
  }
  for (int r = 0; r < rank; ++r) {
    float q[kStates];
    load_row(q, tile.q + (t * rank + r) * plan.padded, lane);
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < kStates; ++j) sum += read[j] * q[j];
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
    if (lane == r % kLanes) tile.y[(t * rank + r) * plan.rows + row] = sum;
  }
}

/// The state before the first step, with what that step adds of the step before.
template <int kStates>
__device__ void load_state(float (&state)[kStates], const Mamba3Args& args, const BlockWork& work, int row,
                           int lane) {
  const Mamba3& scan = args.scan;
  const bool given = args.input_ssm != nullptr && row < work.rows;
  const bool any = work.begin < work.end;
  const std::int64_t p = work.first_row + row;
  const float weight = any && given ? scalars_of<float>(args, work.at.scalar(scan, work.begin)).previous *
                                          args.input_v[work.at.state(scan) * scan.headdim + p]
                                    : 0.0F;
#pragma unroll
  for (int j = 0; j < kStates; ++j) {
    const int n = state_of(lane, j);
    state[j] = 0.0F;
    if (!given || n >= scan.dstate) continue;
    state[j] = args.input_ssm[(work.at.state(scan) * scan.headdim + p) * scan.dstate + n];
#pragma unroll 1  // happens once; unrolled, and for each state, it would be half of the kernel's code
    for (int r = 0; r < scan.rank; ++r) {
      const float up = factor_at(args.mimo_v, work.at.factor(scan, r, scan.headdim), p);
      state[j] += weight * up * args.input_k[work.at.k_state(scan, r) + n];
    }
  }
}

/// y of the tile, with the skip, to out or to the workspace.
__device__ inline void store_tile(const Mamba3Args& args, const SequentialPlan& plan, const BlockWork& work,
                                  std::int64_t start, int steps, const Tile& tile, float* workspace) {
  const Mamba3& scan = args.scan;
  const auto rank = static_cast<int>(scan.rank);
  const float skip = args.D == nullptr ? 0.0F : args.D[work.at.head];
  for (int i = static_cast<int>(threadIdx.x); i < steps * plan.rows; i += static_cast<int>(blockDim.x)) {
    const int t = i / plan.rows;
    const int row = i % plan.rows;
    if (row >= work.rows) continue;
    const int p = work.first_row + row;
    float* const y = tile.y + t * rank * plan.rows + row;
    for (int r = 0; r < rank; ++r) {
      y[r * plan.rows] += skip * tile.v[i] * tile.ups[r * plan.rows + row];
      if (workspace != nullptr)
        workspace[(work.at.step(scan, start + t) * rank + r) * scan.headdim + p] = y[r * plan.rows];
    }
    if (workspace == nullptr)
      store_out<float>(args, work.at, start + t, p, load_z<float>(args, work.at, start + t, p), y, plan.rows,
                       nullptr);
  }
}

/// The states after the last step, `last` of its tile; −1 where there was none.
template <int kStates>
__device__ void store_states(const float (&state)[kStates], const Mamba3Args& args,
                             const SequentialPlan& plan, const BlockWork& work, const Tile& tile, int last) {
  const Mamba3& scan = args.scan;
  const auto thread = static_cast<int>(threadIdx.x);
  const int row = thread / kLanes;
  const std::int64_t at = work.at.state(scan);
#pragma unroll
  for (int j = 0; j < kStates; ++j) {
    const int n = state_of(thread % kLanes, j);
    if (row < work.rows && n < scan.dstate)
      args.final_ssm[(at * scan.headdim + work.first_row + row) * scan.dstate + n] = state[j];
  }
  for (int i = thread; i < work.rows; i += static_cast<int>(blockDim.x)) {
    const std::int64_t to = at * scan.headdim + work.first_row + i;
    const float before = args.input_v == nullptr ? 0.0F : args.input_v[to];
    store<float>(args.final_v, to, last < 0 ? before : tile.v[last * plan.rows + i]);
  }
  if (work.first_row != 0) return;
  for (int i = thread; i < scan.angles; i += static_cast<int>(blockDim.x)) {
    const bool passes = last < 0 && args.input_angle != nullptr;
    args.final_angle[at * scan.angles + i] =
        passes ? args.input_angle[at * scan.angles + i] : radians_of_phase(tile.angles[i]);
  }
  for (int r = 0; r < scan.rank; ++r)
    for (int n = thread; n < scan.dstate; n += static_cast<int>(blockDim.x)) {
      const std::int64_t to = work.at.k_state(scan, r) + n;
      const float before = args.input_k == nullptr ? 0.0F : args.input_k[to];
      args.final_k[to] =
          last < 0 ? before : tile.k[(last * static_cast<int>(scan.rank) + r) * plan.padded + n];
    }
}

/// Zeros behind the last state, MIMO_V and the angles before the first step.
__device__ inline void start_tile(const Mamba3Args& args, const SequentialPlan& plan, const BlockWork& work,
                                  const Tile& tile) {
  const Mamba3& scan = args.scan;
  const auto rank = static_cast<int>(scan.rank);
  for (int i = static_cast<int>(threadIdx.x); i < plan.steps * rank * plan.padded;
       i += static_cast<int>(blockDim.x))
    tile.q[i] = tile.k[i] = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < rank * plan.rows; i += static_cast<int>(blockDim.x)) {
    const int row = i % plan.rows;
    const std::int64_t factors = work.at.factor(scan, i / plan.rows, scan.headdim);
    tile.ups[i] = row < work.rows ? factor_at(args.mimo_v, factors, work.first_row + row) : 0.0F;
  }
  for (int i = static_cast<int>(threadIdx.x); i < scan.angles; i += static_cast<int>(blockDim.x))
    tile.angles[i] = args.input_angle == nullptr
                         ? 0U
                         : phase_of_radians(args.input_angle[work.at.state(scan) * scan.angles + i]);
}

template <int kStates>
__global__ void __launch_bounds__(kMaxRows* kLanes)
    sequential_kernel(const Mamba3Args args, const SequentialPlan plan, float* workspace) {
  extern __shared__ float4 memory[];
  const Tile tile(reinterpret_cast<float*>(memory), plan, args.scan);
  const BlockWork work = work_of(args, plan);
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const auto rank = static_cast<int>(args.scan.rank);
  float state[kStates];
  load_state(state, args, work, row, lane);
  start_tile(args, plan, work, tile);
  int steps = 0;
  for (std::int64_t start = work.begin; start < work.end; start += plan.steps) {
    __syncthreads();
    steps = steps_within(start, plan.steps, work.end);
    load_steps(args, plan, work, start, steps, tile);
    __syncthreads();
    add_up(args.scan, steps, tile);
    __syncthreads();
    load_vectors(args, plan, work, start, steps, tile);
    __syncthreads();
    for (int t = 0; t < steps; ++t) do_step(state, tile, plan, rank, t, row, lane);
    __syncthreads();
    store_tile(args, plan, work, start, steps, tile, workspace);
  }
  __syncthreads();
  if (args.final_ssm != nullptr) store_states(state, args, plan, work, tile, steps - 1);
}

/// out of the workspace's y, (B, L, H, R, P), a warp for each (batch, step, head).
__global__ void norm_kernel(const Mamba3Args args, const float* workspace) {
  const Mamba3& scan = args.scan;
  const std::int64_t warp =
      (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / static_cast<unsigned>(kWarpThreads);
  if (warp >= scan.batch * scan.seqlen * scan.nheads) return;
  HeadAt at{};
  at.head = warp % scan.nheads;
  at.batch = warp / scan.nheads / scan.seqlen;
  const std::int64_t t = warp / scan.nheads % scan.seqlen;
  const float* const y = workspace + warp * scan.rank * scan.headdim;
  float inverses[kMaxMamba3Rank];
#pragma unroll
  for (int r = 0; r < kMaxMamba3Rank; ++r)
    inverses[r] =
        r < scan.rank ? inverse_of_norm(y + r * scan.headdim, static_cast<int>(scan.headdim)) : 0.0F;
  for (int p = static_cast<int>(threadIdx.x) % kWarpThreads; p < scan.headdim; p += kWarpThreads)
    store_out<float>(args, at, t, p, load_z<float>(args, at, t, p), y + p, scan.headdim, inverses);
}

}  // namespace ssmbench::mamba3
