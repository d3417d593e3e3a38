#pragma once

// The key warpgroup of the Hopper gradient kernel: what belongs to a chunk's columns s, the steps that write
// the state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dx = Mᵀ·dy + Δ∘leave ∘ (B·S'ᵀ) + D·dy    dB += Δ∘leave ∘ (x·S')    ⟨S', S⟩
//
// and after the last head dB += Qᵀ·C. dy, M and Q come from the query warpgroup.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::ssd_hopper_bwd {

template <class T>
class KeyWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  static constexpr int kHalves = Shared::Layout::kHalves;
  using Sums = ProjectionSums<kHalves>;
  static constexpr auto kAlong = hopper::Major::k;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ KeyWarpgroup(const GradientArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)) {}

  __device__ void run() {
    Sums dB;
    clear_sums(dB);
    hopper::barrier_wait(shared_.projections_full(), 0);
    hopper::barrier_wait(shared_.diagonal_full(), 0);
    for (int left = BlockPlace(args_).heads; left > 0; --left) {
      one_head(dB);
      input_at_.advance();
      pair_at_.advance();
    }
    finish(dB);
  }

 private:
  __device__ __forceinline__ void one_head(Sums& dB) {
    shared_.inputs().wait_full(input_at_);
    const float(&steps)[4][kSteps] = shared_.steps(input_at_);
    std::uint32_t x[16];
    load_tile_pairs(x, shared_.x_tile(input_at_) + fragment_);
    float u[32];
    float product[32];
    const std::uint64_t b = tile_operand(shared_.b_tile());
    const std::uint64_t dstates = tile_operand(shared_.dstate_tile(input_at_));
    hopper::pin_registers(x);
    start_tile_product<Io, kAlong, kAlong, T::kStates>(u, b, dstates);
    start_product<Io>(product, x, shared_.dstate_tile(input_at_));
    hopper::barrier_wait(shared_.factors_full(input_at_), input_at_.parity);  // with D
    const float unscale = shared_.unscale(input_at_, kUnscaleGradient);
    shared_.flows().wait_empty(pair_at_);
    HeadFlows& flows = shared_.flows_of(pair_at_);
    float dy[32];
    if constexpr (!T::kHandsOn) take_gradients(dy, x, flows);

    hopper::wgmma_wait<1>();
    hopper::pin_registers(u);
    const float delta[2] = {step_weight(steps[kStepDelta][at_.row_of(0)]),
                            step_weight(steps[kStepDelta][at_.row_of(2)])};
    const float leave[2] = {unscale * steps[kStepLeave][at_.row_of(0)],
                            unscale * steps[kStepLeave][at_.row_of(2)]};
    store_dot(flows.into, u, x, leave);
    const float weights[2] = {delta[0] * leave[0], delta[1] * leave[1]};
#pragma unroll
    for (int i = 0; i < 32; ++i) u[i] *= weights[i / 2 % 2];

    if constexpr (kHalves == 2) {
      hopper::wgmma_wait<0>();
      hopper::pin_registers(product);
      add_weighted(dB[0], product, weights);
      hopper::pin_registers(product);
      start_product<Io>(product, x, shared_.dstate_tile(input_at_) + kTile);
    }

    if constexpr (T::kHandsOn) take_gradients(dy, x, flows);
    hopper::barrier_arrive(shared_.flows().full(pair_at_));
    shared_.pairs().wait_full(pair_at_);
    [[maybe_unused]] float scale = 1.0F;  // of M
    if constexpr (T::kScaled) {
      scale = scale_of_warps(shared_.largest_mixing(pair_at_), kTopTarget);
#pragma unroll
      for (float& value : u) value *= scale;
    }
    start_tile_product<Io, kAcross, kAcross, kSteps, true>(
        u, tile_operand(shared_.mixing_tile(pair_at_)), tile_operand(shared_.dy_tile(pair_at_, input_at_)));
    hopper::wgmma_wait<1>();
    hopper::pin_registers(product);
    add_weighted(dB[kHalves - 1], product, weights);

    hopper::wgmma_wait<0>();
    hopper::pin_registers(u);
    warp_arrive(shared_.pairs().empty(pair_at_), at_.lane);
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : u) value *= inverse_of_power(scale);
    store_dx(u, dy, steps);
    hopper::fence_async_proxy();
    warp_arrive(shared_.inputs().done(input_at_), at_.lane);
  }

  /// x·u of this warp's rows, weighted.
  __device__ __forceinline__ void store_dot(float (&to)[kSteps], const float (&u)[32],
                                            const std::uint32_t (&x)[16], const float (&weights)[2]) const {
    float sums[2] = {0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 pair = unpack_pair<Io>(x[i]);
      sums[i % 2] = fmaf(pair.x, u[2 * i], fmaf(pair.y, u[2 * i + 1], sums[i % 2]));
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sums[j] = weights[j] * sum_lanes<1, 2>(sums[j]);
      if (at_.lane % 4 == 0) to[at_.row_of(2 * j)] = sums[j];
    }
  }

  /// The transposed tile of Q: A of a product.
  __device__ __forceinline__ void load_transposed(std::uint32_t (&to)[16]) const {
    const int thread = group_thread();
    const std::uint32_t transposed = hopper::transposed_fragment_offset(thread / 32, thread % 32);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      load_matrices_transposed(*reinterpret_cast<std::uint32_t(*)[4]>(to + 4 * k),
                               shared_.mixing_tile(pair_at_) + transposed + 2048 * k);
  }

  /// dy in f32, and dy·x summed over head dims, or also over this warp's steps.
  __device__ __forceinline__ void take_gradients(float (&dy)[32], const std::uint32_t (&x)[16],
                                                 HeadFlows& flows) {
    if constexpr (T::kHandsOn) {
      const int thread = group_thread();
      shared_.gradients().wait_full(gradients_at());
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float4 four = shared_.dy()[e][thread];
        dy[4 * e] = four.x;
        dy[4 * e + 1] = four.y;
        dy[4 * e + 2] = four.z;
        dy[4 * e + 3] = four.w;
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::uint32_t dout[4];
        std::uint32_t z[4];
        load_matrices(dout, (shared_.dout_tile(input_at_) + fragment_) ^ j * 32);
        if constexpr (T::kGated) load_matrices(z, (shared_.z_tile(input_at_) + fragment_) ^ j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float2 pair = unpack_pair<Io>(dout[i]);
          if constexpr (T::kGated) {
            const float2 gates = unpack_pair<Io>(z[i]);
            pair = make_float2(pair.x * silu_approximate(gates.x).value,
                               pair.y * silu_approximate(gates.y).value);
          }
          dy[8 * j + 2 * i] = pair.x;
          dy[8 * j + 2 * i + 1] = pair.y;
        }
      }
    }
    store_dot(flows.direct, dy, x, {1.0F, 1.0F});
    if (args_.bwd.in.skip_per_headdim) {
      float columns[16];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float2 upper = unpack_pair<Io>(x[2 * e]);
        const float2 lower = unpack_pair<Io>(x[2 * e + 1]);
        columns[2 * e] = dy[4 * e] * upper.x + dy[4 * e + 2] * lower.x;
        columns[2 * e + 1] = dy[4 * e + 1] * upper.y + dy[4 * e + 3] * lower.y;
      }
      const int lane = group_thread() % 32;  // again: registers are short
      store_column_sums(columns, flows.skip[warp_], lane);
    }
    if constexpr (T::kGated && !T::kHandsOn) warp_arrive(shared_.gates_read(input_at_), at_.lane);
    if constexpr (T::kHandsOn) {  // after uses of what was loaded, which an arrival would overtake
      hopper::barrier_arrive(shared_.gradients().empty(gradients_at()));
    }
  }

  /// dx = u + (M's diagonal + D)·dy, over dout.
  __device__ __forceinline__ void store_dx(float (&u)[32], const float (&dy)[32],
                                           const float (&steps)[4][kSteps]) const {
    const SkipWeights skip = shared_.skip_weights(args_.bwd.in, input_at_, at_.lane);
    const float delta[2] = {steps[kStepDelta][at_.row_of(0)], steps[kStepDelta][at_.row_of(2)]};
    const float diagonal[2] = {shared_.diagonal()[at_.row_of(0)] * delta[0],
                               shared_.diagonal()[at_.row_of(2)] * delta[1]};
    if (__any_sync(0xFFFFFFFFU, delta[0] == 0.0F || delta[1] == 0.0F))  // step_weight is not 0
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (delta[i / 2 % 2] == 0.0F) u[i] = 0.0F;
    const int thread = group_thread();  // again: registers are short
    const std::uint32_t tile =
        shared_.dout_tile(input_at_) + hopper::fragment_offset(thread / 32, thread % 32);
    skip.with_diagonal(diagonal, [&](const auto& weight) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::uint32_t dx[4];
        if constexpr (!T::kGated) load_matrices(dx, tile ^ j * 32);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i = 4 * j + k;
          const float2 d = weight(i / 2, i % 2);
          const float2 pair = T::kGated ? make_float2(dy[2 * i], dy[2 * i + 1]) : unpack_pair<Io>(dx[k]);
          dx[k] = pack_pair<Io>(u[2 * i] + d.x * pair.x, u[2 * i + 1] + d.y * pair.y);
        }
        hopper::store_matrices(tile ^ j * 32, dx[0], dx[1], dx[2], dx[3]);
      }
    });
  }

  /// dB += Qᵀ·C, and out.
  __device__ __forceinline__ void finish(Sums& dB) {
    shared_.pairs().wait_full(pair_at_);
    std::uint32_t q[16];
    load_transposed(q);
    const float scale = T::kScaled ? scale_of_warps(shared_.product_scales(), kTileTarget) : 1.0F;
    multiply_projection<T>(dB, q, shared_.c_tile(), scale);
    const int thread = group_thread();  // again: registers are short
    write_projection<Io, kHalves>(args_, Projection::B, dB, {16 * (thread / 32), 0, thread % 32});
  }

  /// A ring of one slot: its parity is that of the head, as the slot of two is.
  __device__ typename Shared::Gradients::Position gradients_at() const {
    return {0, pair_at_.slot};
  }

  const GradientArgs& args_;
  Shared shared_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  typename Shared::Inputs::Position input_at_;
  typename Shared::Pairs::Position pair_at_;
};

}  // namespace ssmbench::ssd_hopper_bwd
