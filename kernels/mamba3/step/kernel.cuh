#pragma once

// cuda-step: one decoding step of Mamba-3, bound by reading and writing the state once.
//
//   block    a head of a sequence
//   lanes    8 to 32 hold a row of the state, neighbouring lanes neighbouring 16 bytes; a thread has 4 or 8
//            rows in flight (dstate 128, headdim 64: all of a head's rows, 128 bytes of each thread)
//
//   load     the first rows of the state, which nothing waits for yet
//   vectors  two threads for each pair, of q and of k: angle, sine and cosine, all ranks, to shared memory; k
//            and V of the step before beside them
//   rows     S ← α·S + Σ_r (β·V_{t-1}^r ⊗ k_{t-1}^r + γ·V^r ⊗ k^r), y^r = S·q^r to shared memory
//   out      a thread for each head dim: skip, norm, gate, sum over ranks
//
// The states are updated in place: no block reads what another writes.

#include "kernels/common/vector.cuh"
#include "kernels/mamba3/output.cuh"
#include "kernels/mamba3/step/map.h"
#include "kernels/mamba3/vectors.cuh"

namespace ssmbench::mamba3 {

/// A block's shared memory.
struct StepMemory {
  float *q, *k, *before;  ///< [rank][padded]
  float *v, *v_before;    ///< [head dim]
  float* y;               ///< [rank][head dim]
  float* inverses;        ///< [rank], with a norm
  float* angles;          ///< [pair]

  __device__ StepMemory(float* memory, const Mamba3& scan, int padded) {
    const auto rank = static_cast<int>(scan.rank);
    const auto headdim = static_cast<int>(scan.headdim);
    q = memory;
    k = q + rank * padded;
    before = k + rank * padded;
    v = before + rank * padded;
    v_before = v + headdim;
    y = v_before + headdim;
    inverses = y + rank * headdim;
    angles = inverses + rank;
  }
};
inline std::int64_t step_memory_bytes(const Mamba3& scan, int padded) {
  return 4 * (3 * scan.rank * padded + (2 + scan.rank) * scan.headdim + scan.rank + scan.angles);
}

template <int kWidth>
__device__ void load_states(float* to, const float* from) {
  if constexpr (kWidth == 4) {
    load_vector(to, from);
  } else {
    const float2 two = *reinterpret_cast<const float2*>(from);
    to[0] = two.x;
    to[1] = two.y;
  }
}
template <int kWidth>
__device__ void store_states(float* to, const float* from) {
  if constexpr (kWidth == 4)
    store_vector(to, from[0], from[1], from[2], from[3]);
  else
    store_half_vector(to, from[0], from[1]);
}

/// Angles, q, k, and k and V of the step before. All of the new states but S are written here. Half of the
/// threads make q, the others k.
template <class Io>
__device__ void make_vectors(const Mamba3Args& args, const HeadAt& at, int heads_per_group, int padded,
                             const StepMemory& memory) {
  const Mamba3& scan = args.scan;
  constexpr int kHalf = kStepThreads / 2;
  const bool makes_q = threadIdx.x < kHalf;
  const auto pairs = static_cast<int>(scan.dstate) / 2;
  for (int i = static_cast<int>(threadIdx.x) % kHalf; i < padded / 2; i += kHalf) {
    const bool is_there = i < pairs;
    const Pair pair = is_there ? pair_of(scan, i) : Pair{2 * i, 2 * i + 1};
    float sine = 0.0F;
    float cosine = 1.0F;
    if (i < scan.angles) {
      const std::int64_t angle = at.state(scan) * scan.angles + i;
      const std::uint32_t phase = phase_of_radians(args.input_angle[angle]) +
                                  phase_step(args.dt[at.state(scan)], rate_of<Io>(args, angle));
      sincospif(2.0F * turns_of_phase(phase), &sine, &cosine);
      if (makes_q) memory.angles[i] = radians_of_phase(phase);
    }
    for (int r = 0; r < scan.rank; ++r) {
      float* const to = (makes_q ? memory.q : memory.k) + r * padded;
      float* const before = memory.before + r * padded;
      if (!is_there) {
        to[pair.first] = to[pair.second] = 0.0F;
        if (!makes_q) before[pair.first] = before[pair.second] = 0.0F;
        continue;
      }
      const std::int64_t row = at.row(scan, heads_per_group, 0, r);
      const std::int64_t bias = at.factor(scan, r, scan.dstate);
      store_rotated<Io>(makes_q ? args.Q : args.K, row, (makes_q ? args.Q_bias : args.K_bias) + bias, pair,
                        sine, cosine, to);
      if (makes_q) continue;
      float* const state = args.final_k + at.k_state(scan, r);
      for (const int n : {pair.first, pair.second}) {
        before[n] = args.input_k[at.k_state(scan, r) + n];
        state[n] = to[n];
      }
    }
  }
  const auto p = static_cast<int>(threadIdx.x);
  if (p >= scan.headdim) return;
  const std::int64_t row = at.state(scan) * scan.headdim + p;
  memory.v_before[p] = args.input_v[row];
  memory.v[p] = load<Io>(args.V, row);
  static_cast<float*>(args.final_v)[row] = memory.v[p];
}

/// Sums over the lanes of a row, for kRows rows at once: lane l gets the sum of row l % kRows. Lanes that
/// differ in a bit exchange the rows that the other one keeps, so that each round halves what is left to add.
template <int kRows, int kLanes>
__device__ float sum_rows(float (&sums)[kRows]) {
  const auto lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int distance = 1; distance < kRows; distance *= 2) {
    const bool odd = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < kRows / (2 * distance); ++i) {
      const float keep = odd ? sums[2 * i + 1] : sums[2 * i];
      const float give = odd ? sums[2 * i] : sums[2 * i + 1];
      sums[i] = keep + __shfl_xor_sync(0xFFFFFFFFU, give, distance);
    }
  }
#pragma unroll
  for (int distance = kRows; distance < kLanes; distance *= 2)
    sums[0] += __shfl_xor_sync(0xFFFFFFFFU, sums[0], distance);
  return sums[0];
}

/// The rows that a thread holds at a time, from `first` on. kFull: all are there, and all of their states.
template <RowShape kShape, bool kFull>
struct Rows {
  float states[kShape.rows()][kShape.states()];
  int first, headdim, dstate;

  __device__ int row(int i) const {
    return first + i * kShape.rows_of_pass() + static_cast<int>(threadIdx.x) / kShape.lanes;
  }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kShape.lanes; }
  __device__ bool has(int i, int n) const { return kFull || (row(i) < headdim && n < dstate); }
  /// Where a row's states lie in a matrix of rows.
  __device__ int at(int i, int n) const { return row(i) * (kFull ? kShape.padded() : dstate) + n; }

  __device__ void load(const float* ssm) {
#pragma unroll
    for (int i = 0; i < kShape.rows(); ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); j += kShape.width) {
        const int n = state_of(kShape, lane(), j);
        if constexpr (!kFull) {
#pragma unroll
          for (int each = 0; each < kShape.width; ++each) states[i][j + each] = 0.0F;
        }
        if (has(i, n)) load_states<kShape.width>(states[i] + j, ssm + at(i, n));
      }
  }
  __device__ void store(float* ssm) const {
#pragma unroll
    for (int i = 0; i < kShape.rows(); ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); j += kShape.width) {
        const int n = state_of(kShape, lane(), j);
        if (has(i, n)) store_states<kShape.width>(ssm + at(i, n), states[i] + j);
      }
  }

  static __device__ void load_row(float (&to)[kShape.states()], const float* from) {
#pragma unroll
    for (int j = 0; j < kShape.states(); j += kShape.width)
      load_states<kShape.width>(to + j, from + state_of(kShape, lane(), j));
  }

  /// `ups`: MIMO_V of the head; null without.
  __device__ void update(int rank, const float* ups, const StepScalars& step, const StepMemory& memory) {
    const float beta = step.previous * step.alpha;
#pragma unroll
    for (int i = 0; i < kShape.rows(); ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); ++j) states[i][j] *= step.alpha;
    for (int r = 0; r < rank; ++r) {
      float k[kShape.states()], before[kShape.states()];
      load_row(k, memory.k + r * kShape.padded());
      load_row(before, memory.before + r * kShape.padded());
#pragma unroll
      for (int i = 0; i < kShape.rows(); ++i) {
        const int p = kFull ? row(i) : min(row(i), headdim - 1);
        const float up = ups == nullptr ? 1.0F : ups[r * headdim + p];
        const float of_before = beta * memory.v_before[p] * up;
        const float own = step.gamma * memory.v[p] * up;
#pragma unroll
        for (int j = 0; j < kShape.states(); ++j) states[i][j] += of_before * before[j] + own * k[j];
      }
    }
  }

  /// y^r = S·q^r.
  __device__ void read(int rank, const StepMemory& memory) const {
    for (int r = 0; r < rank; ++r) {
      float q[kShape.states()], sums[kShape.rows()];
      load_row(q, memory.q + r * kShape.padded());
#pragma unroll
      for (int i = 0; i < kShape.rows(); ++i) {
        sums[i] = 0.0F;
#pragma unroll
        for (int j = 0; j < kShape.states(); ++j) sums[i] += states[i][j] * q[j];
      }
      const float sum = sum_rows<kShape.rows(), kShape.lanes>(sums);
      if (lane() < kShape.rows() && row(lane()) < headdim) memory.y[r * headdim + row(lane())] = sum;
    }
  }
};

/// z: of the thread's head dim.
template <class Io>
__device__ void store_outputs(const Mamba3Args& args, const HeadAt& at, float z, const StepMemory& memory) {
  const Mamba3& scan = args.scan;
  const auto headdim = static_cast<int>(scan.headdim);
  const float skip = args.D == nullptr ? 0.0F : args.D[at.head];
  const auto p = static_cast<int>(threadIdx.x);
  for (int r = 0; r < scan.rank && p < headdim; ++r)
    memory.y[r * headdim + p] += skip * memory.v[p] * factor_at(args.mimo_v, at.factor(scan, r, headdim), p);
  if (args.norm != nullptr) {
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.x) / kWarpThreads; r < scan.rank;
         r += kStepThreads / kWarpThreads)
      memory.inverses[r] = inverse_of_norm(memory.y + r * headdim, headdim);
    __syncthreads();
  }
  if (p < headdim) store_out<Io>(args, at, 0, p, z, memory.y + p, headdim, memory.inverses);
  for (int i = p; i < scan.angles; i += kStepThreads)
    args.final_angle[at.state(scan) * scan.angles + i] = memory.angles[i];
}

template <class Io, int kShapeIndex, bool kFull>
__global__ void __launch_bounds__(kStepThreads, kRowShapes[kShapeIndex].blocks(kFull))
    step_kernel(const Mamba3Args args, const int heads_per_group) {
  constexpr RowShape kShape = kRowShapes[kShapeIndex];
  extern __shared__ float4 shared[];
  const Mamba3& scan = args.scan;
  const StepMemory memory(reinterpret_cast<float*>(shared), scan, kShape.padded());
  const std::int64_t index = blockIdx.x / static_cast<unsigned>(scan.nheads);
  const HeadAt at{index, index, blockIdx.x % static_cast<unsigned>(scan.nheads)};
  const auto headdim = static_cast<int>(scan.headdim);
  const std::int64_t origin = at.state(scan) * scan.headdim * scan.dstate;
  Rows<kShape, kFull> rows;
  rows.first = 0;
  rows.headdim = headdim;
  rows.dstate = static_cast<int>(scan.dstate);
  rows.load(args.input_ssm + origin);
  const auto thread = static_cast<int>(threadIdx.x);
  const float z = thread < headdim ? load_z<Io>(args, at, 0, thread) : 0.0F;
  const StepScalars step = scalars_of<Io>(args, at.state(scan));
  make_vectors<Io>(args, at, heads_per_group, kShape.padded(), memory);
  __syncthreads();
  constexpr int kRows = kShape.rows() * kShape.rows_of_pass();
  const float* const ups = args.mimo_v == nullptr ? nullptr : args.mimo_v + at.factor(scan, 0, headdim);
  for (; rows.first < headdim; rows.first += kRows) {
    if (rows.first > 0) rows.load(args.input_ssm + origin);
    rows.update(static_cast<int>(scan.rank), ups, step, memory);
    rows.store(args.final_ssm + origin);
    rows.read(static_cast<int>(scan.rank), memory);
  }
  __syncthreads();
  store_outputs<Io>(args, at, z, memory);
}

}  // namespace ssmbench::mamba3
