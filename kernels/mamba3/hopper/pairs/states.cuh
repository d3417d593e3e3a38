#pragma once

// The state warpgroup of a head, in the SISO scan of two. It makes k of the group's K, holds the state in
// f32, 64 registers a thread, and takes it from chunk to chunk,
//
//   H ← rescale·H + (weight ∘ V)ᵀ·k        A of the product from registers, k from shared memory
//
// and publishes each state that enters a chunk to the head's outputs, in the io dtype.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/multiply_pairs.cuh"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/pairs/turn.cuh"
#include "kernels/ssd_chunk_scan/scaled.cuh"

namespace ssmbench::mamba3_pairs {

template <class T>
class StateWarpgroup {
  using Io = typename T::Io;
  static constexpr int kRegisters = T::kStates / 2;

 public:
  __device__ StateWarpgroup(const HopperArgs& args, int head) : args_(args), head_(head) {}

  __device__ void run() {
    float state[kRegisters];
    const Plan& plan = args_.plan;
    for (int i = 0; i < plan.segments(blockIdx.x); ++i) {
      const Segment segment = plan.segment(blockIdx.x, i);
      const Item item = plan.item(segment.item);
      stage(item.tile(head_), segment.end - segment.first);
      enter(state, item);
#pragma unroll 1
      do {
        publish(state);
        turn();
        add_chunk(state);
        warp_arrive(shared_.keys(head_).empty(at_), lane());
        at_.advance();
      } while (at_.count != shared_.of_head(head_).state_until);
      leave(state, plan.item(plan.segment(blockIdx.x, i).item));
    }
  }

 private:
  __device__ static int lane() {
    return group_thread() % 32;
  }
  __device__ void barrier() const {
    warpgroup_barrier(1 + head_);
  }

  /// k of the chunk.
  __device__ __forceinline__ void turn() const {
    shared_.raw_k().wait_full(at_);
    shared_.phases(head_).wait_full(at_);
    shared_.scalars(head_).wait_full(at_);
    shared_.keys(head_).wait_empty(at_);
    turn_keys<T>(shared_, head_, at_);
    hopper::fence_async_proxy();
    __syncwarp();
    if (lane() == 0) {
      hopper::barrier_arrive(shared_.keys(head_).full(at_));
      hopper::barrier_arrive(shared_.raw_k().empty(at_));
      hopper::barrier_arrive(shared_.phases(head_).empty(at_));
    }
  }

  /// Adds the chunk to the state, half of its steps at a time: all of A at once has no registers.
  __device__ __forceinline__ void add_chunk(float (&state)[kRegisters]) {
    const HeadScalars& scalars = shared_.scalars_of(head_, at_);
    // By one load, so that both are there before the slot is released.
    const float2 of_chunk = *reinterpret_cast<const float2*>(&scalars.rescale);
    scale_ = of_chunk.y;
    if (of_chunk.x != 1.0F)
#pragma unroll
      for (float& value : state) value *= of_chunk.x;
    shared_.x(head_).wait_full(at_);
    shared_.keys(head_).wait_full(at_);
    const std::uint64_t k = hopper::operand_descriptor(shared_.key_tile(head_), kTile);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t weighted[8];
      weigh(weighted, half, scalars);
      hopper::pin_registers(weighted);
      hopper::wgmma_fence();
#pragma unroll
      for (int i = 0; i < 2; ++i)
        hopper::wgmma<Io, hopper::Major::rows>(
            state, weighted + 4 * i, hopper::operand_step<hopper::Major::rows>(k, 2 * half + i, 0), true);
      hopper::wgmma_commit();
      // Not with the first half: an arrival overtakes loads from shared memory whose values nothing has used.
      if (half == 1) {
        hopper::barrier_arrive(shared_.scalars(head_).empty(at_));
        warp_arrive(shared_.x(head_).empty(at_), lane());
      }
      hopper::wgmma_wait<0>();
      hopper::pin_registers(state);
    }
  }

  /// V of 32 steps of the chunk times their weights, transposed: A of two products.
  __device__ __forceinline__ void weigh(std::uint32_t (&to)[8], int half, const HeadScalars& scalars) const {
    const int thread = group_thread();
    const std::uint32_t tile = shared_.x_tile(head_, at_) +
                               hopper::transposed_fragment_offset(thread / 32, thread % 32) + 4096 * half;
    const int at = thread % 4 * 8 + 4 * half;
    std::uint32_t weights[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      *reinterpret_cast<uint4*>(weights[i]) = *reinterpret_cast<const uint4*>(scalars.weights[i] + at);
    [[maybe_unused]] std::uint32_t powers[4];
    if constexpr (T::kScaled)
      *reinterpret_cast<uint4*>(powers) = *reinterpret_cast<const uint4*>(scalars.weight_powers + at);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      std::uint32_t x[4];
      load_matrices_transposed(x, tile + 2048 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int of = 2 * j + i / 2;
        to[4 * j + i] = multiply_pairs<Io>(x[i], weights[0][of], weights[1][of]);
        if constexpr (T::kScaled) to[4 * j + i] = multiply_pairs<Io>(to[4 * j + i], powers[of]);
      }
    }
  }

  /// The state that enters the next chunk.
  __device__ __forceinline__ void publish(const float (&state)[kRegisters]) const {
    const int thread = group_thread();
    const std::uint32_t fragment = hopper::fragment_offset(thread / 32, thread % 32);
    [[maybe_unused]] float scale = 1.0F;
    if constexpr (T::kScaled)  // before the wait, which is for outputs that wait for this state
      scale = scale_to(largest_of_lanes(largest_of(state)), kTileTarget).up;
    shared_.states(head_).wait_empty(at_);
    if constexpr (T::kScaled)
      if (thread % 32 == 0)
        shared_.state_scales(head_, at_)[thread / 32] =
            inverse_of_power(scale) * scale_;  // of the true state
    const auto pack = [&](const float* from) {
      if constexpr (T::kScaled) return pack_pair<Io>(scale * from[0], scale * from[1]);
      return pack_pair<Io>(from[0], from[1]);
    };
    const std::uint32_t tile = shared_.state_tile(head_, at_);
#pragma unroll
    for (int j = 0; j < T::kStates / 16; ++j) {
      const float* from = state + 8 * j;
      hopper::store_matrices(tile + j / 4 * kTile + (fragment ^ j % 4 * 32), pack(from), pack(from + 2),
                             pack(from + 4), pack(from + 6));
    }
    hopper::fence_async_proxy();
    warp_arrive(shared_.states(head_).full(at_), lane());
  }

  /// Biases of k to shared memory, and where the segment ends.
  __device__ void stage(const RowTile& tile, int chunks) const {
    const int n = group_thread();
    const std::int64_t dstate = args_.ssd.in.dstate;
    barrier();  // the segment before is done
    if (n == 0) shared_.of_head(head_).state_until = at_.count + chunks;
    if (n < T::kStates)
      shared_.key_biases(head_)[index_of_key_bias(n)] =
          n < dstate && tile.head >= 0 ? args_.rotation.B_bias[tile.head * dstate + n] : 0.0F;
    barrier();
  }

  /// visit(where in a (B, H, P, N) tensor, a pair of values) for this thread's elements of the state that
  /// exist. N is a multiple of 8.
  template <class Visit>
  __device__ void for_each_pair(float (&state)[kRegisters], const Item& item, const Visit& visit) const {
    const auto& in = args_.ssd.in;
    const RowTile tile = item.tile(head_);
    if (tile.head < 0) return;
    const int p = tile.row + group_thread() / 32 * 16 + lane() / 4;
    const int states = static_cast<int>(in.dstate);
    const std::int64_t upper = ((item.b * in.nheads + tile.head) * in.headdim + p) * in.dstate;
    const std::int64_t lower = upper + 8 * in.dstate;
#pragma unroll
    for (int j = 0; j < kRegisters / 4; ++j) {
      const int n = state_of_column(j, lane() % 4);
      if (n >= states) continue;
      if (p < in.headdim) visit(upper + n, state[4 * j], state[4 * j + 1]);
      if (p + 8 < in.headdim) visit(lower + n, state[4 * j + 2], state[4 * j + 3]);
    }
  }

  __device__ void enter(float (&state)[kRegisters], const Item& item) {
    scale_ = 1.0F;
#pragma unroll
    for (float& value : state) value = 0.0F;
    if (args_.ssd.in.initial_states == nullptr) return;
    for_each_pair(state, item, [&](std::int64_t at, float& first, float& second) {
      const float2 pair = *reinterpret_cast<const float2*>(args_.ssd.in.initial_floats() + at);
      first = pair.x;
      second = pair.y;
    });
  }
  __device__ void leave(float (&state)[kRegisters], const Item& item) const {
    if (args_.ssd.final_states == nullptr) return;
    for_each_pair(state, item, [&](std::int64_t at, float first, float second) {
      *reinterpret_cast<float2*>(args_.ssd.final_floats() + at) =
          make_float2(scale_ * first, scale_ * second);
    });
  }

  const HopperArgs& args_;
  SharedMemory<T> shared_;
  int head_;
  float scale_ = 1.0F;  ///< of the state: times this it is the true one
  ChunkCount at_;
};

}  // namespace ssmbench::mamba3_pairs
