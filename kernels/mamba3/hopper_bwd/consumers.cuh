#pragma once

// The query and key warpgroups of SISO's kernel (queries.cuh, keys.cuh). What follows M and X is one code for both, since the code of
// all roles has to fit in the instruction cache: with y = q·Sᵀ or k·S'ᵀ, rows = dy or V, and weights enter or s∘leave
//
//   weights ∘ y + M·V → dZ, or + Mᵀ·dy → dV    (weights ∘ rows)·S + X·k, or ·S' + Xᵀ·q, turned back → dQ or dK

#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper_bwd/keys.cuh"
#include "kernels/mamba3/hopper_bwd/queries.cuh"

namespace ssmbench::mamba3_bwd {

/// Registers of a thread: 504 in all, of the 512 that a multiprocessor has.
inline constexpr int kProducerRegisters = 56;
inline constexpr int kConsumerRegisters = 224;

template <class T>
class Consumer {
  using Shared = HopperShared<T>;
  using Io = typename T::Io;
  static constexpr int kHalves = Shared::Layout::kHalves;
  static constexpr auto kAlong = hopper::Major::k;

 public:
  __device__ Consumer(const HopperArgs& args, const Shared& shared, int thread, bool is_query)
      : args_(args),
        shared_(shared),
        is_query_(is_query),
        positions_(args),
        queries_(args, shared, thread),
        keys_(args, shared, thread) {}

  __device__ void run() {
    ssd::ProjectionSums<kHalves> sums;
    ssd::clear_sums(sums);
    if (is_query_)
      queries_.clear_squares();
    else
      keys_.turn_vectors(positions_.inputs, positions_.row);
    for (; positions_.left > 0; positions_.next_head()) one_head(sums);
    const int thread = ssd::group_thread();  // again: registers are short
    ssd::write_projection<Io, kHalves, SequencePlace>(args_,
                                                      is_query_ ? ssd::Projection::C : ssd::Projection::B,
                                                      sums, {16 * (thread / 32), 0, thread % 32});
  }

 private:
  __device__ __forceinline__ void one_head(ssd::ProjectionSums<kHalves>& sums) {
    const auto& input_at = positions_.inputs;
    const auto& square_at = positions_.squares;
    const auto& flow_at = positions_.flows;
    auto& flows = shared_.flows_of(flow_at);
    const auto& steps = shared_.steps(input_at);
    const Patch at{16 * (ssd::group_thread() / 32), 0,
                   ssd::group_thread() % 32};  // again: registers are short
    float slopes[T::kGated ? 32 : 1];
    float flow[2] = {0.0F, 0.0F};
    if (is_query_) {
      queries_.make_squares(slopes, flow, positions_);
    } else {
      shared_.inputs().wait_full(input_at);
      shared_.vectors().wait_done(input_at);
      shared_.flows().wait_empty(flow_at);
    }
    const std::uint32_t own_tile = is_query_ ? shared_.q_tile(input_at) : shared_.k_tile(input_at);

    // enter ∘ (q·Sᵀ), or s∘leave ∘ (k·S'ᵀ)
    float y[32];
    ssd::start_tile_product<Io, kAlong, kAlong, T::kStates>(
        y, ssd::tile_operand(own_tile),
        ssd::tile_operand(is_query_ ? shared_.state_tile(input_at) : shared_.dstate_tile(input_at)));
    std::uint32_t weighed[16];
    {
      std::uint32_t rows[16];
      ssd::load_tile_pairs(
          rows, (is_query_ ? shared_.dy_tile(input_at) : shared_.x_tile(input_at)) + queries_.fragment_);
      float scales[2];
      float weights[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = at.row_of(2 * j);
        scales[j] = steps[is_query_ ? kStepEnter : kStepLeave][row];
        weights[j] = is_query_ ? scales[j] : scales[j] * steps[kStepDelta][row];
      }
      weigh_rows(weighed, rows, weights);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(y);
      float products[2] = {0.0F, 0.0F};
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 pair = unpack_pair<Io>(rows[i]);
        products[i % 2] += pair.x * y[2 * i] + pair.y * y[2 * i + 1];
        y[2 * i] *= weights[i % 2];
        y[2 * i + 1] *= weights[i % 2];
      }
      float* const to = is_query_ ? flows.out : flows.into;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        flow[j] = sum_lanes<1, 2>(fmaf(scales[j], products[j], flow[j]));
        if (at.lane % 4 == 0) to[at.row_of(2 * j)] = flow[j];
      }
    }
    hopper::pin_registers(weighed);

    float gradient[kHalves][32];
    if (is_query_) {
      queries_.multiply_square(y, shared_.mixing_tile(), shared_.x_tile(input_at));
    } else {
      if (positions_.left > 1) {
        auto next = input_at;
        next.advance();
        keys_.turn_vectors(next, positions_.row + 1);
      }
      shared_.squares().wait_full(square_at);
      keys_.multiply_transposed(y, shared_.mixing_tile(), shared_.dy_tile(input_at));
    }
    start_half(gradient[0], weighed, 0);
    hopper::wgmma_wait<1>();
    hopper::pin_registers(y);
    if (is_query_) {
      if constexpr (T::kGated) {
#pragma unroll
        for (int i = 0; i < 32; ++i) y[i] *= slopes[i];
      }
    } else {
      keys_.add_final_v(y, positions_);
    }
    if (T::kGated || !is_query_) {  // dZ over Z, or dV over dout
      std::uint32_t rounded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) rounded[i] = pack_pair<Io>(y[2 * i], y[2 * i + 1]);
      ssd::store_tile_pairs(
          (is_query_ ? shared_.z_tile(input_at) : shared_.dx_tile(input_at)) + queries_.fragment_, rounded);
      hopper::fence_async_proxy();
    }
    add_gradient_of_head(sums, gradient, weighed);
    hopper::barrier_arrive(shared_.flows().full(flow_at));
    ssd::warp_arrive(shared_.inputs().done(input_at), ssd::group_thread() % 32);
  }

  /// Turns dq or dk back, whose first half is on its way, and adds it to the sums over heads. The other half is on its
  /// way meanwhile.
  __device__ __forceinline__ void add_gradient_of_head(ssd::ProjectionSums<kHalves>& sums,
                                                       float (&gradient)[kHalves][32],
                                                       const std::uint32_t (&weighed)[16]) {
    const auto& input_at = positions_.inputs;
    ThreadPhases phases = queries_.load_phases(0, positions_);  // registers are short before
    if constexpr (kHalves == 2) {
      start_half(gradient[1], weighed, 1);
      hopper::wgmma_wait<1>();
      hopper::pin_registers(gradient[0]);
      add_half(sums[0], gradient[0], phases, 0);
      phases = queries_.load_phases(1, positions_);
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(gradient[kHalves - 1]);
    const int lane = ssd::group_thread() % 32;  // again: registers are short
    ssd::warp_arrive(shared_.squares().empty(positions_.squares), lane);
    add_half(sums[kHalves - 1], gradient[kHalves - 1], phases, kHalves - 1);
    ssd::warp_arrive(shared_.vectors().empty(input_at), lane);
  }

  __device__ __forceinline__ void start_half(float (&gradient)[32], const std::uint32_t (&weighed)[16],
                                             int half) const {
    if (is_query_)
      queries_.start_half(gradient, weighed, half, positions_);
    else
      keys_.start_half(gradient, weighed, half, positions_);
  }

  __device__ __forceinline__ void add_half(float (&sums)[32], float (&gradient)[32],
                                           const ThreadPhases& phases, int half) {
    const auto& input_at = positions_.inputs;
    auto& flows = shared_.flows_of(positions_.flows);
    if (!is_query_) keys_.add_final_k(gradient, half, positions_);
    if (half < args_.angle_tiles) {
      const std::uint32_t own_tile = is_query_ ? shared_.q_tile(input_at) : shared_.k_tile(input_at);
      float turned[kOwnPairs];
      turn_back(gradient, own_tile + half * kTile + queries_.fragment_, phases, turned);
      if (is_query_)
        queries_.hand_turned(turned, positions_);
      else
        keys_.store_turned(turned, half, positions_);
    }
    const int lane = ssd::group_thread() % 32;  // again: registers are short
    add_gradient(sums, gradient, flows.biases[is_query_ ? 0 : 1][queries_.warp_] + 64 * half, lane);
    hopper::pin_registers(gradient);
  }

  const HopperArgs& args_;
  Shared shared_;
  bool is_query_;
  RolePositions<Shared> positions_;
  QueryWarpgroup<T> queries_;
  KeyWarpgroup<T> keys_;
};

}  // namespace ssmbench::mamba3_bwd
