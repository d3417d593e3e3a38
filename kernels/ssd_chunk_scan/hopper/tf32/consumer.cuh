#pragma once

// A consumer warpgroup of the kernel for f32 tensors: the state of one head, 64 rows of P by N, in registers, and
// out of that head. All products but C·Bᵀ have rows p, and their first operand from registers:
//
//   G  = C·Bᵀ                        64 t × 64 s    M = G ∘ Δ·decay, on and below the diagonal, to shared memory
//   Yᵀ = carry ∘ (H·Cᵀ) + xᵀ·Mᵀ      64 p × 64 t    out = (Y + D·x) ∘ silu(z)
//   H  ← decay·H + (w ∘ x)ᵀ·B        64 p × N
//
// tf32 products read k along rows of shared memory alone, so that a product's result becomes an operand in
// registers only if its columns are k. A lane then has columns 2t and 2t + 1 of 8, as k = t and k = t + 4
// (wgmma_tf32.cuh). So the columns of H are n in another order, as rows of B transposed are written: column 2t is
// n = t, and 2t + 1 is n = t + 4. And where k is time, step 2t has place t, and step 2t + 1 place t + 4. x as xᵀ is
// then what the lane needs of it for xᵀ·Mᵀ, for (w ∘ x)ᵀ·B, and for D·x.
//
// What is an operand is rounded to tf32: B and C by the copy (tensor map), M and x in registers, and H in the copy
// that A's order takes.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/hopper/wgmma_tf32.cuh"
#include "kernels/ssd_chunk_scan/chunked/scalars.cuh"
#include "kernels/ssd_chunk_scan/hopper/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper/tf32/block.cuh"

namespace ssmbench::ssd_hopper::tf32 {

template <class T>
class Consumer {
  static constexpr int kRegisters = T::kStates / 2;  // of a state, a thread
  static constexpr auto kAlong = hopper::Major::k;
  using Elements = hopper::TransposedElements;

 public:
  __device__ Consumer(const HopperArgs& args, int head, int thread)
      : args_(args),
        in_(args.ssd.in),
        plan_(args.plan),
        head_(head),
        thread_(thread),
        element_(hopper::element_offset(thread, kTile)) {}

  __device__ void run() {
    float state[kRegisters];
    for (int index = 0; index < plan_.segments(); ++index) {
      const Segment segment = plan_.segment(index);
      const Item item = plan_.item(segment);
      tile_ = item.tile(head_);
      batch_ = item.b;
      enter(state, segment);
      load_skip();
      for (int chunk = segment.first; chunk < segment.end; ++chunk, at_.advance()) {
        // Or addresses and descriptors of all tiles are computed before the loop, and spilled.
        asm volatile("" : "+r"(shared_.base), "+r"(element_));
        if constexpr (T::kOutputs)
          output_and_update(state, chunk);
        else
          update(state);
      }
      leave(state, plan_.ends(segment));
    }
  }

 private:
  __device__ int lane() const { return thread_ % 32; }
  /// A barrier of this warpgroup's threads.
  __device__ void group_barrier() const {
    if (head_ == 0)
      asm volatile("bar.sync 1, 128;\n" ::: "memory");
    else
      asm volatile("bar.sync 2, 128;\n" ::: "memory");
  }

  /// The thread's elements of a square [t][p].
  __device__ __forceinline__ Elements elements_of(std::uint32_t square) const {
    return {shared_.pointer(square), element_};
  }

  /// x as A of products over time: in the order half, odd.
  __device__ __forceinline__ void load_x(std::uint32_t (&x)[32]) const {
    const Elements elements = elements_of(shared_.x_tile(head_, at_));
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = __float_as_uint(elements.at(i / 4, i % 2, i / 2 % 2));
  }

  /// One chunk of the pass of states.
  __device__ __forceinline__ void update(float (&state)[kRegisters]) {
    std::uint32_t x[32];
    shared_.x(head_).wait_full(at_);
    load_x(x);
    shared_.scalars(head_).wait_full(at_);
    const Scalars& scalars = shared_.scalars_of(head_, at_);
    decay_ *= scalars.decay;
#pragma unroll
    for (float& value : state) value *= scalars.decay;
    weigh(x, scalars);
    multiply_states(state, x);
    hopper::barrier_arrive(shared_.scalars(head_).empty(at_));
    warp_arrive(shared_.x(head_).empty(at_), lane());
    hopper::wgmma_wait<0>();
    hopper::pin_registers(state);
    warp_arrive(shared_.transposed().empty(at_), lane());
  }

  /// One chunk. x is read three times: no registers are left to keep it in.
  __device__ __forceinline__ void output_and_update(float (&state)[kRegisters], int chunk) {
    float y[32];
    float products[32];
    multiply_projections(y, products, state);
    shared_.scalars(head_).wait_full(at_);
    const Scalars& scalars = shared_.scalars_of(head_, at_);
    shared_.x(head_).wait_full(at_);
    hopper::wgmma_wait<1>();
    hopper::pin_registers(y);
    carry_and_skip(y, scalars);
#pragma unroll
    for (float& value : state) value *= scalars.decay;

    hopper::wgmma_wait<0>();
    hopper::pin_registers(products);
    warp_arrive(shared_.b().empty(at_), lane());
    warp_arrive(shared_.c().empty(at_), lane());
    if (in_.seq_idx == nullptr)
      mask<false>(products, scalars);
    else
      mask<true>(products, scalars);
    hopper::fence_async_proxy();
    group_barrier();  // M is there
    std::uint32_t x[32];
    load_x(x);
#pragma unroll
    for (std::uint32_t& bits : x) bits = round_to_tf32(bits);
    hopper::pin_registers(x);
    hopper::pin_registers(y);
    const std::uint64_t m = hopper::operand_descriptor(shared_.masked_tile(head_), kTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps / 8; ++k)
      hopper::wgmma_tf32(y, x + 4 * k, hopper::operand_step<kAlong>(m, k, kTile), true);
    hopper::wgmma_commit();

    std::uint32_t weighted[32];
    load_x(weighted);
    weigh(weighted, scalars);
    multiply_states(state, weighted);
    hopper::barrier_arrive(shared_.scalars(head_).empty(at_));
    warp_arrive(shared_.x(head_).empty(at_), lane());
    finish(y, chunk);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(state);
    warp_arrive(shared_.transposed().empty(at_), lane());
    if (thread_ == 0) {  // by now out has been read
      hopper::wait_stores_read();
      hopper::barrier_arrive(shared_.gates(head_).empty(at_));
    }
  }

  /// y = carry·y + D·x.
  __device__ __forceinline__ void carry_and_skip(float (&y)[32], const Scalars& scalars) const {
    const Elements x = elements_of(shared_.x_tile(head_, at_));
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 carry = *reinterpret_cast<const float2*>(scalars.carry + 8 * j + 2 * (lane() % 4));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        y[4 * j + i] = y[4 * j + i] * (i % 2 == 0 ? carry.x : carry.y) + skip_[i / 2] * x.at(j, i / 2, i % 2);
    }
  }

  /// Starts y = H·Cᵀ and, as the youngest group, products = C·Bᵀ.
  __device__ __forceinline__ void multiply_projections(float (&y)[32], float (&products)[32],
                                                       const float (&state)[kRegisters]) const {
    shared_.c().wait_full(at_);
    const std::uint64_t c = hopper::operand_descriptor(shared_.c_tile(), kTile);
    // Copies of H in the order of A: 16 registers are filled while products read 16 others.
    std::uint32_t h[2][16];
#pragma unroll
    for (int at = 0; at < kRegisters / 16; ++at) {
      if (at >= 2) hopper::wgmma_wait<1>();
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        constexpr int kOrder[] = {0, 2, 1, 3};
        h[at % 2][i] = round_to_tf32(state[16 * at + i / 4 * 4 + kOrder[i % 4]]);
      }
      hopper::pin_registers(h[at % 2]);
      hopper::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma_tf32(y, h[at % 2] + 4 * k, hopper::operand_step<kAlong>(c, 4 * at + k, kTile),
                           at + k > 0);
      hopper::wgmma_commit();
    }
    shared_.b().wait_full(at_);
    std::uint64_t again = c;
    asm volatile("" : "+l"(again));  // its steps: no register is left to keep them in
    const std::uint64_t b = hopper::operand_descriptor(shared_.b_tile(at_), kTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < T::kStates / 8; ++k)
      hopper::wgmma_tf32(products, hopper::operand_step<kAlong>(again, k, kTile),
                         hopper::operand_step<kAlong>(b, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  /// M of this warp's rows to shared memory, a square of 16 × 16 at a time. Left of the diagonal's a decay is that
  /// from s to the rows' slab, times that from there: neither exponent is above 0, and the first serves both of the
  /// lane's rows.
  template <bool kSequences>
  __device__ __forceinline__ void mask(const float (&products)[32], const Scalars& scalars) const {
    const int thread = group_thread();  // again: no register is left to keep places in
    const int warp = thread / 32;
    const int g = thread % 32 / 4;
    const int t = 16 * warp + g;  // and t + 8
    const int column = thread % 4;
    unsigned char* const first = shared_.pointer(shared_.masked_tile(head_)) + t * kTileRow + column * 4;
    struct Sum {
      float sum, rest;
    };
    const auto sum_of = [&](int step) { return Sum{scalars.sum[step], scalars.sum_rest[step]}; };
    const auto exponent = [](const Sum& to, float sum, float rest) {
      return to.sum - sum + (to.rest - rest);
    };
    const Sum border = sum_of(max(16 * warp - 1, 0));  // the last step before the slab
    const Sum rows[2] = {sum_of(t), sum_of(t + 8)};
    const float within[2] = {exp2_approximate(exponent(rows[0], border.sum, border.rest)),
                             exp2_approximate(exponent(rows[1], border.sum, border.rest))};
#pragma unroll
    for (int square = 0; square < 4; ++square) {
      float m[2][4] = {};
      if (square <= warp) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int s = 16 * square + 8 * j + 2 * column;  // and s + 1
          const float* from = products + 8 * square + 4 * j;
          const float2 sum = *reinterpret_cast<const float2*>(scalars.sum + s);
          const float2 rest = *reinterpret_cast<const float2*>(scalars.sum_rest + s);
          const float2 delta = *reinterpret_cast<const float2*>(scalars.delta + s);
          if (!kSequences && square < 3 && square < warp) {
            const float weights[2] = {delta.x * exp2_approximate(exponent(border, sum.x, rest.x)),
                                      delta.y * exp2_approximate(exponent(border, sum.y, rest.y))};
#pragma unroll
            for (int i = 0; i < 4; ++i) m[j][i] = from[i] * (within[i / 2] * weights[i % 2]);
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int row = t + 8 * (i / 2);
              bool kept = s + i % 2 <= row;
              if constexpr (kSequences) kept = kept && scalars.sequence[s + i % 2] == scalars.sequence[row];
              const float between =
                  i % 2 == 0 ? exponent(rows[i / 2], sum.x, rest.x) : exponent(rows[i / 2], sum.y, rest.y);
              m[j][i] =
                  from[i] * exp2_approximate(kept ? between : -INFINITY) * (i % 2 == 0 ? delta.x : delta.y);
            }
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int j = 2 * square + i / 4;
        auto* const place = reinterpret_cast<std::uint32_t*>(first + ((g ^ j % 4 * 2 + i % 2) << 4));
        place[(j / 4 * kTile + i / 2 % 2 * 8 * kTileRow) / 4] = round_to_tf32(m[i / 4][i % 4]);
      }
    }
  }

  /// x times Δ·(decay from a step to the chunk's end), rounded to tf32.
  __device__ __forceinline__ void weigh(std::uint32_t (&x)[32], const Scalars& scalars) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 weight = *reinterpret_cast<const float2*>(scalars.weight + 8 * j + 2 * (lane() % 4));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[4 * j + i] = round_to_tf32(__uint_as_float(x[4 * j + i]) * (i < 2 ? weight.x : weight.y));
    }
    hopper::pin_registers(x);
  }

  /// Starts H += weighted·B.
  __device__ __forceinline__ void multiply_states(float (&state)[kRegisters],
                                                  const std::uint32_t (&weighted)[32]) {
    shared_.transposed().wait_full(at_);
    hopper::pin_registers(state);
    const std::uint64_t b =
        hopper::operand_descriptor(shared_.transposed_tile(at_), Layout<T>::kTransposedTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps / 8; ++k)
      hopper::wgmma_tf32(state, weighted + 4 * k,
                         hopper::operand_step<kAlong>(b, k, Layout<T>::kTransposedTile), true);
    hopper::wgmma_commit();
  }

  /// out, over z, while the product of H is under way.
  __device__ __forceinline__ void finish(float (&y)[32], int chunk) const {
    const std::uint32_t square = shared_.gate_tile(head_);
    if (in_.z != nullptr) {
      shared_.gates(head_).wait_full(at_);
      store_out<true>(y, square);
    } else {
      store_out<false>(y, square);
    }
    hopper::fence_async_proxy();
    group_barrier();
    if (thread_ == 0) {
      const int head = tile_.head < 0 ? static_cast<int>(in_.nheads) : tile_.head;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        hopper::store_tile(args_.out,
                           hopper::TileOrigin{{tile_.row + i * kTileColumns, head, chunk * kSteps, batch_}},
                           square + i * kTile);
    }
  }

  template <bool kGated>
  __device__ __forceinline__ void store_out(float (&y)[32], std::uint32_t square) const {
    const Elements elements = elements_of(square);
    constexpr int kAtOnce = 16;
#pragma unroll
    for (int first = 0; first < 32; first += kAtOnce) {
      float out[kAtOnce];
      const auto element = [&](int k) -> float& { return elements.at((first + k) / 4, k / 2 % 2, k % 2); };
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) out[k] = kGated ? chunked::gate<Tf32Products>(element(k)) : 1.0F;
      if (first == 0) {
        hopper::wgmma_wait<1>();
        hopper::pin_registers(y);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) element(k) = y[first + k] * out[k];
    }
  }

  /// D of the thread's two rows.
  __device__ void load_skip() {
    const int p = tile_.row + thread_ / 32 * 16 + lane() / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool exists = in_.D != nullptr && tile_.head >= 0 && p + 8 * i < in_.headdim;
      skip_[i] =
          exists ? in_.D[in_.skip_per_headdim ? tile_.head * in_.headdim + p + 8 * i : tile_.head] : 0.0F;
    }
  }

  /// visit(where in a (B, H, P, N) tensor, value) for this thread's elements of the state that exist.
  template <class Visit>
  __device__ void for_each(float (&state)[kRegisters], const Visit& visit) const {
    if (tile_.head < 0) return;
    const int p = tile_.row + thread_ / 32 * 16 + lane() / 4;
    const std::int64_t row = ((batch_ * in_.nheads + tile_.head) * in_.headdim + p) * in_.dstate;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const int n = i / 4 * 8 + lane() % 4 + i % 2 * 4;
      if (p + i / 2 % 2 * 8 < in_.headdim && n < in_.dstate)
        visit(row + i / 2 % 2 * 8 * in_.dstate + n, state[i]);
    }
  }

  __device__ void enter(float (&state)[kRegisters], const Segment& segment) {
    decay_ = 1.0F;
    if (T::kOutputs && segment.first > 0) return take(state);
#pragma unroll
    for (float& value : state) value = 0.0F;
    const float* initial = in_.initial_floats();
    if (initial == nullptr || segment.first > 0) return;
    for_each(state, [&](std::int64_t at, float& value) { value = initial[at]; });
  }

  /// `ends`: the item does.
  __device__ void leave(float (&state)[kRegisters], bool ends) const {
    if (!ends) {
      if (!T::kOutputs || args_.plan.parts == 1) hand_over(state);
      return;
    }
    float* final_states = args_.ssd.final_floats();
    if (final_states == nullptr) return;
    for_each(state, [&](std::int64_t at, float value) { final_states[at] = value; });
  }

  /// As the state warpgroup of 16-bit tensors does it (states.cuh), of each head by itself.
  __device__ void hand_over(const float (&state)[kRegisters]) const {
    const std::int64_t giver = std::int64_t{blockIdx.x} * kHeads + head_;
    float* to = args_.handed.states + giver * kRegisters * kGroupThreads + thread_;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) to[i * kGroupThreads] = state[i];
    if constexpr (T::kOutputs) {
      __threadfence();
      group_barrier();
      if (thread_ == 0) set_flag(args_.handed, giver);
    } else {
      if (thread_ == 0) args_.handed.decays[giver] = decay_;
    }
  }
  __device__ void take(float (&state)[kRegisters]) const {
    const std::int64_t giver = (std::int64_t{blockIdx.x} - 1) * kHeads + head_;
    if (args_.plan.hands_over()) wait_for_flag(args_.handed, giver);
    hopper::wait_for_prerequisites();  // the pass of states
    const float* from = args_.handed.states + giver * kRegisters * kGroupThreads + thread_;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) state[i] = __ldcg(from + i * kGroupThreads);
  }

  const HopperArgs& args_;
  const SsdInputs& in_;
  BlockPlan<1> plan_;
  SharedMemory<T> shared_;
  int head_;
  int thread_;
  std::uint32_t element_;
  RowTile tile_{};
  int batch_ = 0;
  float skip_[2] = {};
  float decay_ = 1.0F;  ///< of the segment; in the pass of states
  hopper::RingPositions at_;
};

}  // namespace ssmbench::ssd_hopper::tf32
