#pragma once

// An output warpgroup of the fused MIMO scan: out of every second chunk,
//
//   y^r = carry ∘ (q·Hᵀ) + M·x + D·V^r,   M = (q·kᵀ) ∘ weight        rows (step, rank)
//   out = Σ_r norm(y^r)·silu(Z·MIMO_Z^r)·MIMO_Out^r
//
// Warp w has rows 16w … 16w + 15, four steps. A thread has two rows of one rank, two steps apart, and other
// ranks of the same steps are in lanes 4, 8 and 12 apart. q goes from Q in shared memory to registers, where
// it is made, and is A of both products; M goes from accumulators to A.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/hopper/fused/turn.cuh"
#include "kernels/ssd_chunk_scan/scaled.cuh"

namespace ssmbench::mamba3_fused {

template <class T>
class OutputWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  static constexpr int kFragments = kHeaddim / 16;  ///< of y: two columns, and those 8 on, of two rows

 public:
  __device__ OutputWarpgroup(const FusedArgs& args, const Shared& shared, const Head& at, int index,
                             int thread)
      : args_(args), shared_(shared), at_(at), index_(index), warp_(thread / 32), lane_(thread % 32) {}

  __device__ void run() {
    if (index_ == 1) ring_at_.advance();
    for (int first = 0; has_chunk(args_, first); first += 2) {
      meet();
      if (has_chunk(args_, first + index_)) output(first + index_);
      ring_at_.advance();
      ring_at_.advance();
    }
  }

 private:
  /// Both output warpgroups begin together: what one has fetched of the code, which is longer than the cache
  /// next to a scheduler, then serves the other.
  __device__ static void meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

  __device__ __forceinline__ void output(int chunk) {
    float y[32];
    [[maybe_unused]] float scale = 1.0F;  // of y, in f16
    shared_.made().wait_full(ring_at_);
    {
      std::uint32_t m[16];
      scale = multiply_states(m, y);
      const float2 carry = load_carry();
#pragma unroll
      for (int i = 0; i < 32; ++i) y[i] *= i / 2 % 2 == 0 ? carry.x : carry.y;
      const std::uint64_t x = hopper::operand_descriptor(shared_.x_tile(ring_at_), kTile);
      hopper::pin_registers(y);
      hopper::pin_registers(m);
      hopper::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma<Io, hopper::Major::rows>(y, m + 4 * k,
                                               hopper::operand_step<hopper::Major::rows>(x, k, kTile), true);
      hopper::wgmma_commit();
    }
    // Meanwhile.
    shared_.step_inputs().wait_full(ring_at_);
    float gates[32];
    make_gates(gates);
    hopper::pin_registers(gates);
    std::uint32_t v[16];
    if (args_.in.D != nullptr) load_steps(v, shared_.v_tile(ring_at_));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    hopper::barrier_arrive(shared_.made().empty(ring_at_));
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : y) value *= inverse_of_power(scale);
    if (args_.in.D != nullptr) add_skip(y, v);
    if (args_.in.norm != nullptr) normalize(y);
#pragma unroll
    for (int i = 0; i < 32; ++i) y[i] *= gates[i];
    if (args_.in.scan.reduces_ranks)
      store_sums(y, chunk);
    else
      store_ranks(y, chunk);
    // Not before what is made of V and Z is stored: an arrival overtakes loads from shared memory whose
    // values nothing has used yet. So do those of the other slots follow products that take what was loaded
    // from them.
    warp_arrive(shared_.step_inputs().empty(ring_at_), lane_);
  }

  /// M of this warp's rows, and q·Hᵀ. Returns the scale of both, in f16.
  __device__ __forceinline__ float multiply_states(std::uint32_t (&m)[16], float (&y)[32]) {
    std::uint32_t q[4 * 2 * Turner<T>::kFragments];
    make_queries(q);
    float scores[32];
    shared_.k().wait_done(ring_at_);
    multiply(scores, q, hopper::operand_descriptor(shared_.k_tile(ring_at_), kTile));
    warp_arrive(shared_.q().empty(ring_at_), lane_);
    shared_.states().wait_full(ring_at_);
    multiply(y, q, hopper::operand_descriptor(shared_.state_tile(ring_at_), kTile));
    hopper::wgmma_wait<1>();
    hopper::pin_registers(scores);
    mask(m, scores);
    float scale = 1.0F;
    [[maybe_unused]] float4 state_scales;
    if constexpr (T::kScaled) {
      scale = scale_mask(m, scores);
      state_scales = load_state_scales();
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    warp_arrive(shared_.k().empty(ring_at_), lane_);
    release_state(state_scales);
    if constexpr (T::kScaled) {
      const float slabs[]{state_scales.x, state_scales.y, state_scales.z, state_scales.w};
#pragma unroll
      for (int i = 0; i < 32; ++i) y[i] *= scale * slabs[i / 8];
    }
    return scale;
  }

  /// By lane 0, which arrives for the warp, and from there to all lanes.
  __device__ __forceinline__ float4 load_state_scales() const {
    float4 scales = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (lane_ == 0) scales = *reinterpret_cast<const float4*>(shared_.state_scales(ring_at_));
    const auto of_lane_0 = [](float value) { return __shfl_sync(kAllLanes, value, 0); };
    return make_float4(of_lane_0(scales.x), of_lane_0(scales.y), of_lane_0(scales.z), of_lane_0(scales.w));
  }
  /// An arrival overtakes loads from shared memory whose values nothing has used yet. This one uses the
  /// state's scales, which are not NaN.
  __device__ __forceinline__ void release_state([[maybe_unused]] const float4& scales) const {
    const std::uint32_t empty = shared_.states().empty(ring_at_);
    __syncwarp();
    bool arrives = lane_ == 0;
    if constexpr (T::kScaled) arrives = arrives && scales.x == scales.x;
    if (arrives) hopper::barrier_arrive(empty);
  }

  /// q of this warp's rows as A of products with rows of all states.
  __device__ __forceinline__ void make_queries(std::uint32_t (&q)[32]) {
    const Turner<T> turner(shared_, shared_.q_bias(), group_thread());
    shared_.q().wait_full(ring_at_);
#pragma unroll
    for (int i = 0; i < Turner<T>::kFragments; ++i) {
      std::uint32_t low[4], high[4];
      turner.load(low, high, i, shared_.q_tile(ring_at_));
      if (i < Turner<T>::kTurnedFragments)
        turner.template turn<true>(low, high, i, shared_, shared_.turns(ring_at_));
      else
        turner.template turn<false>(low, high, i, shared_, 0);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        q[4 * i + part] = low[part];
        q[4 * (i + Turner<T>::kFragments) + part] = high[part];
      }
    }
    hopper::pin_registers(q);
  }

  /// q times a tile of rows of all states.
  __device__ __forceinline__ static void multiply(float (&to)[32], const std::uint32_t (&q)[32],
                                                  std::uint64_t rows) {
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStates / 16; ++k)
      hopper::wgmma<Io, hopper::Major::k>(to, q + 4 * k,
                                          hopper::operand_step<hopper::Major::k>(rows, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  /// Of the thread's upper row; the lower one's is two on.
  __device__ int step() const {
    return 4 * warp_ + lane_ / 16;
  }

  /// M, of columns 8j + 2·(lane % 4) and the next, which are rows of one step: of every second one. In f16 it
  /// takes the place of the scores, not rounded.
  __device__ __forceinline__ void mask(std::uint32_t (&m)[16], float (&scores)[32]) const {
    const ChunkScalars& scalars = shared_.scalars(ring_at_);
    const auto row = [&](int at) {
      return reinterpret_cast<const float4*>(scalars.weight[at] + lane_ % 4 / 2 * (kSteps / 2));
    };
    const float4* const of_upper = row(step());
    const float4* const of_lower = row(step() + 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 upper = of_upper[half];
      const float4 lower = of_lower[half];
      const auto put = [&](int j, float of_upper_row, float of_lower_row) {
        float* const at = scores + 4 * j;
#pragma unroll
        for (int i = 0; i < 4; ++i) at[i] *= i < 2 ? of_upper_row : of_lower_row;
        if constexpr (!T::kScaled) {
          m[2 * j] = pack_pair<Io>(at[0], at[1]);
          m[2 * j + 1] = pack_pair<Io>(at[2], at[3]);
        }
      };
      put(4 * half + 0, upper.x, lower.x);
      put(4 * half + 1, upper.y, lower.y);
      put(4 * half + 2, upper.z, lower.z);
      put(4 * half + 3, upper.w, lower.w);
    }
  }
  /// In f16 it is scaled by a power of two that its own largest element gives. Returns the scale.
  __device__ __forceinline__ static float scale_mask(std::uint32_t (&m)[16], const float (&scores)[32]) {
    const float scale = scale_of_lanes(largest_of(scores), kTopTarget);
#pragma unroll
    for (int i = 0; i < 16; ++i) m[i] = pack_pair<Io>(scale * scores[2 * i], scale * scores[2 * i + 1]);
    return scale;
  }
  /// Of the upper row, and of the lower one.
  __device__ __forceinline__ float2 load_carry() const {
    const ChunkScalars& scalars = shared_.scalars(ring_at_);
    return {scalars.carry[step()], scalars.carry[step() + 2]};
  }

  /// V or Z of the thread's rows, in the order of y: each lane points ldmatrix to the row of its step.
  __device__ __forceinline__ void load_steps(std::uint32_t (&to)[16], std::uint32_t tile) const {
    const int row = 4 * warp_ + lane_ % 8 / kRank + lane_ / 8 % 2 * 2;
    const std::uint32_t at = tile + row * 128 + ((lane_ / 16 ^ row & 7) << 4);
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
      load_matrices(*reinterpret_cast<std::uint32_t(*)[4]>(to + 4 * i), at ^ i * 32);
  }
  /// A table's values of the thread's rank, of fragment i.
  __device__ __forceinline__ float4 factors(Factor which, int i) const {
    return shared_.template at_address<float4>(shared_.factors(which))[16 * i + lane_ % 16];
  }

  /// What y is multiplied with.
  __device__ __forceinline__ void make_gates(float (&gates)[32]) const {
    std::uint32_t z[16];
    if constexpr (T::kGated) load_steps(z, shared_.z_tile(ring_at_));
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const float4 outer = factors(Factor::outer, i);
      [[maybe_unused]] float4 inner;
      if constexpr (T::kGated) inner = factors(Factor::inner, i);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        float* const to = gates + 8 * i + 2 * part;
        to[0] = part < 2 ? outer.x : outer.z;
        to[1] = part < 2 ? outer.y : outer.w;
        if constexpr (T::kGated) {
          const float2 of_z = unpack_pair<Io>(z[4 * i + part]);
          to[0] *= silu_by(of_z.x, part < 2 ? inner.x : inner.z);
          to[1] *= silu_by(of_z.y, part < 2 ? inner.y : inner.w);
        }
      }
    }
  }
  /// z·σ(z·factor), given −log₂e·factor.
  __device__ __forceinline__ static float silu_by(float z, float inner) {
    return z * reciprocal_approximate(1.0F + exp2_approximate(z * inner));
  }

  __device__ __forceinline__ void add_skip(float (&y)[32], const std::uint32_t (&v)[16]) const {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const float4 skip = factors(Factor::skip, i);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const float2 two = unpack_pair<Io>(v[4 * i + part]);
        y[8 * i + 2 * part] += two.x * (part < 2 ? skip.x : skip.z);
        y[8 * i + 2 * part + 1] += two.y * (part < 2 ? skip.y : skip.w);
      }
    }
  }

  /// y over the root of its row's mean square. Rows end at headdim: behind it y is 0.
  __device__ __forceinline__ void normalize(float (&y)[32]) const {
    float squares[2]{};
#pragma unroll
    for (int i = 0; i < 32; ++i) squares[i / 2 % 2] += y[i] * y[i];
#pragma unroll
    for (float& sum : squares) {
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const float mean = sum / static_cast<float>(args_.in.scan.headdim);
      sum = 1.0F / sqrtf(mean + static_cast<float>(kMamba3NormEps));
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) y[i] *= squares[i / 2 % 2];
  }

  __device__ int seqlen() const {
    return static_cast<int>(args_.in.scan.seqlen);
  }
  __device__ int headdim() const {
    return static_cast<int>(args_.in.scan.headdim);
  }
  /// Where a row of the head and sequence lies in (B, L, H, P), or with ranks (B, L, R, H, P).
  __device__ Io* out_row(int row, int ranks) const {
    const Mamba3& scan = args_.in.scan;
    Io* const first = static_cast<Io*>(args_.in.out) +
                      (at_.batch * scan.seqlen * ranks * scan.nheads + at_.head) * scan.headdim;
    return first + static_cast<std::int64_t>(row) * static_cast<int>(scan.nheads * scan.headdim);
  }
  __device__ static void store_pair(Io* to, float first, float second) {
    *reinterpret_cast<std::uint32_t*>(to) = pack_pair<Io>(first, second);
  }

  /// Asked for anew: no register is left to keep it, and what follows from it, in.
  struct Lane {
    int thread = group_thread();

    __device__ int lane() const { return thread % 32; }
    /// Of the upper row.
    __device__ int step() const { return thread / 32 * 4 + lane() / 16; }
  };

  /// Sums over ranks, in lanes 4 and 8 apart: either lane of a pair takes half of the sums.
  __device__ __forceinline__ void store_sums(const float (&y)[32], int chunk) const {
    const Lane at;
    const bool takes_lower = (at.lane() & 8) != 0;
    float of_row[16];  // of two ranks, [fragment][column]
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float upper = y[i / 2 * 4 + i % 2];
      const float lower = y[i / 2 * 4 + 2 + i % 2];
      of_row[i] = (takes_lower ? lower : upper) + __shfl_xor_sync(kAllLanes, takes_lower ? upper : lower, 8);
    }
    const bool takes_last = (at.lane() & 4) != 0;  // of a fragment's columns those 8 on
    const int t = chunk * kSteps + at.step() + (takes_lower ? 2 : 0);
    const int first = (takes_last ? 8 : 0) + at.lane() % 4 * 2;
    const int columns = t < seqlen() ? headdim() - first : 0;  // that there are, from the lane's first on
    Io* const to = out_row(t, 1) + first;
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      float sums[2];
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const float start = of_row[4 * i + column];
        const float last = of_row[4 * i + 2 + column];
        sums[column] = (takes_last ? last : start) + __shfl_xor_sync(kAllLanes, takes_last ? start : last, 4);
      }
      if (16 * i < columns) store_pair(to + 16 * i, sums[0], sums[1]);
    }
  }
  __device__ __forceinline__ void store_ranks(const float (&y)[32], int chunk) const {
    const Lane at;
    const int column = at.lane() % 4 * 2;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int t = chunk * kSteps + at.step() + 2 * row;
      const int columns = t < seqlen() ? headdim() - column : 0;
      Io* const to = out_row(t * kRank + at.lane() / 4 % kRank, kRank) + column;
#pragma unroll
      for (int j = 0; j < kHeaddim / 8; ++j)
        if (8 * j < columns) store_pair(to + 8 * j, y[4 * j + 2 * row], y[4 * j + 2 * row + 1]);
    }
  }

  const FusedArgs& args_;
  Shared shared_;
  Head at_;
  int index_, warp_, lane_;
  hopper::RingPositions ring_at_;
};

}  // namespace ssmbench::mamba3_fused
