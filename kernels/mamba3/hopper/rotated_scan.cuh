#pragma once

// Mamba-2's kernel for Hopper (ssd_chunk_scan's kernel.cuh has the picture), for two heads of a group a block,
// that makes q and k of each head of those of the group (rotation.cuh):
//
//     warpgroup   registers  role
//     0 producer         48  warp 0 loads K, Q, phases, V and Z, warp 3 stores out; warps 1 and 2 compute the
//                            decays of a head's chunk, and the angles before it
//     1, 2 states       104  of a head each: k, turned from K to a tile of its own; then the state
//     3, 4 outputs      112  of a head each: q, turned from Q to registers; then the products
//
// A block may have one head; then the warpgroups of the other end at once.
//
// Time of one head; the states are up to a chunk ahead:
//
//     states    k(c) | weight ∘ V | products, H(c + 1) published | k(c + 1), once q·k(c)ᵀ is done
//     outputs   q(c) | q·kᵀ | M | q·H(c)ᵀ | M·V | gates | out
//
// Shared memory with N = 128, in KB: K and Q 32, k 2 × 16, V, Z and out 4 × 2 × 8, H 2 × 2 × 16, phases 2 × 2 × 4,
// decays 2 × 2 × 2.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/rotation.cuh"
#include "kernels/mamba3/hopper/scan.h"
#include "kernels/ssd_chunk_scan/hopper/outputs.cuh"
#include "kernels/ssd_chunk_scan/hopper/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper/scalars.cuh"
#include "kernels/ssd_chunk_scan/hopper/states.cuh"

namespace ssmbench::mamba3_hopper {

inline constexpr int kProducerRegisters = 48;
inline constexpr int kStateRegisters = 104;
inline constexpr int kOutputRegisters = 112;
inline constexpr int kRotatedThreads = 5 * kGroupThreads;

/// An item as it is for one of its heads.
__device__ inline Item item_of_head(Item item, int head) {
  if (head == 1) item.first = item.second;
  return item;
}

/// A chunk of the block's work, as a thread keeps it that has few registers: its item is computed where it is needed.
class ChunkCursor {
 public:
  __device__ explicit ChunkCursor(const Plan& plan) : plan_(plan) {
    if (!done()) chunk_ = segment().first;
  }
  __device__ bool done() const { return index_ >= plan_.segments(block()); }
  __device__ void advance() {
    if (++chunk_ < segment().end) return;
    ++index_;
    if (!done()) chunk_ = segment().first;
  }
  __device__ int chunk() const { return chunk_; }
  __device__ Item item() const { return plan_.item(segment().item); }

 private:
  __device__ Segment segment() const { return plan_.segment(block(), index_); }
  /// Volatile, so that nothing that follows from it is kept either.
  __device__ static int block() {
    int index = 0;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
  }

  const Plan& plan_;
  int index_ = 0;
  int chunk_ = 0;
};

/// The tile of an item's head, of V, Z or out. That of an absent head lies outside of the tensor.
__device__ inline hopper::TileOrigin head_tile(const HopperArgs& args, const ChunkCursor& cursor, int head) {
  const Item item = cursor.item();
  const ssd_hopper::RowTile tile = item.tile(head);
  return {{tile.row, tile.head < 0 ? static_cast<int>(args.ssd.in.nheads) : tile.head,
           cursor.chunk() * kSteps, item.b}};
}

/// By one thread.
template <class T>
class TileLoader {
  using Shared = SharedMemory<T>;

 public:
  __device__ TileLoader(const HopperArgs& args, int heads) : args_(args), heads_(heads) {}

  /// Slots come free in the order K, Q, phases, V, Z: the first two for a chunk ahead, the others for two.
  __device__ void run() {
    ChunkCursor raw(args_.plan);
    ChunkCursor own(args_.plan);
    load_raw(raw);
    for (int ahead = 0; ahead < T::Depth::kLoads && !own.done(); ++ahead) load_own(own);
#pragma unroll 1
    while (!raw.done()) {
      load_raw(raw);
      if (!own.done()) load_own(own);
    }
  }

 private:
  __device__ void load_raw(ChunkCursor& cursor) {
    const Item item = cursor.item();
    const int step = cursor.chunk() * kSteps;
    load_row(shared_.raw_k(), args_.B, shared_.raw_k_tile(raw_at_), item, step);
    load_row(shared_.raw_q(), args_.C, shared_.raw_q_tile(raw_at_), item, step);
    raw_at_.advance();
    cursor.advance();
  }
  __device__ void load_row(const typename Shared::Raw& ring, const CUtensorMap& map, std::uint32_t tile,
                           const Item& item, int step) const {
    ring.wait_empty(raw_at_);
    hopper::barrier_arrive_expect(ring.full(raw_at_), T::Layout::kRow);
#pragma unroll
    for (int half = 0; half < T::Layout::kHalves; ++half)
      hopper::load_tile(tile + half * kTile, map, {{64 * half, item.group, step, item.b}},
                        ring.full(raw_at_));
  }
  __device__ void load_own(ChunkCursor& cursor) {
#pragma unroll 1
    for (int head = 0; head < heads_; ++head) {
      hopper::TileOrigin from = head_tile(args_, cursor, head);
      from.at[0] = 0;
      load(shared_.phases(head), args_.rotation.phases, shared_.phase_tile(head, at_), kPhaseBytes, from);
    }
#pragma unroll 1
    for (int head = 0; head < heads_; ++head)
      load(shared_.x(head), args_.x, shared_.x_tile(head, at_), kTile, head_tile(args_, cursor, head));
    if constexpr (T::kGated)
#pragma unroll 1
      for (int head = 0; head < heads_; ++head)
        load(shared_.gates(head), args_.z, shared_.gate_tile(head, at_), kTile,
             head_tile(args_, cursor, head));
    at_.advance();
    cursor.advance();
  }
  template <class Ring>
  __device__ void load(const Ring& ring, const CUtensorMap& map, std::uint32_t tile, int bytes,
                       const hopper::TileOrigin& from) const {
    ring.wait_empty(at_);
    hopper::barrier_arrive_expect(ring.full(at_), bytes);
    hopper::load_tile(tile, map, from, ring.full(at_));
  }

  const HopperArgs& args_;
  Shared shared_;
  int heads_;
  typename Shared::Raw::Position raw_at_;
  typename Shared::Loads::Position at_;
};

/// By one thread.
template <class T>
__device__ void store_tiles(const HopperArgs& args, const SharedMemory<T>& shared, int heads) {
  typename SharedMemory<T>::Gates::Position at;
#pragma unroll 1
  for (ChunkCursor cursor(args.plan); !cursor.done(); cursor.advance(), at.advance())
#pragma unroll 1
    for (int head = 0; head < heads; ++head) {
      const auto ring = shared.gates(head);
      ring.wait_done(at);
      hopper::store_tile(args.out, head_tile(args, cursor, head), shared.gate_tile(head, at));
      hopper::wait_stores_read();
      hopper::barrier_arrive(ring.empty(at));
    }
}

/// The state warpgroup of a head. Between Mamba-2's k is made, and the state has a scale that decays go to, but in f16.
template <class T>
class HeadStates : ssd_hopper::StateWarpgroup<T> {
  using Base = ssd_hopper::StateWarpgroup<T>;
  using Base::args_, Base::at_, Base::group_barrier, Base::lane, Base::shared_, Base::state_at_,
      Base::unscale_;

 public:
  using Base::Base;

  __device__ void run() {
    float state[1][T::kStates / 2];
    const Plan& plan = args_.plan;
    for (int i = 0; i < plan.segments(blockIdx.x); ++i) {
      const Segment segment = plan.segment(blockIdx.x, i);
      const Item item = item_of_head(plan.item(segment.item), shared_.head);
      stage(item);
      this->enter(state, segment, item);
      publish_next(state);
      for (int chunks = segment.end - segment.first; chunks > 0; --chunks) {
        turn();
        add_chunk(state[0]);
        shared_.release_projections(at_, lane());
        at_.advance();
        if (chunks > 1) publish_next(state);
      }
      const Segment left = plan.segment(blockIdx.x, i);
      this->leave(state, left.end >= plan.chunks.value, item_of_head(plan.item(left.item), shared_.head));
    }
  }

 private:
  /// k of the chunk.
  __device__ __forceinline__ void turn() const {
    shared_.raw_k().wait_full(at_);
    shared_.phases(0).wait_full(at_);
    shared_.scalars(0).wait_full(at_);
    shared_.keys(0).wait_empty(at_);
    turn_keys<T>(shared_, at_);
    hopper::fence_async_proxy();
    __syncwarp();
    if (ssd_hopper::group_thread() % 32 == 0) {
      hopper::barrier_arrive(shared_.keys(0).full(at_));
      hopper::barrier_arrive(shared_.raw_k().empty(at_));
      hopper::barrier_arrive(shared_.phases(0).empty(at_));
    }
  }
  /// The state that enters the next chunk.
  __device__ __forceinline__ void publish_next(const float (&state)[1][T::kStates / 2]) {
    state_at_ = at_;  // states are counted as chunks are: no register is left to count them by
    this->publish(state);
  }
  /// Adds the chunk to the state, half of its steps at a time: all of A at once has no registers.
  __device__ __forceinline__ void add_chunk(float (&state)[T::kStates / 2]) {
    using Io = typename T::Io;
    const ssd_hopper::ChunkScalars& scalars = shared_.scalars_of(0, at_);
    // By one load, so that all of it is there before the slot is released.
    const float4 of_chunk = *reinterpret_cast<const float4*>(&scalars.decay);
    float factor = of_chunk.x;
    if constexpr (T::kScaled) {
      factor *= of_chunk.y * unscale_[0];
      unscale_[0] = inverse_of_power(of_chunk.y);
    } else {
      unscale_[0] = of_chunk.z;
    }
    if (factor != 1.0F)
#pragma unroll
      for (float& value : state) value *= factor;
    shared_.x(0).wait_full(at_);
    shared_.wait_projections(at_);
    const std::uint64_t k = hopper::operand_descriptor(shared_.b_tile(at_), kTile);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t weighted[8];
      weigh_half(weighted, half, scalars);
      hopper::pin_registers(weighted);
      hopper::wgmma_fence();
#pragma unroll
      for (int i = 0; i < 2; ++i)
        hopper::wgmma<Io, hopper::Major::rows>(
            state, weighted + 4 * i, hopper::operand_step<hopper::Major::rows>(k, 2 * half + i, 0), true);
      hopper::wgmma_commit();
      if (half == 1) {  // not before: see add_stretch()
        hopper::barrier_arrive(shared_.scalars(0).empty(at_));
        ssd_hopper::warp_arrive(shared_.x(0).empty(at_), lane());
      }
      hopper::wgmma_wait<0>();
      hopper::pin_registers(state);
    }
  }
  /// V of 32 steps of the chunk times their weights, transposed: A of two products.
  __device__ __forceinline__ void weigh_half(std::uint32_t (&to)[8], int half,
                                             const ssd_hopper::ChunkScalars& scalars) const {
    using Io = typename T::Io;
    const int thread = ssd_hopper::group_thread();
    const std::uint32_t tile =
        shared_.x_tile(0, at_) + hopper::transposed_fragment_offset(thread / 32, thread % 32) + 4096 * half;
    const int at = thread % 4 * 8 + 4 * half;
    std::uint32_t weights[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      *reinterpret_cast<uint4*>(weights[i]) = *reinterpret_cast<const uint4*>(scalars.weights[i] + at);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      std::uint32_t x[4];
      load_matrices_transposed(x, tile + 2048 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[4 * j + i] = multiply_pairs<Io>(x[i], weights[0][2 * j + i / 2], weights[1][2 * j + i / 2]);
    }
  }
  /// Biases of k to shared memory.
  __device__ void stage(const Item& item) const {
    const int n = ssd_hopper::group_thread();
    const std::int64_t dstate = args_.ssd.in.dstate;
    const int head = item.first.head;
    group_barrier();  // the segment before is done
    if (n < T::kStates)
      shared_.key_biases()[place_of_key_bias(n)] =
          n < dstate && head >= 0 ? args_.rotation.B_bias[head * dstate + n] : 0.0F;
    group_barrier();
  }
};

/// The output warpgroup of a head: all chunks, with q in registers.
template <class T>
class HeadOutputs : ssd_hopper::OutputWarpgroup<T> {
  using Base = ssd_hopper::OutputWarpgroup<T>;
  using Io = typename T::Io;
  using Base::args_, Base::at_, Base::group_barrier, Base::lane, Base::shared_, Base::skip_;

 public:
  using Base::Base;

  __device__ void run() {
    const Plan& plan = args_.plan;
    for (int i = 0; i < plan.segments(blockIdx.x); ++i) {
      const Segment segment = plan.segment(blockIdx.x, i);
      stage(item_of_head(plan.item(segment.item), shared_.head), segment.end - segment.first);
      do {
        output();
        at_.advance();
      } while (at_.count != shared_.of_head().until);
    }
  }

 private:
  /// D of the head and biases of q to shared memory.
  __device__ void stage(const Item& item, int chunks) {
    const int n = ssd_hopper::group_lane();
    const std::int64_t dstate = args_.ssd.in.dstate;
    const int head = item.first.head;
    group_barrier();  // the segment before is done
    if (n == 0) {
      shared_.of_head().skip = args_.ssd.in.D != nullptr && head >= 0 ? args_.ssd.in.D[head] : 0.0F;
      shared_.of_head().until = at_.count + chunks;
    }
    if (n < T::kStates)
      shared_.query_biases()[place_of_query_bias(n)] =
          n < dstate && head >= 0 ? args_.rotation.C_bias[head * dstate + n] : 0.0F;
    group_barrier();
  }

  /// q times a tile of rows of N.
  __device__ __forceinline__ static void multiply(float (&to)[32], const std::uint32_t (&q)[T::kStates / 4],
                                                  std::uint32_t tile) {
    constexpr auto kAlong = hopper::Major::k;
    const std::uint64_t rows = hopper::operand_descriptor(tile, kTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < T::kStates / 16; ++k)
      hopper::wgmma<Io, kAlong>(to, q + 4 * k, hopper::operand_step<kAlong>(rows, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  __device__ static float slab_of(const float4& scales, int slab) {
    return slab < 2 ? (slab == 0 ? scales.x : scales.y) : (slab == 2 ? scales.z : scales.w);
  }

  /// One chunk of out.
  __device__ __forceinline__ void output() {
    std::uint32_t q[T::kStates / 4];
    shared_.raw_q().wait_full(at_);
    shared_.phases(0).wait_full(at_);
    shared_.scalars(0).wait_full(at_);
    turn_queries<T>(q, shared_, at_);
    hopper::pin_registers(q);
    __syncwarp();
    if (lane() == 0) {
      hopper::barrier_arrive(shared_.raw_q().empty(at_));
      hopper::barrier_arrive(shared_.phases(0).empty(at_));
    }
    const ssd_hopper::ChunkScalars& scalars = shared_.scalars_of(0, at_);
    float cb[32];
    float y[32];
    std::uint32_t m[16];
    shared_.wait_projections(at_);
    multiply(cb, q, shared_.b_tile(at_));
    const typename Base::LaneScalars lane_scalars = this->load_scalars(scalars);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(cb);
    shared_.release_projections(at_, lane());
    [[maybe_unused]] const float scale = this->mask(m, cb, lane_scalars);
    hopper::pin_registers(m);
    shared_.states(0).wait_full(at_);
    multiply(y, q, shared_.state_tile(0, at_));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    [[maybe_unused]] float4 state_scales;
    if constexpr (T::kScaled) state_scales = this->load_state_scales(shared_.state_scales(0, at_));
    if constexpr (!T::kScaled) ssd_hopper::warp_arrive(shared_.states(0).empty(at_), lane());
    // Again: no registers are left for them while M is made.
    const ssd_hopper::RowScalars* const rows =
        shared_.scalars_of(0, at_).rows + 16 * this->warp() + lane() / 4;
    const float carry[2] = {rows[0].carry, rows[8].carry};
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float factor = carry[i / 2 % 2];
      if constexpr (T::kScaled) factor *= scale * slab_of(state_scales, i / 8);
      y[i] *= factor;
    }

    shared_.x(0).wait_full(at_);
    const std::uint32_t gates = T::kGated ? this->gate_tile() : 0;
    const std::uint64_t x = hopper::operand_descriptor(shared_.x_tile(0, at_), kTile);
    hopper::pin_registers(y);
    hopper::pin_registers(m);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, hopper::Major::rows>(y, m + 4 * k,
                                             hopper::operand_step<hopper::Major::rows>(x, k, kTile), true);
    hopper::wgmma_commit();
    // Not before the products that take y: an arrival overtakes loads from shared memory whose values nothing has
    // used yet.
    hopper::barrier_arrive(shared_.scalars(0).empty(at_));
    if constexpr (T::kScaled) ssd_hopper::warp_arrive(shared_.states(0).empty(at_), lane());
    finish(y, gates, scale);
  }

  /// M·V is under way, and meanwhile the gates are computed. Then out, over z. `scale`: of y, in f16.
  __device__ __forceinline__ void finish(float (&y)[32], std::uint32_t gate_tile,
                                         [[maybe_unused]] float scale) {
    constexpr bool kGated = T::kGated;
    float gate[kGated ? 32 : 1];
    if constexpr (T::kScaled) {
      hopper::wgmma_wait<0>();
      hopper::pin_registers(y);
    }
    if constexpr (kGated) {
      std::uint32_t z[16];
      this->load_tile_pairs(z, gate_tile);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 pair = unpack_pair<Io>(z[i]);
        gate[2 * i] = fast_silu(pair.x);
        gate[2 * i + 1] = fast_silu(pair.y);
      }
      hopper::pin_registers(gate);
      // A branch: the compiler would wait for the products before the gates.
      shared_.gates(0).wait_full(at_);
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : y) value *= inverse_of_power(scale);
    if (args_.ssd.in.D != nullptr) {
      std::uint32_t x[16];
      this->load_tile_pairs(x, shared_.x_tile(0, at_) + this->fragment());
      skip_ = shared_.of_head().skip;
      this->add_skip(y, x);
      hopper::pin_registers(y);  // x is used before its slot is released
    }
    ssd_hopper::warp_arrive(shared_.x(0).empty(at_), lane());
    if constexpr (!kGated) gate_tile = this->gate_tile();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * j + 2 * i;
        if constexpr (kGated) {
          y[at] *= gate[at];
          y[at + 1] *= gate[at + 1];
        }
        out[i] = pack_pair<Io>(y[at], y[at + 1]);
      }
      hopper::store_matrices(gate_tile ^ j * 32, out[0], out[1], out[2], out[3]);
    }
    hopper::fence_async_proxy();
    ssd_hopper::warp_arrive(shared_.gates(0).done(at_), lane());
  }
};

/// By one warp: decays of a head's chunks, and the angles before them.
template <class T>
__device__ void write_scalars(const HopperArgs& args, const SharedMemory<T>& shared, int head, int lane) {
  ssd_hopper::ScalarWarp<T> scalars(args, shared, head, lane);
  AngleSums<T> angles(args, shared, head);
  typename SharedMemory<T>::Scalars::Position at;
  const Plan& plan = args.plan;
  for (int i = 0; i < plan.segments(blockIdx.x); ++i) {
    const Segment segment = plan.segment(blockIdx.x, i);
    scalars.start(segment);
    angles.start(plan.item(segment.item), segment.first);
#pragma unroll 1
    for (int chunks = segment.end - segment.first; chunks > 0; --chunks, at.advance()) {
      scalars.write_next(at);
      angles.write(at, chunks > 1);
      hopper::barrier_arrive(shared.scalars(head).full(at));
    }
    if (segment.end >= plan.chunks.value) angles.end(plan.item(segment.item));
  }
}

template <class T>
__device__ __forceinline__ void produce_heads(const HopperArgs& args, const SharedMemory<T>& shared,
                                              int thread, int heads) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  if (warp == 0) {
    if (lane == 0) TileLoader<T>(args, heads).run();
  } else if (warp == 3) {
    if (lane == 0) store_tiles<T>(args, shared, heads);
  } else if (warp <= heads) {
    write_scalars<T>(args, shared, warp - 1, lane);
  }
}

template <class T>
__global__ void __launch_bounds__(kRotatedThreads, 1)
    rotated_scan_kernel(const __grid_constant__ HopperArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using namespace ssd_hopper;
  using Head = HeadTraits<T>;
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  const int heads = args.plan.tiles_per_item;
  if (threadIdx.x == 0) SharedMemory<T>().init_barriers(heads);
  __syncthreads();
  hopper::wait_for_prerequisites();  // phases and weights
  if (group == 0) {
    warpgroup_reg_dealloc<mamba3_hopper::kProducerRegisters>();
    produce_heads<T>(args, SharedMemory<T>(), group_lane(), heads);
  } else if (group <= kMostHeads) {
    warpgroup_reg_alloc<mamba3_hopper::kStateRegisters>();
    if (group <= heads) HeadStates<Head>(args, SharedMemory<Head>(group - 1), group_lane()).run();
  } else {
    warpgroup_reg_alloc<mamba3_hopper::kOutputRegisters>();
    const int head = group - 1 - kMostHeads;
    if (head < heads) HeadOutputs<Head>(args, SharedMemory<Head>(head), head, group_lane()).run();
  }
#else
  __trap();
#endif
}

template <class Io, int kStates, bool kGated>
RotatedVariant rotated_variant_of() {
  using Rotated = BlockTraits<Io, kStates, kGated>;
  return {rotated_scan_kernel<Rotated>, kRotatedThreads, Rotated::Layout::kBytes};
}
template <class Io>
RotatedVariant rotated_scan_for(int states, bool gated) {
  if (states == 64) return gated ? rotated_variant_of<Io, 64, true>() : rotated_variant_of<Io, 64, false>();
  return gated ? rotated_variant_of<Io, 128, true>() : rotated_variant_of<Io, 128, false>();
}

}  // namespace ssmbench::mamba3_hopper
