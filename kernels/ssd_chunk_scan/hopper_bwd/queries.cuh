#pragma once

// The query warpgroup of the Hopper gradient kernel: what belongs to a chunk's rows t, the steps that read
// the state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dy = dout·silu(z)    y = M·x + enter ∘ (C·Sᵀ) → dz    Q += (dy·xᵀ) ∘ L ∘ Δ    dC += enter ∘ (dy·S)
//
// and after the last head dC += Q·B. It hands dy and M to the key warpgroup, and Q at the end.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::ssd_hopper_bwd {

template <class T>
class QueryWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  using Steps = float[4][kSteps];
  static constexpr int kHalves = Shared::Layout::kHalves;
  using Sums = ProjectionSums<kHalves>;
  static constexpr auto kAlong = hopper::Major::k;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ QueryWarpgroup(const GradientArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        thread_(thread),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)),
        reaches_(causal_steps()) {}

  __device__ void run() {
    start_products();
    Sums dC;
    clear_sums(dC);
    const BlockPlace place(args_);
    const int first = place.first_head;
    const int end = first + place.heads;
    for (int head = first; head < end; ++head) {
      one_head(dC, head);
      input_at_.advance();
      pair_at_.advance();
    }
    finish(dC);
  }

 private:
  __device__ __forceinline__ unsigned causal_steps() const {
    const BlockPlace place(args_);
    return causal_pairs<8>(args_.bwd.in, place.b, place.start, place.steps_valid, at_);
  }

  /// C·Bᵀ, and Q = 0.
  __device__ __forceinline__ void start_products() const {
    float cb[32];
    hopper::barrier_wait(shared_.projections_full(), 0);
    start_tile_product<Io, kAlong, kAlong, T::kStates>(cb, tile_operand(shared_.c_tile()),
                                                       tile_operand(shared_.b_tile()));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(cb);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      shared_.cb()[e][thread_] = make_float4(cb[4 * e], cb[4 * e + 1], cb[4 * e + 2], cb[4 * e + 3]);
      shared_.q()[e][thread_] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
  }

  __device__ __forceinline__ void one_head(Sums& dC, int head) {
    const SkipWeights skip(args_.bwd.in, head, at_.lane, shared_.skip(input_at_));
    shared_.inputs().wait_full(input_at_);
    const Steps& steps = shared_.steps(input_at_);
    float y[32];
    start_tile_product<Io, kAlong, kAlong, T::kStates>(y, tile_operand(shared_.c_tile()),
                                                       tile_operand(shared_.state_tile(input_at_)));
    shared_.pairs().wait_empty(pair_at_);
    const float scale = mixing_scale(steps);
    mix(steps, scale);
    std::uint32_t dy[16];
    std::uint32_t entered[16];  // enter ∘ dy
    float slopes[T::kGated ? 32 : 1];
    gate(dy, entered, slopes, steps);
    if constexpr (!T::kScaled) add_entered(dC, entered);
    store_tile_pairs(shared_.dy_tile(pair_at_) + fragment_, dy);
    hopper::fence_async_proxy();
    warp_arrive(shared_.pairs().full(pair_at_), at_.lane);

    hopper::wgmma_wait<T::kScaled ? 0 : 1>();
    hopper::pin_registers(y);
    float flow_out[2] = {0.0F, 0.0F};
    weigh_states(y, dy, enter_weights(steps), flow_out);
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : y) value *= scale;
    if constexpr (!T::kScaled) {
      hopper::wgmma_wait<0>();
#pragma unroll
      for (auto& half : dC) hopper::pin_registers(half);
    }

    const std::uint64_t x = hopper::operand_descriptor(shared_.x_tile(input_at_), kTile);
    float dyx[32];
    hopper::pin_registers(y);
    hopper::pin_registers(dy);
    if constexpr (T::kGated) group_barrier();  // M is complete
    hopper::wgmma_fence();
    if constexpr (T::kGated) {
      const std::uint64_t m = hopper::operand_descriptor(shared_.mixing_tile(pair_at_), kTile);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma<Io, kAlong, kAcross>(y, hopper::operand_step<kAlong>(m, k, kTile),
                                           hopper::operand_step<kAcross>(x, k, kTile), true);
      hopper::wgmma_commit();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, kAlong>(dyx, dy + 4 * k, hopper::operand_step<kAlong>(x, k, kTile), k > 0);
    hopper::wgmma_commit();
    if constexpr (T::kGated) {
      hopper::wgmma_wait<1>();
      hopper::pin_registers(y);
      if constexpr (T::kScaled)
#pragma unroll
        for (float& value : y) value *= inverse_of_power(scale);
      store_dz(y, slopes, skip);
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(dyx);

    shared_.flows().wait_empty(pair_at_);
    HeadFlows& flows = shared_.flows_of(pair_at_);
    finish_weights(dyx, steps, flow_out, flows);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      flow_out[j] = sum_lanes<1, 2>(flow_out[j]);
      if (at_.lane % 4 == 0) flows.out[at_.row_of(2 * j)] = flow_out[j];
    }
    hopper::barrier_arrive(shared_.flows().full(pair_at_));
    if constexpr (T::kScaled) add_scaled(dC, dy, enter_weights(steps));
    hopper::fence_async_proxy();  // dz
    warp_arrive(shared_.inputs().done(input_at_), at_.lane);
  }

  struct RowWeights {
    float row[2];
  };
  /// `enter` of this thread's rows, for products with S. Loaded where it is used: registers are short.
  __device__ __forceinline__ RowWeights enter_weights(const Steps& steps) const {
    const float unscale = shared_.unscale(input_at_, kUnscaleState);
    return {unscale * steps[kStepEnter][at_.row_of(0)], unscale * steps[kStepEnter][at_.row_of(2)]};
  }

  /// Starts dC += (enter ∘ dy)·S. The weights are in the operand, which is rounded once, so that sums over heads
  /// stay in tensor cores.
  __device__ __forceinline__ void add_entered(Sums& dC, std::uint32_t (&entered)[16]) const {
    hopper::pin_registers(entered);
#pragma unroll
    for (auto& half : dC) hopper::pin_registers(half);
    hopper::wgmma_fence();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const std::uint64_t states =
          hopper::operand_descriptor(shared_.state_tile(input_at_) + half * kTile, kTile);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma<Io, kAcross>(dC[half], entered + 4 * k, hopper::operand_step<kAcross>(states, k, kTile),
                                   true);
    }
    hopper::wgmma_commit();
  }
  /// The same in f16, where S of each head has a scale of its own.
  __device__ __forceinline__ void add_scaled(Sums& dC, const std::uint32_t (&dy)[16],
                                             const RowWeights& enter) const {
    float product[32];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      start_product<Io>(product, dy, shared_.state_tile(input_at_) + half * kTile);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(product);
      add_weighted(dC[half], product, enter.row);
      hopper::pin_registers(product);
    }
  }

  /// dy = dout·silu(z) and enter ∘ dy, rounded, and dout·silu'(z).
  __device__ __forceinline__ void gate(std::uint32_t (&dy)[16], [[maybe_unused]] std::uint32_t (&entered)[16],
                                       float (&slopes)[T::kGated ? 32 : 1], const Steps& steps) const {
    [[maybe_unused]] const RowWeights enter = enter_weights(steps);
    load_tile_pairs(dy, shared_.dout_tile(input_at_) + fragment_);
    std::uint32_t z[16];
    if constexpr (T::kGated) load_tile_pairs(z, shared_.z_tile(input_at_) + fragment_);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float2 value = unpack_pair<Io>(dy[i]);
      if constexpr (T::kGated) {
        const float2 dout = value;
        const float2 pair = unpack_pair<Io>(z[i]);
        const ValueSlope first = silu_approximate(pair.x);
        const ValueSlope second = silu_approximate(pair.y);
        value = make_float2(dout.x * first.value, dout.y * second.value);
        dy[i] = pack_pair<Io>(value.x, value.y);
        slopes[2 * i] = dout.x * first.slope;
        slopes[2 * i + 1] = dout.y * second.slope;
      }
      if constexpr (!T::kScaled)
        entered[i] = pack_pair<Io>(enter.row[i % 2] * value.x, enter.row[i % 2] * value.y);
    }
  }

  /// L at an element of a fragment: of the row the decay in powers of two, of the column that of e.
  __device__ __forceinline__ float decay_between(int e, int i, float row, float column) const {
    const float decay = exp2_approximate(-kLog2E * column + row);
    return (reaches_ >> (4 * e + i) & 1U) != 0 ? decay : 0.0F;
  }

  /// In f16, what M of the head is scaled by; 1 otherwise. By its own largest element, not by that of Δ: Δ may
  /// be 10^5 times as large in one step as in another, and what M has before that step would underflow.
  __device__ __forceinline__ float mixing_scale(const Steps& steps) const {
    if constexpr (!T::kScaled) return 1.0F;
    const float rows[2] = {kLog2E * steps[kStepDecay][at_.row_of(0)],
                           kLog2E * steps[kStepDecay][at_.row_of(2)]};
    float largest = 0.0F;
#pragma unroll 1
    for (int e = 0; e < 2 * warp_ + 2; ++e) {
      const float4 cb = shared_.cb()[e][thread_];
      const int s = at_.column_of(e, 0);
      const float2 column = *reinterpret_cast<const float2*>(steps[kStepDecay] + s);
      const float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + s);
      const float first = fmaxf(fabsf(cb.x) * decay_between(e, 0, rows[0], column.x),
                                fabsf(cb.z) * decay_between(e, 2, rows[1], column.x));
      const float second = fmaxf(fabsf(cb.y) * decay_between(e, 1, rows[0], column.y),
                                 fabsf(cb.w) * decay_between(e, 3, rows[1], column.y));
      largest = fmaxf(largest, fmaxf(delta.x * first, delta.y * second));
    }
    largest = largest_of_lanes(largest);
    float* const of_warps = shared_.largest_mixing(pair_at_);
    if (at_.lane == 0) of_warps[warp_] = largest;
    group_barrier();
    return scale_of_warps(of_warps, kTopTarget);
  }

  /// M of this warp's rows, scaled and rounded, to its tile. A loop: the code of all roles has to fit in the
  /// instruction cache.
  __device__ __forceinline__ void mix(const Steps& steps, [[maybe_unused]] float scale) const {
    const float rows[2] = {kLog2E * steps[kStepDecay][at_.row_of(0)],
                           kLog2E * steps[kStepDecay][at_.row_of(2)]};
    const std::uint32_t tile = shared_.mixing_tile(pair_at_) + fragment_;
#pragma unroll 1
    for (int j = 0; j < 4; ++j) {
      std::uint32_t m[4] = {0, 0, 0, 0};
      if (j <= warp_) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int e = 2 * j + half;
          const float4 cb = shared_.cb()[e][thread_];
          const int s = at_.column_of(e, 0);
          const float2 column = *reinterpret_cast<const float2*>(steps[kStepDecay] + s);
          float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + s);
          if constexpr (T::kScaled) delta = make_float2(scale * delta.x, scale * delta.y);
          m[2 * half] = pack_pair<Io>(cb.x * delta.x * decay_between(e, 0, rows[0], column.x),
                                      cb.y * delta.y * decay_between(e, 1, rows[0], column.y));
          m[2 * half + 1] = pack_pair<Io>(cb.z * delta.x * decay_between(e, 2, rows[1], column.x),
                                          cb.w * delta.y * decay_between(e, 3, rows[1], column.y));
        }
      }
      hopper::store_matrices(tile ^ j * 32, m[0], m[1], m[2], m[3]);
    }
  }

  /// A barrier of this warpgroup's threads.
  __device__ static void group_barrier() {
    asm volatile("bar.sync 1, 128;\n" ::: "memory");
  }

  /// y = enter ∘ (C·Sᵀ), and its part of what flows past the steps.
  __device__ __forceinline__ void weigh_states(float (&y)[32], const std::uint32_t (&dy)[16],
                                               const RowWeights& enter, float (&flow_out)[2]) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 pair = unpack_pair<Io>(dy[i]);
      y[2 * i] *= enter.row[i % 2];
      y[2 * i + 1] *= enter.row[i % 2];
      flow_out[i % 2] += pair.x * y[2 * i] + pair.y * y[2 * i + 1];
    }
  }

  /// dz = dout·silu'(z)·(y + D·x), over z.
  __device__ __forceinline__ void store_dz(const float (&y)[32], const float (&slopes)[32],
                                           const SkipWeights& skip) const {
    hopper::barrier_wait(shared_.gates_read(input_at_), input_at_.parity);  // by the key warpgroup
    const std::uint32_t x_tile = shared_.x_tile(input_at_) + fragment_;
    const std::uint32_t z_tile = shared_.z_tile(input_at_) + fragment_;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t x[4];
      std::uint32_t dz[4];
      load_matrices(x, x_tile ^ j * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * j + 2 * i;
        const float2 d = skip.of(2 * j + i / 2);
        const float2 pair = unpack_pair<Io>(x[i]);
        dz[i] =
            pack_pair<Io>(slopes[at] * (y[at] + d.x * pair.x), slopes[at + 1] * (y[at + 1] + d.y * pair.y));
      }
      hopper::store_matrices(z_tile ^ j * 32, dz[0], dz[1], dz[2], dz[3]);
    }
  }

  /// From dy·xᵀ: Q, and the sums of W/Δ over columns and of W over rows.
  __device__ __forceinline__ void finish_weights(const float (&dyx)[32], const Steps& steps,
                                                 float (&flow_out)[2], HeadFlows& flows) const {
    const float rows[2] = {kLog2E * steps[kStepDecay][at_.row_of(0)],
                           kLog2E * steps[kStepDecay][at_.row_of(2)]};
    float columns[16];
    float diagonal[2] = {0.0F, 0.0F};  // in the lanes that have it
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      columns[2 * e] = columns[2 * e + 1] = 0.0F;
      if (e / 2 > warp_) continue;
      const float4 cb = shared_.cb()[e][thread_];
      float4 q = shared_.q()[e][thread_];
      const int s = at_.column_of(e, 0);
      const float2 column = *reinterpret_cast<const float2*>(steps[kStepDecay] + s);
      const float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + s);
      const auto element = [&](int i, float row, float column_decay, float step, float product, float& sum) {
        const float decayed = decay_between(e, i, row, column_decay) * dyx[4 * e + i];
        const float w = product * decayed;
        sum += decayed * step;
        if (s + i % 2 < at_.row_of(i)) {
          columns[2 * e + i % 2] += w;  // not the diagonal too: beside it, what strong decays leave is lost
          flow_out[i / 2] += w * step;
        }
        if (s + i % 2 == at_.row_of(i)) diagonal[i / 2] = w;
      };
      element(0, rows[0], column.x, delta.x, cb.x, q.x);
      element(1, rows[0], column.y, delta.y, cb.y, q.y);
      element(2, rows[1], column.x, delta.x, cb.z, q.z);
      element(3, rows[1], column.y, delta.y, cb.w, q.w);
      shared_.q()[e][thread_] = q;
    }
    if (at_.lane / 8 == at_.lane % 4) {
      flows.diagonal[at_.row_of(0)] = diagonal[0];
      flows.diagonal[at_.row_of(2)] = diagonal[1];
    }
    store_column_sums(columns, flows.column[warp_], at_.lane);
  }

  /// In f16, what Q is scaled by; 1 otherwise.
  __device__ __forceinline__ float scale_of_products() const {
    if constexpr (!T::kScaled) return 1.0F;
    float largest = 0.0F;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float4 sums = shared_.q()[e][thread_];
      largest =
          fmaxf(fmaxf(fmaxf(largest, fabsf(sums.x)), fmaxf(fabsf(sums.y), fabsf(sums.z))), fabsf(sums.w));
    }
    largest = largest_of_lanes(largest);
    if (at_.lane == 0) shared_.product_scales()[warp_] = largest;
    group_barrier();
    return scale_of_warps(shared_.product_scales(), kTileTarget);
  }

  /// dC += Q·B, and out. Q goes to the key warpgroup in the place of M.
  __device__ __forceinline__ void finish(Sums& dC) {
    const float scale = scale_of_products();
    std::uint32_t q[16];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float4 sums = shared_.q()[e][thread_];
      if constexpr (T::kScaled)
        sums = make_float4(scale * sums.x, scale * sums.y, scale * sums.z, scale * sums.w);
      q[2 * e] = pack_pair<Io>(sums.x, sums.y);
      q[2 * e + 1] = pack_pair<Io>(sums.z, sums.w);
    }
    shared_.pairs().wait_empty(pair_at_);
    store_tile_pairs(shared_.mixing_tile(pair_at_) + fragment_, q);
    warp_arrive(shared_.pairs().full(pair_at_), at_.lane);
    multiply_projection<T>(dC, q, shared_.b_tile(), scale);
    const int thread = group_thread();  // again: registers are short
    write_projection<Io, kHalves>(args_, Projection::C, dC, {16 * (thread / 32), 0, thread % 32});
  }

  const GradientArgs& args_;
  Shared shared_;
  int thread_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  unsigned reaches_;  ///< causal_pairs
  typename Shared::Inputs::Position input_at_;
  typename Shared::Pairs::Position pair_at_;
};

}  // namespace ssmbench::ssd_hopper_bwd
