#pragma once

// cuda-step: one decoding step of Mamba-3, bound by reading and writing the state once.
//
//   block    a head of a sequence
//   lanes    8 to 32 hold a row of the state, neighbouring lanes neighbouring 16 bytes; a thread has 4 or 8
//            rows in flight (dstate 128, headdim 64: all of a head's rows, 128 bytes of each thread)
//
//   load     the first rows of the state, which nothing waits for yet
//   vectors  a thread for each pair: angle, sine, cosine, q and k of all ranks, to shared memory; k and V of
//            the step before beside them
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
  }
};
inline std::int64_t step_memory_bytes(const Mamba3& scan, int padded) {
  return 4 * (3 * scan.rank * padded + (2 + scan.rank) * scan.headdim + scan.rank);
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

/// Angles, q, k, and k and V of the step before. All of the new states but S are written here.
template <class Io>
__device__ void make_vectors(const Mamba3Args& args, const HeadAt& at, int heads_per_group, int padded,
                             const StepMemory& memory) {
  const Mamba3& scan = args.scan;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto pairs = static_cast<int>(scan.dstate) / 2;
  for (int i = thread; i < padded / 2; i += kStepThreads) {
    const bool is_there = i < pairs;
    const Pair pair = is_there ? pair_of(scan, i) : Pair{2 * i, 2 * i + 1};
    float sine = 0.0F;
    float cosine = 1.0F;
    if (i < scan.angles) {
      const std::int64_t angle = at.state(scan) * scan.angles + i;
      const std::uint32_t phase =
          phase_of_radians(args.input_angle[angle]) +
          phase_step(args.dt[at.state(scan)], rate_of<Io>(args, at.state(scan) * scan.angles + i));
      sincospif(2.0F * turns_of_phase(phase), &sine, &cosine);
      args.final_angle[angle] = radians_of_phase(phase);
    }
    for (int r = 0; r < scan.rank; ++r) {
      float* const q = memory.q + r * padded;
      float* const k = memory.k + r * padded;
      float* const before = memory.before + r * padded;
      if (!is_there) {
        for (float* row : {q, k, before}) row[pair.first] = row[pair.second] = 0.0F;
        continue;
      }
      const std::int64_t row = at.row(scan, heads_per_group, 0, r);
      const std::int64_t bias = at.factor(scan, r, scan.dstate);
      store_rotated<Io>(args.Q, row, args.Q_bias + bias, pair, sine, cosine, q);
      store_rotated<Io>(args.K, row, args.K_bias + bias, pair, sine, cosine, k);
      const std::int64_t of_k = at.k_state(scan, r);
      for (const int n : {pair.first, pair.second}) {
        before[n] = args.input_k[of_k + n];
        args.final_k[of_k + n] = k[n];
      }
    }
  }
  for (int p = thread; p < scan.headdim; p += kStepThreads) {
    const std::int64_t row = at.state(scan) * scan.headdim + p;
    memory.v_before[p] = args.input_v[row];
    memory.v[p] = load<Io>(args.V, row);
    static_cast<float*>(args.final_v)[row] = memory.v[p];
  }
}

/// The rows that a thread holds at a time, from `first` on.
template <RowShape kShape>
struct Rows {
  float states[kShape.rows()][kShape.states()];

  static __device__ int row(int first, int i) {
    return first + i * kShape.rows_of_pass() + static_cast<int>(threadIdx.x) / kShape.lanes;
  }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kShape.lanes; }

  __device__ void load(const float* ssm, int first, int headdim, int dstate) {
#pragma unroll
    for (int i = 0; i < kShape.rows(); ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); j += kShape.width) {
        const int n = state_of(kShape, lane(), j);
#pragma unroll
        for (int each = 0; each < kShape.width; ++each) states[i][j + each] = 0.0F;
        if (row(first, i) < headdim && n < dstate)
          load_states<kShape.width>(states[i] + j, ssm + std::int64_t{row(first, i)} * dstate + n);
      }
  }
  __device__ void store(float* ssm, int first, int headdim, int dstate) const {
#pragma unroll
    for (int i = 0; i < kShape.rows(); ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); j += kShape.width) {
        const int n = state_of(kShape, lane(), j);
        if (row(first, i) < headdim && n < dstate)
          store_states<kShape.width>(ssm + std::int64_t{row(first, i)} * dstate + n, states[i] + j);
      }
  }

  static __device__ void load_row(float (&to)[kShape.states()], const float* from) {
#pragma unroll
    for (int j = 0; j < kShape.states(); j += kShape.width)
      load_states<kShape.width>(to + j, from + state_of(kShape, lane(), j));
  }

  __device__ void update(const Mamba3Args& args, const HeadAt& at, const StepScalars& step, int first,
                         const StepMemory& memory) {
    const Mamba3& scan = args.scan;
    const float beta = step.previous * step.alpha;
#pragma unroll
    for (int i = 0; i < kShape.rows(); ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); ++j) states[i][j] *= step.alpha;
    for (int r = 0; r < scan.rank; ++r) {
      float k[kShape.states()], before[kShape.states()];
      load_row(k, memory.k + r * kShape.padded());
      load_row(before, memory.before + r * kShape.padded());
#pragma unroll
      for (int i = 0; i < kShape.rows(); ++i) {
        const int p = min(row(first, i), static_cast<int>(scan.headdim) - 1);
        const float up = factor_at(args.mimo_v, at.factor(scan, r, scan.headdim), p);
        const float of_before = beta * memory.v_before[p] * up;
        const float own = step.gamma * memory.v[p] * up;
#pragma unroll
        for (int j = 0; j < kShape.states(); ++j) states[i][j] += of_before * before[j] + own * k[j];
      }
    }
  }

  /// y^r = S·q^r.
  __device__ void read(const Mamba3& scan, int first, const StepMemory& memory) const {
    for (int r = 0; r < scan.rank; ++r) {
      float q[kShape.states()];
      load_row(q, memory.q + r * kShape.padded());
#pragma unroll
      for (int i = 0; i < kShape.rows(); ++i) {
        float sum = 0.0F;
#pragma unroll
        for (int j = 0; j < kShape.states(); ++j) sum += states[i][j] * q[j];
#pragma unroll
        for (int distance = kShape.lanes / 2; distance > 0; distance /= 2)
          sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
        if (lane() == 0 && row(first, i) < scan.headdim) memory.y[r * scan.headdim + row(first, i)] = sum;
      }
    }
  }
};

template <class Io>
__device__ void store_outputs(const Mamba3Args& args, const HeadAt& at, const StepMemory& memory) {
  const Mamba3& scan = args.scan;
  const auto headdim = static_cast<int>(scan.headdim);
  const float skip = args.D == nullptr ? 0.0F : args.D[at.head];
  for (int p = static_cast<int>(threadIdx.x); p < headdim; p += kStepThreads)
    for (int r = 0; r < scan.rank; ++r)
      memory.y[r * headdim + p] +=
          skip * memory.v[p] * factor_at(args.mimo_v, at.factor(scan, r, headdim), p);
  if (args.norm != nullptr) {
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.x) / kWarpThreads; r < scan.rank;
         r += kStepThreads / kWarpThreads)
      memory.inverses[r] = inverse_of_norm(memory.y + r * headdim, headdim);
    __syncthreads();
  }
  for (int p = static_cast<int>(threadIdx.x); p < headdim; p += kStepThreads)
    store_out<Io>(args, at, 0, p, memory.y + p, headdim, memory.inverses);
}

template <class Io, int kShapeIndex>
__global__ void __launch_bounds__(kStepThreads, kRowShapes[kShapeIndex].blocks())
    step_kernel(const Mamba3Args args, const int heads_per_group) {
  constexpr RowShape kShape = kRowShapes[kShapeIndex];
  extern __shared__ float4 shared[];
  const Mamba3& scan = args.scan;
  const StepMemory memory(reinterpret_cast<float*>(shared), scan, kShape.padded());
  const std::int64_t index = blockIdx.x / scan.nheads;
  const HeadAt at{index, index, blockIdx.x % scan.nheads};
  const auto headdim = static_cast<int>(scan.headdim);
  const auto dstate = static_cast<int>(scan.dstate);
  const std::int64_t origin = at.state(scan) * scan.headdim * scan.dstate;
  Rows<kShape> rows;
  rows.load(args.input_ssm + origin, 0, headdim, dstate);
  make_vectors<Io>(args, at, heads_per_group, kShape.padded(), memory);
  const StepScalars step = scalars_of<Io>(args, at.state(scan));
  __syncthreads();
  constexpr int kRows = kShape.rows() * kShape.rows_of_pass();
  for (int first = 0; first < headdim; first += kRows) {
    if (first > 0) rows.load(args.input_ssm + origin, first, headdim, dstate);
    rows.update(args, at, step, first, memory);
    rows.store(args.final_ssm + origin, first, headdim, dstate);
    rows.read(scan, first, memory);
  }
  __syncthreads();
  store_outputs<Io>(args, at, memory);
}

}  // namespace ssmbench::mamba3
