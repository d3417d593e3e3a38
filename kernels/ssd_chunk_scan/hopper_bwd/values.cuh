#pragma once

// The value warpgroup of the Hopper gradient kernel, where it has three roles: y and dz of a chunk's rows t,
// and dy for the others. Warp w has rows 16w … 16w + 15 of every product:
//
//   dy = dout·silu(z)    y = M·x + enter ∘ (C·Sᵀ) → dz
//
// It hands on dy and enter ∘ dy, rounded, and in the place of z what rounding took from dy. M comes from the
// query warpgroup.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::ssd_hopper_bwd {

template <class T>
class ValueWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  using Steps = float[4][kSteps];
  static constexpr auto kAlong = hopper::Major::k;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ ValueWarpgroup(const GradientArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)) {}

  __device__ void run() {
    hopper::barrier_wait(shared_.projections_full(), 0);
    const BlockPlace place(args_);
    const int first = place.first_head;
    const int end = first + place.heads;
    for (int head = first; head < end; ++head) {
      one_head(head);
      input_at_.advance();
      pair_at_.advance();
      entered_at_.advance();
    }
  }

 private:
  __device__ __forceinline__ void one_head(int head) {
    const SkipWeights skip(args_.bwd.in, head, at_.lane, shared_.skip(input_at_));
    shared_.inputs().wait_full(input_at_);
    const Steps& steps = shared_.steps(input_at_);
    float y[32];
    multiply_rows<T>(y, hopper::operand_descriptor(shared_.c_tile(), kTile),
                     hopper::operand_descriptor(shared_.state_tile(input_at_), kTile));
    const float enter[2] = {steps[kStepEnter][at_.row_of(0)], steps[kStepEnter][at_.row_of(2)]};
    shared_.pairs().wait_empty(pair_at_);
    shared_.entered().wait_empty(entered_at_);
    float slopes[32];
    gate(slopes, enter);
    hopper::fence_async_proxy();
    warp_arrive(shared_.pairs().full(pair_at_), at_.lane);

    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    weigh_states(y, enter);
    shared_.mixing().wait_full(pair_at_);
    const std::uint64_t m = hopper::operand_descriptor(shared_.mixing_tile(pair_at_), kTile);
    const std::uint64_t x = hopper::operand_descriptor(shared_.x_tile(input_at_), kTile);
    hopper::pin_registers(y);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, kAlong, kAcross>(y, hopper::operand_step<kAlong>(m, k, kTile),
                                         hopper::operand_step<kAcross>(x, k, kTile), true);
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    warp_arrive(shared_.mixing().empty(pair_at_), at_.lane);
    store_dz(y, slopes, skip);
    hopper::fence_async_proxy();
    warp_arrive(shared_.inputs().done(input_at_), at_.lane);
  }

  /// dy = dout·silu(z), rounded; it and enter ∘ dy to their tiles, what rounding took to that of z. slopes =
  /// dout·silu'(z).
  __device__ __forceinline__ void gate(float (&slopes)[32], const float (&enter)[2]) const {
    const std::uint32_t dout_tile = shared_.dout_tile(input_at_) + fragment_;
    const std::uint32_t z_tile = shared_.z_tile(input_at_) + fragment_;
    const std::uint32_t dy_tile = shared_.dy_tile(pair_at_) + fragment_;
    const std::uint32_t entered_tile = shared_.entered_tile() + fragment_;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t dout[4];
      std::uint32_t z[4];
      load_matrices(dout, dout_tile ^ j * 32);
      load_matrices(z, z_tile ^ j * 32);
      std::uint32_t dy[4];
      std::uint32_t entered[4];
      std::uint32_t rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * j + i;
        const float2 of = unpack_pair<Io>(dout[i]);
        const float2 pair = unpack_pair<Io>(z[i]);
        const ValueSlope first = silu_approximate(pair.x);
        const ValueSlope second = silu_approximate(pair.y);
        const float2 value = make_float2(of.x * first.value, of.y * second.value);
        slopes[2 * at] = of.x * first.slope;
        slopes[2 * at + 1] = of.y * second.slope;
        dy[i] = pack_pair<Io>(value.x, value.y);
        const float2 back = unpack_pair<Io>(dy[i]);
        rest[i] = pack_pair<Io>(value.x - back.x, value.y - back.y);
        entered[i] = pack_pair<Io>(enter[i % 2] * value.x, enter[i % 2] * value.y);
      }
      hopper::store_matrices(dy_tile ^ j * 32, dy[0], dy[1], dy[2], dy[3]);
      hopper::store_matrices(entered_tile ^ j * 32, entered[0], entered[1], entered[2], entered[3]);
      hopper::store_matrices(z_tile ^ j * 32, rest[0], rest[1], rest[2], rest[3]);
    }
  }

  /// y = enter ∘ (C·Sᵀ), and its part of what flows past the steps. dy comes back from its tile: registers are
  /// short.
  __device__ __forceinline__ void weigh_states(float (&y)[32], const float (&enter)[2]) const {
    const std::uint32_t dy_tile = shared_.dy_tile(pair_at_) + fragment_;
    float flow[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t dy[4];
      load_matrices(dy, dy_tile ^ j * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * j + 2 * i;
        const float2 pair = unpack_pair<Io>(dy[i]);
        y[at] *= enter[i % 2];
        y[at + 1] *= enter[i % 2];
        flow[i % 2] += pair.x * y[at] + pair.y * y[at + 1];
      }
    }
    shared_.flows().wait_empty(pair_at_);
    HeadFlows& flows = shared_.flows_of(pair_at_);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      flow[j] = sum_lanes<1, 2>(flow[j]);
      if (at_.lane % 4 == 0) flows.entered[at_.row_of(2 * j)] = flow[j];
    }
    hopper::barrier_arrive(shared_.flows().full(pair_at_));
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

  const GradientArgs& args_;
  Shared shared_;
  Patch at_;
  std::uint32_t fragment_;
  typename Shared::Inputs::Position input_at_;
  typename Shared::Pairs::Position pair_at_;
  typename Shared::Entered::Position entered_at_;
};

}  // namespace ssmbench::ssd_hopper_bwd
