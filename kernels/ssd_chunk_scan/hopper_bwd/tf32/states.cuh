#pragma once

// The walks over states for gradients of f32 tensors: the states that enter all chunks, walking forward, and
// the gradients of those that leave them, walking backward, by mma.sync (tf32), fed by TMA.
//
//   grid    one block per (walk, batch, head); it walks the chunks one after the other
//   block   16 warps, 4 × 4 of them, 16 rows p and 32 columns n of the state in registers each
//   chunk   the state is written, rounded to tf32, for the gradient kernel; left (x, or dout·silu(z)) is
//           weighted and rounded in place; then state = decay·state + leftᵀ·right while the next tiles arrive
//
// Images of states lie in the workspace as the gradient kernel has them in shared memory, [p / 32][row of
// n][p], rows swizzled, in the order of image_row().
//
// A lane has two neighbouring rows; other rows of a product are 16 apart, and so are its columns, in fours:
// elements of a tile with k for its rows are then in different banks, and what a warp writes of an image is
// whole sectors.

#include "kernels/common/activations.h"
#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/parts.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/walk.h"

namespace ssmbench::ssd_hopper_bwd::tf32 {

inline constexpr int kWalkThreads = 512;

/// Offsets in bytes of a stage, and of all shared memory.
struct WalkLayout {
  static constexpr int kLeft = 0;
  static constexpr int kGate = kLeft + kSquare;
  static constexpr int kRight = kGate + kSquare;
  static constexpr int kStage = kRight + kProjection;
  static constexpr int kStages = 2;
  static constexpr int kStepRows = kStages * kStage;
  static constexpr int kBarriers = kStepRows + kStages * kStepsBytes;
  static constexpr int kBytes = kBarriers + 64 + 1024;
};

template <Walk kWalk, bool kGated>
class WalkBlock {
  static constexpr bool kForward = kWalk == Walk::forward;
  static constexpr int kAtoms = 4;  ///< 8 columns of the state each

 public:
  __device__ WalkBlock(const WalkArgs& args, int index)
      : args_(args),
        b_(index / static_cast<int>(args.in.nheads)),
        head_(index % static_cast<int>(args.in.nheads)),
        thread_(static_cast<int>(threadIdx.x)),
        row_warp_(thread_ / 32 % 4),
        column_warp_(thread_ / 128) {}

  __device__ void run() {
    if (thread_ == 0) {
      for (int stage = 0; stage < WalkLayout::kStages; ++stage) hopper::barrier_init(full(stage), 1);
      hopper::barrier_init_fence();
    }
    __syncthreads();
    if (thread_ == 0) load(0);
    float state[kAtoms][4];
    enter(state);
    for (int i = 0; i < args_.chunks; ++i) {
      const int stage = i % WalkLayout::kStages;
      write_image(state, i);
      hopper::barrier_wait(full(stage), static_cast<std::uint32_t>(i / WalkLayout::kStages % 2));
      weigh(stage);
      const float decay = steps(stage)[kStepEnter][kSteps - 1];
#pragma unroll
      for (auto& atom : state)
#pragma unroll
        for (float& value : atom) value *= decay;
      hopper::fence_async_proxy();
      __syncthreads();  // left is weighted, and nobody reads the other stage any more
      if (thread_ == 0 && i + 1 < args_.chunks) load(i + 1);
      multiply(state, stage);
    }
    leave(state);
  }

 private:
  __device__ std::uint32_t base() const {
    return (shared_address(dynamic_shared) + 1023) & ~1023U;
  }
  __device__ unsigned char* pointer(int offset) const {
    return dynamic_shared + (base() - shared_address(dynamic_shared)) + offset;
  }
  __device__ std::uint32_t full(int stage) const {
    return base() + WalkLayout::kBarriers + stage * hopper::kBarrierBytes;
  }
  __device__ const float (&steps(int stage) const)[4][kSteps] {
    return *reinterpret_cast<const float(*)[4][kSteps]>(pointer(WalkLayout::kStepRows + stage * kStepsBytes));
  }
  __device__ int lane() const {
    return thread_ % 32;
  }
  __device__ int chunk_of(int i) const {
    return kForward ? i : args_.chunks - 1 - i;
  }
  __device__ std::int64_t row_of(int i) const {
    return (static_cast<std::int64_t>(b_) * args_.chunks + chunk_of(i)) * args_.in.nheads + head_;
  }

  /// The i-th chunk of the walk. By one thread.
  __device__ void load(int i) const {
    const int stage = i % WalkLayout::kStages;
    const int start = chunk_of(i) * kSteps;
    const int group = head_ / static_cast<int>(args_.in.heads_per_group);
    const std::uint32_t to = base() + stage * WalkLayout::kStage;
    hopper::barrier_arrive_expect(full(stage), (1 + kGated) * kSquare + kProjection + kStepsBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const hopper::TileOrigin from{{half * kTileColumns, head_, start, b_}};
      hopper::load_tile(to + WalkLayout::kLeft + half * kTile, args_.left, from, full(stage));
      if constexpr (kGated)
        hopper::load_tile(to + WalkLayout::kGate + half * kTile, args_.gate, from, full(stage));
    }
#pragma unroll
    for (int tile = 0; tile < kProjection / kTile; ++tile)
      hopper::load_tile(to + WalkLayout::kRight + tile * kTile, args_.right,
                        hopper::TileOrigin{{tile * kTileColumns, group, start, b_}}, full(stage));
    hopper::load_bytes(base() + WalkLayout::kStepRows + stage * kStepsBytes,
                       args_.steps + row_of(i) * 4 * kSteps, kStepsBytes, full(stage));
  }

  /// left · weight (· silu(gate)), rounded, in place.
  __device__ __forceinline__ void weigh(int stage) const {
    unsigned char* const left = pointer(stage * WalkLayout::kStage + WalkLayout::kLeft);
    const unsigned char* const gate = left + (WalkLayout::kGate - WalkLayout::kLeft);
#pragma unroll
    for (int i = 0; i < kSquare / 16 / kWalkThreads; ++i) {
      const int vector = i * kWalkThreads + thread_;
      const int t = vector % (kTile / 16) / 8;
      const float weight =
          kForward ? steps(stage)[kStepDelta][t] * steps(stage)[kStepLeave][t] : steps(stage)[kStepEnter][t];
      auto* const at = reinterpret_cast<float4*>(left) + vector;
      float4 value = *at;
      if constexpr (kGated) {
        const float4 z = reinterpret_cast<const float4*>(gate)[vector];
        value = make_float4(value.x * fast_silu(z.x), value.y * fast_silu(z.y), value.z * fast_silu(z.z),
                            value.w * fast_silu(z.w));
      }
      const auto rounded = [&](float x) { return __uint_as_float(round_to_tf32(x * weight)); };
      *at = make_float4(rounded(value.x), rounded(value.y), rounded(value.z), rounded(value.w));
    }
  }

  /// The first of a lane's two rows p.
  __device__ int row() const {
    const int g = lane() / 4;
    return 32 * (row_warp_ / 2) + 16 * (g / 2 % 2) + 8 * (row_warp_ % 2) + 4 * (g / 4) + 2 * (g % 2);
  }

  /// state += leftᵀ·right.
  __device__ __forceinline__ void multiply(float (&state)[kAtoms][4], int stage) const {
    const int g = lane() / 4;
    const int c = lane() % 4;
    const unsigned char* const tiles = pointer(stage * WalkLayout::kStage);
    const int p = row();
    const int left = WalkLayout::kLeft + p / 32 * kTile + c * kTileRow + ((p % 32 / 4 ^ c) << 4) + p % 4 * 4;
    const int right =
        WalkLayout::kRight + column_warp_ * kTile + c * kTileRow + ((g / 4 * 4 ^ c) << 4) + g % 4 * 4;
    const auto element = [&](int from, int upper, int k) {
      return tiles + (from ^ upper << 6) + upper * 4 * kTileRow + k * 8 * kTileRow;
    };
#pragma unroll
    for (int k = 0; k < kSteps / 8; ++k) {
      std::uint32_t a[4];
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const uint2 rows = *reinterpret_cast<const uint2*>(element(left, upper, k));
        a[2 * upper] = rows.x;
        a[2 * upper + 1] = rows.y;
      }
#pragma unroll
      for (int e = 0; e < kAtoms; ++e)
        mma_tf32(state[e], a, *reinterpret_cast<const std::uint32_t*>(element(right ^ e << 4, 0, k)),
                 *reinterpret_cast<const std::uint32_t*>(element(right ^ e << 4, 1, k)));
    }
  }

  /// The state before the i-th chunk of the walk, in whole sectors.
  __device__ __forceinline__ void write_image(const float (&state)[kAtoms][4], int i) const {
    const int c = lane() % 4;
    auto* const image = static_cast<unsigned char*>(args_.images) + row_of(i) * kImage;
    const int p = row();
    const int image_row = 32 * column_warp_ + 16 * (c / 2) + 4 * (c % 2);
    const int first =
        p / 32 * kImageHalf + image_row * kTileRow + ((p % 32 / 4 ^ 4 * (c % 2)) << 4) + p % 4 * 4;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int row_on = odd * 2 + e % 2;
        *reinterpret_cast<uint2*>(image + (first ^ row_on << 4) + row_on * kTileRow + e / 2 * 8 * kTileRow) =
            make_uint2(round_to_tf32(state[e][odd]), round_to_tf32(state[e][2 + odd]));
      }
  }

  /// visit(where in a (B, H, P, N) tensor, value) for this thread's elements that exist.
  template <class Visit>
  __device__ void for_each(float (&state)[kAtoms][4], const Visit& visit) const {
    const int c = lane() % 4;
    const SsdInputs& in = args_.in;
    const std::int64_t rows = (static_cast<std::int64_t>(b_) * in.nheads + head_) * in.headdim;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int p = row() + k / 2;
        const int n = 32 * column_warp_ + 16 * (c / 2) + 4 * e + 2 * (c % 2) + k % 2;
        if (p < in.headdim && n < in.dstate) visit((rows + p) * in.dstate + n, state[e][k]);
      }
  }
  __device__ void enter(float (&state)[kAtoms][4]) const {
#pragma unroll
    for (auto& atom : state)
#pragma unroll
      for (float& value : atom) value = 0.0F;
    if (args_.first == nullptr) return;
    for_each(state, [&](std::int64_t at, float& value) { value = args_.first[at]; });
  }
  __device__ void leave(float (&state)[kAtoms][4]) const {
    if (args_.last == nullptr) return;
    for_each(state, [&](std::int64_t at, float value) { args_.last[at] = value; });
  }

  const WalkArgs& args_;
  int b_, head_;
  int thread_;
  int row_warp_, column_warp_;
};

/// Both walks, the longer one first.
template <bool kGated>
__global__ void __launch_bounds__(kWalkThreads, 1)
    ssd_tf32_states_kernel(const __grid_constant__ WalkArgs forward,
                           const __grid_constant__ WalkArgs backward) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const auto heads = static_cast<int>(backward.in.batch * backward.in.nheads);
  const auto block = static_cast<int>(blockIdx.x);
  if (block < heads)
    WalkBlock<Walk::backward, kGated>(backward, block).run();
  else
    WalkBlock<Walk::forward, false>(forward, block - heads).run();
#else
  __trap();
#endif
}

}  // namespace ssmbench::ssd_hopper_bwd::tf32
