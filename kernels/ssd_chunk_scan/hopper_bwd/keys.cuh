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
    const BlockPlace place(args_);
    const int first = place.first_head;
    const int end = first + place.heads;
    for (int head = first; head < end; ++head) {
      one_head(dB, head);
      input_at_.advance();
      pair_at_.advance();
    }
    finish(dB);
  }

 private:
  __device__ __forceinline__ void one_head(Sums& dB, int head) {
    const SkipWeights skip(args_.bwd.in, head, at_.lane, shared_.skip(input_at_));
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
    const float unscale = shared_.unscale(input_at_, kUnscaleGradient);
    float states = sum_lanes<1, 16>(product_of_states());
    if constexpr (T::kScaled) states *= unscale * shared_.unscale(input_at_, kUnscaleState);
    shared_.flows().wait_empty(pair_at_);
    HeadFlows& flows = shared_.flows_of(pair_at_);
    float direct[32];
    weigh_skipped(direct, x, skip, flows);

    hopper::wgmma_wait<1>();
    hopper::pin_registers(u);
    float into[2] = {0.0F, 0.0F};
    const float delta[2] = {steps[kStepDelta][at_.row_of(0)], steps[kStepDelta][at_.row_of(2)]};
    const float leave[2] = {unscale * steps[kStepLeave][at_.row_of(0)],
                            unscale * steps[kStepLeave][at_.row_of(2)]};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 pair = unpack_pair<Io>(x[i]);
      u[2 * i] *= leave[i % 2];
      u[2 * i + 1] *= leave[i % 2];
      into[i % 2] += pair.x * u[2 * i] + pair.y * u[2 * i + 1];
      u[2 * i] *= delta[i % 2];
      u[2 * i + 1] *= delta[i % 2];
    }

    const float weights[2] = {delta[0] * leave[0], delta[1] * leave[1]};
    if constexpr (kHalves == 2) {
      hopper::wgmma_wait<0>();
      hopper::pin_registers(product);
      add_weighted(dB[0], product, weights);
      hopper::pin_registers(product);
      start_product<Io>(product, x, shared_.dstate_tile(input_at_) + kTile);
    }

    shared_.pairs().wait_full(pair_at_);
    [[maybe_unused]] float scale = 1.0F;  // of M
    if constexpr (T::kScaled) {
      scale = scale_of_warps(shared_.largest_mixing(pair_at_), kTopTarget);
#pragma unroll
      for (float& value : u) value *= scale;
    }
    start_tile_product<Io, kAcross, kAcross, kSteps, true>(u, tile_operand(shared_.mixing_tile(pair_at_)),
                                                           tile_operand(shared_.dy_tile(pair_at_)));
    hopper::wgmma_wait<1>();
    hopper::pin_registers(product);
    add_weighted(dB[kHalves - 1], product, weights);

#pragma unroll
    for (int j = 0; j < 2; ++j) {
      into[j] = sum_lanes<1, 2>(into[j]);
      if (at_.lane % 4 == 0) flows.into[at_.row_of(2 * j)] = into[j];
    }
    if (at_.lane == 0) flows.states[warp_] = states;
    hopper::barrier_arrive(shared_.flows().full(pair_at_));

    hopper::wgmma_wait<0>();
    hopper::pin_registers(u);
    warp_arrive(shared_.pairs().empty(pair_at_), at_.lane);
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : u) value *= inverse_of_power(scale);
    store_dx(u, direct);
    hopper::fence_async_proxy();
    warp_arrive(shared_.inputs().done(input_at_), at_.lane);
  }

  /// This thread's part of ⟨S', S⟩.
  __device__ __forceinline__ float product_of_states() const {
    return ssd_hopper_bwd::product_of_states<Io, T::kStates>(shared_.vectors(shared_.state_tile(input_at_)),
                                                             shared_.vectors(shared_.dstate_tile(input_at_)));
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

  /// D·dy with dy in f32, and dy·x summed over this warp's steps. The query warpgroup overwrites z after it.
  __device__ __forceinline__ void weigh_skipped(float (&direct)[32], const std::uint32_t (&x)[16],
                                                const SkipWeights& skip, HeadFlows& flows) const {
    if (args_.bwd.in.D == nullptr) {
#pragma unroll
      for (float& value : direct) value = 0.0F;
    } else {
      float columns[16];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::uint32_t dout[4];
        std::uint32_t z[4];
        load_matrices(dout, (shared_.dout_tile(input_at_) + fragment_) ^ j * 32);
        if constexpr (T::kGated) load_matrices(z, (shared_.z_tile(input_at_) + fragment_) ^ j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int e = 2 * j + i / 2;
          float2 dy = unpack_pair<Io>(dout[i]);
          if constexpr (T::kGated) {
            const float2 gate = unpack_pair<Io>(z[i]);
            dy = make_float2(dy.x * silu_approximate(gate.x).value, dy.y * silu_approximate(gate.y).value);
          }
          const float2 pair = unpack_pair<Io>(x[4 * j + i]);
          columns[2 * e] = (i % 2 == 0 ? 0.0F : columns[2 * e]) + dy.x * pair.x;
          columns[2 * e + 1] = (i % 2 == 0 ? 0.0F : columns[2 * e + 1]) + dy.y * pair.y;
          const float2 d = skip.of(e);
          direct[8 * j + 2 * i] = d.x * dy.x;
          direct[8 * j + 2 * i + 1] = d.y * dy.y;
        }
      }
      const int lane = group_thread() % 32;  // again: registers are short
      store_column_sums(columns, flows.skip[warp_], lane);
    }
    if constexpr (T::kGated) warp_arrive(shared_.gates_read(input_at_), at_.lane);
  }

  /// dx = u + D·dy, over dout.
  __device__ __forceinline__ void store_dx(const float (&u)[32], const float (&direct)[32]) const {
    std::uint32_t dx[16];
#pragma unroll
    for (int i = 0; i < 16; ++i)
      dx[i] = pack_pair<Io>(u[2 * i] + direct[2 * i], u[2 * i + 1] + direct[2 * i + 1]);
    store_tile_pairs(shared_.dout_tile(input_at_) + fragment_, dx);
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

  const GradientArgs& args_;
  Shared shared_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  typename Shared::Inputs::Position input_at_;
  typename Shared::Pairs::Position pair_at_;
};

}  // namespace ssmbench::ssd_hopper_bwd
