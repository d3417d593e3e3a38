#pragma once

// The state warpgroup of cuda-hopper: it holds the states of an item's heads in registers, 64 rows of P by N
// each, takes them from chunk to chunk,
//
//   H ← decay·H + (Δ·decay-to-the-end·x)ᵀ · B        A of the product from registers, B from shared memory
//
// and publishes each state that enters a chunk to the output warpgroups, in the io dtype, one chunk ahead. In
// the pass of states there are no outputs, and what leaves the segment is handed on (handed.h).
//
// A chunk of a packed sequence with steps whose states are wanted is one of several stretches, each up to
// such a step, with weights of its own: Δ·decay to the stretch's end, from the sums that the scalar warps
// left.
//
// In f16 the weights are scaled by a power of two in each chunk, and the state with them; when it is published,
// each warp moves its 16 rows into the range of f16. Where weights of a chunk are far apart, x is multiplied in two
// steps, with what a weight is in 1/2 … 1 and with a power of two: it is the product that f16 rounds.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/multiply_pairs.cuh"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/ssd_chunk_scan/hopper/scalars.cuh"

namespace ssmbench::ssd_hopper {

template <class T>
class StateWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  static constexpr int kHalves = T::Layout::kHalves;
  static constexpr int kRegisters = T::kStates / 2;  // of a state, a thread
  static constexpr int kAllRegisters = T::kHeads * kRegisters;
  static constexpr int kProduct = kRegisters < 64 ? kRegisters : 64;  // of a product: up to 128 columns
  static constexpr bool kOutputs = T::kPass == Pass::outputs;

 public:
  __device__ StateWarpgroup(const typename T::Args& args, const Shared& shared, int thread)
      : args_(args),
        plan_(args.plan),
        shared_(shared),
        thread_(thread),
        transposed_(hopper::transposed_fragment_offset(thread / 32, thread % 32)) {
    for (float& decay : decay_) decay = 1.0F;
  }

  __device__ void run() {
    float state[T::kHeads][kRegisters];
    for (SegmentsOf<T> segments(args_); !segments.done(); segments.advance()) {
      const Segment segment = segments.segment();
      const Item item = segments.item(segment);
      if constexpr (T::kStops) find_stop(segments, segment);
      enter(state, segment, item);
      if constexpr (kOutputs) publish(state);
      for (int chunk = segment.first; chunk < segment.end; ++chunk) {
        update(state, segments, chunk);
        if constexpr (kOutputs)
          if (chunk + 1 < segment.end) publish(state);
      }
      leave(state, segments.ends(segment), item);
    }
  }

 private:
  __device__ int lane() const { return thread_ % 32; }

  /// One chunk, of packed sequences in the stretches between the steps whose states are wanted.
  __device__ __forceinline__ void update(float (&state)[T::kHeads][kRegisters],
                                         [[maybe_unused]] const SegmentsOf<T>& segments,
                                         [[maybe_unused]] int chunk) {
    if constexpr (!T::kStops) {
      add_stretch(state, true);
    } else {
      int from = 0;
      do {
        const int end = min(stop_row_ - chunk * kSteps + 1, kSteps);
        if (end - from < kSteps) weigh_stretch(from, end);
        add_stretch(state, end == kSteps);
        if (chunk * kSteps + end > stop_row_) store_stop(state, segments);
        from = end;
      } while (from < kSteps);
    }
    shared_.release_projections(at_, lane());
    at_.advance();
  }

  /// The chunk's weights become those of its rows from … end − 1 for the state after these; its decay too.
  __device__ __forceinline__ void weigh_stretch(int from, int end) const {
    group_barrier();  // the stretch before is done with them
    const int thread = group_thread();
    const int head = thread / 32;
    if (head < T::kHeads) {
      shared_.scalars(head).wait_full(at_);
      ChunkScalars& scalars = shared_.scalars_of(head, at_);
      const int step = 2 * (thread % 32);
      const float sum = scalars.rows[end - 1].sum;
      const float2 diagonal =
          *reinterpret_cast<const float2*>(scalars.diagonal + step / 16 * 16 + slot_of_step(step % 16));
      const auto weight = [&](int of, float own) {
        return from <= of && of < end ? exp2_approximate(sum - own) : 0.0F;
      };
      write_weights<T>(scalars, make_float2(weight(step, diagonal.x), weight(step + 1, diagonal.y)),
                       step / 2);
      if (step == 0) scalars.decay = exp2_approximate(from == 0 ? sum : sum - scalars.rows[from - 1].sum);
    }
    group_barrier();
  }

  /// All heads' products are under way together. `last`: of the chunk.
  __device__ __forceinline__ void add_stretch(float (&state)[T::kHeads][kRegisters], bool last) {
    std::uint32_t weighted[T::kHeads][16];
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
      shared_.scalars(head).wait_full(at_);
      const ChunkScalars& scalars = shared_.scalars_of(head, at_);
      if constexpr (!kOutputs) decay_[head] *= scalars.decay;
      float factor = scalars.decay;
      if constexpr (T::kScaled) {
        factor *= scalars.weight_scale * unscale_[head];
        unscale_[head] = inverse_of_power(scalars.weight_scale);
      }
#pragma unroll
      for (float& value : state[head]) value *= factor;
      shared_.x(head).wait_full(at_);
      weigh(weighted[head], shared_.x_tile(head, at_), scalars);
      hopper::pin_registers(weighted[head]);
    }
    shared_.wait_projections(at_);
    const std::uint64_t b = hopper::operand_descriptor(shared_.b_tile(at_), kTile);
    if constexpr (T::kStops)  // or halves of 256 states are scaled between the products
      for (auto& of_head : state) hopper::pin_registers(of_head);
    hopper::wgmma_fence();
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head)
#pragma unroll
      for (int at = 0; at < kRegisters; at += kProduct)
#pragma unroll
        for (int k = 0; k < 4; ++k)
          hopper::wgmma<Io, hopper::Major::rows>(
              reinterpret_cast<float(&)[kProduct]>(state[head][at]), weighted[head] + 4 * k,
              hopper::operand_step<hopper::Major::rows>(b, k, 0) + at / 32 * (kTile >> 4), true);
    hopper::wgmma_commit();
    // Not before: an arrival overtakes loads from shared memory whose values nothing has used yet.
    if (last) {
#pragma unroll
      for (int head = 0; head < T::kHeads; ++head) {
        hopper::barrier_arrive(shared_.scalars(head).empty(at_));
        warp_arrive(shared_.x(head).empty(at_), lane());
      }
    }
    hopper::wgmma_wait<0>();
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) hopper::pin_registers(state[head]);
  }

  /// x of the chunk times the weights of its steps, transposed: A of the products.
  __device__ __forceinline__ void weigh(std::uint32_t (&to)[16], std::uint32_t tile,
                                        const ChunkScalars& scalars) const {
    const int column = (T::kStops ? group_thread() : lane()) % 4;  // again, as publish() does
    std::uint32_t weights[2][8];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      reinterpret_cast<uint4*>(weights[i / 2])[i % 2] =
          *reinterpret_cast<const uint4*>(scalars.weights[i / 2] + column * 8 + i % 2 * 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t x[4];
      load_matrices_transposed(x, tile + transposed_ + 2048 * k);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[4 * k + i] = multiply_pairs<Io>(x[i], weights[0][2 * k + i / 2], weights[1][2 * k + i / 2]);
    }
    if constexpr (T::kScaled)
      if (T::kRotated || scalars.has_powers != 0) {  // with a branch outputs that are rotated spill
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
          const uint4 powers = *reinterpret_cast<const uint4*>(scalars.weight_powers + column * 8 + 2 * k);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            to[4 * k + i] = multiply_pairs<Io>(to[4 * k + i], powers.x);
            to[4 * k + i + 2] = multiply_pairs<Io>(to[4 * k + i + 2], powers.y);
            to[4 * k + i + 4] = multiply_pairs<Io>(to[4 * k + i + 4], powers.z);
            to[4 * k + i + 6] = multiply_pairs<Io>(to[4 * k + i + 6], powers.w);
          }
        }
      }
  }

  __device__ __forceinline__ void publish(const float (&state)[T::kHeads][kRegisters]) {
    const int thread = group_thread();  // again: no register is left to keep the offset in
    const std::uint32_t fragment = hopper::fragment_offset(thread / 32, thread % 32);
    [[maybe_unused]] float scales[T::kHeads];
    if constexpr (T::kScaled)  // before the wait, which is for outputs that wait for this state
#pragma unroll
      for (int head = 0; head < T::kHeads; ++head) scales[head] = scale_of_rows(state[head]);
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
      shared_.wait_state_slot(head, state_at_);
      const std::uint32_t tile = shared_.state_tile(head, state_at_);
      if constexpr (T::kScaled)
        if (thread % 32 == 0)
          shared_.state_scales(head, state_at_)[thread / 32] =  // of the true state
              inverse_of_power(scales[head]) * unscale_[head];
      const auto pack = [&](const float* from) {
        if constexpr (T::kScaled) return pack_pair<Io>(scales[head] * from[0], scales[head] * from[1]);
        return pack_pair<Io>(from[0], from[1]);
      };
#pragma unroll
      for (int j = 0; j < T::kStates / 16; ++j) {
        const float* from = state[head] + 8 * j;
        hopper::store_matrices(tile + j / 4 * kTile + (fragment ^ j % 4 * 32), pack(from), pack(from + 2),
                               pack(from + 4), pack(from + 6));
      }
    }
    hopper::fence_async_proxy();
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) warp_arrive(shared_.states(head).full(state_at_), lane());
    state_at_.advance();
  }

  /// The power of two that moves this warp's rows into the range of f16.
  __device__ __forceinline__ static float scale_of_rows(const float (&state)[kRegisters]) {
    return scale_to(largest_of_lanes(largest_of(state)), kTileTarget).up;
  }

  /// visit(where in a (B, H, P, N) tensor, a pair of values) for this thread's elements of a head's state
  /// that exist. N is a multiple of 8.
  template <class Visit>
  __device__ void for_each_pair(float (&state)[kRegisters], const Item& item, int head,
                                const Visit& visit) const {
    const SsdInputs& in = args_.ssd.in;
    const RowTile tile = item.tile(head);
    if (tile.head < 0) return;
    const int p = tile.row + thread_ / 32 * 16 + lane() / 4;
    const std::int64_t upper =
        ((item.b * in.nheads + tile.head) * in.headdim + p) * in.dstate + lane() % 4 * 2;
    const std::int64_t lower = upper + 8 * in.dstate;
    const int columns = static_cast<int>(in.dstate);
#pragma unroll
    for (int j = 0; j < kRegisters / 4; ++j) {
      if (8 * j >= columns) break;
      if (p < in.headdim) visit(upper + 8 * j, state[4 * j], state[4 * j + 1]);
      if (p + 8 < in.headdim) visit(lower + 8 * j, state[4 * j + 2], state[4 * j + 3]);
    }
  }

  __device__ void enter(float (&state)[T::kHeads][kRegisters], const Segment& segment, const Item& item) {
    for (float& unscale : unscale_) unscale = 1.0F;
    if (kOutputs && segment.first > 0) {
      take(state);
      return;
    }
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
#pragma unroll
      for (float& value : state[head]) value = 0.0F;
      if (args_.ssd.in.initial_states == nullptr || segment.first > 0) continue;
      for_each_pair(state[head], item, head, [&](std::int64_t at, float& first, float& second) {
        const float2 pair = *reinterpret_cast<const float2*>(args_.ssd.in.initial_floats() + at);
        first = pair.x;
        second = pair.y;
      });
    }
  }

  /// The first step of the segment whose state is wanted.
  __device__ void find_stop(const SegmentsOf<T>& segments, const Segment& segment) {
    stop_row_ = segment.first == 0
                    ? args_.first_stops[segments.sequence()].step
                    : row_of_stop(first_stop_at(segments.begin() + segment.first * kSteps), segments);
  }
  __device__ int first_stop_at(int step) const {
    return first_stop_from(args_.stops, args_.stop_count, step);
  }
  __device__ int row_of_stop(int stop, const SegmentsOf<T>& segments) const {
    return ssd_hopper::row_of_stop(args_.stops, args_.stop_count, stop, segments.begin(), segments.steps());
  }

  /// All states of the step at stop_row_, whose first one is looked for: no register is left to keep it in.
  __device__ void store_stop(float (&state)[T::kHeads][kRegisters], const SegmentsOf<T>& segments) {
    const int step = segments.begin() + stop_row_;
    int stop = first_stop_at(step);
    do {
      Item item = segments.item(segments.segment());
      item.b = args_.stops[stop].index;
#pragma unroll
      for (int head = 0; head < T::kHeads; ++head) {
        float scale = T::kScaled ? unscale_[head] : 1.0F;
        if constexpr (T::kScaled) asm volatile("" : "+f"(scale));  // else all products come before the loop
        for_each_pair(state[head], item, head, [&](std::int64_t at, float first, float second) {
          *reinterpret_cast<float2*>(args_.stop_states + at) = make_float2(scale * first, scale * second);
        });
      }
      ++stop;
    } while (stop < args_.stop_count && args_.stops[stop].step == step);
    stop_row_ = row_of_stop(stop, segments);
  }

  /// `ends`: the item does.
  __device__ void leave(float (&state)[T::kHeads][kRegisters], bool ends, const Item& item) const {
    if constexpr (T::kScaled) {
#pragma unroll
      for (int head = 0; head < T::kHeads; ++head)
#pragma unroll
        for (float& value : state[head]) value *= unscale_[head];
    }
    if (!ends) {
      if (!kOutputs || plan_.parts == 1) hand_over(state);
      return;
    }
    if (args_.ssd.final_states == nullptr) return;
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head)
      for_each_pair(state[head], item, head, [&](std::int64_t at, float first, float second) {
        *reinterpret_cast<float2*>(args_.ssd.final_floats() + at) = make_float2(first, second);
      });
  }

  /// The next block's item begins in this one: its states go to global memory as they lie in registers.
  __device__ void hand_over(const float (&state)[T::kHeads][kRegisters]) const {
    const std::int64_t block = blockIdx.x;
    float* to = args_.handed.states + block * kAllRegisters * kGroupThreads + thread_;
#pragma unroll
    for (int i = 0; i < kAllRegisters; ++i) to[i * kGroupThreads] = state[i / kRegisters][i % kRegisters];
    if constexpr (kOutputs) {
      __threadfence();
      group_barrier();
      if (thread_ == 0) set_flag(args_.handed, block);
    } else {
#pragma unroll
      for (int head = 0; head < T::kHeads; ++head)
        if (thread_ == 0) args_.handed.decays[block * T::kHeads + head] = decay_[head];
    }
  }

  __device__ void take(float (&state)[T::kHeads][kRegisters]) const {
    const std::int64_t giver = static_cast<std::int64_t>(blockIdx.x) - T::kCluster;
    if (T::kPacked ? plan_.parts == 1 : plan_.hands_over()) wait_for_flag(args_.handed, giver);
    hopper::wait_for_prerequisites();  // the pass of states
    const float* from = args_.handed.states + giver * kAllRegisters * kGroupThreads + thread_;
#pragma unroll
    for (int i = 0; i < kAllRegisters; ++i)
      state[i / kRegisters][i % kRegisters] = __ldcg(from + i * kGroupThreads);
  }

  /// A barrier of this warpgroup's threads.
  __device__ static void group_barrier() {
    asm volatile("bar.sync 1, 128;\n" ::: "memory");
  }

  const typename T::Args& args_;
  const Plan& plan_;
  Shared shared_;
  int thread_;
  std::uint32_t transposed_;
  float decay_[T::kHeads];                      ///< of the segment; in the pass of states
  float unscale_[T::kHeads];                    ///< in f16: state times this is the true one
  typename Shared::States::Position state_at_;  // a chunk ahead of the rest
  hopper::RingPositions at_;
  struct Nothing {};
  using OfStops = std::conditional_t<T::kStops, int, Nothing>;
  [[no_unique_address]] OfStops stop_row_;  ///< the next one's step in the sequence, or kNoStop
};

}  // namespace ssmbench::ssd_hopper
