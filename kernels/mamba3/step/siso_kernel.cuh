#pragma once

// cuda-step for SISO with headdim 64 and dstate 128, as models have them.
//
//   block    a head of a sequence; a warp has 16 rows of its state, and a lane four states of each
//
//   load     all states, to shared memory, each lane's where no other lane looks; then whatever else is
//            read. Nothing is waited for yet
//   vectors  a thread for each pair of q, and one for each of k: angle, sine and cosine; to shared memory, k
//            of the step before beside them. The only barrier
//   rows     eight at a time, as they come: S ← α·S + β·V_{t-1} ⊗ k_{t-1} + γ·V ⊗ k, y = S·q. Lane i has
//            what row i of the eight has one of: it hands both weights out by shuffles, and gets the row's y
//
// The states are updated in place: of k, V and S by the thread or warp that has read them, of angles behind
// the barrier.

#include "kernels/common/mma.cuh"
#include "kernels/mamba3/step/kernel.cuh"

namespace ssmbench::mamba3 {

inline constexpr int kSisoHeaddim = 64;
inline constexpr int kSisoDstate = 128;
inline constexpr int kSisoPairs = kSisoDstate / 2;
inline constexpr int kSisoRows = 8;  ///< of a warp at a time
inline constexpr int kSisoBatches = kSisoHeaddim / (kStepThreads / kWarpThreads) / kSisoRows;
inline constexpr int kSisoBlocks = 6;  ///< resident on a multiprocessor of an H200
inline constexpr int kSisoBytes = kSisoHeaddim * kSisoDstate * 4;

inline bool takes_siso_step(const Mamba3& scan) {
  return !scan.is_mimo && scan.headdim == kSisoHeaddim && scan.dstate == kSisoDstate;
}

/// q, k, and k of the step before.
struct SisoVectors {
  float q[kSisoDstate], k[kSisoDstate], before[kSisoDstate];
};

/// A thread's pair of q, or of k where is_k(): the first threads have those of q.
template <class Io>
class SisoPair {
 public:
  /// Loads it. Nothing is waited for.
  __device__ SisoPair(const Mamba3Args& args, const HeadAt& at, int heads_per_group)
      : args_(args), at_(at), pair_(pair_of(args.scan, index())) {
    const Io* const row =
        static_cast<const Io*>(is_k() ? args.K : args.Q) + at.row(args.scan, heads_per_group, 0, 0);
    const float* const bias = (is_k() ? args.K_bias : args.Q_bias) + at.head * kSisoDstate;
    if (turns()) {
      angle_ = args.input_angle[angle_at()];
      rate_ = static_cast<const Io*>(args.rates)[angle_at()];
    }
    x_[0] = row[pair_.first];
    x_[1] = row[pair_.second];
    bias_[0] = bias[pair_.first];
    bias_[1] = bias[pair_.second];
    if (!is_k()) return;
    before_[0] = args.input_k[k_at() + pair_.first];
    before_[1] = args.input_k[k_at() + pair_.second];
  }
  /// Makes and shares it, and stores the state of k. Returns the new angle.
  __device__ std::uint32_t make(float dt, SisoVectors& to) const {
    std::uint32_t phase = 0;
    float sine = 0.0F;
    float cosine = 1.0F;
    if (turns()) {
      phase =
          phase_of_radians(angle_) + phase_of_turns(0.5F * dt * mamba3_hopper::fast_tanh(to_float(rate_)));
      sincospif(2.0F * turns_of_phase(phase), &sine, &cosine);
    }
    const float x0 = to_float(x_[0]) + bias_[0];
    const float x1 = to_float(x_[1]) + bias_[1];
    const float first = x0 * cosine - x1 * sine;
    const float second = x0 * sine + x1 * cosine;
    float* const made = is_k() ? to.k : to.q;
    made[pair_.first] = first;
    made[pair_.second] = second;
    if (!is_k()) return phase;
    to.before[pair_.first] = before_[0];
    to.before[pair_.second] = before_[1];
    args_.final_k[k_at() + pair_.first] = first;
    args_.final_k[k_at() + pair_.second] = second;
    return phase;
  }
  /// After the barrier: the threads of k read it, too.
  __device__ void store_angle(std::uint32_t phase) const {
    if (!is_k() && turns()) args_.final_angle[angle_at()] = radians_of_phase(phase);
  }

 private:
  __device__ static int index() { return static_cast<int>(threadIdx.x) % kSisoPairs; }
  __device__ static bool is_k() { return threadIdx.x >= kSisoPairs; }
  __device__ bool turns() const { return index() < args_.scan.angles; }
  __device__ std::int64_t angle_at() const { return at_.state(args_.scan) * args_.scan.angles + index(); }
  __device__ std::int64_t k_at() const { return at_.state(args_.scan) * kSisoDstate; }

  const Mamba3Args& args_;
  const HeadAt& at_;
  Pair pair_;
  Io x_[2];
  float bias_[2], before_[2];
  float angle_ = 0.0F;
  Io rate_{};
};

/// A warp's rows.
template <class Io>
class SisoRows {
 public:
  /// Starts to load states.
  __device__ SisoRows(const Mamba3Args& args, float* staged)
      : args_(args), staged_(staged + threadIdx.x * 4) {
#pragma unroll
    for (int batch = 0; batch < kSisoBatches; ++batch) {
#pragma unroll
      for (int i = 0; i < kSisoRows; ++i)
        copy_async_16(shared_address(place(batch, i)), args.input_ssm + state_at(batch, i));
      copy_async_commit();
    }
  }
  /// Loads what rows have one of.
  __device__ void load() {
#pragma unroll
    for (int batch = 0; batch < kSisoBatches; ++batch) {
      v_[batch] = static_cast<const Io*>(args_.V)[own(batch)];
      before_[batch] = args_.input_v[own(batch)];
      if (args_.Z != nullptr) z_[batch] = static_cast<const Io*>(args_.Z)[own(batch)];
    }
  }
  /// `alpha`, `beta`, `gamma`: as in the definition. `skip`: D.
  __device__ void update(float alpha, float beta, float gamma, float skip, const SisoVectors& vectors) {
    float q[4], k[4], k_before[4];
    load_vector(q, vectors.q + 4 * lane());
    load_vector(k, vectors.k + 4 * lane());
    load_vector(k_before, vectors.before + 4 * lane());
#pragma unroll
    for (int batch = 0; batch < kSisoBatches; ++batch) {
      if (batch + 1 < kSisoBatches)
        copy_async_wait<kSisoBatches - 1>();
      else
        copy_async_wait<0>();
      const float v = to_float(v_[batch]);
      const float of_k = gamma * v;
      const float of_before = beta * before_[batch];
      float sums[kSisoRows];
#pragma unroll
      for (int i = 0; i < kSisoRows; ++i) {
        const float weight = __shfl_sync(0xFFFFFFFFU, of_k, i);
        const float weight_before = __shfl_sync(0xFFFFFFFFU, of_before, i);
        float state[4];
        load_vector(state, place(batch, i));
        sums[i] = 0.0F;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          state[j] = state[j] * alpha + weight_before * k_before[j] + weight * k[j];
          sums[i] += state[j] * q[j];
        }
        store_vector(args_.final_ssm + state_at(batch, i), state[0], state[1], state[2], state[3]);
      }
      const float y = sum_rows<kSisoRows, kWarpThreads>(sums) + skip * v;
      if (lane() >= kSisoRows) continue;
      const float gate = args_.Z == nullptr ? 1.0F : silu(to_float(z_[batch]));
      store<Io>(args_.out, own(batch), y * gate);
      static_cast<float*>(args_.final_v)[own(batch)] = v;
    }
  }

 private:
  static_assert(kSisoBatches == 2);

  __device__ static int warp() {
    return static_cast<int>(threadIdx.x) / kWarpThreads;
  }
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  /// The warp's first row, among those of all heads.
  __device__ static std::int64_t first() {
    return std::int64_t{blockIdx.x} * kSisoHeaddim + warp() * kSisoBatches * kSisoRows;
  }
  /// The lane's own row of a batch.
  __device__ static std::int64_t own(int batch) {
    return first() + batch * kSisoRows + lane() % kSisoRows;
  }
  /// The lane's states of row i of a batch.
  __device__ static std::int64_t state_at(int batch, int i) {
    return (first() + batch * kSisoRows + i) * kSisoDstate + 4 * lane();
  }
  __device__ float* place(int batch, int i) const {
    return staged_ + (batch * kSisoRows + i) * kStepThreads * 4;
  }

  const Mamba3Args& args_;
  float* staged_;
  Io v_[kSisoBatches], z_[kSisoBatches]{};
  float before_[kSisoBatches];
};

template <class Io>
__global__ void __launch_bounds__(kStepThreads, kSisoBlocks)
    siso_step_kernel(const Mamba3Args args, const int heads_per_group) {
  extern __shared__ float4 shared[];
  __shared__ __align__(16) SisoVectors vectors;
  const Mamba3& scan = args.scan;
  const unsigned index = blockIdx.x / static_cast<unsigned>(scan.nheads);
  const HeadAt at{index, index, blockIdx.x % static_cast<unsigned>(scan.nheads)};
  SisoRows<Io> rows(args, reinterpret_cast<float*>(shared));
  const std::int64_t step = blockIdx.x;
  const float log_decay = args.adt[step];
  const float dt = args.dt[step];
  const Io trap = static_cast<const Io*>(args.trap)[step];
  const float skip = args.D == nullptr ? 0.0F : args.D[at.head];
  rows.load();
  const SisoPair<Io> pair(args, at, heads_per_group);
  const float alpha = expf(log_decay);
  const float gamma = dt / (1.0F + expf(-to_float(trap)));
  const float beta = dt / (1.0F + expf(to_float(trap))) * alpha;
  const std::uint32_t phase = pair.make(dt, vectors);
  __syncthreads();
  pair.store_angle(phase);
  rows.update(alpha, beta, gamma, skip, vectors);
}

}  // namespace ssmbench::mamba3
