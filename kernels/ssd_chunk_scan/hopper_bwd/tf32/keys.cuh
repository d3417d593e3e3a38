#pragma once

// The key warpgroup of the gradient kernel for f32 tensors: what belongs to the steps s that write the state.
//
//   M, Q    dxᵀ = dyᵀ·M + Δ∘leave ∘ (S'·Bᵀ) + D·dyᵀ    dB += (Δ∘leave∘x)·S'
//
// and after the last head dB += Qᵀ·C. A lane has rows s and columns t of M and Q, rows p and columns s of
// dxᵀ.

#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/products.cuh"

namespace ssmbench::ssd_hopper_bwd::tf32 {

template <bool kGated>
class Keys {
  using Steps = float[4][kSteps];

 public:
  __device__ Keys(const GradientArgs& args, const SharedMemory& shared, int thread)
      : args_(args), shared_(shared), element_(hopper::element_offset(thread, kTile)) {}

  __device__ void run() {
    ProjectionGradient dB;
#pragma unroll
    for (float& value : dB) value = 0.0F;
    float cb[32];  // B·Cᵀ
    hopper::barrier_wait(shared_.projections_full(), 0);
    multiply_projections(cb);
    find_pairs();
    const int warp = thread() / 32;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j >= 2 * warp) shared_.q(warp, j, lane()) = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    for (int left = BlockPlace(args_).heads; left > 0; --left, ++head_) {
      // Or addresses of all tiles are computed before the loop, and spilled.
      asm volatile("" : "+r"(shared_.base), "+r"(element_));
      one_head(dB, cb);
      at_.advance();
    }
    finish(dB);
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
  __device__ static int first_row() {
    return thread() / 32 * 16 + lane() / 4;
  }
  __device__ __forceinline__ Elements elements_of(int offset) const {
    return {shared_.pointer(offset), element_};
  }

  __device__ __forceinline__ void multiply_projections(float (&cb)[32]) const {
    const std::uint64_t b = hopper::operand_descriptor(shared_.tile(Layout::kB), kTile);
    const std::uint64_t c = hopper::operand_descriptor(shared_.tile(Layout::kC), kTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStates / 8; ++k)
      hopper::wgmma_tf32(cb, hopper::operand_step<kAlong>(b, k, kTile),
                         hopper::operand_step<kAlong>(c, k, kTile), k > 0);
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin_registers(cb);
  }

  /// Bit i of pairs_: element i of M has s ≤ t in one sequence.
  __device__ __forceinline__ void find_pairs() {
    const BlockPlace place(args_);
    const SsdInputs& in = args_.bwd.in;
    const int row = first_row();
    const int column = lane() % 4 * 2;
    pairs_ = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int s = row + i / 2 % 2 * 8;
      const int t = i / 4 * 8 + column + i % 2;
      const int last = place.steps_valid - 1;
      if (s <= t && sequence_at(in, place.b, place.start + min(s, last)) ==
                        sequence_at(in, place.b, place.start + min(t, last)))
        pairs_ |= 1U << i;
    }
  }

  __device__ __forceinline__ void one_head(ProjectionGradient& dB, const float (&cb)[32]) {
    shared_.inputs().wait_full(at_);
    const Steps& steps = shared_.steps(at_);
    meet<Meeting::rounded, 2 * kGroupThreads>();
    float products[32];  // x·dyᵀ
    std::uint32_t x[32];
    load_rows(x, shared_.tile(SharedMemory::x(at_)), fragment());
#pragma unroll
    for (std::uint32_t& bits : x) bits = round_to_tf32(bits);
    start_product(products, x, shared_.tile(Layout::kRounded), kTile, false);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(products);
    meet<Meeting::keys, kGroupThreads>();  // dy has been read
    shared_.flows().wait_empty(at_);
    mix(cb, products, steps);
    hopper::fence_async_proxy();
    meet<Meeting::keys, kGroupThreads>();  // M is there
    announce<Meeting::mixing>();

    shared_.dstates().wait_full(at_);
    float u[32];
    start_state_product(u, {shared_.pointer(Layout::kDstate), hopper::element_offset(thread(), kImageHalf)},
                        shared_.tile(Layout::kB));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(u);
    weigh_inputs(dB, steps);
    share_flows(u, steps);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(dB);
    hopper::barrier_arrive(shared_.dstates().empty(at_));

    float skip[2];
    load_skip(skip, args_, head_, thread());
    std::uint32_t dy[32];
    load_columns(dy, elements_of(SharedMemory::dout(at_)));
    start_product(u, dy, shared_.tile(Layout::kMixing), kTile, true);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(u);
    meet<Meeting::gradients, 2 * kGroupThreads>();
    const Elements dx = elements_of(SharedMemory::dout(at_));
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float& element = dx.at(i / 4, i / 2 % 2, i % 2);
      element = u[i] + skip[i / 2 % 2] * element;
    }
    hopper::fence_async_proxy();
    meet<Meeting::keys, kGroupThreads>();
    if (thread() == 0) {
      store_square(args_.dx, head_tile(BlockPlace(args_), head_), shared_.tile(SharedMemory::dout(at_)));
      hopper::wait_stores_read();
    }
    hopper::barrier_arrive(shared_.inputs().empty(at_));
  }

  /// Starts dB += (Δ∘leave∘x)·S'.
  __device__ __forceinline__ void weigh_inputs(ProjectionGradient& dB, const Steps& steps) const {
    std::uint32_t x[32];
    load_rows(x, shared_.tile(SharedMemory::x(at_)), fragment());
    const int s = first_row();
    const float weights[2] = {steps[kStepDelta][s] * steps[kStepLeave][s],
                              steps[kStepDelta][s + 8] * steps[kStepLeave][s + 8]};
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = round_to_tf32(weights[i % 2] * __uint_as_float(x[i]));
    start_product(dB, x, shared_.tile(Layout::kDstate), kImageHalf, true);
  }

  /// M to its tiles, Q += dy·xᵀ ∘ L ∘ Δ, and the sums of W over rows and columns.
  __device__ __forceinline__ void mix(const float (&cb)[32], const float (&products)[32],
                                      const Steps& steps) const {
    const int lane = thread() % 32;
    const int g = lane / 4;
    const int c = lane % 4;
    const int warp = thread() / 32;
    const int s = 16 * warp + g;
    unsigned char* const by_keys = shared_.pointer(Layout::kMixing) + s * kTileRow + c * 4;
    [[maybe_unused]] const Elements by_queries(
        shared_.pointer(Layout::kRounded),
        static_cast<std::uint32_t>(warp / 2 * kTile + 2 * c * kTileRow +
                                   ((warp % 2 * 4 + g % 2 ^ 2 * c) << 4) + g / 2 * 4));
    const float decay[2] = {steps[kStepDecay][s], steps[kStepDecay][s + 8]};
    const float delta[2] = {steps[kStepDelta][s], steps[kStepDelta][s + 8]};
    Flows& flows = shared_.flows_of_head();
    float rows[16];
    float column[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      rows[2 * j] = rows[2 * j + 1] = 0.0F;
      float m[4] = {};
      if (j >= 2 * warp) {  // others have s > t
        const float2 end = *reinterpret_cast<const float2*>(steps[kStepDecay] + 8 * j + 2 * c);
        float4& place = shared_.q(warp, j, lane);
        const float4 before = place;
        float q[4] = {before.x, before.y, before.z, before.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int half = i / 2, odd = i % 2;
          const float between = __expf((odd == 0 ? end.x : end.y) - decay[half]);
          const float L = (pairs_ >> (4 * j + i) & 1U) != 0 ? between : 0.0F;
          m[i] = cb[4 * j + i] * L * delta[half];
          const float decayed = L * products[4 * j + i];
          q[i] += decayed * delta[half];
          const float w = cb[4 * j + i] * decayed;
          const int t = 8 * j + 2 * c + odd;
          if (s + 8 * half == t) {
            flows.diagonal[t] = w;
          } else {  // not the diagonal too: beside it, what strong decays leave would be lost
            column[half] += w;
            rows[2 * j + odd] += w * delta[half];
          }
        }
        place = make_float4(q[0], q[1], q[2], q[3]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t rounded = round_to_tf32(m[i]);
        *reinterpret_cast<std::uint32_t*>(by_keys + j / 4 * kTile + i / 2 * 8 * kTileRow +
                                          ((g ^ j % 4 * 2 + i % 2) << 4)) = rounded;
        if constexpr (kGated) by_queries.at(j, i / 2, i % 2) = __uint_as_float(rounded);
      }
    }
    store_column_sums(rows, flows.rows[warp], lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      column[half] = sum_lanes<1, 2>(column[half]);
      if (c == 0) flows.column[s + 8 * half] = column[half];
    }
  }

  /// u = leave ∘ u, what it contributes to the sums over p, and Δ ∘ that.
  __device__ __forceinline__ void share_flows(float (&u)[32], const Steps& steps) const {
    const Elements x = elements_of(SharedMemory::x(at_));
    const int first = lane() % 4 * 2;
    float into[16];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int s = 8 * j + first;
      const float2 leave = *reinterpret_cast<const float2*>(steps[kStepLeave] + s);
      const float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + s);
      into[2 * j] = into[2 * j + 1] = 0.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2, odd = i % 2;
        const float value = u[4 * j + i] * (odd == 0 ? leave.x : leave.y);
        into[2 * j + odd] += x.at(j, half, odd) * value;
        u[4 * j + i] = value * (odd == 0 ? delta.x : delta.y);
      }
    }
    store_column_sums(into, shared_.flows_of_head().into[thread() / 32], lane());
    hopper::barrier_arrive(shared_.flows().full(at_));
  }

  __device__ __forceinline__ void finish(ProjectionGradient& dB) {
    shared_.dstates().wait_empty(at_);
    transpose_projection(shared_.pointer(Layout::kDstate), shared_.pointer(Layout::kC), thread());
    // Qᵀ as [s][t], where keys have M, and Q as [t][s].
    unsigned char* const by_keys = shared_.pointer(Layout::kMixing);
    unsigned char* const by_queries = shared_.pointer(Layout::kGate);
    const auto element = [](unsigned char* square, int row, int column) {
      return reinterpret_cast<std::uint32_t*>(square + column / kTileColumns * kTile + row * kTileRow +
                                              ((column % kTileColumns / 4 ^ row % 8) << 4) + column % 4 * 4);
    };
    const int warp = thread() / 32;
    const int lane = thread() % 32;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float4 of_lane = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (j >= 2 * warp) of_lane = shared_.q(warp, j, lane);
      const float q[4] = {of_lane.x, of_lane.y, of_lane.z, of_lane.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int s = 16 * warp + lane / 4 + i / 2 * 8;
        const int t = 8 * j + lane % 4 * 2 + i % 2;
        *element(by_keys, s, t) = round_to_tf32(q[i]);
        *element(by_queries, t, s) = round_to_tf32(q[i]);
      }
    }
    hopper::barrier_arrive(shared_.q_full());
    hopper::fence_async_proxy();
    meet<Meeting::keys, kGroupThreads>();
    add_product_with_q(dB, shared_.tile(Layout::kMixing), fragment(), shared_.tile(Layout::kDstate));
    write_projection(args_, Projection::B, dB, thread());
  }

  const GradientArgs& args_;
  SharedMemory shared_;
  std::uint32_t element_;
  unsigned pairs_ = 0;
  int head_ = 0;  ///< of the slice
  SharedMemory::Position at_;
};

}  // namespace ssmbench::ssd_hopper_bwd::tf32
