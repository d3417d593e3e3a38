#pragma once

// The scanning warpgroup of a head. It holds the head's state in f32, 64 registers a thread, and goes from
// chunk to chunk. Its products have head dims as rows: what is a column of theirs is a row (step, rank) of q
// and k.
//
//   M   = (q·kᵀ) ∘ weight, rounded, to shared memory
//   Yᵀ  = carry ∘ (H·qᵀ) + xᵀ·Mᵀ                     A of H and x from registers
//   out = Σ_r norm(Y + D·V^r)·silu(Z·MIMO_Z^r)·MIMO_Out^r
//   H   ← rescale·H + (later ∘ x)ᵀ·k
//
// Warp w has head dims 16w … 16w + 15. A lane (g, t) has two of them, g and g + 8, of every second step, and
// two ranks; the other two are in the lane beside it. So factors of head dims and ranks are the same for all
// of a lane's columns, and V of ranks is made in the registers in which it is A.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/multiply_pairs.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/fused/finish.cuh"
#include "kernels/ssd_chunk_scan/scaled.cuh"

namespace ssmbench::mamba3_fused {

template <class T>
class ScanWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  static constexpr int kRegisters = kStates / 2;
  static constexpr int kColumns = kRows / 8;  ///< of a lane: pairs of ranks of a step

 public:
  /// `slot`, `warp`: uniform, and known to be so, so that descriptors of operands are.
  __device__ ScanWarpgroup(const FusedArgs& args, const Shared& shared, int slot, int warp)
      : args_(args), shared_(shared), slot_(slot), warp_(warp), lane_(group_thread() % 32) {}

  __device__ void run() {
    float state[kRegisters];
    enter(state);
    for (; has_chunk(args_, static_cast<int>(ring_at_.count)); ring_at_.advance()) add_chunk(state);
    leave(state);
  }

 private:
  /// Of the warpgroup.
  __device__ void barrier() const { warpgroup_barrier(1 + slot_); }

  __device__ const ChunkScalars& scalars() const { return shared_.scalars_of(slot_, ring_at_); }
  __device__ std::uint32_t q_tile() const { return shared_.q_tile(slot_, ring_at_); }

  __device__ __forceinline__ void add_chunk(float (&state)[kRegisters]) {
    shared_.turned(slot_).wait_full(ring_at_);
    std::uint32_t x[2 * kColumns];
    make_mask(x);
    float y[32];
    [[maybe_unused]] const float up = multiply_states(y, state);
    weigh_states(y, up);
    if constexpr (T::kScaled) raise(x);
    barrier();  // M is stored
    if constexpr (T::kScaled) scale_columns(y);
    multiply_inputs(y, x);
    add_inputs(state, x);
    if constexpr (T::kScaled) unscale_columns(y);
    Finisher<T>(args_, shared_, slot_, warp_, lane_, ring_at_).finish(y);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(state);
    warp_arrive(shared_.turned(slot_).empty(ring_at_), lane_);
  }

  /// M to shared memory. Meanwhile x, but in f16, which has no registers for it then.
  __device__ __forceinline__ void make_mask(std::uint32_t (&x)[2 * kColumns]) const {
    constexpr auto kAlong = hopper::Major::k;
    const std::uint64_t q = hopper::operand_descriptor(q_tile(), kTile);
    const std::uint64_t k_rows = hopper::operand_descriptor(q_tile() + kOperand, kTile);
    float scores[32];
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStates / 16; ++k)
      hopper::wgmma<Io, kAlong, kAlong>(scores, hopper::operand_step<kAlong>(q, k, kTile),
                                        hopper::operand_step<kAlong>(k_rows, k, kTile), k > 0);
    hopper::wgmma_commit();
    shared_.step_inputs(slot_).wait_full(ring_at_);
    if constexpr (!T::kScaled) raise(x);
    shared_.scalars(slot_).wait_full(ring_at_);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(scores);
    std::uint32_t m[16];
    [[maybe_unused]] const float scale = mask(m, scores);
    hopper::pin_registers(m);
    barrier();  // all warps' products with the M before are done
    store_mask(m);
    if constexpr (T::kScaled)
      if (lane_ == 0) shared_.mask_scales(slot_)[warp_] = scale;
  }

  /// y of the state that enters. Half of the states at a time: the state as A takes registers, too. Returns
  /// what the state was multiplied with, in f16.
  __device__ __forceinline__ float multiply_states(float (&y)[32], const float (&state)[kRegisters]) const {
    float up = 1.0F;
    if constexpr (T::kScaled) up = scale_to(largest_of_lanes(largest_of(state)), kTileTarget).up;
    const std::uint64_t q = hopper::operand_descriptor(q_tile(), kTile);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t packed[kRegisters / 4];
#pragma unroll
      for (int i = 0; i < kRegisters / 4; ++i) {
        const float* const from = state + half * kRegisters / 2 + 2 * i;
        packed[i] = T::kScaled ? pack_pair<Io>(up * from[0], up * from[1]) : pack_pair<Io>(from[0], from[1]);
      }
      hopper::pin_registers(packed);
      hopper::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma<Io, hopper::Major::k>(
            y, packed + 4 * k, hopper::operand_step<hopper::Major::k>(q, 4 * half + k, kTile), half + k > 0);
      hopper::wgmma_commit();
      hopper::wgmma_wait<0>();
      hopper::pin_registers(y);
    }
    return up;
  }

  /// y += xᵀ·Mᵀ, and then x times the weights of its steps: A of the state's products.
  __device__ __forceinline__ void multiply_inputs(float (&y)[32], std::uint32_t (&x)[2 * kColumns]) const {
    const std::uint64_t m = hopper::operand_descriptor(shared_.mask_tile(slot_), kTile);
    hopper::pin_registers(y);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, hopper::Major::k>(y, x + 4 * k, hopper::operand_step<hopper::Major::k>(m, k, kTile),
                                          true);
    hopper::wgmma_commit();
    std::uint32_t weights[2][kColumns];
    load_of_steps(weights[0], scalars().later[0]);
    if constexpr (!T::kScaled) load_of_steps(weights[1], scalars().later[1]);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    hopper::pin_registers(x);
#pragma unroll
    for (int i = 0; i < 2 * kColumns; ++i) {
      if constexpr (T::kScaled) {  // it is the product that f16 rounds
        const float weight = __uint_as_float(weights[0][i / 2]);
        const float2 two = unpack_pair<Io>(x[i]);
        x[i] = pack_pair<Io>(weight * two.x, weight * two.y);
      } else {
        x[i] = multiply_pairs<Io>(x[i], weights[0][i / 2], weights[1][i / 2]);
      }
    }
    hopper::pin_registers(x);
  }

  /// Of the row g of the warp's slab of M; that of g + 8 is two on.
  __device__ int step_of_row() const {
    return 4 * warp_ + lane_ / 16;
  }

  /// M of this warp's 16 rows (step, rank), of columns 8j + 2t and the next, which are rows of one step: of
  /// every second one. In f16 it is scaled by a power of two that its own largest element gives. Returns the
  /// scale.
  __device__ __forceinline__ float mask(std::uint32_t (&m)[16], float (&scores)[32]) const {
    const auto row = [&](int at) {
      return reinterpret_cast<const float4*>(scalars().weight[at] + lane_ % 4 / 2 * (kSteps / 2));
    };
    const float4* const of_upper = row(step_of_row());
    const float4* const of_lower = row(step_of_row() + 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 upper = of_upper[half];
      const float4 lower = of_lower[half];
      const auto weigh = [&](int j, float of_upper_row, float of_lower_row) {
        float* const at = scores + 4 * j;
#pragma unroll
        for (int i = 0; i < 4; ++i) at[i] *= i < 2 ? of_upper_row : of_lower_row;
      };
      weigh(4 * half + 0, upper.x, lower.x);
      weigh(4 * half + 1, upper.y, lower.y);
      weigh(4 * half + 2, upper.z, lower.z);
      weigh(4 * half + 3, upper.w, lower.w);
    }
    float scale = 1.0F;
    if constexpr (T::kScaled) scale = scale_of_lanes(largest_of(scores), kTopTarget);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      m[i] = T::kScaled ? pack_pair<Io>(scale * scores[2 * i], scale * scores[2 * i + 1])
                        : pack_pair<Io>(scores[2 * i], scores[2 * i + 1]);
    return scale;
  }
  __device__ __forceinline__ void store_mask(const std::uint32_t (&m)[16]) const {
    const std::uint32_t to = shared_.mask_tile(slot_) + hopper::fragment_offset(warp_, lane_);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      hopper::store_matrices(to ^ j * 32, m[4 * j], m[4 * j + 1], m[4 * j + 2], m[4 * j + 3]);
    hopper::fence_async_proxy();
  }

  /// Eight numbers of the lane's steps, of a table by [slot_of_step].
  template <class Number>
  __device__ __forceinline__ void load_of_steps(Number (&to)[kColumns], const Number* table) const {
    static_assert(sizeof(Number) == 4);
    const auto* const from = reinterpret_cast<const uint4*>(table + lane_ % 4 / 2 * kColumns);
#pragma unroll
    for (int i = 0; i < 2; ++i) reinterpret_cast<uint4*>(to)[i] = from[i];
  }

  /// y of the state times what decays leave of it. In f16 `up` is taken from it.
  __device__ __forceinline__ void weigh_states(float (&y)[32], [[maybe_unused]] float up) const {
    float carry[kColumns];
    load_of_steps(carry, scalars().carry);
    if constexpr (T::kScaled)
#pragma unroll
      for (float& of_step : carry) of_step *= inverse_of_power(up) * scale_;
#pragma unroll
    for (int i = 0; i < 32; ++i) y[i] *= carry[i / 4];
  }
  /// In f16 y gets the scales of M's rows, which are its columns, and later loses them.
  __device__ __forceinline__ void scale_columns(float (&y)[32]) const {
    const float4 of_rows = *reinterpret_cast<const float4*>(shared_.mask_scales(slot_));
#pragma unroll
    for (int i = 0; i < 32; ++i) y[i] *= of_slab(of_rows, i / 8);
  }
  __device__ __forceinline__ void unscale_columns(float (&y)[32]) const {
    const float4 of_rows = *reinterpret_cast<const float4*>(shared_.mask_scales(slot_));
#pragma unroll
    for (int i = 0; i < 32; ++i) y[i] *= inverse_of_power(of_slab(of_rows, i / 8));
  }
  __device__ static float of_slab(const float4& scales, int slab) {
    return slab < 2 ? (slab == 0 ? scales.x : scales.y) : (slab == 2 ? scales.z : scales.w);
  }

  /// V of ranks, rounded, as A of products whose k are rows (step, rank): of column j and head dims g, g + 8.
  __device__ __forceinline__ void raise(std::uint32_t (&x)[2 * kColumns]) const {
    std::uint32_t v[kColumns];
    load_steps(v, shared_.v_tile(slot_, ring_at_), warp_, lane_);
    const uint4 factors = lane_factors<uint4>(shared_, slot_, Factor::raise, warp_, lane_);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t two = __byte_perm(v[word_of(j, half)], 0, j % 2 == 0 ? 0x1010 : 0x3232);
        const std::uint32_t first = half == 0 ? factors.x : factors.z;
        const std::uint32_t second = half == 0 ? factors.y : factors.w;
        if constexpr (T::kScaled) {  // it is the product that f16 rounds
          const float of = unpack_pair<Io>(two).x;
          x[2 * j + half] = pack_pair<Io>(of * __uint_as_float(first), of * __uint_as_float(second));
        } else {
          x[2 * j + half] = multiply_pairs<Io>(two, first, second);
        }
      }
    hopper::pin_registers(x);
  }

  /// The chunk's products of the state, under way.
  __device__ __forceinline__ void add_inputs(float (&state)[kRegisters],
                                             const std::uint32_t (&weighted)[2 * kColumns]) {
    const float2 scales = *reinterpret_cast<const float2*>(&scalars().rescale);
    scale_ = scales.y;
    if (scales.x != 1.0F)
#pragma unroll
      for (float& value : state) value *= scales.x;
    hopper::pin_registers(state);
    const std::uint64_t k = hopper::operand_descriptor(q_tile() + kOperand, kTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      hopper::wgmma<Io, hopper::Major::rows>(state, weighted + 4 * i,
                                             hopper::operand_step<hopper::Major::rows>(k, i, 0), true);
    hopper::wgmma_commit();
    // Not before: an arrival overtakes loads from shared memory whose values nothing has used yet.
    hopper::barrier_arrive(shared_.scalars(slot_).empty(ring_at_));
  }

  /// visit(where in a (B, H, P, N) tensor, a pair of values) for this thread's elements that exist.
  template <class Visit>
  __device__ void for_each_pair(float (&state)[kRegisters], const Visit& visit) const {
    const Mamba3& scan = args_.in.scan;
    const int p = warp_ * 16 + lane_ / 4;
    const std::int64_t row = item_of(args_, slot_) * scan.headdim + p;
    const std::int64_t upper = row * kStates + lane_ % 4 * 2;
#pragma unroll
    for (int j = 0; j < kRegisters / 4; ++j) {
      if (p < scan.headdim) visit(upper + 8 * j, state[4 * j], state[4 * j + 1]);
      if (p + 8 < scan.headdim) visit(upper + 8 * kStates + 8 * j, state[4 * j + 2], state[4 * j + 3]);
    }
  }
  __device__ void enter(float (&state)[kRegisters]) const {
#pragma unroll
    for (float& value : state) value = 0.0F;
    if (args_.seed == nullptr) return;
    for_each_pair(state, [&](std::int64_t at, float& first, float& second) {
      const float2 pair = *reinterpret_cast<const float2*>(args_.seed + at);
      first = pair.x;
      second = pair.y;
    });
  }
  __device__ void leave(float (&state)[kRegisters]) const {
    if (args_.in.final_ssm == nullptr) return;
    for_each_pair(state, [&](std::int64_t at, float first, float second) {
      *reinterpret_cast<float2*>(args_.in.final_ssm + at) = make_float2(scale_ * first, scale_ * second);
    });
  }

  const FusedArgs& args_;
  Shared shared_;
  int slot_, warp_, lane_;
  float scale_ = 1.0F;  ///< of the state: times this it is the true one
  ChunkCount ring_at_;
};

}  // namespace ssmbench::mamba3_fused
