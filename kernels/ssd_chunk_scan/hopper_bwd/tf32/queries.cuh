#pragma once

// The query warpgroup of the gradient kernel for f32 tensors: what belongs to the steps t that read the
// state.
//
//   dy = dout·silu(z)    yᵀ = enter ∘ (S·Cᵀ) + xᵀ·Mᵀ → dz    dC += (enter ∘ dy)·S
//
// and after the last head dC += Q·B. A lane has rows p and columns t of yᵀ, rows t and columns n of dC.

#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/products.cuh"

namespace ssmbench::ssd_hopper_bwd::tf32 {

template <bool kGated>
class Queries {
  using Steps = float[4][kSteps];

 public:
  __device__ Queries(const GradientArgs& args, const SharedMemory& shared, int thread)
      : args_(args), shared_(shared), element_(hopper::element_offset(thread, kTile)) {}

  __device__ void run() {
    ProjectionGradient dC;
#pragma unroll
    for (float& value : dC) value = 0.0F;
    hopper::barrier_wait(shared_.projections_full(), 0);
    for (int left = BlockPlace(args_).heads; left > 0; --left, ++head_) {
      // Or addresses of all tiles are computed before the loop, and spilled.
      asm volatile("" : "+r"(shared_.base), "+r"(element_));
      one_head(dC);
      at_.advance();
    }
    finish(dC);
  }

 private:
  /// Volatile: registers are short, and what is computed from it need not stay in them.
  __device__ static int thread() {
    return group_thread();
  }
  __device__ static int lane() {
    return thread() % 32;
  }
  __device__ static std::uint32_t fragment() {
    return hopper::fragment_offset(thread() / 32, lane());
  }
  __device__ __forceinline__ Elements elements_of(int offset) const {
    return {shared_.pointer(offset), element_};
  }

  __device__ __forceinline__ void one_head(ProjectionGradient& dC) {
    shared_.inputs().wait_full(at_);
    const Steps& steps = shared_.steps(at_);
    float slopes[kGated ? 32 : 1];
    if constexpr (kGated) {
      if (thread() == 0) hopper::wait_stores_read();  // dz of the head before, where dy comes
      meet<Meeting::queries, kGroupThreads>();
      shared_.gates().wait_full(at_);
    }
    gate(slopes);
    hopper::fence_async_proxy();
    if constexpr (kGated) warp_arrive(shared_.gates().empty(at_), lane());
    meet<Meeting::rounded, 2 * kGroupThreads>();

    shared_.states().wait_full(at_);
    float y[32];
    start_state_product(
        y, {shared_.pointer(SharedMemory::state(at_)), hopper::element_offset(thread(), kImageHalf)},
        shared_.tile(Layout::kC));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    weigh_gradients(dC, steps);
    share_flows(y, steps);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(dC);
    hopper::barrier_arrive(shared_.states().empty(at_));
    announce<Meeting::gradients>();
    [[maybe_unused]] float skip[2];
    [[maybe_unused]] std::uint32_t x[32];
    if constexpr (kGated) {
      load_skip(skip, args_, head_, thread());
      load_columns(x, elements_of(SharedMemory::x(at_)));
    }
    meet<Meeting::mixing, 2 * kGroupThreads>();  // without z too: keys have read dy
    if constexpr (kGated) {
      start_product(y, x, shared_.tile(Layout::kRounded), kTile, true);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(y);
      const Elements inputs = elements_of(SharedMemory::x(at_));
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int j = i / 4, half = i / 2 % 2, odd = i % 2;
        y[i] = slopes[i] * (y[i] + skip[half] * inputs.at(j, half, odd));
      }
      meet<Meeting::queries, kGroupThreads>();  // M has been read
      const Elements dz = elements_of(Layout::kRounded);
#pragma unroll
      for (int i = 0; i < 32; ++i) dz.at(i / 4, i / 2 % 2, i % 2) = y[i];
      hopper::fence_async_proxy();
    }
    meet<Meeting::queries, kGroupThreads>();
    hopper::barrier_arrive(shared_.inputs().empty(at_));
    if (kGated && thread() == 0)
      store_square(args_.dz, head_tile(BlockPlace(args_), head_), shared_.tile(Layout::kRounded));
  }

  /// dy, in place of dout and rounded; slopes = dout·silu'(z).
  __device__ __forceinline__ void gate([[maybe_unused]] float (&slopes)[kGated ? 32 : 1]) const {
    const Elements dout = elements_of(SharedMemory::dout(at_));
    const Elements rounded = elements_of(Layout::kRounded);
    [[maybe_unused]] const Elements z = elements_of(Layout::kGate);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int j = i / 4, half = i / 2 % 2, odd = i % 2;
      float dy = dout.at(j, half, odd);
      if constexpr (kGated) {
        const ValueSlope silu = silu_approximate(z.at(j, half, odd));
        slopes[i] = dy * silu.slope;
        dy *= silu.value;
        dout.at(j, half, odd) = dy;
      }
      rounded.at(j, half, odd) = __uint_as_float(round_to_tf32(dy));
    }
  }

  /// Starts dC += (enter ∘ dy)·S.
  __device__ __forceinline__ void weigh_gradients(ProjectionGradient& dC, const Steps& steps) const {
    std::uint32_t dy[32];
    load_rows(dy, shared_.tile(SharedMemory::dout(at_)), fragment());
    const int t = thread() / 32 * 16 + lane() / 4;
    const float enter[2] = {steps[kStepEnter][t], steps[kStepEnter][t + 8]};
#pragma unroll
    for (int i = 0; i < 32; ++i) dy[i] = round_to_tf32(enter[i % 2] * __uint_as_float(dy[i]));
    start_product(dC, dy, shared_.tile(SharedMemory::state(at_)), kImageHalf, true);
  }

  /// y = enter ∘ y, and what it and dy·x contribute to the sums over p and over steps.
  __device__ __forceinline__ void share_flows(float (&y)[32], const Steps& steps) const {
    const Elements gradients = elements_of(SharedMemory::dout(at_));
    const Elements x = elements_of(SharedMemory::x(at_));
    const int thread = group_thread();
    const int lane = thread % 32;
    float out[16];
    float skip[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 enter = *reinterpret_cast<const float2*>(steps[kStepEnter] + 8 * j + lane % 4 * 2);
      out[2 * j] = out[2 * j + 1] = 0.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2, odd = i % 2;
        const float dy = gradients.at(j, half, odd);
        y[4 * j + i] *= odd == 0 ? enter.x : enter.y;
        out[2 * j + odd] += dy * y[4 * j + i];
        skip[half] += dy * x.at(j, half, odd);
      }
    }
    shared_.flows().wait_empty(at_);
    Flows& flows = shared_.flows_of_head();
    store_column_sums(out, flows.out[thread / 32], lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      skip[half] = sum_lanes<1, 2>(skip[half]);
      if (lane % 4 == 0) flows.skip[thread / 32 * 16 + lane / 4 + 8 * half] = skip[half];
    }
    if (thread < kSteps) flows.delta[thread] = steps[kStepDelta][thread];
    if (thread == 0) flows.decay[0] = steps[kStepEnter][kSteps - 1];
    hopper::barrier_arrive(shared_.flows().full(at_));
  }

  __device__ __forceinline__ void finish(ProjectionGradient& dC) {
    if (kGated && thread() == 0) hopper::wait_stores_read();
    shared_.states().wait_empty(at_);
    shared_.inputs().wait_empty(at_);
    transpose_projection(shared_.pointer(Layout::kSlots), shared_.pointer(Layout::kB), thread());
    hopper::fence_async_proxy();
    meet<Meeting::queries, kGroupThreads>();
    hopper::barrier_wait(shared_.q_full(), 0);
    add_product_with_q(dC, shared_.tile(Layout::kGate), fragment(), shared_.tile(Layout::kSlots));
    write_projection(args_, Projection::C, dC, thread());
  }

  const GradientArgs& args_;
  SharedMemory shared_;
  std::uint32_t element_;
  int head_ = 0;  ///< of the slice
  SharedMemory::Position at_;
};

}  // namespace ssmbench::ssd_hopper_bwd::tf32
