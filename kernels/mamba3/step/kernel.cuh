#pragma once

// cuda-step: one decoding step of Mamba-3, bound by reading and writing the state once.
//
//   block    a head of a sequence
//   lanes    8 to 32 hold a row of the state, neighbouring lanes neighbouring 16 bytes; a thread has 4 or 8
//            rows in flight (dstate 128, headdim 64: all of a head's rows, 128 bytes of each thread)
//
//   load     the first rows of the state, which nothing waits for yet: to shared memory, each lane's where no
//            other lane looks, where every lane has a row (kFull), else to registers
//   vectors  a thread for each pair of q and of k of a rank: all that it loads is on its way before the first
//            is waited for; angle, sine and cosine; to shared memory, k of the step before and the weights of
//            both V beside them
//   rows     S ← α·S + Σ_r (β·V_{t-1}^r ⊗ k_{t-1}^r + γ·V^r ⊗ k^r), y^r = S·q^r to shared memory
//   out      a thread for each head dim: skip, norm, gate, sum over ranks
//
// The states are updated in place: no block reads what another writes, and a block's barrier lies between
// what it reads of angles, k and V and what it writes there.

#include "kernels/common/mma.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/mamba3/hopper/increments.h"
#include "kernels/mamba3/output.cuh"
#include "kernels/mamba3/step/map.h"
#include "kernels/mamba3/vectors.cuh"

namespace ssmbench::mamba3 {

/// A block's shared memory; behind it the states in flight of a full shape.
struct StepMemory {
  float *q, *k, *before;   ///< [rank][padded]
  float *own, *of_before;  ///< [rank][head dim]: γ·V^r, β·V_{t-1}^r
  float* y;                ///< [rank][head dim]
  float *skipped, *z;      ///< [head dim]: D·V, Z
  float* inverses;         ///< [rank], with a norm

  __device__ StepMemory(float* memory, const Mamba3& scan, int padded) {
    const auto rank = static_cast<int>(scan.rank);
    const auto headdim = static_cast<int>(scan.headdim);
    q = memory;
    k = q + rank * padded;
    before = k + rank * padded;
    own = before + rank * padded;
    of_before = own + rank * headdim;
    y = of_before + rank * headdim;
    skipped = y + rank * headdim;
    z = skipped + headdim;
    inverses = z + headdim;
  }
};
/// Bytes of it, whole vectors of 16.
SSMBENCH_HD inline int step_memory_bytes(const Mamba3& scan, int padded) {
  const auto floats = static_cast<int>(scan.rank * (3 * padded + 3 * scan.headdim + 1) + 2 * scan.headdim);
  return (floats + 3) / 4 * 16;
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

/// A pair of a row of Q or K and of its bias, as loaded, and of k of the step before.
template <class Io>
struct LoadedPair {
  Io x[2];
  float bias[2], before[2];
};

/// q, k, and k and V of the step before, as all rows take them. A thread has one pair of states, and of every
/// kStepThreads / (padded / 2)-th of q^0, k^0, q^1, k^1 and so on.
template <class Io, int kPadded>
class StepVectors {
  static constexpr int kPairs = kPadded / 2;
  static constexpr int kAtOnce = kStepThreads / kPairs;  ///< vectors
  static_assert(kStepThreads % kPairs == 0);

 public:
  /// Loads what does not depend on the rank. Nothing is waited for.
  __device__ StepVectors(const Mamba3Args& args, const HeadAt& at)
      : args_(args),
        at_(at),
        index_(static_cast<int>(threadIdx.x) % kPairs),
        first_(static_cast<int>(threadIdx.x) / kPairs) {
    const Mamba3& scan = args.scan;
    adt_ = args.adt[at.state(scan)];
    dt_ = args.dt[at.state(scan)];
    trap_ = static_cast<const Io*>(args.trap)[at.state(scan)];
    const std::int64_t angle = at.state(scan) * scan.angles + index_;
    if (args.D != nullptr) skip_ = args.D[at.head];
    if (turns()) {
      angle_ = args.input_angle[angle];
      if (scan.is_mimo)
        f32_rate_ = static_cast<const float*>(args.rates)[angle];
      else
        rate_ = static_cast<const Io*>(args.rates)[angle];
    }
    for_dims([&](int i, int p) {
      const std::int64_t row = at.state(scan) * scan.headdim + p;
      v_[i] = static_cast<const Io*>(args.V)[row];
      v_before_[i] = args.input_v[row];
      if (args.Z != nullptr) z_[i] = static_cast<const Io*>(args.Z)[row];
    });
  }

  /// Writes them to `memory`, and the new state of V, of which a thread has what it loaded. Returns α.
  __device__ float make(int heads_per_group, const StepMemory& memory) {
    const Mamba3& scan = args_.scan;
    const auto headdim = static_cast<int>(scan.headdim);
    const auto vectors = static_cast<int>(2 * scan.rank);
    LoadedPair<Io> loaded = load(heads_per_group, first_);
    const float trap = to_float(trap_);
    const float alpha = expf(adt_);
    const float gamma = dt_ / (1.0F + expf(-trap));
    const float beta = dt_ / (1.0F + expf(trap)) * alpha;
    float sine = 0.0F;
    float cosine = 1.0F;
    if (turns()) {
      const float rate = scan.is_mimo ? f32_rate_ : to_float(rate_);
      phase_ = phase_of_radians(angle_) + phase_of_turns(0.5F * dt_ * mamba3_hopper::fast_tanh(rate));
      sincospif(2.0F * turns_of_phase(phase_), &sine, &cosine);
    }
    for_dims([&](int i, int p) {
      const float v = to_float(v_[i]);
      for (int r = 0; r < scan.rank; ++r) {
        const float up = factor_at(args_.mimo_v, at_.factor(scan, r, headdim), p);
        memory.own[r * headdim + p] = gamma * v * up;
        memory.of_before[r * headdim + p] = beta * v_before_[i] * up;
      }
      memory.skipped[p] = skip_ * v;
      memory.z[p] = to_float(z_[i]);
    });
    for (int vector = first_; vector < vectors; vector += kAtOnce) {
      const LoadedPair<Io> pair = loaded;
      if (vector + kAtOnce < vectors) loaded = load(heads_per_group, vector + kAtOnce);
      store(pair, vector, sine, cosine, memory);
    }
    for_dims([&](int i, int p) {
      static_cast<float*>(args_.final_v)[at_.state(scan) * headdim + p] = to_float(v_[i]);
    });
    return alpha;
  }

  /// After a barrier: the new states of angles and k.
  __device__ void store_last(const StepMemory& memory) const {
    const Mamba3& scan = args_.scan;
    const auto dstate = static_cast<int>(scan.dstate);
    if (first_ == 0 && turns())
      args_.final_angle[at_.state(scan) * scan.angles + index_] = radians_of_phase(phase_);
    for (int r = 0; r < scan.rank; ++r)
      for (int n = static_cast<int>(threadIdx.x); n < dstate; n += kStepThreads)
        args_.final_k[at_.k_state(scan, r) + n] = memory.k[r * kPadded + n];
  }

 private:
  /// visit(i, head dim) for the thread's head dims.
  template <class Visit>
  __device__ void for_dims(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kStepDims; ++i) {
      const int p = static_cast<int>(threadIdx.x) + i * kStepThreads;
      if (p < args_.scan.headdim) visit(i, p);
    }
  }
  __device__ bool turns() const {
    return index_ < args_.scan.angles;
  }
  __device__ bool is_there() const {
    return 2 * index_ < args_.scan.dstate;
  }
  __device__ Pair pair() const {
    return is_there() ? pair_of(args_.scan, index_) : Pair{2 * index_, 2 * index_ + 1};
  }

  __device__ LoadedPair<Io> load(int heads_per_group, int vector) const {
    const Mamba3& scan = args_.scan;
    LoadedPair<Io> to{};
    if (vector >= 2 * scan.rank || !is_there()) return to;
    const int r = vector / 2;
    const bool is_k = vector % 2 != 0;
    const Pair at = pair();
    const Io* const row =
        static_cast<const Io*>(is_k ? args_.K : args_.Q) + at_.row(scan, heads_per_group, 0, r);
    const float* const bias = (is_k ? args_.K_bias : args_.Q_bias) + at_.factor(scan, r, scan.dstate);
    to.x[0] = row[at.first];
    to.x[1] = row[at.second];
    to.bias[0] = bias[at.first];
    to.bias[1] = bias[at.second];
    if (!is_k) return to;
    const float* const before = args_.input_k + at_.k_state(scan, r);
    to.before[0] = before[at.first];
    to.before[1] = before[at.second];
    return to;
  }
  __device__ void store(const LoadedPair<Io>& from, int vector, float sine, float cosine,
                        const StepMemory& memory) const {
    const int r = vector / 2;
    const bool is_k = vector % 2 != 0;
    const Pair at = pair();
    const float x0 = to_float(from.x[0]) + from.bias[0];
    const float x1 = to_float(from.x[1]) + from.bias[1];
    float* const to = (is_k ? memory.k : memory.q) + r * kPadded;
    to[at.first] = x0 * cosine - x1 * sine;
    to[at.second] = x0 * sine + x1 * cosine;
    if (!is_k) return;
    memory.before[r * kPadded + at.first] = from.before[0];
    memory.before[r * kPadded + at.second] = from.before[1];
  }

  const Mamba3Args& args_;
  const HeadAt& at_;
  int index_, first_;
  float adt_, dt_;
  Io trap_;
  float angle_ = 0.0F, f32_rate_ = 0.0F;
  Io rate_{};
  Io v_[kStepDims]{}, z_[kStepDims]{};
  float v_before_[kStepDims]{}, skip_ = 0.0F;
  std::uint32_t phase_ = 0;
};

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

/// The rows that a thread has in flight, from `first` on. kFull: all are there, and all of their states; they
/// are in shared memory, and in registers so many at a time.
template <RowShape kShape, bool kFull>
struct Rows {
  static constexpr int kRows = kShape.rows();             ///< in registers
  static constexpr int kBatches = kShape.batches(kFull);  ///< of them
  float states[kRows][kShape.states()];
  int first, headdim, dstate;
  float* staged;  ///< [vector of a row][thread]

  /// Row i of those in flight.
  __device__ int row(int i) const {
    return first + i * kShape.rows_of_pass() + static_cast<int>(threadIdx.x) / kShape.lanes;
  }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kShape.lanes; }
  __device__ bool has(int i, int n) const { return kFull || (row(i) < headdim && n < dstate); }
  /// Where a row's states lie in a matrix of rows.
  __device__ int at(int i, int n) const { return row(i) * (kFull ? kShape.padded() : dstate) + n; }
  __device__ float* place(int i, int j) const {
    return staged + ((i * kShape.vectors + j / kShape.width) * kStepThreads + static_cast<int>(threadIdx.x)) *
                        kShape.width;
  }

  __device__ void load(const float* ssm) {
#pragma unroll
    for (int i = 0; i < kBatches * kRows; ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); j += kShape.width) {
        const int n = state_of(kShape, lane(), j);
        if constexpr (kFull) {
          static_assert(kShape.width == 4);
          copy_async_16(shared_address(place(i, j)), ssm + at(i, n));
        } else {
#pragma unroll
          for (int each = 0; each < kShape.width; ++each) states[i][j + each] = 0.0F;
          if (has(i, n)) load_states<kShape.width>(states[i] + j, ssm + at(i, n));
        }
      }
    if constexpr (kFull) copy_async_commit();
  }
  /// Of a batch.
  __device__ void unstage(int batch) {
    if constexpr (kFull) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kShape.states(); j += kShape.width)
          load_states<kShape.width>(states[i] + j, place(batch * kRows + i, j));
    }
  }
  __device__ void store(float* ssm, int batch) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); j += kShape.width) {
        const int n = state_of(kShape, lane(), j);
        if (has(batch * kRows + i, n))
          store_states<kShape.width>(ssm + at(batch * kRows + i, n), states[i] + j);
      }
  }

  static __device__ void load_row(float (&to)[kShape.states()], const float* from) {
#pragma unroll
    for (int j = 0; j < kShape.states(); j += kShape.width)
      load_states<kShape.width>(to + j, from + state_of(kShape, lane(), j));
  }

  __device__ void update(int rank, float alpha, const StepMemory& memory, int batch) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kShape.states(); ++j) states[i][j] *= alpha;
    for (int r = 0; r < rank; ++r) {
      float k[kShape.states()], before[kShape.states()];
      load_row(k, memory.k + r * kShape.padded());
      load_row(before, memory.before + r * kShape.padded());
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int at = row(batch * kRows + i);
        const int p = r * headdim + (kFull ? at : min(at, headdim - 1));
        const float own = memory.own[p];
        const float of_before = memory.of_before[p];
#pragma unroll
        for (int j = 0; j < kShape.states(); ++j) states[i][j] += of_before * before[j] + own * k[j];
      }
    }
  }

  /// y^r = S·q^r.
  __device__ void read(int rank, const StepMemory& memory, int batch) const {
    for (int r = 0; r < rank; ++r) {
      float q[kShape.states()], sums[kRows];
      load_row(q, memory.q + r * kShape.padded());
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        sums[i] = 0.0F;
#pragma unroll
        for (int j = 0; j < kShape.states(); ++j) sums[i] += states[i][j] * q[j];
      }
      const float sum = sum_rows<kRows, kShape.lanes>(sums);
      const int own = row(batch * kRows + lane());
      if (lane() < kRows && own < headdim) memory.y[r * headdim + own] = sum;
    }
  }
};

template <class Io>
__device__ void store_outputs(const Mamba3Args& args, const HeadAt& at, const StepMemory& memory) {
  const Mamba3& scan = args.scan;
  const auto headdim = static_cast<int>(scan.headdim);
  const auto first = static_cast<int>(threadIdx.x);
  for (int p = first; p < headdim; p += kStepThreads)
    for (int r = 0; r < scan.rank; ++r)
      memory.y[r * headdim + p] += memory.skipped[p] * factor_at(args.mimo_v, at.factor(scan, r, headdim), p);
  if (args.norm != nullptr) {
    __syncthreads();
    for (int r = first / kWarpThreads; r < scan.rank; r += kStepThreads / kWarpThreads)
      memory.inverses[r] = inverse_of_norm(memory.y + r * headdim, headdim);
    __syncthreads();
  }
  for (int p = first; p < headdim; p += kStepThreads)
    store_out<Io>(args, at, 0, p, memory.z[p], memory.y + p, headdim, memory.inverses);
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
  const auto rank = static_cast<int>(scan.rank);
  const std::int64_t origin = at.state(scan) * scan.headdim * scan.dstate;
  Rows<kShape, kFull> rows;
  rows.first = 0;
  rows.headdim = static_cast<int>(scan.headdim);
  rows.dstate = static_cast<int>(scan.dstate);
  rows.staged = reinterpret_cast<float*>(shared + step_memory_bytes(scan, kShape.padded()) / 16);
  rows.load(args.input_ssm + origin);
  StepVectors<Io, kShape.padded()> vectors(args, at);
  const float alpha = vectors.make(heads_per_group, memory);
  __syncthreads();
  for (; rows.first < rows.headdim; rows.first += kShape.rows_in_flight(kFull)) {
    if (rows.first > 0) rows.load(args.input_ssm + origin);
    copy_async_wait<0>();
    for (int batch = 0; batch < Rows<kShape, kFull>::kBatches; ++batch) {
      rows.unstage(batch);
      rows.update(rank, alpha, memory, batch);
      rows.store(args.final_ssm + origin, batch);
      rows.read(rank, memory, batch);
    }
  }
  vectors.store_last(memory);
  __syncthreads();
  store_outputs<Io>(args, at, memory);
}

}  // namespace ssmbench::mamba3
