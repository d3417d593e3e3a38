#pragma once

// The producer warps of the Hopper gradient kernel: one loads, one stores dx and dz, one writes what a head
// leaves for ddt, dA and dD.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"

namespace ssmbench::ssd_hopper_bwd {

/// A head's tile of x, z, dout, dx or dz.
__device__ inline hopper::TileOrigin head_tile(const BlockPlace& place, int head) {
  return {{0, place.first_head + head, place.start, place.b}};
}

/// By one thread.
template <class T>
__device__ void load_inputs(const GradientArgs& args, const SharedMemory<T>& shared) {
  using Layout = typename SharedMemory<T>::Layout;
  const BlockPlace place(args);
  hopper::barrier_arrive_expect(shared.projections_full(), 2 * Layout::kHalves * kTile);
#pragma unroll
  for (int half = 0; half < Layout::kHalves; ++half) {
    const hopper::TileOrigin from{{64 * half, place.group, place.start, place.b}};
    hopper::load_tile(shared.b_tile() + half * kTile, args.B, from, shared.projections_full());
    hopper::load_tile(shared.c_tile() + half * kTile, args.C, from, shared.projections_full());
  }
  constexpr int kStateBytes = Layout::kHalves * kTile;
  const SsdInputs& in = args.bwd.in;
  const std::int64_t row = place.row(args, 0);
  const float* steps = args.workspace.steps + row * 4 * kSteps;
  const auto* states = static_cast<const unsigned char*>(args.workspace.states) + row * kStateBytes;
  const auto* dstates = static_cast<const unsigned char*>(args.workspace.dstates) + row * kStateBytes;
  [[maybe_unused]] const float* unscales = args.workspace.unscales + row * args.plan.dstate_tiles * kUnscales;
  const int skip_bytes = in.skip_per_headdim ? 4 * static_cast<int>(in.headdim) : 0;
  hopper::TileOrigin from = head_tile(place, 0);
  const int end = place.first_head + place.heads;
  const auto ring = shared.inputs();
  typename SharedMemory<T>::Inputs::Position at;
#pragma unroll 1  // the code of all roles has to fit in the instruction cache
  for (; from.at[1] < end; ++from.at[1], at.advance()) {
    const std::uint32_t states_full = shared.states().full(at);
    shared.states().wait_empty(at);
    hopper::barrier_arrive_expect(states_full, Layout::kStatesBytes);
    hopper::load_bytes(shared.state_tile(at), states, kStateBytes, states_full);
    hopper::load_bytes(shared.dstate_tile(at), dstates, kStateBytes, states_full);
    ring.wait_empty(at);
    const std::uint32_t full = ring.full(at);
    hopper::barrier_arrive_expect(full, Layout::kStageBytes + skip_bytes);
    if (skip_bytes != 0)
      hopper::load_bytes(shared.skip_address(at), in.D + from.at[1] * in.headdim, skip_bytes, full);
    hopper::load_bytes(shared.steps_address(at), steps, kStepsBytes, full);
    if constexpr (T::kScaled) {
      hopper::load_bytes(shared.unscales_address(at), unscales, kUnscaleBytes, full);
      unscales += args.plan.dstate_tiles * kUnscales;
    }
    hopper::load_tile(shared.dout_tile(at), args.dout, from, full);
    if constexpr (T::kGated) hopper::load_tile(shared.z_tile(at), args.z, from, full);
    hopper::load_tile(shared.x_tile(at), args.x, from, full);
    steps += 4 * kSteps;
    states += kStateBytes;
    dstates += kStateBytes;
  }
}

/// By one thread. Shared: SharedMemory, or one like it; Place: BlockPlace, or one like it, of Args.
template <class T, class Place = BlockPlace, class Args, class Shared>
__device__ void store_gradients(const Args& args, const Shared& shared) {
  const Place place(args);
  const GradientMaps& maps = place.stored_maps(args);
  const auto ring = shared.inputs();
  typename Shared::Inputs::Position at;
#pragma unroll 1  // the code of all roles has to fit in the instruction cache
  for (int head = 0; head < place.heads; ++head, at.advance()) {
    ring.wait_done(at);
    hopper::store_tile(maps.dx, head_tile(place, head), shared.dx_tile(at));
    if constexpr (T::kGated) hopper::store_tile(maps.dz, head_tile(place, head), shared.z_tile(at));
    hopper::wait_stores_read();
    hopper::barrier_arrive(ring.empty(at));
  }
}

/// The factors of a head's decays. A lane has steps 2·lane and 2·lane + 1.
class DecayFactorsOfLane {
 public:
  __device__ DecayFactorsOfLane(const SsdInputs& in, const BlockPlace& place, int lane)
      : step_(2 * lane), square_(lane / 8) {
    const auto sequence = [&](int t) {
      return sequence_at(in, place.b, place.start + min(t, place.steps_valid - 1));
    };
#pragma unroll
    for (int k = 1; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (sequence(step_ + i) == sequence(16 * k)) alike_ |= 1U << (2 * k + i);
  }

  __device__ void store(DecayFactors& to, const float (&steps)[4][kSteps]) const {
    const float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + step_);
    const float2 decay = *reinterpret_cast<const float2*>(steps[kStepDecay] + step_);
    const auto factor = [&](int k, int i, float exponent) {
      return (alike_ >> (2 * k + i) & 1U) != 0 ? exp2_approximate(kLog2E * exponent) : 0.0F;
    };
    const float2 weight = make_float2(step_weight(delta.x), step_weight(delta.y));
#pragma unroll 1
    for (int k = 1; k < 4; ++k) {
      const float before = steps[kStepDecay][16 * k - 1];
      if (k > square_)
        *reinterpret_cast<float2*>(to.column[k - 1] + step_) =
            make_float2(weight.x * factor(k, 0, before - decay.x), weight.y * factor(k, 1, before - decay.y));
      if (k == square_)
        *reinterpret_cast<float2*>(to.row + step_) =
            make_float2(factor(k, 0, decay.x - before), factor(k, 1, decay.y - before));
    }
  }

 private:
  int step_;
  int square_;
  unsigned alike_ = 0;  ///< bit 2k + i: step_ + i is of the sequence that is at square k's first step
};

/// ⟨S', S⟩ in parts: the diagonals of products of 16 rows each.
template <class T>
__device__ float product_of_states(std::uint32_t states, std::uint32_t dstates, int lane) {
  using Io = typename T::Io;
  states += hopper::fragment_offset(0, lane);
  // Rows before columns: what a product takes of it is in registers one behind the other.
  dstates += hopper::transposed_fragment_offset(0, lane);
  float upper[4] = {0.0F, 0.0F, 0.0F, 0.0F};
  float lower[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll 1
  for (int j = 0; j < T::kStates / 16; ++j) {
    const std::uint32_t from = (states ^ j % 4 * 32) + j / 4 * kTile;
    const std::uint32_t dfrom = (dstates ^ j % 4 * 32) + j / 4 * kTile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t a[4];
      std::uint32_t b[4];
      load_matrices(a, from + i * 2048);
      load_matrices(b, dfrom + i * 2048);
      if constexpr (std::is_same_v<Io, __half>) {
        mma_f16(upper, a, b[0], b[1]);
        mma_f16(lower, a, b[2], b[3]);
      } else {
        mma_bf16(upper, a, b[0], b[1]);
        mma_bf16(lower, a, b[2], b[3]);
      }
    }
  }
  const int row = lane / 4;
  float sum = row % 2 == 0 ? upper[0] + lower[2] : upper[1] + lower[3];
  if (row / 2 != lane % 4) sum = 0.0F;
  return sum_lanes<1, 16>(sum);
}

/// By one warp: what the roles need of a head beside what is loaded.
template <class T>
__device__ void prepare_heads(const GradientArgs& args, const SharedMemory<T>& shared, int lane) {
  const BlockPlace place(args);
  const DecayFactorsOfLane factors(args.bwd.in, place, lane);
  typename SharedMemory<T>::Inputs::Position at;
  const SsdInputs& in = args.bwd.in;
  const int end = place.first_head + place.heads;
#pragma unroll 1
  for (int head = place.first_head; head < end; ++head, at.advance()) {
    const float skip = in.D == nullptr || in.skip_per_headdim ? 0.0F : in.D[head];
    shared.inputs().wait_full(at);
    if (lane == 0) shared.factors(at).skip[0] = skip;
    factors.store(shared.factors(at), shared.steps(at));
    hopper::barrier_arrive(shared.factors_full(at));
    hopper::barrier_arrive(shared.inputs().done(at));  // each lane for what it read
  }
}

/// By one warp, ⟨S', S⟩ included; a lane has steps 2·lane and 2·lane + 1, and the same columns of D.
template <class T>
__device__ void write_flows(const GradientArgs& args, const SharedMemory<T>& shared, int lane) {
  const BlockPlace place(args);
  std::int64_t row = place.row(args, 0);
  int left = place.heads;
  const SsdInputs& in = args.bwd.in;
  const auto ring = shared.flows();
  const int at_step = 2 * lane;
  const auto pair_of = [&](const float* from) { return *reinterpret_cast<const float2*>(from + at_step); };
  typename SharedMemory<T>::Flows::Position at;
#pragma unroll 1  // the code of all roles has to fit in the instruction cache
  for (; left > 0; --left, ++row, at.advance()) {
    shared.inputs().wait_full(at);
    shared.states().wait_full(at);
    float states = product_of_states<T>(shared.state_tile(at), shared.dstate_tile(at), lane);
    if constexpr (T::kScaled)
      states *= shared.unscale(at, kUnscaleState) * shared.unscale(at, kUnscaleGradient);
    hopper::barrier_arrive(shared.states().empty(at));  // each lane for what it read
    ring.wait_full(at);
    const HeadFlows& flows = shared.flows_of(at);
    const auto& steps = shared.steps(at);
    const float2 delta = pair_of(steps[kStepDelta]);
    const float2 into = pair_of(flows.into);
    const float2 direct = pair_of(flows.direct);
    const float2 diagonal = pair_of(shared.diagonal());
    float2 column = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int k = 0; k < kWarpsOfGroup; ++k) {
      const float2 of_rows = pair_of(flows.column[k]);
      column = make_float2(column.x + of_rows.x, column.y + of_rows.y);
    }
    float2 out = pair_of(flows.out);
    const float2 rows = pair_of(flows.rows);
    out = make_float2(out.x + rows.x - column.x, out.y + rows.y - column.y);
    // What flows past all steps ends, for the sums, at the last one.
    if (lane == 31) out.y += steps[kStepEnter][kSteps - 1] * states;
    const float2 step =
        make_float2(diagonal.x * direct.x + column.x * reciprocal_approximate(step_weight(delta.x)) + into.x,
                    diagonal.y * direct.y + column.y * reciprocal_approximate(step_weight(delta.y)) + into.y);
    float2 skip = make_float2(0.0F, 0.0F);
    if (in.skip_per_headdim)
#pragma unroll
      for (int k = 0; k < kWarpsOfGroup; ++k) {
        const float2 of_steps = pair_of(flows.skip[k]);
        skip = make_float2(skip.x + of_steps.x, skip.y + of_steps.y);
      }
    float* const to = args.workspace.flows + row * kFlowRows * kSteps + at_step;
    *reinterpret_cast<float2*>(to + kFlowOut * kSteps) = out;
    *reinterpret_cast<float2*>(to + kFlowIn * kSteps) = make_float2(delta.x * into.x, delta.y * into.y);
    *reinterpret_cast<float2*>(to + kFlowDirect * kSteps) = step;
    float* const sums = args.workspace.head_sums + row * args.plan.sums + 2;
    if (in.skip_per_headdim) {
      if (at_step < in.headdim) sums[at_step] = skip.x;
      if (at_step + 1 < in.headdim) sums[at_step + 1] = skip.y;
    } else if (in.D != nullptr) {
      const float sum = sum_lanes<1, 16>(direct.x + direct.y);
      if (lane == 0) sums[0] = sum;
    }
    __syncwarp();
    // Not before all is stored: an arrival overtakes loads from shared memory whose values nothing has used
    // yet.
    hopper::barrier_arrive(ring.empty(at));
    hopper::barrier_arrive(shared.inputs().done(at));
  }
}

}  // namespace ssmbench::ssd_hopper_bwd
