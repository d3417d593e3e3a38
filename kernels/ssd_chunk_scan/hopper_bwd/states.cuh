#pragma once

// The states that enter all chunks, and the gradients of those that leave them, by the instructions of
// compute capability 9.0. What is computed is that of ssd_states_kernel (states.cuh):
//
//   state_after   = e^decay_last · state_before + Σ_t leave_t·Δ_t·x_t ⊗ B_t
//   dstate_before = e^decay_last · dstate_after + Σ_t enter_t·dy_t ⊗ C_t,   dy = dout·silu(z)
//
//   grid    one block per (batch, head); it walks the chunks one after the other
//   block   one warpgroup that has the state in registers, f32, 64 rows of P by N; two warps more that load
//           and store. Two blocks on a multiprocessor.
//   chunk   the state is rounded to shared memory, and stored as it lies there; left is weighted on its way
//           from shared memory to registers, transposed: A of the products. B is `right`, as TMA leaves it.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/walk.h"

namespace ssmbench::ssd_hopper_bwd {

inline constexpr int kWalkThreads = kGroupThreads + 64;

template <class T>
struct WalkLayout {
  static constexpr int kHalves = T::kStates / 64;
  static constexpr int kStages = T::kGated ? 2 : 3;
  static constexpr int kLoaded = (1 + T::kGated + kHalves) * kTile;
  static constexpr int kImages = kStages * kLoaded;  ///< two
  static constexpr int kStepRows = kImages + 2 * kHalves * kTile;
  static constexpr int kBarriers = kStepRows + kStages * kStepsBytes;
  static constexpr int kBytes = kBarriers + 128 + 1024;  // the start is not aligned to 1024
  static_assert(2 * (kBytes + 1024) <= 228 * 1024);
};

/// A block as one of its roles sees it. T::kGated: `gate` exists.
template <class T, Walk kWalk>
class WalkBlock {
  using Io = typename T::Io;
  using Layout = WalkLayout<T>;
  using Inputs = hopper::Ring<Layout::kStages>;
  using Images = hopper::Ring<2>;
  static constexpr bool kForward = kWalk == Walk::forward;
  static constexpr int kRegisters = T::kStates / 2;

 public:
  __device__ explicit WalkBlock(const WalkArgs& args) : args_(args) {
    const auto nheads = static_cast<int>(args.in.nheads);
    b_ = static_cast<int>(blockIdx.x) / nheads;
    head_ = static_cast<int>(blockIdx.x) - b_ * nheads;
  }

  /// By one thread.
  __device__ void init_barriers() const {
    inputs().init(1, kGroupThreads);  // each lane for what it read
    images().init(kWarpsOfGroup, 1);
    hopper::barrier_init_fence();
  }

  /// By one thread.
  __device__ void load() const {
    const int group = head_ / static_cast<int>(args_.in.heads_per_group);
    typename Inputs::Position at;
    for (int i = 0; i < args_.chunks; ++i, at.advance()) {
      inputs().wait_empty(at);
      const std::uint32_t full = inputs().full(at);
      hopper::barrier_arrive_expect(full, Layout::kLoaded + kStepsBytes);
      const int start = chunk_of(i) * kSteps;
      hopper::load_bytes(steps_address(at), args_.steps + row_of(i) * 4 * kSteps, kStepsBytes, full);
      const hopper::TileOrigin from{{0, head_, start, b_}};
      hopper::load_tile(left_tile(at), args_.left, from, full);
      if constexpr (T::kGated) hopper::load_tile(gate_tile(at), args_.gate, from, full);
#pragma unroll
      for (int half = 0; half < Layout::kHalves; ++half)
        hopper::load_tile(right_tile(at) + half * kTile, args_.right, {{64 * half, group, start, b_}}, full);
    }
  }

  /// By one thread.
  __device__ void store() const {
    constexpr int kBytes = Layout::kHalves * kTile;
    typename Images::Position at;
    for (int i = 0; i < args_.chunks; ++i, at.advance()) {
      images().wait_full(at);
      hopper::store_bytes(static_cast<unsigned char*>(args_.images) + row_of(i) * kBytes, image_tile(at),
                          kBytes);
      hopper::wait_stores_read();
      hopper::barrier_arrive(images().empty(at));
    }
  }

  /// By the warpgroup.
  __device__ void walk(int thread) const {
    float state[kRegisters];
    enter(state, thread);
    typename Inputs::Position at;
    typename Images::Position image_at;
    for (int i = 0; i < args_.chunks; ++i, at.advance(), image_at.advance()) {
      publish(state, thread, image_at);
      inputs().wait_full(at);
      const float(&steps)[4][kSteps] = steps_of(at);
      const float decay = steps[kStepEnter][kSteps - 1];
#pragma unroll
      for (float& value : state) value *= decay;
      std::uint32_t weighted[16];
      weigh(weighted, thread, at, steps);
      const std::uint64_t right = hopper::operand_descriptor(right_tile(at), kTile);
      hopper::pin_registers(state);
      hopper::pin_registers(weighted);
      hopper::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma<Io, hopper::Major::rows>(state, weighted + 4 * k,
                                               hopper::operand_step<hopper::Major::rows>(right, k, 0), true);
      hopper::wgmma_commit();
      hopper::wgmma_wait<0>();
      hopper::pin_registers(state);
      hopper::barrier_arrive(inputs().empty(at));
    }
    leave(state, thread);
  }

 private:
  __device__ std::uint32_t base() const {
    return (shared_address(dynamic_shared) + 1023) & ~1023U;
  }
  __device__ Inputs inputs() const {
    return {base() + Layout::kBarriers};
  }
  __device__ Images images() const {
    return {base() + Layout::kBarriers + Inputs::kBytes};
  }
  __device__ std::uint32_t left_tile(typename Inputs::Position at) const {
    return base() + at.slot * Layout::kLoaded;
  }
  __device__ std::uint32_t right_tile(typename Inputs::Position at) const {
    return left_tile(at) + kTile;
  }
  __device__ std::uint32_t gate_tile(typename Inputs::Position at) const {
    return right_tile(at) + Layout::kHalves * kTile;
  }
  __device__ std::uint32_t image_tile(typename Images::Position at) const {
    return base() + Layout::kImages + at.slot * Layout::kHalves * kTile;
  }
  __device__ std::uint32_t steps_address(typename Inputs::Position at) const {
    return base() + Layout::kStepRows + at.slot * kStepsBytes;
  }
  __device__ const float (&steps_of(typename Inputs::Position at) const)[4][kSteps] {
    const std::uint32_t offset = steps_address(at) - shared_address(dynamic_shared);
    return *reinterpret_cast<const float(*)[4][kSteps]>(dynamic_shared + offset);
  }

  __device__ int chunk_of(int i) const {
    return kForward ? i : args_.chunks - 1 - i;
  }
  __device__ std::int64_t row_of(int i) const {
    return (static_cast<std::int64_t>(b_) * args_.chunks + chunk_of(i)) * args_.in.nheads + head_;
  }

  __device__ __forceinline__ void publish(const float (&state)[kRegisters], int thread,
                                          typename Images::Position at) const {
    images().wait_empty(at);
    const std::uint32_t tile = image_tile(at) + hopper::fragment_offset(thread / 32, thread % 32);
#pragma unroll
    for (int j = 0; j < T::kStates / 16; ++j) {
      const float* from = state + 8 * j;
      hopper::store_matrices((tile ^ j % 4 * 32) + j / 4 * kTile, pack_pair<Io>(from[0], from[1]),
                             pack_pair<Io>(from[2], from[3]), pack_pair<Io>(from[4], from[5]),
                             pack_pair<Io>(from[6], from[7]));
    }
    hopper::fence_async_proxy();
    warp_arrive(images().full(at), thread % 32);
  }

  /// `left` of the chunk, gated, times the weights of its steps, transposed: A of the products.
  __device__ __forceinline__ void weigh(std::uint32_t (&to)[16], int thread, typename Inputs::Position at,
                                        const float (&steps)[4][kSteps]) const {
    const std::uint32_t offset = hopper::transposed_fragment_offset(thread / 32, thread % 32);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t left[4];
      std::uint32_t gate[4];
      load_matrices_transposed(left, left_tile(at) + offset + 2048 * k);
      if constexpr (T::kGated) load_matrices_transposed(gate, gate_tile(at) + offset + 2048 * k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = 16 * k + i / 2 * 8 + thread % 4 * 2;
        const auto pair_of = [&](int row) { return *reinterpret_cast<const float2*>(steps[row] + t); };
        float2 weight = pair_of(kForward ? kStepLeave : kStepEnter);
        if constexpr (kForward) {
          const float2 delta = pair_of(kStepDelta);
          weight = make_float2(delta.x * weight.x, delta.y * weight.y);
        }
        float2 value = unpack_pair<Io>(left[i]);
        if constexpr (T::kGated) {
          const float2 z = unpack_pair<Io>(gate[i]);
          value = make_float2(value.x * silu_approximate(z.x).value, value.y * silu_approximate(z.y).value);
        }
        to[4 * k + i] = pack_pair<Io>(value.x * weight.x, value.y * weight.y);
      }
    }
  }

  /// visit(where in a (B, H, P, N) tensor, a pair of values) for this thread's elements that exist. N is a
  /// multiple of 8.
  template <class Visit>
  __device__ void for_each_pair(float (&state)[kRegisters], int thread, const Visit& visit) const {
    const SsdInputs& in = args_.in;
    const int p = thread / 32 * 16 + thread % 32 / 4;
    const std::int64_t upper =
        ((static_cast<std::int64_t>(b_) * in.nheads + head_) * in.headdim + p) * in.dstate + thread % 4 * 2;
    const std::int64_t lower = upper + 8 * in.dstate;
#pragma unroll
    for (int j = 0; j < kRegisters / 4; ++j) {
      if (8 * j >= in.dstate) break;
      if (p < in.headdim) visit(upper + 8 * j, state[4 * j], state[4 * j + 1]);
      if (p + 8 < in.headdim) visit(lower + 8 * j, state[4 * j + 2], state[4 * j + 3]);
    }
  }

  __device__ void enter(float (&state)[kRegisters], int thread) const {
#pragma unroll
    for (float& value : state) value = 0.0F;
    if (args_.first == nullptr) return;
    for_each_pair(state, thread, [&](std::int64_t at, float& first, float& second) {
      const float2 pair = *reinterpret_cast<const float2*>(args_.first + at);
      first = pair.x;
      second = pair.y;
    });
  }

  __device__ void leave(float (&state)[kRegisters], int thread) const {
    if (args_.last == nullptr) return;
    for_each_pair(state, thread, [&](std::int64_t at, float first, float second) {
      *reinterpret_cast<float2*>(args_.last + at) = make_float2(first, second);
    });
  }

  const WalkArgs& args_;
  int b_, head_;
};

template <class T, Walk kWalk>
__global__ void __launch_bounds__(kWalkThreads, 2)
    ssd_hopper_states_kernel(const __grid_constant__ WalkArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const WalkBlock<T, kWalk> block(args);
  if (threadIdx.x == 0) block.init_barriers();
  __syncthreads();
  if (warp < kWarpsOfGroup)
    block.walk(static_cast<int>(threadIdx.x));
  else if (warp == kWarpsOfGroup) {
    if (threadIdx.x % 32 == 0) block.load();
  } else if (threadIdx.x % 32 == 0)
    block.store();
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper_bwd
