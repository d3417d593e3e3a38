#pragma once

// The states that enter all chunks, and the gradients of those that leave them, by the instructions of
// compute capability 9.0. What is computed is that of ssd_states_kernel (states.cuh):
//
//   state_after   = e^decay_last · state_before + Σ_t leave_t·Δ_t·x_t ⊗ B_t
//   dstate_before = e^decay_last · dstate_after + Σ_t enter_t·dy_t ⊗ C_t,   dy = dout·silu(z)
//
//   grid    one block per walk, (batch, head) and part of its time; it walks the chunks one after the other.
//           Where there are few heads, time is in parts, and a launch before this one computes the states
//           that enter them (handed.h).
//   block   a warpgroup for each of its heads, one or two, that has the state in registers, f32, 64 rows of P by
//           N; warps more that load, and store each head's. Two heads share what is loaded of `right`, which is a
//           third of all traffic with the L2 cache. Two heads on a multiprocessor.
//   chunk   the state is rounded to shared memory, and stored as it lies there; left is weighted on its way
//           from shared memory to registers, transposed: A of the products. B is `right`, as TMA leaves it.
//           The next chunk's left is weighted while tensor cores work.
//
// In f16 the weights of a chunk are scaled by a power of two, and the state with them; its image has a power of
// two of its own.

#include <type_traits>

#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/walk.h"

namespace ssmbench::ssd_hopper_bwd {

/// Threads of a block with that many heads.
constexpr int walk_threads(int heads) {
  return heads * kGroupThreads + 32 + heads * 32;
}

template <class T, int kHeads>
struct WalkLayout {
  static constexpr int kHalves = T::kStates / 64;
  static constexpr int kStages = T::kGated && kHeads == 1 ? 2 : 3;
  static constexpr int kLeft = (1 + T::kGated) * kTile;  ///< of a head
  static constexpr int kLoaded = kHeads * kLeft + kHalves * kTile;
  static constexpr int kImages = kStages * kLoaded;  ///< two of each head
  static constexpr int kStepRows = kImages + kHeads * 2 * kHalves * kTile;
  static constexpr int kLargest = kStepRows + kStages * kHeads * kStepsBytes;  ///< of a state, by warp; two
  static constexpr int kBarriers = kLargest + kHeads * 2 * 4 * kWarpsOfGroup;
  static constexpr int kBytes = kBarriers + 256 + 1024;  // the start is not aligned to 1024
  static_assert(2 / kHeads * (kBytes + 1024) <= 228 * 1024);

  using Right = hopper::Ring<kStages>;
  using Weighed = float[32];  ///< of a chunk, before they are rounded
};

/// What a launch computes: the states before all chunks, or those that parts but the last leave.
enum class WalkPass { images, parts };

/// A block as one of its roles sees it. T::kGated: `gate` exists. LayoutOfBlock: where its memory lies, and who makes
/// the tiles of `right`.
template <class T, Walk kWalk, WalkPass kPass, int kHeads, class LayoutOfBlock = WalkLayout<T, kHeads>>
class WalkBlock {
 protected:
  using Io = typename T::Io;
  using Layout = LayoutOfBlock;
  using Left = hopper::Ring<Layout::kStages>;  ///< left, gate and the steps
  using Right = typename Layout::Right;
  using Images = hopper::Ring<2>;
  static constexpr bool kForward = kWalk == Walk::forward;
  static constexpr bool kImages = kPass == WalkPass::images;
  static constexpr int kRegisters = T::kStates / 2;
  using Weighed = typename Layout::Weighed;

  /// Of a chunk: its decay, and in f16 what its weights are scaled by.
  struct ChunkFactors {
    float decay, scale;
  };

 public:
  /// `index`: among the blocks of this walk. `which`: of the block's heads. By whole warps.
  __device__ WalkBlock(const WalkArgs& args, int index, int which) : args_(args), which_(which) {
    const auto nheads = static_cast<int>(args.in.nheads);
    const int of_heads = index / args.parts;
    const int part = index - of_heads * args.parts;
    const int row = of_heads * kHeads + which;
    index_ = row * args.parts + part;
    b_ = row / nheads;
    head_ = row - b_ * nheads;
    const int most = args.chunks - args.parts;  // no part is empty
    const int first = !kImages && kHeads == 1 && args.end_alone ? min(first_that_counts(), most) : 0;
    const int chunks = args.chunks - first;
    const int share = chunks / args.parts;
    const int rest = chunks - share * args.parts;
    begin_ = first + part * share + min(part, rest);
    end_ = begin_ + share + (part < rest ? 1 : 0);
  }

  /// Whether there is nothing to compute: nobody asks for what leaves last parts, unless there are no images.
  __device__ bool idle() const { return !kImages && end_ == args_.chunks && args_.images != nullptr; }

  /// By one thread.
  __device__ void init_barriers() const {
    left_ring().init(1, kHeads * kGroupThreads);  // each lane for what it read
    right_ring().init(1, kHeads * kWarpsOfGroup);
    for (int which = 0; which < kHeads; ++which) images(which).init(kWarpsOfGroup, 1);
    hopper::barrier_init_fence();
  }

  /// By one thread, of the block's first head. `left` is used a chunk ahead of `right`.
  __device__ void load() const {
    typename Left::Position left_at;
    typename Right::Position right_at;
    load_left(begin_, left_at);
    for (int i = begin_; i < end_; ++i) {
      load_right(i, right_at);
      if (i + 1 < end_) load_left(i + 1, left_at);
    }
  }

  /// By one thread.
  __device__ void store() const {
    constexpr int kBytes = Layout::kHalves * kTile;
    typename Images::Position at;
    for (int i = begin_; i < end_; ++i, at.advance()) {
      images(which_).wait_full(at);
      hopper::store_bytes(static_cast<unsigned char*>(args_.images) + row_of(i) * kBytes, image_tile(at),
                          kBytes);
      hopper::wait_stores_read();
      hopper::barrier_arrive(images(which_).empty(at));
    }
  }

  /// By the warpgroup.
  __device__ void walk(int thread) const {
    float state[kRegisters];
    enter(state, thread);
    float all_decay = 1.0F;
    float scale = 1.0F;  // of the state
    Weighed next;
    typename Left::Position left_at;
    typename Right::Position at;
    typename Images::Position image_at;
    ChunkFactors factors = weigh(next, thread, left_at);
    for (int i = begin_; i < end_; ++i) {
      if constexpr (kImages) publish(state, scale, row_of(i), thread, image_at);
      if constexpr (!kImages) all_decay *= factors.decay;
      float factor = factors.decay;
      if constexpr (T::kScaled) factor *= factors.scale * inverse_of_power(scale);
      scale = factors.scale;
#pragma unroll
      for (float& value : state) value *= factor;
      // Rounded here, not before the wait: ptxas takes no operands that are made while products are under way.
      std::uint32_t weighted[16];
#pragma unroll
      for (int k = 0; k < 16; ++k) weighted[k] = pack_pair<Io>(next[2 * k], next[2 * k + 1]);
      right_ring().wait_full(at);
      const std::uint64_t right = hopper::operand_descriptor(right_tile(at), kTile);
      hopper::pin_registers(state);
      hopper::pin_registers(weighted);
      hopper::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma<Io, hopper::Major::rows>(state, weighted + 4 * k,
                                               hopper::operand_step<hopper::Major::rows>(right, k, 0), true);
      hopper::wgmma_commit();
      // Not in weigh(): an arrival overtakes loads from shared memory whose values nothing has used yet, and the
      // copy engine would write over them. Products have used all of them.
      hopper::barrier_arrive(left_ring().empty(left_at));
      left_at.advance();
      if (i + 1 < end_) factors = weigh(next, thread, left_at);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(state);
      warp_arrive(right_ring().empty(at), thread % 32);
      at.advance();
      image_at.advance();
    }
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : state) value *= inverse_of_power(scale);
    if constexpr (kImages)
      leave(state, thread);
    else
      hand_over(state, thread, all_decay);
  }

 protected:
  __device__ std::uint32_t base() const {
    return (shared_address(dynamic_shared) + 1023) & ~1023U;
  }
  __device__ Left left_ring() const {
    return {base() + Layout::kBarriers};
  }
  __device__ Right right_ring() const {
    return {base() + Layout::kBarriers + Left::kBytes};
  }
  /// Of a head of the block.
  __device__ Images images(int which) const {
    return {base() + Layout::kBarriers + Left::kBytes + Right::kBytes +
            static_cast<std::uint32_t>(which) * Images::kBytes};
  }
  __device__ std::uint32_t left_tile(typename Left::Position at, int which) const {
    return base() + at.slot * Layout::kLoaded + which * Layout::kLeft;
  }
  __device__ std::uint32_t right_tile(typename Right::Position at) const {
    return base() + at.slot * Layout::kLoaded + kHeads * Layout::kLeft;
  }
  __device__ std::uint32_t gate_tile(typename Left::Position at, int which) const {
    return left_tile(at, which) + kTile;
  }
  __device__ std::uint32_t image_tile(typename Images::Position at) const {
    return base() + Layout::kImages + (which_ * 2 + at.slot) * Layout::kHalves * kTile;
  }
  __device__ std::uint32_t steps_address(typename Left::Position at, int which) const {
    return base() + Layout::kStepRows + (at.slot * kHeads + which) * kStepsBytes;
  }
  __device__ const float (&steps_of(typename Left::Position at) const)[4][kSteps] {
    const std::uint32_t offset = steps_address(at, which_) - shared_address(dynamic_shared);
    return *reinterpret_cast<const float(*)[4][kSteps]>(dynamic_shared + offset);
  }

  /// The last chunk of the walk over which, together with all that follow, the decay is 0: what enters it
  /// does not reach the walk's end. 0 where there is none, and where states may grow.
  __device__ int first_that_counts() const {
    const SsdInputs& in = args_.in;
    if (!(in.A[head_] <= 0.0F) || in.dt_low < 0.0F) return 0;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float product = 1.0F;
    for (int end = args_.chunks; end > 0; end -= 32) {  // lane 0 has the last one
      const int i = end - 1 - lane;
      float decay = i < 0 ? 1.0F : args_.steps[(row_of(i) * 4 + kStepEnter) * kSteps + kSteps - 1];
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const float after = __shfl_up_sync(~0U, decay, distance);
        if (lane >= distance) decay *= after;
      }
      const unsigned zeros = __ballot_sync(~0U, product * decay == 0.0F);
      if (zeros != 0) return end - __ffs(static_cast<int>(zeros));
      product *= __shfl_sync(~0U, decay, 31);
    }
    return 0;
  }
  __device__ int chunk_of(int i) const {
    return kForward ? i : args_.chunks - 1 - i;
  }
  __device__ std::int64_t row_of(int i) const {
    return (static_cast<std::int64_t>(b_) * args_.chunks + chunk_of(i)) * args_.in.nheads + head_;
  }

  /// Of all warps. `slot`: 0 or 1 in turn.
  __device__ __forceinline__ float largest_of_state(const float (&state)[kRegisters], int thread,
                                                    std::uint32_t slot) const {
    const float largest = largest_of_lanes(largest_of(state));
    const std::uint32_t offset = base() + Layout::kLargest - shared_address(dynamic_shared);
    auto* const of_warps =
        reinterpret_cast<float*>(dynamic_shared + offset) + (which_ * 2 + slot) * kWarpsOfGroup;
    if (thread % 32 == 0) of_warps[thread / 32] = largest;
    asm volatile("bar.sync %0, 128;\n" ::"r"(1 + which_) : "memory");  // of this warpgroup's threads
    const float4 all = *reinterpret_cast<const float4*>(of_warps);
    return fmaxf(fmaxf(all.x, all.y), fmaxf(all.z, all.w));
  }

  /// The state as a chunk's image. It is scaled by `scale`.
  __device__ __forceinline__ void publish(const float (&state)[kRegisters], [[maybe_unused]] float scale,
                                          [[maybe_unused]] std::int64_t row, int thread,
                                          typename Images::Position at) const {
    [[maybe_unused]] float up = 1.0F;
    if constexpr (T::kScaled) {
      const SsdScale of_image = scale_to(largest_of_state(state, thread, at.slot), kTileTarget);
      up = of_image.up;
      if (thread == 0)
        args_.unscales[row * Layout::kHalves * kUnscales] = of_image.down * inverse_of_power(scale);
    }
    images(which_).wait_empty(at);
    const auto pack = [&](const float* from) {
      if constexpr (T::kScaled) return pack_pair<Io>(up * from[0], up * from[1]);
      return pack_pair<Io>(from[0], from[1]);
    };
    const std::uint32_t tile = image_tile(at) + hopper::fragment_offset(thread / 32, thread % 32);
#pragma unroll
    for (int j = 0; j < T::kStates / 16; ++j) {
      const float* from = state + 8 * j;
      hopper::store_matrices((tile ^ j % 4 * 32) + j / 4 * kTile, pack(from), pack(from + 2), pack(from + 4),
                             pack(from + 6));
    }
    hopper::fence_async_proxy();
    warp_arrive(images(which_).full(at), thread % 32);
  }

  __device__ void load_left(int i, typename Left::Position& at) const {
    left_ring().wait_empty(at);
    const std::uint32_t full = left_ring().full(at);
    hopper::barrier_arrive_expect(full, kHeads * (Layout::kLeft + kStepsBytes));
#pragma unroll
    for (int which = 0; which < kHeads; ++which) {
      hopper::load_bytes(steps_address(at, which), args_.steps + (row_of(i) + which) * 4 * kSteps,
                         kStepsBytes, full);
      const hopper::TileOrigin from{{0, head_ + which, chunk_of(i) * kSteps, b_}};
      hopper::load_tile(left_tile(at, which), args_.left, from, full);
      if constexpr (T::kGated) hopper::load_tile(gate_tile(at, which), args_.gate, from, full);
    }
    at.advance();
  }
  __device__ void load_right(int i, typename Right::Position& at) const {
    const int group = head_ / static_cast<int>(args_.in.heads_per_group);
    right_ring().wait_empty(at);
    const std::uint32_t full = right_ring().full(at);
    hopper::barrier_arrive_expect(full, Layout::kHalves * kTile);
#pragma unroll
    for (int half = 0; half < Layout::kHalves; ++half)
      hopper::load_tile(right_tile(at) + half * kTile, args_.right,
                        {{64 * half, group, chunk_of(i) * kSteps, b_}}, full);
    at.advance();
  }

  /// `left` of the chunk, gated, times the weights of its steps, transposed: A of the products.
  __device__ __forceinline__ ChunkFactors weigh(Weighed& to, int thread, typename Left::Position at) const {
    left_ring().wait_full(at);
    const float(&steps)[4][kSteps] = steps_of(at);
    [[maybe_unused]] float scale = 1.0F;
    if constexpr (T::kScaled) {
      const auto weight = [&](int t) {
        return kForward ? steps[kStepDelta][t] * steps[kStepLeave][t] : steps[kStepEnter][t];
      };
      scale = scale_of_lanes(fmaxf(weight(thread % 32), weight(thread % 32 + 32)), kWeightTarget);
    }
    const std::uint32_t offset = hopper::transposed_fragment_offset(thread / 32, thread % 32);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t left[4];
      std::uint32_t gate[4];
      load_matrices_transposed(left, left_tile(at, which_) + offset + 2048 * k);
      if constexpr (T::kGated) load_matrices_transposed(gate, gate_tile(at, which_) + offset + 2048 * k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = 16 * k + i / 2 * 8 + thread % 4 * 2;
        const auto pair_of = [&](int row) { return *reinterpret_cast<const float2*>(steps[row] + t); };
        float2 weight = pair_of(kForward ? kStepLeave : kStepEnter);
        if constexpr (kForward) {
          const float2 delta = pair_of(kStepDelta);
          weight = make_float2(delta.x * weight.x, delta.y * weight.y);
        }
        if constexpr (T::kScaled) weight = make_float2(scale * weight.x, scale * weight.y);
        float2 value = unpack_pair<Io>(left[i]);
        if constexpr (T::kGated) {
          const float2 z = unpack_pair<Io>(gate[i]);
          value = make_float2(value.x * silu_approximate(z.x).value, value.y * silu_approximate(z.y).value);
        }
        value = make_float2(value.x * weight.x, value.y * weight.y);
        const int pair = 4 * k + i;
        if constexpr (std::is_same_v<Weighed, std::uint32_t[16]>) {
          to[pair] = pack_pair<Io>(value.x, value.y);
        } else {
          to[2 * pair] = value.x;
          to[2 * pair + 1] = value.y;
        }
      }
    }
    return {steps[kStepEnter][kSteps - 1], scale};
  }

  /// visit(where in a (B, H, P, N) tensor, a pair of values) for this thread's elements that exist. N is a
  /// multiple of 8. `row`: of (b, head).
  template <class Visit>
  __device__ void for_each_pair(float (&state)[kRegisters], int thread, std::int64_t row,
                                const Visit& visit) const {
    const SsdInputs& in = args_.in;
    const int p = thread / 32 * 16 + thread % 32 / 4;
    const std::int64_t upper = (row * in.headdim + p) * in.dstate + thread % 4 * 2;
    const std::int64_t lower = upper + 8 * in.dstate;
#pragma unroll
    for (int j = 0; j < kRegisters / 4; ++j) {
      if (8 * j >= in.dstate) break;
      if (p < in.headdim) visit(upper + 8 * j, state[4 * j], state[4 * j + 1]);
      if (p + 8 < in.headdim) visit(lower + 8 * j, state[4 * j + 2], state[4 * j + 3]);
    }
  }

  __device__ void enter(float (&state)[kRegisters], int thread) const {
    if (kImages && begin_ > 0) return take_over(state, thread);
    clear(state);
    if (args_.first == nullptr || begin_ > 0) return;
    start(state, thread, state_row());
  }
  __device__ void leave(float (&state)[kRegisters], int thread) const {
    if (args_.last == nullptr || end_ < args_.chunks) return;
    finish(state, thread, state_row());
  }

  __device__ std::int64_t state_row() const {
    return static_cast<std::int64_t>(b_) * args_.in.nheads + head_;
  }
  __device__ static void clear(float (&state)[kRegisters]) {
#pragma unroll
    for (float& value : state) value = 0.0F;
  }
  /// What the part before has left.
  __device__ void take_over(float (&state)[kRegisters], int thread) const {
    const float* from = handed(index_ - 1) + thread;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) state[i] = from[i * kGroupThreads];
  }
  /// The state that a walk starts from, which is there, and the one that it ends with.
  __device__ void start(float (&state)[kRegisters], int thread, std::int64_t row) const {
    for_each_pair(state, thread, row, [&](std::int64_t at, float& first, float& second) {
      const float2 pair = *reinterpret_cast<const float2*>(args_.first + at);
      first = pair.x;
      second = pair.y;
    });
  }
  __device__ void finish(float (&state)[kRegisters], int thread, std::int64_t row) const {
    for_each_pair(state, thread, row, [&](std::int64_t at, float first, float second) {
      *reinterpret_cast<float2*>(args_.last + at) = make_float2(first, second);
    });
  }

  __device__ float* handed(int index) const {
    return args_.handed.states + static_cast<std::int64_t>(index) * kRegisters * kGroupThreads;
  }
  __device__ void hand_over(const float (&state)[kRegisters], int thread, float decay) const {
    float* to = handed(index_) + thread;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) to[i * kGroupThreads] = state[i];
    if (thread == 0) args_.handed.decays[index_] = decay;
  }

  const WalkArgs& args_;
  int which_;  ///< of the block's heads
  int index_;  ///< of the head's part
  int b_, head_;
  int begin_, end_;  ///< chunks of the part, in the order of the walk
};

template <class T, Walk kWalk, WalkPass kPass, int kHeads>
__device__ __forceinline__ void walk_part(const WalkArgs& args, int index) {
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  constexpr int kLoader = kHeads * kWarpsOfGroup;
  int which = 0;
  if constexpr (kHeads > 1) which = warp < kLoader ? warp / kWarpsOfGroup : max(0, warp - kLoader - 1);
  const WalkBlock<T, kWalk, kPass, kHeads> block(args, index, which);
  if (block.idle()) return;
  if (threadIdx.x == 0) block.init_barriers();
  __syncthreads();
  if (warp < kLoader)
    block.walk(static_cast<int>(threadIdx.x) % kGroupThreads);
  else if (warp == kLoader) {
    if (threadIdx.x % 32 == 0) block.load();
  } else if (kPass == WalkPass::images && threadIdx.x % 32 == 0)
    block.store();
}

/// Both walks, the longer one first.
template <class Io, int kStates, bool kGated, WalkPass kPass, int kHeads>
__global__ void __launch_bounds__(walk_threads(kHeads), 2 / kHeads)
    ssd_hopper_states_kernel(const __grid_constant__ WalkArgs forward,
                             const __grid_constant__ WalkArgs backward) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const auto blocks = static_cast<int>(backward.in.batch * backward.in.nheads) / kHeads * backward.parts;
  const auto block = static_cast<int>(blockIdx.x);
  if (block < blocks)
    walk_part<Traits<Io, kStates, kGated>, Walk::backward, kPass, kHeads>(backward, block);
  else
    walk_part<Traits<Io, kStates, false>, Walk::forward, kPass, kHeads>(forward, block - blocks);
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper_bwd
