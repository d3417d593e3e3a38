#pragma once

// The key warpgroup of the Hopper gradient kernel: what belongs to a chunk's columns s, the steps that write
// the state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dx = Mᵀ·dy + Δ∘leave ∘ (B·S'ᵀ) + D·dy    dB += Δ∘leave ∘ (x·S')
//
// and after the last head dB += Qᵀ·C. dy comes from the query warpgroup, M and Q from that of weights.

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
      slot_.advance();
    }
    finish(dB);
  }

 private:
  __device__ __forceinline__ void one_head(Sums& dB) {
    shared_.inputs().wait_full(slot_);
    shared_.states().wait_full(slot_);
    const float(&steps)[4][kSteps] = shared_.steps(slot_);
    float u[32];
    float product[32];
    const std::uint64_t b = tile_operand(shared_.b_tile());
    const std::uint64_t dstates = tile_operand(shared_.dstate_tile(slot_));
    const std::uint64_t x = tile_operand(shared_.x_tile(slot_));
    start_tile_product<Io, kAlong, kAlong, T::kStates>(u, b, dstates);
    start_tile_product<Io, kAlong, kAcross, kSteps>(product, x, dstates);
    hopper::barrier_wait(shared_.factors_full(slot_), slot_.parity);  // with D
    const float unscale = shared_.unscale(slot_, kUnscaleGradient);
    shared_.flows().wait_empty(slot_);
    HeadFlows& flows = shared_.flows_of(slot_);

    hopper::wgmma_wait<1>();
    hopper::pin_registers(u);
    const float delta[2] = {steps[kStepDelta][at_.row_of(0)], steps[kStepDelta][at_.row_of(2)]};
    const float leave[2] = {unscale * steps[kStepLeave][at_.row_of(0)],
                            unscale * steps[kStepLeave][at_.row_of(2)]};
    store_dot(flows.into, u, leave);
    const float weights[2] = {delta[0] * leave[0], delta[1] * leave[1]};
#pragma unroll
    for (int i = 0; i < 32; ++i) u[i] *= weights[i / 2 % 2];

    if constexpr (kHalves == 2) {
      hopper::wgmma_wait<0>();
      hopper::pin_registers(product);
      add_weighted(dB[0], product, weights);
      hopper::pin_registers(product);
      start_tile_product<Io, kAlong, kAcross, kSteps>(product, x,
                                                      tile_operand(shared_.dstate_tile(slot_) + kTile));
    }

    take_gradients(u, delta, flows);
    hopper::barrier_arrive(shared_.flows().full(slot_));
    if constexpr (T::kGated) shared_.rounded().wait_full(slot_);
    shared_.mixing().wait_full(slot_);
    [[maybe_unused]] float scale = 1.0F;  // of M
    if constexpr (T::kScaled) {
      scale = scale_of_warps(shared_.largest_mixing(slot_), kTopTarget);
#pragma unroll
      for (float& value : u) value *= scale;
    }
    start_tile_product<Io, kAcross, kAcross, kSteps, true>(u, tile_operand(shared_.mixing_tile(slot_)),
                                                           tile_operand(shared_.dy_tile(slot_, slot_)));
    hopper::wgmma_wait<1>();
    hopper::pin_registers(product);
    warp_arrive(shared_.states().empty(slot_), at_.lane);
    add_weighted(dB[kHalves - 1], product, weights);

    hopper::wgmma_wait<0>();
    hopper::pin_registers(u);
    if constexpr (T::kGated) warp_arrive(shared_.rounded().empty(slot_), at_.lane);
    warp_arrive(shared_.mixing().empty(slot_), at_.lane);
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : u) value *= inverse_of_power(scale);
    store_dx(u, steps);
    hopper::fence_async_proxy();
    warp_arrive(shared_.inputs().done(slot_), at_.lane);
  }

  /// x·u of this warp's rows, weighted.
  __device__ __forceinline__ void store_dot(float (&to)[kSteps], const float (&u)[32],
                                            const float (&weights)[2]) const {
    float sums[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t x[4];
      load_matrices(x, (shared_.x_tile(slot_) + fragment_) ^ j * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack_pair<Io>(x[i]);
        const int at = 8 * j + 2 * i;
        sums[i % 2] = fmaf(pair.x, u[at], fmaf(pair.y, u[at + 1], sums[i % 2]));
      }
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
                               shared_.mixing_tile(slot_) + transposed + 2048 * k);
  }

  /// M's diagonal, and D.
  template <class Visit>
  __device__ __forceinline__ void with_diagonal(const float (&delta)[2], const Visit& visit) const {
    const float diagonal[2] = {shared_.diagonal()[at_.row_of(0)] * delta[0],
                               shared_.diagonal()[at_.row_of(2)] * delta[1]};
    shared_.skip_weights(args_.bwd.in, slot_, at_.lane).with_diagonal(diagonal, visit);
  }

  /// u += (M's diagonal + D)·dy; and dy·x summed over head dims, or also over this warp's steps.
  __device__ __forceinline__ void take_gradients(float (&u)[32], const float (&delta)[2], HeadFlows& flows) {
    if constexpr (T::kGated) shared_.gradients().wait_full(gradients_at());
    float sums[2] = {0.0F, 0.0F};
    const auto add = [&](int i, std::uint32_t x, float2 pair, float2 d) {
      const float2 of_x = unpack_pair<Io>(x);
      sums[i % 2] = fmaf(of_x.x, pair.x, fmaf(of_x.y, pair.y, sums[i % 2]));
      u[2 * i] = fmaf(d.x, pair.x, u[2 * i]);
      u[2 * i + 1] = fmaf(d.y, pair.y, u[2 * i + 1]);
    };
    with_diagonal(delta, [&](const auto& weight) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float dy[8];
        std::uint32_t x[4];
        load_gradients<T>(dy, shared_, slot_, fragment_, j);
        load_matrices(x, (shared_.x_tile(slot_) + fragment_) ^ j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          add(4 * j + i, x[i], make_float2(dy[2 * i], dy[2 * i + 1]), weight(2 * j + i / 2, i % 2));
      }
    });
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sums[j] = sum_lanes<1, 2>(sums[j]);
      if (at_.lane % 4 == 0) flows.direct[at_.row_of(2 * j)] = sums[j];
    }
    if (args_.bwd.in.skip_per_headdim) {
      float columns[16];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float dy[8];
        std::uint32_t x[4];
        load_gradients<T>(dy, shared_, slot_, fragment_, j);
        load_matrices(x, (shared_.x_tile(slot_) + fragment_) ^ j * 32);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int e = 2 * j + half;
          const float2 upper = unpack_pair<Io>(x[2 * half]);
          const float2 lower = unpack_pair<Io>(x[2 * half + 1]);
          columns[2 * e] = dy[4 * half] * upper.x + dy[4 * half + 2] * lower.x;
          columns[2 * e + 1] = dy[4 * half + 1] * upper.y + dy[4 * half + 3] * lower.y;
        }
      }
      const int lane = group_thread() % 32;  // again: registers are short
      store_column_sums(columns, flows.skip[warp_], lane);
    }
    // After uses of what was loaded, which an arrival would overtake.
    if constexpr (T::kGated)
      if (!has_still(delta)) hopper::barrier_arrive(shared_.gradients().empty(gradients_at()));
  }

  /// Whether Δ = 0 in a row of the warp. M has not quite 0 there (step_weight).
  __device__ __forceinline__ bool has_still(const float (&delta)[2]) const {
    return __any_sync(0xFFFFFFFFU, delta[0] == 0.0F || delta[1] == 0.0F);
  }

  /// dx = u, over dout.
  __device__ __forceinline__ void store_dx(float (&u)[32], const float (&steps)[4][kSteps]) const {
    const float delta[2] = {steps[kStepDelta][at_.row_of(0)], steps[kStepDelta][at_.row_of(2)]};
    if (has_still(delta)) {
      with_diagonal(delta, [&](const auto& weight) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float dy[8];
          load_gradients<T>(dy, shared_, slot_, fragment_, j);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (delta[i % 2] != 0.0F) continue;
            const float2 d = weight(2 * j + i / 2, i % 2);
            u[8 * j + 2 * i] = d.x * dy[2 * i];
            u[8 * j + 2 * i + 1] = d.y * dy[2 * i + 1];
          }
        }
      });
      if constexpr (T::kGated) hopper::barrier_arrive(shared_.gradients().empty(gradients_at()));
    }
    std::uint32_t dx[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) dx[i] = pack_pair<Io>(u[2 * i], u[2 * i + 1]);
    store_tile_pairs(shared_.dx_tile(slot_) + fragment_, dx);
  }

  /// dB += Qᵀ·C, and out.
  __device__ __forceinline__ void finish(Sums& dB) {
    shared_.mixing().wait_full(slot_);
    std::uint32_t q[16];
    load_transposed(q);
    const float scale = T::kScaled ? scale_of_warps(shared_.product_scales(), kTileTarget) : 1.0F;
    multiply_projection<T>(dB, q, shared_.c_tile(), scale);
    const int thread = group_thread();  // again: registers are short
    write_projection<Io, kHalves>(args_, Projection::B, dB, {16 * (thread / 32), 0, thread % 32});
  }

  /// A ring of one slot: its parity is that of the head, as the slot of two is.
  __device__ typename Shared::Gradients::Position gradients_at() const {
    return {0, slot_.slot};
  }

  const GradientArgs& args_;
  Shared shared_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  typename Shared::Inputs::Position slot_;
};

}  // namespace ssmbench::ssd_hopper_bwd
