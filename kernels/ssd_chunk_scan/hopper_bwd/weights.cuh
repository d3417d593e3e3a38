#pragma once

// The warpgroup of weights of the Hopper gradient kernel: what belongs to pairs of steps (t, s) of a chunk.
// Warp w has rows 16w … 16w + 15 of every product:
//
//   M = (C·Bᵀ) ∘ L ∘ Δ    Q += (dy·xᵀ) ∘ L ∘ Δ    sums over rows and columns of W = M ∘ (dy·xᵀ)
//
// dy comes from the query warpgroup; M, and Q at the end, go to that and to the key warpgroup. M is without
// its diagonal, which is added to y and dx in f32, as D is.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::ssd_hopper_bwd {

template <class T>
class WeightWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  using Steps = float[4][kSteps];
  static constexpr auto kAlong = hopper::Major::k;

 public:
  __device__ WeightWarpgroup(const GradientArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        thread_(thread),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)),
        reaches_(causal_steps()) {}

  __device__ void run() {
    start_products();
    for (int left = BlockPlace(args_).heads; left > 0; --left) {
      one_head();
      slot_.advance();
    }
    finish();
  }

 private:
  static constexpr int kSquare =
      6;  ///< a thread's elements of its warp's square on the diagonal, but for zeros

  /// Bits of the thread's elements of the square: whether step t reads step s. kSquare bits on: the same
  /// without the diagonal.
  __device__ __forceinline__ unsigned causal_steps() const {
    const BlockPlace place(args_);
    const Patch square{at_.row, at_.row, at_.lane};
    const unsigned all = causal_pairs<2>(args_.bwd.in, place.b, place.start, place.steps_valid, square);
    unsigned reads = 0;
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      const int at = element_of_square(i);
      if ((all >> at & 1U) == 0) continue;
      reads |= 1U << i;
      if (square.column_of(at / 4, at % 4) != square.row_of(at % 4)) reads |= 1U << (kSquare + i);
    }
    return reads;
  }
  /// Of two fragments, but for the upper right quarter.
  __device__ static constexpr int element_of_square(int i) {
    return i < 4 ? i : i + 2;
  }

  /// C·Bᵀ and its diagonal, Q = 0, and zeros right of the diagonal of M.
  __device__ __forceinline__ void start_products() const {
    float cb[32];
    hopper::barrier_wait(shared_.projections_full(), 0);
    start_tile_product<Io, kAlong, kAlong, T::kStates>(cb, tile_operand(shared_.c_tile()),
                                                       tile_operand(shared_.b_tile()));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(cb);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e > 2 * warp_ + 1) continue;
      shared_.cb().at(warp_, e, at_.lane) =
          make_float4(cb[4 * e], cb[4 * e + 1], cb[4 * e + 2], cb[4 * e + 3]);
      shared_.q().at(warp_, e, at_.lane) = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
    if (at_.lane / 8 == at_.lane % 4) {
      const float4 upper = shared_.cb().at(warp_, 2 * warp_, at_.lane);
      const float4 lower = shared_.cb().at(warp_, 2 * warp_ + 1, at_.lane);
      const bool odd = at_.lane / 4 % 2 != 0;
      shared_.diagonal()[at_.row_of(0)] = odd ? upper.y : upper.x;
      shared_.diagonal()[at_.row_of(2)] = odd ? lower.w : lower.z;
    }
    __syncwarp();
    for (typename Shared::Pairs::Position at; at.parity == 0; at.advance())
      for (int j = warp_ + 1; j < 4; ++j)
        hopper::store_matrices((shared_.mixing_tile(at) + fragment_) ^ j * 32, 0, 0, 0, 0);
    group_barrier();                                  // C·Bᵀ is complete
    hopper::barrier_arrive(shared_.diagonal_full());  // each lane for its own: racecheck follows nothing else
  }

  __device__ __forceinline__ void one_head() {
    shared_.inputs().wait_full(slot_);
    hopper::barrier_wait(shared_.factors_full(slot_), slot_.parity);
    float square[kSquare];
    decay_square(square, shared_.steps(slot_));
    shared_.mixing().wait_empty(slot_);
    mix(square, mixing_scale(square));
    hopper::fence_async_proxy();
    warp_arrive(shared_.mixing().full(slot_), at_.lane);

    if constexpr (T::kGated) shared_.rounded().wait_full(slot_);
    float dyx[32];
    start_tile_product<Io, kAlong, kAlong, kSteps>(dyx, tile_operand(shared_.dy_tile(slot_, slot_)),
                                                   tile_operand(shared_.x_tile(slot_)));
    shared_.flows().wait_empty(slot_);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(dyx);
    if constexpr (T::kGated) warp_arrive(shared_.rounded().empty(slot_), at_.lane);
    HeadFlows& flows = shared_.flows_of(slot_);
    float rows[2] = {0.0F, 0.0F};
    add_weights(dyx, square, rows, flows);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows[j] = sum_lanes<1, 2>(rows[j]);
      if (at_.lane % 4 == 0) flows.rows[at_.row_of(2 * j)] = rows[j];
    }
    hopper::barrier_arrive(shared_.flows().full(slot_));
    warp_arrive(shared_.inputs().done(slot_), at_.lane);
  }

  /// Δ_s·L of the square on the diagonal.
  __device__ __forceinline__ void decay_square(float (&square)[kSquare], const Steps& steps) const {
    const float rows[2] = {kLog2E * steps[kStepDecay][at_.row_of(0)],
                           kLog2E * steps[kStepDecay][at_.row_of(2)]};
    const int s = at_.row + at_.lane % 4 * 2;
    const auto pair_of = [&](int row, int half) {
      return *reinterpret_cast<const float2*>(steps[row] + s + 8 * half);
    };
    const float2 decays[2] = {pair_of(kStepDecay, 0), pair_of(kStepDecay, 1)};
    const float2 deltas[2] = {pair_of(kStepDelta, 0), pair_of(kStepDelta, 1)};
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      const int at = element_of_square(i);
      const float column = at % 2 == 0 ? decays[at / 4].x : decays[at / 4].y;
      const float delta = at % 2 == 0 ? deltas[at / 4].x : deltas[at / 4].y;
      const float decay = exp2_approximate(-kLog2E * column + rows[at / 2 % 2]);
      square[i] = (reaches_ >> i & 1U) != 0 ? step_weight(delta) * decay : 0.0F;
    }
  }
  /// The same below the diagonal.
  __device__ __forceinline__ float below(const float (&square)[kSquare], int i) const {
    return (reaches_ >> (kSquare + i) & 1U) != 0 ? square[i] : 0.0F;
  }

  struct PairFactors {
    float row[2];
    const float* column;  ///< of the thread's first column
  };
  /// Of this thread's rows, and of the columns before its warp's square: that there are some is the caller's.
  __device__ __forceinline__ PairFactors pair_factors(int row) const {
    const DecayFactors& factors = shared_.factors(slot_);
    const Patch of{16 * row, 0, at_.lane};
    return {{factors.row[of.row_of(0)], factors.row[of.row_of(2)]},
            factors.column[row - 1] + at_.lane % 4 * 2};
  }
  /// Of fragment e.
  __device__ static __forceinline__ float2 columns_of(const PairFactors& factors, int e) {
    return *reinterpret_cast<const float2*>(factors.column + 8 * e);
  }

  /// In f16, what M of the head is scaled by; 1 otherwise. By its own largest element, not by that of Δ: Δ
  /// may be 10^5 times as large in one step as in another, and what M has before that step would underflow.
  __device__ __forceinline__ float mixing_scale(const float (&square)[kSquare]) const {
    if constexpr (!T::kScaled) return 1.0F;
    float largest = 0.0F;
    if (warp_ > 0) {
      const PairFactors factors = pair_factors(warp_);
#pragma unroll 1
      for (int e = 0; e < 2 * warp_; ++e) {
        const float4 cb = shared_.cb().at(warp_, e, at_.lane);
        const float2 column = columns_of(factors, e);
        const float first = fmaxf(fabsf(cb.x) * factors.row[0], fabsf(cb.z) * factors.row[1]);
        const float second = fmaxf(fabsf(cb.y) * factors.row[0], fabsf(cb.w) * factors.row[1]);
        largest = fmaxf(largest, fmaxf(column.x * first, column.y * second));
      }
    }
    const float4 upper = shared_.cb().at(warp_, 2 * warp_, at_.lane);
    const float4 lower = shared_.cb().at(warp_, 2 * warp_ + 1, at_.lane);
    const float cb[kSquare] = {upper.x, upper.y, upper.z, upper.w, lower.z, lower.w};
#pragma unroll
    for (int i = 0; i < kSquare; ++i) largest = fmaxf(largest, fabsf(cb[i]) * below(square, i));
    largest = largest_of_lanes(largest);
    float* const of_warps = shared_.largest_mixing(slot_);
    if (at_.lane == 0) of_warps[warp_] = largest;
    group_barrier();
    return scale_of_warps(of_warps, kTopTarget);
  }

  /// M of this warp's rows below the diagonal, scaled and rounded, to its tile. A loop: the code of all roles
  /// has to fit in the instruction cache.
  __device__ __forceinline__ void mix(const float (&square)[kSquare], [[maybe_unused]] float scale) const {
    const int row = 3 - warp_;
    if (row > 0) {
      PairFactors factors = pair_factors(row);
      if constexpr (T::kScaled)
        for (float& row : factors.row) row *= scale;
#pragma unroll 1
      for (int j = 0; j < row; ++j) {
        std::uint32_t m[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4 cb = shared_.cb().at(row, 2 * j + half, at_.lane);
          const float2 column = columns_of(factors, 2 * j + half);
          m[2 * half] = pack_pair<Io>(cb.x * (factors.row[0] * column.x), cb.y * (factors.row[0] * column.y));
          m[2 * half + 1] =
              pack_pair<Io>(cb.z * (factors.row[1] * column.x), cb.w * (factors.row[1] * column.y));
        }
        hopper::store_matrices((shared_.mixing_tile(slot_) + hopper::fragment_offset(row, at_.lane)) ^ j * 32,
                               m[0], m[1], m[2], m[3]);
      }
    }
    float4 upper = shared_.cb().at(warp_, 2 * warp_, at_.lane);
    float4 lower = shared_.cb().at(warp_, 2 * warp_ + 1, at_.lane);
    if constexpr (T::kScaled) {
      upper = make_float4(scale * upper.x, scale * upper.y, scale * upper.z, scale * upper.w);
      lower = make_float4(0.0F, 0.0F, scale * lower.z, scale * lower.w);
    }
    hopper::store_matrices((shared_.mixing_tile(slot_) + fragment_) ^ warp_ * 32,
                           pack_pair<Io>(upper.x * below(square, 0), upper.y * below(square, 1)),
                           pack_pair<Io>(upper.z * below(square, 2), upper.w * below(square, 3)), 0,
                           pack_pair<Io>(lower.z * below(square, 4), lower.w * below(square, 5)));
  }

  /// A barrier of this warpgroup's threads.
  __device__ static void group_barrier() {
    asm volatile("bar.sync 1, 128;\n" ::: "memory");
  }

  /// From dy·xᵀ: Q, and the sums of W over columns and rows. The warp's square on the diagonal is picked from
  /// registers, so that there is one code for it.
  __device__ __forceinline__ void add_weights(const float (&dyx)[32], const float (&square)[kSquare],
                                              float (&flow_out)[2], HeadFlows& flows) const {
    float columns[16];
    float on_diagonal[kSquare];
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      const int at = element_of_square(i);
      on_diagonal[i] = dyx[at];
#pragma unroll
      for (int w = 1; w < kWarpsOfGroup; ++w)
        on_diagonal[i] = select(warp_ == w, dyx[8 * w + at], on_diagonal[i]);
    }
    PairFactors factors{};
    if (warp_ > 0) factors = pair_factors(warp_);
#pragma unroll
    for (int e = 0; e < 6; ++e) {
      columns[2 * e] = columns[2 * e + 1] = 0.0F;
      if (e / 2 >= warp_) continue;
      const float2 column = columns_of(factors, e);
      float w[4] = {dyx[4 * e] * (factors.row[0] * column.x), dyx[4 * e + 1] * (factors.row[0] * column.y),
                    dyx[4 * e + 2] * (factors.row[1] * column.x),
                    dyx[4 * e + 3] * (factors.row[1] * column.y)};
      add_fragment(e, w, w, flow_out, columns[2 * e], columns[2 * e + 1]);
    }
    float w[2][4];               // of the square's two fragments
    float below_diagonal[2][4];  // not the diagonal too: beside it, what strong decays leave is lost
    w[1][0] = w[1][1] = below_diagonal[1][0] = below_diagonal[1][1] = 0.0F;
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      const int at = element_of_square(i);
      w[at / 4][at % 4] = on_diagonal[i] * square[i];
      below_diagonal[at / 4][at % 4] = on_diagonal[i] * below(square, i);
    }
    float own[4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      add_fragment(2 * warp_ + half, w[half], below_diagonal[half], flow_out, own[2 * half],
                   own[2 * half + 1]);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i >= 12) columns[i] = 0.0F;
      columns[i] = select(warp_ == i / 4, own[i % 4], columns[i]);
    }
    store_column_sums(columns, flows.column[warp_], at_.lane);
  }
  /// first or second. The compiler would make an array in memory, and an index, of conditional expressions.
  __device__ static __forceinline__ float select(bool condition, float first, float second) {
    float chosen = 0;
    asm("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\nselp.f32 %0, %2, %3, p;\n}\n"
        : "=f"(chosen)
        : "r"(int{condition}), "f"(first), "f"(second));
    return chosen;
  }
  /// Fragment e of W/C·Bᵀ: to Q, and times C·Bᵀ to the sums.
  __device__ __forceinline__ void add_fragment(int e, const float (&of_q)[4], const float (&of_flows)[4],
                                               float (&flow_out)[2], float& column_x, float& column_y) const {
    const float4 cb = shared_.cb().at(warp_, e, at_.lane);
    const float4 q = shared_.q().at(warp_, e, at_.lane);
    shared_.q().at(warp_, e, at_.lane) =
        make_float4(q.x + of_q[0], q.y + of_q[1], q.z + of_q[2], q.w + of_q[3]);
    flow_out[0] = fmaf(cb.x, of_flows[0], fmaf(cb.y, of_flows[1], flow_out[0]));
    flow_out[1] = fmaf(cb.z, of_flows[2], fmaf(cb.w, of_flows[3], flow_out[1]));
    column_x = cb.x * of_flows[0] + cb.z * of_flows[2];
    column_y = cb.y * of_flows[1] + cb.w * of_flows[3];
  }

  /// In f16, what Q is scaled by; 1 otherwise.
  __device__ __forceinline__ float scale_of_products(int thread) const {
    if constexpr (!T::kScaled) return 1.0F;
    float largest = 0.0F;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e > 2 * (thread / 32) + 1) continue;
      const float4 sums = shared_.q().at(thread / 32, e, thread % 32);
      largest =
          fmaxf(fmaxf(fmaxf(largest, fabsf(sums.x)), fmaxf(fabsf(sums.y), fabsf(sums.z))), fabsf(sums.w));
    }
    largest = largest_of_lanes(largest);
    if (at_.lane == 0) shared_.product_scales()[warp_] = largest;
    group_barrier();
    return scale_of_warps(shared_.product_scales(), kTileTarget);
  }

  /// Q, in the place of M.
  __device__ __forceinline__ void finish() {
    const float scale = scale_of_products(thread_);
    std::uint32_t q[16];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float4 sums = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (e <= 2 * warp_ + 1) sums = shared_.q().at(warp_, e, at_.lane);
      if constexpr (T::kScaled)
        sums = make_float4(scale * sums.x, scale * sums.y, scale * sums.z, scale * sums.w);
      q[2 * e] = pack_pair<Io>(sums.x, sums.y);
      q[2 * e + 1] = pack_pair<Io>(sums.z, sums.w);
    }
    shared_.mixing().wait_empty(slot_);
    store_tile_pairs(shared_.mixing_tile(slot_) + fragment_, q);
    warp_arrive(shared_.mixing().full(slot_), at_.lane);
  }

  const GradientArgs& args_;
  Shared shared_;
  int thread_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  unsigned reaches_;  ///< causal_pairs
  typename Shared::Inputs::Position slot_;
};

}  // namespace ssmbench::ssd_hopper_bwd
