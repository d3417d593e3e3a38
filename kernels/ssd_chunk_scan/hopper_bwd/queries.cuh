#pragma once

// The query warpgroup of the Hopper gradient kernel: what belongs to a chunk's rows t, the steps that read
// the state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dy = dout·silu(z)    y = M·x + enter ∘ (C·Sᵀ) → dz    dC += enter ∘ (dy·S)
//
// and after the last head dC += Q·B. It hands on dy; M and Q come from the warpgroup of weights.

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
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)) {}

  __device__ void run() {
    Sums dC;
    clear_sums(dC);
    hopper::barrier_wait(shared_.projections_full(), 0);
    if constexpr (T::kGated) hopper::barrier_wait(shared_.diagonal_full(), 0);
    for (int left = BlockPlace(args_).heads; left > 0; --left) {
      one_head(dC);
      slot_.advance();
    }
    finish(dC);
  }

 private:
  __device__ __forceinline__ void one_head(Sums& dC) {
    shared_.inputs().wait_full(slot_);
    const Steps& steps = shared_.steps(slot_);
    if constexpr (T::kGated) {
      shared_.rounded().wait_empty(slot_);
      shared_.gradients().wait_empty(gradients_at());
    }
    float slopes[T::kGated ? 32 : 1];
    gate(slopes);
    if constexpr (T::kGated) {
      hopper::barrier_arrive(shared_.gradients().full(gradients_at()));
      hopper::fence_async_proxy();
      warp_arrive(shared_.rounded().full(slot_), at_.lane);
    }
    shared_.states().wait_full(slot_);
    float y[32];
    float product[32];
    start_tile_product<Io, kAlong, kAlong, T::kStates>(y, tile_operand(shared_.c_tile()),
                                                       tile_operand(shared_.state_tile(slot_)));
    if constexpr (T::kGated) shared_.rounded().wait_full(slot_);  // all warps' rows
    start_gradients_product(product, 0);
    hopper::wgmma_wait<1>();
    hopper::pin_registers(y);
    float flow_out[2] = {0.0F, 0.0F};
    const RowWeights enter = enter_weights(steps);
    weigh_states(y, flow_out, enter);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(product);
    if constexpr (kHalves == 2) {
      add_weighted(dC[0], product, again(enter, steps).row);
      hopper::pin_registers(product);
      start_gradients_product(product, 1);
    }
    shared_.flows().wait_empty(slot_);
    HeadFlows& flows = shared_.flows_of(slot_);
    const int thread = group_thread();  // again: registers are short
    const Patch at{16 * (thread / 32), 0, thread % 32};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      flow_out[j] = sum_lanes<1, 2>(flow_out[j]);
      if (at.lane % 4 == 0) flows.out[at.row_of(2 * j)] = flow_out[j];
    }
    hopper::barrier_arrive(shared_.flows().full(slot_));
    [[maybe_unused]] float scale = 1.0F;  // of M
    shared_.mixing().wait_full(slot_);    // without z too: a head on, its parity is taken for that of Q's
    if constexpr (T::kGated) {
      hopper::barrier_wait(shared_.factors_full(slot_), slot_.parity);  // with D
      if constexpr (T::kScaled) {
        scale = scale_of_warps(shared_.largest_mixing(slot_), kTopTarget);
#pragma unroll
        for (float& value : y) value *= scale;
      }
      start_tile_product<Io, kAlong, kAcross, kSteps, true>(y, tile_operand(shared_.mixing_tile(slot_)),
                                                            tile_operand(shared_.x_tile(slot_)));
    }
    hopper::wgmma_wait<T::kGated ? 1 : 0>();
    hopper::pin_registers(product);
    warp_arrive(shared_.states().empty(slot_), at_.lane);
    add_weighted(dC[kHalves - 1], product, again(enter, steps).row);
    if constexpr (T::kGated) {
      hopper::wgmma_wait<0>();
      hopper::pin_registers(y);
      warp_arrive(shared_.mixing().empty(slot_), at_.lane);
      if constexpr (T::kScaled)
#pragma unroll
        for (float& value : y) value *= inverse_of_power(scale);
      store_dz(y, slopes, steps);
      hopper::fence_async_proxy();
    }
    warp_arrive(shared_.inputs().done(slot_), at_.lane);
  }

  struct RowWeights {
    float row[2];
  };
  /// `enter` of this thread's rows, for products with S.
  __device__ __forceinline__ RowWeights enter_weights(const Steps& steps) const {
    const float unscale = shared_.unscale(slot_, kUnscaleState);
    const int thread = group_thread();  // again: registers are short
    const Patch at{16 * (thread / 32), 0, thread % 32};
    return {unscale * steps[kStepEnter][at.row_of(0)], unscale * steps[kStepEnter][at.row_of(2)]};
  }

  /// With z loaded again where it is used: registers are short. Without it nothing is stored behind the last
  /// use, so that loads could be under way when the inputs are handed back.
  __device__ __forceinline__ RowWeights again(const RowWeights& enter,
                                              [[maybe_unused]] const Steps& steps) const {
    if constexpr (T::kGated)
      return enter_weights(steps);
    else
      return enter;
  }

  /// Starts product = dy·S, of 64 states. It is weighted in f32, since weights on dy would round that twice,
  /// and S of each head has a scale of its own in f16.
  __device__ __forceinline__ void start_gradients_product(float (&product)[32], int half) const {
    start_tile_product<Io, kAlong, kAcross, kSteps>(product, tile_operand(shared_.dy_tile(slot_, slot_)),
                                                    tile_operand(shared_.state_tile(slot_) + half * kTile));
  }

  /// dy = dout·silu(z), handed on, and dout·silu'(z).
  __device__ __forceinline__ void gate(float (&slopes)[T::kGated ? 32 : 1]) const {
    if constexpr (!T::kGated) return;
    const int thread = group_thread();  // again: registers are short
    const std::uint32_t fragment = hopper::fragment_offset(thread / 32, thread % 32);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t dout[4];
      std::uint32_t z[4];
      load_matrices(dout, (shared_.dout_tile(slot_) + fragment) ^ j * 32);
      load_matrices(z, (shared_.z_tile(slot_) + fragment) ^ j * 32);
      float2 upper;
      std::uint32_t dy[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = 4 * j + k;
        const float2 pair = unpack_pair<Io>(dout[k]);
        const float2 gates = unpack_pair<Io>(z[k]);
        const float2 value =
            make_float2(gated(pair.x, gates.x, slopes[2 * i]), gated(pair.y, gates.y, slopes[2 * i + 1]));
        dy[k] = pack_pair<Io>(value.x, value.y);
        if (k % 2 == 0)
          upper = value;
        else
          shared_.dy()[2 * j + k / 2][thread] = make_float4(upper.x, upper.y, value.x, value.y);
      }
      hopper::store_matrices((shared_.dy_tile(slot_, slot_) + fragment) ^ j * 32, dy[0], dy[1], dy[2], dy[3]);
    }
  }
  /// y = enter ∘ (C·Sᵀ), where it is of use, and its part of what flows past the steps.
  __device__ __forceinline__ void weigh_states(float (&y)[32], float (&flow_out)[2],
                                               const RowWeights& enter) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float dy[8];
      load_gradients<T>(dy, shared_, slot_, fragment_, j);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float* const pair = y + 8 * j + 2 * i;
        flow_out[i % 2] = fmaf(dy[2 * i], pair[0], fmaf(dy[2 * i + 1], pair[1], flow_out[i % 2]));
        if constexpr (T::kGated) {
          pair[0] *= enter.row[i % 2];
          pair[1] *= enter.row[i % 2];
        }
      }
    }
    flow_out[0] *= enter.row[0];
    flow_out[1] *= enter.row[1];
  }
  /// dout·silu(z), and dout·silu'(z).
  __device__ static __forceinline__ float gated(float dout, float z, float& slope) {
    const float sigma = reciprocal_approximate(1.0F + exp2_approximate(-kLog2E * z));
    const float weighted = dout * sigma;
    const float value = weighted * z;
    slope = weighted + (value - value * sigma);
    return value;
  }

  /// dz = dout·silu'(z)·(y + (M's diagonal + D)·x), over z.
  __device__ __forceinline__ void store_dz(const float (&y)[32], const float (&slopes)[32],
                                           const Steps& steps) const {
    const int thread = group_thread();  // again: registers are short
    const Patch at{16 * (thread / 32), 0, thread % 32};
    const SkipWeights skip = shared_.skip_weights(args_.bwd.in, slot_, at.lane);
    const float diagonal[2] = {shared_.diagonal()[at.row_of(0)] * steps[kStepDelta][at.row_of(0)],
                               shared_.diagonal()[at.row_of(2)] * steps[kStepDelta][at.row_of(2)]};
    const std::uint32_t fragment = hopper::fragment_offset(thread / 32, thread % 32);
    const std::uint32_t x_tile = shared_.x_tile(slot_) + fragment;
    const std::uint32_t z_tile = shared_.z_tile(slot_) + fragment;
    skip.with_diagonal(diagonal, [&](const auto& weight) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::uint32_t x[4];
        std::uint32_t dz[4];
        load_matrices(x, x_tile ^ j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 8 * j + 2 * i;
          const float2 d = weight(2 * j + i / 2, i % 2);
          const float2 pair = unpack_pair<Io>(x[i]);
          dz[i] =
              pack_pair<Io>(slopes[at] * (y[at] + d.x * pair.x), slopes[at + 1] * (y[at + 1] + d.y * pair.y));
        }
        hopper::store_matrices(z_tile ^ j * 32, dz[0], dz[1], dz[2], dz[3]);
      }
    });
  }

  /// dC += Q·B, and out.
  __device__ __forceinline__ void finish(Sums& dC) {
    shared_.mixing().wait_full(slot_);
    std::uint32_t q[16];
    const int thread = group_thread();  // again: registers are short
    load_tile_pairs(q, shared_.mixing_tile(slot_) + hopper::fragment_offset(thread / 32, thread % 32));
    const float scale = T::kScaled ? scale_of_warps(shared_.product_scales(), kTileTarget) : 1.0F;
    multiply_projection<T>(dC, q, shared_.b_tile(), scale);
    write_projection<Io, kHalves>(args_, Projection::C, dC, {16 * (thread / 32), 0, thread % 32});
  }

  /// A ring of one slot: its parity is that of the head, as the slot of two is.
  __device__ typename Shared::Gradients::Position gradients_at() const {
    return {0, slot_.slot};
  }

  const GradientArgs& args_;
  Shared shared_;
  Patch at_;
  std::uint32_t fragment_;
  typename Shared::Inputs::Position slot_;
};

}  // namespace ssmbench::ssd_hopper_bwd
