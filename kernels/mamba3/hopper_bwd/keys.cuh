#pragma once

// The key warpgroup of the Hopper gradient kernel: what belongs to a chunk's columns s, the steps that write the
// state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dV = Mᵀ·dy + s∘leave ∘ (k·S'ᵀ) + D·dy    dk = Xᵀ·q + s∘leave ∘ (V·S'), turned back: dK over heads
//   ⟨dy, V⟩, dθ of q and k
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
  friend class Consumer<T>;  // SISO's
  using Io = typename T::Io;
  using Shared = HopperShared<T>;
  using Steps = float[kStepFloats][kSteps];
  static constexpr int kHalves = Shared::Layout::kHalves;
  using Sums = ssd::ProjectionSums<kHalves>;
  /// Halves of the states whose products run during the epilogue of the one before.
  static constexpr int kHalvesAhead = kHalves;
  static constexpr auto kAlong = hopper::Major::k;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ KeyWarpgroup(const HopperArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)),
        ranks_(args, at_) {
    row_ = static_cast<int>(ssd::BlockPlace(args).row(args, 0));
  }

  __device__ void run() {
    Sums dK;
    ssd::clear_sums(dK);
    const ssd::BlockPlace place(args_);
    for (int head = 0; head < place.heads; ++head) {
      one_head(dK, head);
      advance();
    }
    const int thread = ssd::group_thread();  // again: registers are short
    write_vectors<T>(args_, ssd::Projection::B, dK, {16 * (thread / 32), 0, thread % 32});
  }

 private:
  /// Starts to += Mᵀ or Xᵀ times rows of 64 columns.
  __device__ __forceinline__ static void multiply_transposed(float (&to)[32], std::uint32_t square,
                                                             std::uint32_t tile) {
    ssd::start_tile_product<Io, kAcross, kAcross, kSteps, true>(to, ssd::tile_operand(square),
                                                                ssd::tile_operand(tile));
  }

  /// All but the epilogue of dk, of which it starts the first half.
  __device__ __forceinline__ void start_head(float (&dk)[32], std::uint32_t (&weighed)[16], OwnPhases& phases,
                                             int head) {
    shared_.inputs().wait_full(input_at_);
    const Steps& steps = shared_.steps(input_at_);
    std::uint32_t x[16];
    ssd::load_tile_pairs(x, shared_.x_tile(input_at_) + fragment_);
    {
      float u[32];
      const float delta[2] = {steps[kStepDelta][at_.row_of(0)], steps[kStepDelta][at_.row_of(2)]};
      const float leave[2] = {steps[kStepLeave][at_.row_of(0)], steps[kStepLeave][at_.row_of(2)]};
      const float weights[2] = {delta[0] * leave[0], delta[1] * leave[1]};
      const std::uint64_t k_rows = ssd::tile_operand(shared_.k_tile(input_at_));
      const std::uint64_t dstates = ssd::tile_operand(shared_.dstate_tile(input_at_));
      ssd::start_tile_product<Io, kAlong, kAlong, T::kStates>(u, k_rows, dstates);
      shared_.flows().wait_empty(flow_at_);
      auto& flows = shared_.flows_of(flow_at_);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(u);
      float into[2] = {0.0F, 0.0F};
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 pair = unpack_pair<Io>(x[i]);
        into[i % 2] += pair.x * u[2 * i] + pair.y * u[2 * i + 1];
        u[2 * i] *= weights[i % 2];
        u[2 * i + 1] *= weights[i % 2];
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        into[j] = leave[j] * sum_lanes<1, 2>(into[j]);
        if (at_.lane % 4 == 0) flows.into[at_.row_of(2 * j)] = into[j];
      }
      weigh_rows(weighed, x, weights);
      phases = load_phases(head, 0);
      shared_.squares().wait_full(square_at_);
      multiply_transposed(u, shared_.mixing_tile(), shared_.dy_tile(input_at_));
      hopper::pin_registers(weighed);
      start_half(dk, weighed, 0);
      hopper::wgmma_wait<1>();
      hopper::pin_registers(u);
      ranks_.write(args_, args_.work.dv, u, head, flows.biases[1][warp_]);
    }
  }

  __device__ __forceinline__ void one_head(Sums& dK, int head) {
    float dk[kHalvesAhead][32];
    std::uint32_t weighed[16];
    OwnPhases phases;
    start_head(dk[0], weighed, phases, head);
    auto& flows = shared_.flows_of(flow_at_);
    float turned[kHalves][kOwnPairs];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float(&of_half)[32] = dk[half % kHalvesAhead];
      if (half > 0) phases = load_phases(head, half);
      if (half >= kHalvesAhead) start_half(of_half, weighed, half);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(of_half);
      if (half + 1 == kHalves)
        ssd::warp_arrive(shared_.squares().empty(square_at_), at_.lane);
      else if (half + 1 < kHalvesAhead)
        start_half(dk[half + 1], weighed, half + 1);
      add_final_k(of_half, head, half);
      if (half < args_.angle_tiles)
        turn_back(of_half, shared_.k_tile(input_at_) + half * kTile + fragment_, phases, turned[half]);
      const int lane = ssd::group_thread() % 32;  // again: registers are short
      add_gradient<T::kRanks>(dK[half], of_half, flows.biases[1][warp_] + 64 * half, T::kStates, lane);
      hopper::pin_registers(of_half);
    }
    // Behind both halves: the query warpgroup hands its part later.
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
      if (half < args_.angle_tiles)
        store_turned(turned[half], head, half, flows.turns[warp_] + kTilePairs * half);
    hopper::barrier_arrive(shared_.flows().full(flow_at_));
    ssd::warp_arrive(shared_.inputs().done(input_at_), at_.lane);
  }

  __device__ __forceinline__ void advance() {
    input_at_.advance();
    square_at_.advance();
    flow_at_.advance();
  }
  __device__ __forceinline__ OwnPhases load_phases(int head, int half) const {
    if (half >= args_.angle_tiles) return {};
    return load_own_phases<T::kRanks>(args_, row_ + head, half, ssd::group_thread());
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
    if constexpr (!T::kIsMimo)
      add_row(dk, last_step(), args_.final_k + state_row(head) * dstate, 64 * half, dstate);
    else
      add_final_ranks(dk, head, half, dstate);
  }
  __device__ __forceinline__ void add_final_ranks(float (&dk)[32], int head, int half, int dstate) const {
    const int first = last_step() + 1 - T::kRanks;  // row of the last step's first rank
    const ssd::BlockPlace place(args_);
    // Where the second state of a pair lies, and where the first one of the next pair.
    const int second = args_.halves ? dstate / 2 : 1;
    const int next = args_.halves ? 1 : 2;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int rank = at_.row_of(2 * row) - first;
      if (rank < 0 || rank >= T::kRanks) continue;
      const float* const from =
          args_.final_k +
          ((place.b * T::kRanks + rank) * args_.bwd.in.nheads + place.first_head + head) * dstate +
          (32 * half + at_.lane % 4) * next;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (64 * half + 8 * e >= dstate) break;
        dk[4 * e + 2 * row] += from[4 * e * next];
        dk[4 * e + 2 * row + 1] += from[4 * e * next + second];
      }
    }
  }

  /// dθ, with the query warpgroup's part, and its sums.
  __device__ __forceinline__ void store_turned(float (&turned)[kOwnPairs], int head, int tile, float* sums) {
    const std::int64_t row = row_ + head;
    const int thread = ssd::group_thread();
    const float4* const of_q = shared_.turned_of_q() + thread;
    auto* const to = reinterpret_cast<float4*>(args_.work.dtheta +
                                               (row * args_.angle_tiles + tile) * (kAngleTile / T::kRanks)) +
                     own_vector<T::kRanks>(thread);
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
    share_steps<T::kRanks>(turned, thread % 32);
    const int rank = thread / 4 % T::kRanks;
    if constexpr (T::kRanks == 8) {
      reinterpret_cast<float2*>(to + rank / 2 * kVectorsApart<8>)[rank % 2] =
          make_float2(turned[0], turned[1]);
    } else {
      constexpr int kShare = kOwnVectors / T::kRanks;
#pragma unroll
      for (int i = 0; i < kShare; ++i)
        to[(rank * kShare + i) * kVectorsApart<T::kRanks>] =
            make_float4(turned[4 * i], turned[4 * i + 1], turned[4 * i + 2], turned[4 * i + 3]);
    }
    store_turns<T::kRanks>(turned, sums, thread % 32);
  }

  const HopperArgs& args_;
  Shared shared_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  int row_;  ///< of the first head
  RankRows<T> ranks_;
  typename Shared::Inputs::Position input_at_;
  typename Shared::Squares::Position square_at_;
  typename Shared::Flows::Position flow_at_;
  typename Shared::Turned::Position turned_at_;
};

}  // namespace ssmbench::mamba3_bwd
