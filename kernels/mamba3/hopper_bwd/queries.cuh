#pragma once

// The query warpgroup of the Hopper gradient kernel: what belongs to a chunk's rows t, the steps that read the state.
// Warp w has rows 16w … 16w + 15 of every product:
//
//   dy = dout·silu(Z)    M = (q·kᵀ) ∘ L ∘ w    X = (dy·Vᵀ) ∘ L ∘ w    y = M·V + enter ∘ (q·Sᵀ) → dZ
//   dq = X·k + enter ∘ (dy·S), turned back: dQ over heads
//
// It hands dy, M and X to the key warpgroup, and its part of dθ.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/mamba3/hopper_bwd/block.cuh"
#include "kernels/mamba3/hopper_bwd/turn.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::mamba3_bwd {

template <class T>
class Consumer;

template <class T>
class QueryWarpgroup {
  friend class Consumer<T>;
  using Io = typename T::Io;
  using Shared = HopperShared<T>;
  using Positions = RolePositions<Shared>;
  using Steps = float[kStepFloats][kSteps];
  static constexpr auto kAlong = hopper::Major::k;
  static constexpr auto kAcross = hopper::Major::rows;
  static constexpr int kBarrier = 1;

 public:
  __device__ QueryWarpgroup(const HopperArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)),
        ahead_(at_.row_of(0) - at_.column_of(0, 0)) {}

 private:
  /// Starts to = tile (64 × N) times a tile of rows of N.
  __device__ __forceinline__ static void multiply_rows(float (&to)[32], std::uint32_t tile,
                                                       std::uint32_t rows) {
    ssd::start_tile_product<Io, kAlong, kAlong, T::kStates>(to, ssd::tile_operand(tile),
                                                            ssd::tile_operand(rows));
  }
  /// Starts to += M or X times rows of 64 columns.
  __device__ __forceinline__ static void multiply_square(float (&to)[32], std::uint32_t square,
                                                         std::uint32_t tile) {
    ssd::start_tile_product<Io, kAlong, kAcross, kSteps, true>(to, ssd::tile_operand(square),
                                                               ssd::tile_operand(tile));
  }

  /// Starts q·kᵀ of a slot of the inputs, once it is full.
  __device__ __forceinline__ void start_scores(float (&scores)[32],
                                               typename Shared::Inputs::Position at) const {
    shared_.inputs().wait_full(at);
    shared_.vectors().wait_done(at);
    multiply_rows(scores, shared_.q_tile(at), shared_.k_tile(at));
  }

  /// M and X, and dout·silu'(Z); the sums of M ∘ X over rows.
  __device__ __forceinline__ void make_squares(float (&slopes)[T::kGated ? 32 : 1], float (&flow_out)[2],
                                               const Positions& at) {
    float scores[32];
    start_scores(scores, at.inputs);
    std::uint32_t dy[16];
    gate(dy, slopes, at);
    shared_.squares().wait_empty(at.squares);
    ssd::store_tile_pairs(shared_.dy_tile(at.inputs) + fragment_, dy);
    float crosses[32];
    start_crosses(crosses, dy, at);
    shared_.flows().wait_empty(at.flows);
    const float* const D = args_.bwd.in.D;
    const float skip = D == nullptr ? 0.0F : D[at.head];
    hopper::wgmma_wait<0>();
    hopper::pin_registers(scores);
    hopper::pin_registers(crosses);
    store_squares(scores, crosses, shared_.steps(at.inputs), skip, flow_out, at);
    hopper::fence_async_proxy();  // dy, M and X
    ssd::warp_arrive(shared_.squares().full(at.squares), at_.lane);
    group_barrier<kBarrier>();
  }
  /// Starts dy·Vᵀ.
  __device__ __forceinline__ void start_crosses(float (&crosses)[32], std::uint32_t (&dy)[16],
                                                const Positions& at) const {
    const std::uint64_t x = hopper::operand_descriptor(shared_.x_tile(at.inputs), kTile);
    hopper::pin_registers(dy);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, kAlong>(crosses, dy + 4 * k, hopper::operand_step<kAlong>(x, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  __device__ __forceinline__ ThreadPhases load_phases(int half, const Positions& at) const {
    if (half >= args_.angle_tiles) return {};
    return load_thread_phases(phases_of(args_, at.row) + half, ssd::group_thread());
  }

  /// Starts dq = (enter ∘ dy)·S + X·k, 64 states of it.
  __device__ __forceinline__ void start_half(float (&dq)[32], const std::uint32_t (&weighed)[16], int half,
                                             const Positions& at) const {
    start_gradient<kAlong>(dq, weighed, shared_.state_tile(at.inputs) + half * kTile, shared_.crosses_tile(),
                           shared_.k_tile(at.inputs) + half * kTile);
  }

  /// Hands its part of dθ to the key warpgroup.
  __device__ __forceinline__ void hand_turned(const float (&turned)[kOwnPairs], Positions& at) {
    shared_.turned().wait_empty(at.turned);
    float4* const to = shared_.turned_of_q() + ssd::group_thread();
#pragma unroll
    for (int i = 0; i < kOwnVectors; ++i)
      to[i * ssd::kGroupThreads] =
          make_float4(turned[4 * i], turned[4 * i + 1], turned[4 * i + 2], turned[4 * i + 3]);
    hopper::barrier_arrive(shared_.turned().full(at.turned));
    at.turned.advance();
  }

  /// dy = dout·silu(Z), rounded, and dout·silu'(Z).
  __device__ __forceinline__ void gate(std::uint32_t (&dy)[16], float (&slopes)[T::kGated ? 32 : 1],
                                       const Positions& at) const {
    ssd::load_tile_pairs(dy, shared_.dout_tile(at.inputs) + fragment_);
    if constexpr (T::kGated) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        std::uint32_t z[4];
        load_matrices(z, (shared_.z_tile(at.inputs) + fragment_) ^ j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int pair = 4 * j + i;
          const float2 dout = unpack_pair<Io>(dy[pair]);
          const float2 gates = unpack_pair<Io>(z[i]);
          const ValueSlope first = ssd::silu_approximate(gates.x);
          const ValueSlope second = ssd::silu_approximate(gates.y);
          dy[pair] = pack_pair<Io>(dout.x * first.value, dout.y * second.value);
          slopes[2 * pair] = dout.x * first.slope;
          slopes[2 * pair + 1] = dout.y * second.slope;
        }
      }
    }
  }

  /// Zeros right of the diagonal of M and X, and of the sums of M ∘ X over columns.
  __device__ __forceinline__ void clear_squares() const {
    for (int j = warp_ + 1; j < 4; ++j) {
      hopper::store_matrices((shared_.mixing_tile() + fragment_) ^ j * 32, 0, 0, 0, 0);
      hopper::store_matrices((shared_.crosses_tile() + fragment_) ^ j * 32, 0, 0, 0, 0);
    }
    typename Shared::Flows::Position at;
    for (int slot = 0; slot < Shared::Layout::kDepth; ++slot, at.advance())
      for (int s = 16 * (warp_ + 1) + at_.lane; s < kSteps; s += 32)
        shared_.flows_of(at).column[warp_][s] = 0.0F;
  }

  /// From q·kᵀ and dy·Vᵀ, which are lost: M and X, rounded, to their tiles, and the sums of M ∘ X. A loop over 16
  /// columns each, up to the diagonal, whose elements come to the front: the code of all roles has to fit in the
  /// instruction cache.
  __device__ __forceinline__ void store_squares(float (&scores)[32], float (&crosses)[32], const Steps& steps,
                                                float skip, float (&flow_out)[2],
                                                const Positions& positions) const {
    auto& flows = shared_.flows_of(positions.flows);
    const float rows[2] = {kLog2E * steps[kStepDecay][at_.row_of(0)],
                           kLog2E * steps[kStepDecay][at_.row_of(2)]};
    const float* const of_owns = shared_.owns(positions.inputs);
    const float owns[2] = {of_owns[at_.row_of(0)], of_owns[at_.row_of(2)]};
    const float* const decays = steps[kStepDecay] + at_.column_of(0, 0);
    const float* const deltas = steps[kStepDelta] + at_.column_of(0, 0);
    // In the lanes that have it.
    float diagonal[2] = {0.0F, 0.0F};
    float skipped[2] = {0.0F, 0.0F};
    int ahead = ahead_;
#pragma unroll 1
    for (int j = 0; j <= warp_; ++j, ahead -= 16) {
      std::uint32_t m[4];
      std::uint32_t x[4];
      float columns[16] = {};
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float2 decay = *reinterpret_cast<const float2*>(decays + 16 * j + 8 * e);
        const float2 delta = *reinterpret_cast<const float2*>(deltas + 16 * j + 8 * e);
        float of_m[4];
        float of_x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int behind = 8 * e - i / 2 * 8 + i % 2;  // the column's step less the row's, but for ahead
          const float between = exp2_approximate(-kLog2E * (i % 2 == 0 ? decay.x : decay.y) + rows[i / 2]);
          const float reached = behind <= ahead ? between : 0.0F;
          const float weight = behind == ahead ? owns[i / 2] : (i % 2 == 0 ? delta.x : delta.y);
          const float weighed = reached * weight;
          const float score = scores[4 * e + i];
          const float cross = crosses[4 * e + i];
          of_m[i] = score * weighed;
          of_x[i] = cross * weighed;
          const float product = score * cross * reached;
          if (behind < ahead) {
            // Not the diagonal too: beside it, what strong decays leave is lost.
            columns[2 * e + i % 2] += product;
            flow_out[i / 2] += product * weight;
          }
          if (behind == ahead) {
            diagonal[i / 2] += product;
            of_m[i] += skip;
            skipped[i / 2] = cross;
          }
        }
        m[2 * e] = pack_pair<Io>(of_m[0], of_m[1]);
        m[2 * e + 1] = pack_pair<Io>(of_m[2], of_m[3]);
        x[2 * e] = pack_pair<Io>(of_x[0], of_x[1]);
        x[2 * e + 1] = pack_pair<Io>(of_x[2], of_x[3]);
      }
      hopper::store_matrices((shared_.mixing_tile() + fragment_) ^ j * 32, m[0], m[1], m[2], m[3]);
      hopper::store_matrices((shared_.crosses_tile() + fragment_) ^ j * 32, x[0], x[1], x[2], x[3]);
      store_columns(columns, flows.column[warp_] + 16 * j);
#pragma unroll
      for (int i = 0; i < 24; ++i) {
        scores[i] = scores[i + 8];
        crosses[i] = crosses[i + 8];
      }
    }
    if (at_.lane / 8 == at_.lane % 4) {
      flows.diagonal[at_.row_of(0)] = diagonal[0];
      flows.diagonal[at_.row_of(2)] = diagonal[1];
      flows.skipped[at_.row_of(0)] = skipped[0];
      flows.skipped[at_.row_of(2)] = skipped[1];
    }
  }

  /// A warp's sums of 16 rows, to the 16 columns of `to`.
  __device__ __forceinline__ void store_columns(float (&columns)[16], float* to) const {
    ssd::exchange_sums<2, 16>(columns, at_.lane);
    ssd::exchange_sums<1, 8>(columns, at_.lane);
    const float sum = sum_lanes<4, 4>(columns[0]);
    if (at_.lane / 4 % 2 == 0) to[at_.lane / 16 * 8 + at_.lane % 4 * 2 + at_.lane / 8 % 2] = sum;
  }

  const HopperArgs& args_;
  Shared shared_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  int ahead_;  ///< the step of row_of(0) less that of column_of(0, 0)
};

}  // namespace ssmbench::mamba3_bwd
