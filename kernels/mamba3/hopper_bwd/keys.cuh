#pragma once

// The key warpgroup of the Hopper gradient kernel: what belongs to a chunk's columns s, the steps that write the
// state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dV = Mᵀ·dy + s∘leave ∘ (k·S'ᵀ)    dk = Xᵀ·q + s∘leave ∘ (V·S'), turned back: dK over heads
//   dθ of q and k
//
// dy, M, X and q's part of dθ come from the query warpgroup.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/mamba3/hopper_bwd/block.cuh"
#include "kernels/mamba3/hopper_bwd/turn.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::mamba3_bwd {

template <class T>
class Consumer;

template <class T>
class KeyWarpgroup {
  friend class Consumer<T>;
  using Io = typename T::Io;
  using Shared = HopperShared<T>;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ KeyWarpgroup(const HopperArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)) {
    row_ = static_cast<int>(ssd::BlockPlace(args).row(args, 0));
  }

 private:
  /// Starts to += Mᵀ or Xᵀ times rows of 64 columns.
  __device__ __forceinline__ static void multiply_transposed(float (&to)[32], std::uint32_t square,
                                                             std::uint32_t tile) {
    ssd::start_tile_product<Io, kAcross, kAcross, kSteps, true>(to, ssd::tile_operand(square),
                                                                ssd::tile_operand(tile));
  }

  /// Starts dk = (s∘leave ∘ V)·S' + Xᵀ·q, 64 states of it.
  __device__ __forceinline__ void start_half(float (&dk)[32], const std::uint32_t (&weighed)[16],
                                             int half) const {
    start_gradient<kAcross>(dk, weighed, shared_.dstate_tile(input_at_) + half * kTile,
                            shared_.crosses_tile(), shared_.q_tile(input_at_) + half * kTile);
  }

  /// The sequence's last step, from the chunk's first on.
  __device__ __forceinline__ int last_step() const {
    return static_cast<int>(args_.bwd.in.seqlen - 1) - ssd::BlockPlace(args_).start;
  }
  /// (b, head), a row of the tensors of states.
  __device__ __forceinline__ std::int64_t state_row(int head) const {
    const ssd::BlockPlace place(args_);
    return place.b * args_.bwd.in.nheads + place.first_head + head;
  }
  /// Adds a row of `width` values to those of step `last` from column `first` on.
  template <class Element>
  __device__ __forceinline__ void add_row(float (&to)[32], int last, const Element* row, int first,
                                          int width) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int column = first + at_.column_of(i / 4, i % 4);
      if (at_.row_of(i % 4) == last && column < width) to[i] += to_float(row[column]);
    }
  }

  __device__ __forceinline__ void add_final_v(float (&dv)[32], int head) const {
    if (args_.final_v == nullptr || last_step() >= kSteps) return;
    const auto headdim = static_cast<int>(args_.bwd.in.headdim);
    add_row(dv, last_step(), static_cast<const Io*>(args_.final_v) + state_row(head) * headdim, 0, headdim);
  }
  __device__ __forceinline__ void add_final_k(float (&dk)[32], int head, int half) const {
    if (args_.final_k == nullptr || last_step() >= kSteps) return;
    const auto dstate = static_cast<int>(args_.bwd.in.dstate);
    add_row(dk, last_step(), args_.final_k + state_row(head) * dstate, 64 * half, dstate);
  }

  /// dθ, with the query warpgroup's part, and its sums.
  __device__ __forceinline__ void store_turned(float (&turned)[kOwnPairs], int head, int tile, float* sums) {
    const std::int64_t row = row_ + head;
    const int thread = ssd::group_thread();
    const float4* const of_q = shared_.turned_of_q() + thread;
    auto* const to =
        reinterpret_cast<float4*>(args_.work.dtheta + (row * args_.angle_tiles + tile) * kAngleTile) + thread;
    shared_.turned().wait_full(turned_at_);
#pragma unroll
    for (int i = 0; i < kOwnVectors; ++i) {
      const float4 other = of_q[i * ssd::kGroupThreads];
      turned[4 * i] += other.x;
      turned[4 * i + 1] += other.y;
      turned[4 * i + 2] += other.z;
      turned[4 * i + 3] += other.w;
    }
    hopper::barrier_arrive(shared_.turned().empty(turned_at_));
    turned_at_.advance();
#pragma unroll
    for (int i = 0; i < kOwnVectors; ++i)
      to[i * kVectorsApart<1>] =
          make_float4(turned[4 * i], turned[4 * i + 1], turned[4 * i + 2], turned[4 * i + 3]);
    store_turns<1>(turned, sums, thread % 32);
  }

  const HopperArgs& args_;
  Shared shared_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  int row_;  ///< of the first head
  typename Shared::Inputs::Position input_at_;
  typename Shared::Squares::Position square_at_;
  typename Shared::Flows::Position flow_at_;
  typename Shared::Turned::Position turned_at_;
};

}  // namespace ssmbench::mamba3_bwd
