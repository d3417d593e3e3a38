#pragma once

// An output warpgroup of cuda-hopper: out of one head, for one chunk after the other,
//
//   Y = carry ∘ (C·Hᵀ) + M·x,   M = (C·Bᵀ) ∘ Δ·decay, on and below the diagonal;   out = (Y + D·x)·silu(z)
//
// Warp w has rows (time steps) 16w … 16w + 15 of all of them. M goes from accumulators to operand without
// leaving registers.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

template <class T>
class OutputWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  /// Blocks of 16 columns whose gates are computed during the first products: as many as registers are left for.
#ifdef SSD_EARLY
  static constexpr int kEarlyGates = SSD_EARLY;
#else
  static constexpr int kEarlyGates = 0;
#endif

 public:
  __device__ OutputWarpgroup(const HopperArgs& args, const Shared& shared, int index, int thread)
      : args_(args),
        plan_(args.plan),
        shared_(shared),
        share_{index},
        thread_(thread),
        warp_(thread / 32),
        lane_(thread % 32),
        fragment_(hopper::fragment_offset(warp_, lane_)) {}

  __device__ void run() {
    int count = 0;
    for (int i = 0; i < plan_.pieces(blockIdx.x); ++i) {
      const Piece piece = plan_.piece(blockIdx.x, i);
      load_skip(plan_.item(piece.item));
      for (int chunk = piece.first; chunk < piece.end; ++chunk, ++count) {
        if (share_.has(count)) output();
        at_.advance();
      }
    }
  }

 private:
  /// One chunk of out.
  __device__ __forceinline__ void output() {
    const int head = share_.head();
    float cb[32];
    float y[32];
    const std::uint64_t c = hopper::operand_descriptor(shared_.c_tile(at_.template in<T::Depth::kProjections>()), kTile);
    shared_.projections().wait_full(at_.template in<T::Depth::kProjections>());
#if SSD_PP == 2
    shared_.states(head).wait_full(at_.template in<T::Depth::kState>());
#endif
#if SSD_PP
    take_turn();
#endif
    multiply(cb, c, hopper::operand_descriptor(shared_.b_tile(at_.template in<T::Depth::kProjections>()), kTile));
    shared_.states(head).wait_full(at_.template in<T::Depth::kState>());
    multiply(y, c, hopper::operand_descriptor(shared_.state_tile(head, at_.template in<T::Depth::kState>()), kTile));

#if SSD_PP
    pass_turn();
#endif
    float gate[32];
    std::uint32_t gates = 0;
    if constexpr (kEarlyGates > 0) gates = gate_tile();
    load_gates<0, kEarlyGates>(gate, gates);
    shared_.scalars(head).wait_full(at_.template in<T::Depth::kScalars>());
    const ChunkScalars& scalars = shared_.scalars_of(head, at_.template in<T::Depth::kScalars>());
    const RowScalars upper = scalars.rows[16 * warp_ + lane_ / 4];
    const RowScalars lower = scalars.rows[16 * warp_ + lane_ / 4 + 8];
    std::uint32_t m[16];
    hopper::wgmma_wait<1>();
    hopper::pin_registers(cb);
    mask(m, cb, scalars, upper, lower);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    warp_arrive(shared_.projections().empty(at_.template in<T::Depth::kProjections>()), lane_);
    warp_arrive(shared_.states(head).empty(at_.template in<T::Depth::kState>()), lane_);
    warp_arrive(shared_.scalars(head).empty(at_.template in<T::Depth::kScalars>()), lane_);
#pragma unroll
    for (int i = 0; i < 32; ++i) y[i] *= i / 2 % 2 == 0 ? upper.carry : lower.carry;

    shared_.x(head).wait_full(at_.template in<T::Depth::kX>());
    const std::uint32_t x_tile = shared_.x_tile(head, at_.template in<T::Depth::kX>());
    const std::uint64_t x = hopper::operand_descriptor(x_tile, kTile);
    hopper::pin_registers(y);
    hopper::pin_registers(m);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, hopper::Major::rows>(y, m + 4 * k,
                                             hopper::operand_step<hopper::Major::rows>(x, k, kTile), true);
    hopper::wgmma_commit();
    if constexpr (kEarlyGates == 0) gates = gate_tile();
    load_gates<kEarlyGates, 4>(gate, gates);
    finish(y, gate, x_tile, gates);
  }

  /// The two output warpgroups of two heads take turns at the long products, so that one computes gates and masks
  /// while the other keeps the tensor cores busy: left alone they fall into step.
  __device__ __forceinline__ void take_turn() const {
    if constexpr (T::kHeads == 2)
      hopper::barrier_wait(shared_.turn(share_.index), turn_parity_ ^ (share_.index == 0 ? 1U : 0U));
  }
  __device__ __forceinline__ void pass_turn() {
    if constexpr (T::kHeads == 2) {
      warp_arrive(shared_.turn(1 - share_.index), lane_);
      turn_parity_ ^= 1;
    }
  }

  /// C (64 steps × N) times a tile of rows of N.
  __device__ __forceinline__ static void multiply(float (&to)[32], std::uint64_t c, std::uint64_t rows) {
    constexpr auto kAlong = hopper::Major::k;
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < T::kStates / 16; ++k)
      hopper::wgmma<Io, kAlong, kAlong>(to, hopper::operand_step<kAlong>(c, k, kTile),
                                        hopper::operand_step<kAlong>(rows, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  /// M of this warp's rows, as A of the product with x.
  __device__ __forceinline__ void mask(std::uint32_t (&m)[16], const float (&cb)[32],
                                       const ChunkScalars& scalars, const RowScalars& upper,
                                       const RowScalars& lower) const {
    if (warp_ == 0)
      mask_slab<0>(m, cb, scalars, upper, lower);
    else if (warp_ == 1)
      mask_slab<1>(m, cb, scalars, upper, lower);
    else if (warp_ == 2)
      mask_slab<2>(m, cb, scalars, upper, lower);
    else
      mask_slab<3>(m, cb, scalars, upper, lower);
  }

  template <int kSlab>
  __device__ __forceinline__ void mask_slab(std::uint32_t (&m)[16], const float (&cb)[32],
                                            const ChunkScalars& scalars, const RowScalars& upper,
                                            const RowScalars& lower) const {
    const int column = lane_ % 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t* to = m + 4 * k;
      const float* from = cb + 8 * k;
      if (k < kSlab) {
        const float4 s = *reinterpret_cast<const float4*>(scalars.below[square_below(kSlab, k)] + 4 * column);
        to[0] = pack_pair<Io>(from[0] * (upper.within * s.x), from[1] * (upper.within * s.y));
        to[1] = pack_pair<Io>(from[2] * (lower.within * s.x), from[3] * (lower.within * s.y));
        to[2] = pack_pair<Io>(from[4] * (upper.within * s.z), from[5] * (upper.within * s.w));
        to[3] = pack_pair<Io>(from[6] * (lower.within * s.z), from[7] * (lower.within * s.w));
      } else if (k == kSlab) {
        const float4 s = *reinterpret_cast<const float4*>(scalars.diagonal + 16 * kSlab + 4 * column);
        const auto element = [&](const RowScalars& row, int bit, float sum, float product) {
          const bool kept = (row.mask >> (2 * column) & 1U << bit) != 0;
          return kept ? product * exp2_approximate(row.sum - sum) : 0.0F;
        };
        to[0] = pack_pair<Io>(element(upper, 0, s.x, from[0]), element(upper, 1, s.y, from[1]));
        to[1] = pack_pair<Io>(element(lower, 0, s.x, from[2]), element(lower, 1, s.y, from[3]));
        to[2] = pack_pair<Io>(element(upper, 8, s.z, from[4]), element(upper, 9, s.w, from[5]));
        to[3] = pack_pair<Io>(element(lower, 8, s.z, from[6]), element(lower, 9, s.w, from[7]));
      } else {
        to[0] = to[1] = to[2] = to[3] = 0;
      }
    }
  }

  /// Waits for z; without z for a slot for out.
  __device__ __forceinline__ std::uint32_t gate_tile() const {
    const auto gates = shared_.gates(share_.head());
    const auto& at = at_.template in<T::Depth::kGates>();
    if constexpr (T::kGated)
      gates.wait_full(at);
    else
      gates.wait_empty(at);
    return shared_.gate_tile(share_.head(), at) + fragment_;
  }

  /// silu(z) of 16-column blocks kFirst … kEnd − 1.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void load_gates(float (&gate)[32], std::uint32_t tile) const {
    if constexpr (!T::kGated) return;
#pragma unroll
    for (int j = kFirst; j < kEnd; ++j) {
      std::uint32_t z[4];
      load_matrices(z, tile ^ j * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack_pair<Io>(z[i]);
        gate[8 * j + 2 * i] = silu_approximate(pair.x);
        gate[8 * j + 2 * i + 1] = silu_approximate(pair.y);
        asm volatile("" : "+f"(gate[8 * j + 2 * i]), "+f"(gate[8 * j + 2 * i + 1]));
      }
    }
  }

  /// M·x is under way. Then out, over z.
  __device__ __forceinline__ void finish(float (&y)[32], const float (&gate)[32], std::uint32_t x_tile,
                                         std::uint32_t gate_tile) {
    const int head = share_.head();
    std::uint32_t x[16];
    if (args_.ssd.in.D != nullptr) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::uint32_t(&matrices)[4] = *reinterpret_cast<std::uint32_t(*)[4]>(x + 4 * j);
        load_matrices(matrices, x_tile + fragment_ ^ j * 32);
      }
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    warp_arrive(shared_.x(head).empty(at_.template in<T::Depth::kX>()), lane_);
    if (args_.ssd.in.D != nullptr) add_skip(y, x);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * j + 2 * i;
        out[i] = T::kGated ? pack_pair<Io>(y[at] * gate[at], y[at + 1] * gate[at + 1])
                           : pack_pair<Io>(y[at], y[at + 1]);
      }
      hopper::store_matrices(gate_tile ^ j * 32, out[0], out[1], out[2], out[3]);
    }
    hopper::fence_async_proxy();
    warp_arrive(shared_.gates(head).done(at_.template in<T::Depth::kGates>()), lane_);
  }

  __device__ static float silu_approximate(float z) {
    return z * reciprocal_approximate(1.0F + exp2_approximate(-kLog2E * z));
  }

  __device__ __forceinline__ void add_skip(float (&y)[32], const std::uint32_t (&x)[16]) const {
    const auto* skip = reinterpret_cast<const float4*>(shared_.skip(share_.index));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 d = skip[4 * j + lane_ % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack_pair<Io>(x[4 * j + i]);
        y[8 * j + 2 * i] += (i < 2 ? d.x : d.z) * pair.x;
        y[8 * j + 2 * i + 1] += (i < 2 ? d.y : d.w) * pair.y;
      }
    }
  }

  /// D of the item's rows, in the order in which lanes take it.
  __device__ void load_skip(const Item& item) const {
    const SsdInputs& in = args_.ssd.in;
    if (in.D == nullptr) return;
    const int h = item.tile(share_.head()).head;
    const int p = item.tile(share_.head()).row + thread_;
    group_barrier();  // the piece before is done
    if (thread_ < kRows) {
      const bool exists = h >= 0 && p < in.headdim;
      shared_.skip(share_.index)[thread_ / 16 * 16 + slot_of_step(thread_ % 16)] =
          exists ? in.D[in.skip_per_headdim ? h * in.headdim + p : h] : 0.0F;
    }
    group_barrier();
  }

  /// Of this warpgroup's threads.
  __device__ void group_barrier() const {
    if (share_.index == 0)
      asm volatile("bar.sync 2, 128;\n" ::: "memory");
    else
      asm volatile("bar.sync 3, 128;\n" ::: "memory");
  }

  const HopperArgs& args_;
  const Plan& plan_;
  Shared shared_;
  Share<T::kHeads> share_;
  int thread_;
  int warp_;
  int lane_;
  std::uint32_t fragment_;
  hopper::RingPositions at_;
  std::uint32_t turn_parity_ = 0;
};

}  // namespace ssmbench::ssd_hopper
