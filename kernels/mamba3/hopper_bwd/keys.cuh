#pragma once

// The key warpgroup of the Hopper gradient kernel: what belongs to a chunk's columns s, the steps that write the
// state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dV = Mᵀ·dy + s∘leave ∘ (k·S'ᵀ)    dk = Xᵀ·q + s∘leave ∘ (V·S'), turned back: dK over heads
//   dθ of q and k; q and k of the next head
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
  using Positions = RolePositions<Shared>;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ KeyWarpgroup(const HopperArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)) {}

 private:
  /// Q and K to q and k of a head, `row`, in place: by the key warpgroup, which waits for M and X meanwhile.
  __device__ __forceinline__ void turn_vectors(typename Shared::Inputs::Position at, int row) const {
    const int thread = ssd::group_thread();
    const int tiles = args_.angle_tiles;
    const PhaseTile* const phases = phases_of(args_, row);
    ThreadPhases own = load_thread_phases(phases, thread);
    shared_.vectors().wait_full(at);
    const float* const biases = shared_.biases();
#pragma unroll 1
    for (int half = 0; half < Shared::Layout::kHalves; ++half) {
      const std::uint32_t of[2] = {shared_.q_tile(at) + half * kTile, shared_.k_tile(at) + half * kTile};
      const float* const bias[2] = {biases + 64 * half, biases + T::kStates + 64 * half};
      if (half >= tiles) {
        shift_rows(of, bias, thread);
        continue;
      }
      if (half > 0) own = load_thread_phases(phases + half, thread);
      turn_rows(of, bias, own, thread);
    }
    hopper::fence_async_proxy();
    ssd::warp_arrive(shared_.vectors().done(at), thread % 32);
  }

  /// Starts to += Mᵀ or Xᵀ times rows of 64 columns.
  __device__ __forceinline__ static void multiply_transposed(float (&to)[32], std::uint32_t square,
                                                             std::uint32_t tile) {
    ssd::start_tile_product<Io, kAcross, kAcross, kSteps, true>(to, ssd::tile_operand(square),
                                                                ssd::tile_operand(tile));
  }

  /// Starts dk = (s∘leave ∘ V)·S' + Xᵀ·q, 64 states of it.
  __device__ __forceinline__ void start_half(float (&dk)[32], const std::uint32_t (&weighed)[16], int half,
                                             const Positions& at) const {
    start_gradient<kAcross>(dk, weighed, shared_.dstate_tile(at.inputs) + half * kTile,
                            shared_.crosses_tile(), shared_.q_tile(at.inputs) + half * kTile);
  }

  /// (sequence, head), a row of the tensors of states.
  __device__ __forceinline__ std::int64_t state_row(const SequencePlace& place, const Positions& at) const {
    return place.sequence * args_.bwd.in.nheads + at.head;
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

  __device__ __forceinline__ void add_final_v(float (&dv)[32], const Positions& at) const {
    if (args_.final_v == nullptr) return;
    const SequencePlace place(args_);
    if (place.last >= kSteps) return;
    const auto headdim = static_cast<int>(args_.bwd.in.headdim);
    add_row(dv, place.last, static_cast<const Io*>(args_.final_v) + state_row(place, at) * headdim, 0,
            headdim);
  }
  __device__ __forceinline__ void add_final_k(float (&dk)[32], int half, const Positions& at) const {
    if (args_.final_k == nullptr) return;
    const SequencePlace place(args_);
    if (place.last >= kSteps) return;
    const auto dstate = static_cast<int>(args_.bwd.in.dstate);
    add_row(dk, place.last, args_.final_k + state_row(place, at) * dstate, 64 * half, dstate);
  }

  /// dθ, with the query warpgroup's part, and its sums.
  __device__ __forceinline__ void store_turned(float (&turned)[kOwnPairs], int tile, Positions& at) {
    const std::int64_t row = at.row;
    const int thread = ssd::group_thread();
    const float4* const of_q = shared_.turned_of_q() + thread;
    auto* const to =
        reinterpret_cast<float4*>(args_.work.dtheta + (row * args_.angle_tiles + tile) * kAngleTile) + thread;
    shared_.turned().wait_full(at.turned);
#pragma unroll
    for (int i = 0; i < kOwnVectors; ++i) {
      const float4 other = of_q[i * ssd::kGroupThreads];
      turned[4 * i] += other.x;
      turned[4 * i + 1] += other.y;
      turned[4 * i + 2] += other.z;
      turned[4 * i + 3] += other.w;
    }
#pragma unroll
    for (int i = 0; i < kOwnVectors; ++i)
      to[i * kVectorsApart<1>] =
          make_float4(turned[4 * i], turned[4 * i + 1], turned[4 * i + 2], turned[4 * i + 3]);
    hopper::barrier_arrive(shared_.turned().empty(at.turned));  // behind the use: loads do not hold it back
    at.turned.advance();
    const int again = ssd::group_thread();  // registers are short
    store_turns<1>(turned, shared_.flows_of(at.flows).turns[again / 32] + kTilePairs * tile, again % 32);
  }

  const HopperArgs& args_;
  Shared shared_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
};

}  // namespace ssmbench::mamba3_bwd
