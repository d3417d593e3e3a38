#pragma once

// The state warpgroup of the fused MIMO scan. It holds a head's state in f32, 64 registers a thread, and
// takes it from chunk to chunk,
//
//   H ← rescale·H + (later ∘ x)ᵀ·k        A of the product from registers, k from shared memory
//
// publishes each state that enters a chunk, rounded, and while the products run it makes k of the next chunk
// of K, in place.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/multiply_pairs.cuh"
#include "kernels/mamba3/hopper/fused/turn.cuh"
#include "kernels/ssd_chunk_scan/scaled.cuh"

namespace ssmbench::mamba3_fused {

template <class T>
class StateWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  static constexpr int kRegisters = kStates / 2;

 public:
  __device__ StateWarpgroup(const FusedArgs& args, const Shared& shared, const Head& at, int thread)
      : args_(args), shared_(shared), at_(at), thread_(thread), turner_(shared, shared.k_bias(), thread) {}

  __device__ void run() {
    float state[kRegisters];
    enter(state);
    turn_keys();
    publish(state);
    for (int chunk = 0; has_chunk(args_, chunk); ++chunk) {
      const bool has_next = has_chunk(args_, chunk + 1);
      start_products(state);
      if (has_next) turn_keys();
      hopper::wgmma_wait<0>();
      hopper::pin_registers(state);
      warp_arrive(shared_.k().empty(k_at_), lane());
      k_at_.advance();
      if (has_next) publish(state);
    }
    leave(state);
  }

 private:
  __device__ int lane() const { return thread_ % 32; }

  /// k of the chunk after those that are made.
  __device__ __forceinline__ void turn_keys() {
    shared_.k().wait_full(turned_at_);
    shared_.made().wait_full(turns_at_);
    const std::uint32_t tile = shared_.k_tile(turned_at_);
    const std::uint32_t turns = shared_.turns(turns_at_);
    std::uint32_t low[4], high[4];
    turner_.load(low, high, 0, tile);
    // Fragments are loaded before those before them are stored.
    const auto turn = [&]<bool kTurned>(std::bool_constant<kTurned>, int i) {
      std::uint32_t next_low[4], next_high[4];
      turner_.load(next_low, next_high, min(i + 1, Turner<T>::kFragments - 1), tile);
      turner_.template turn<kTurned>(low, high, i, shared_, turns);
      const std::uint32_t to = turner_.address(tile, i);
      hopper::store_matrices(to, low[0], low[1], low[2], low[3]);
      hopper::store_matrices(to + kTile, high[0], high[1], high[2], high[3]);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        low[part] = next_low[part];
        high[part] = next_high[part];
      }
    };
    // Loops, since code that runs once a chunk is always to be fetched.
#pragma unroll 1
    for (int i = 0; i < Turner<T>::kTurnedFragments; ++i) turn(std::true_type(), i);
#pragma unroll 1
    for (int i = Turner<T>::kTurnedFragments; i < Turner<T>::kFragments; ++i) turn(std::false_type(), i);
    hopper::fence_async_proxy();
    warp_arrive(shared_.k().done(turned_at_), lane());
    turned_at_.advance();
    turns_at_.advance();
  }

  /// The chunk's products, whose k is made.
  __device__ __forceinline__ void start_products(float (&state)[kRegisters]) {
    const ChunkScalars& scalars = shared_.scalars(made_at_);
    scale_ = scalars.scale;
    const float rescale = scalars.rescale;
    if (rescale != 1.0F)
#pragma unroll
      for (float& value : state) value *= rescale;
    std::uint32_t weighted[16];
    weigh(weighted, shared_.x_tile(made_at_), scalars);
    hopper::pin_registers(weighted);
    hopper::pin_registers(state);
    // Other warps' k as well.
    shared_.k().wait_done(k_at_);
    const std::uint64_t k = hopper::operand_descriptor(shared_.k_tile(k_at_), kTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      hopper::wgmma<Io, hopper::Major::rows>(state, weighted + 4 * i,
                                             hopper::operand_step<hopper::Major::rows>(k, i, 0), true);
    hopper::wgmma_commit();
    // Not before: an arrival overtakes loads from shared memory whose values nothing has used yet.
    hopper::barrier_arrive(shared_.made().empty(made_at_));
    made_at_.advance();
  }

  /// x of the chunk times the weights of its steps, transposed: A of the products.
  __device__ __forceinline__ void weigh(std::uint32_t (&to)[16], std::uint32_t tile,
                                        const ChunkScalars& scalars) const {
    std::uint32_t weights[2][8];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      reinterpret_cast<uint4*>(weights[i / 2])[i % 2] =
          reinterpret_cast<const uint4*>(scalars.later[i / 2] + lane() % 4 / 2 * 8)[i % 2];
    const std::uint32_t transposed = hopper::transposed_fragment_offset(thread_ / 32, lane());
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t x[4];
      load_matrices_transposed(x, tile + transposed + 2048 * k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int of = 2 * k + i / 2;
        if constexpr (T::kScaled) {  // it is the product that f16 rounds
          const float weight = __uint_as_float(weights[0][of]);
          const float2 two = unpack_pair<Io>(x[i]);
          to[4 * k + i] = pack_pair<Io>(weight * two.x, weight * two.y);
        } else {
          to[4 * k + i] = multiply_pairs<Io>(x[i], weights[0][of], weights[1][of]);
        }
      }
    }
  }

  __device__ __forceinline__ void publish(const float (&state)[kRegisters]) {
    [[maybe_unused]] float scale = 1.0F;
    if constexpr (T::kScaled)  // before the wait, which is for outputs that wait for this state
      scale = scale_to(largest_of_lanes(largest_of(state)), kTileTarget).up;
    shared_.states().wait_empty(state_at_);
    if constexpr (T::kScaled)
      if (lane() == 0)
        shared_.state_scales(state_at_)[thread_ / 32] =
            inverse_of_power(scale) * scale_;  // of the true state
    const auto pack = [&](float first, float second) {
      if constexpr (T::kScaled) return pack_pair<Io>(scale * first, scale * second);
      return pack_pair<Io>(first, second);
    };
    const std::uint32_t tile = shared_.state_tile(state_at_);
#pragma unroll
    for (int j = 0; j < kStates / 16; ++j) {
      const float* from = state + 8 * j;
      hopper::store_matrices(turner_.address(tile, j % 4) + j / 4 * kTile, pack(from[0], from[1]),
                             pack(from[2], from[3]), pack(from[4], from[5]), pack(from[6], from[7]));
    }
    hopper::fence_async_proxy();
    warp_arrive(shared_.states().full(state_at_), lane());
    state_at_.advance();
  }

  /// visit(where in a (B, H, P, N) tensor, a pair of values) for this thread's elements that exist.
  template <class Visit>
  __device__ void for_each_pair(float (&state)[kRegisters], const Visit& visit) const {
    const Mamba3& scan = args_.in.scan;
    const int p = thread_ / 32 * 16 + lane() / 4;
    const std::int64_t row = (at_.batch * scan.nheads + at_.head) * scan.headdim + p;
    const std::int64_t upper = row * kStates + lane() % 4 * 2;
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
  Head at_;
  int thread_;
  Turner<T> turner_;
  float scale_ = 1.0F;                             ///< of the state: times this it is the true one
  typename Shared::K::Position k_at_, turned_at_;  ///< of products, and of what is turned a chunk ahead
  typename Shared::Made::Position made_at_, turns_at_;
  typename Shared::States::Position state_at_;
};

}  // namespace ssmbench::mamba3_fused
