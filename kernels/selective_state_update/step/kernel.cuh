#pragma once

// cuda-step: one decoding step, bound by reading and writing the state once.
//
//   state, a matrix of rows (b, head, p) of dstate values:
//
//            lanes 0 … lanes-1, four values each ──────►  n
//   row 0    ┌────┬────┬────┬────┐  pass 0: rows_per_pass() neighbouring rows of a warp
//   row 1    ├────┼────┼────┼────┤          (dstate 128: one row on 32 lanes; dstate 16: eight rows)
//    …       ├────┼────┼────┼────┤  pass 1: the next ones, held by the same threads
//            └────┴────┴────┴────┘
//   block    up to four warps, in a run of rows that share B and C: the rows of a head (form mamba2) or of a
//            group (form mamba1)
//
// A thread loads its states of all its rows before it needs any: 16 values, 64 bytes in flight per thread,
// which at half occupancy is twice what covers the latency of memory. B and C of its states stay in registers
// for all its rows; so does the decay in form mamba2, where it is one exponential per head. The scalars of
// a row (its step size, x, D, the gate) are computed once, by the lane that owns it: lane r owns row r,
// hands out Δ and Δ·x by shuffles, and gets the sum y, in a fixed order (reduce_rows). Without that, form
// mamba1 at dstate 16 was bound by instructions. No shared memory; some 64 registers. dstate that is not a
// multiple of four takes single values in place of vectors, up to eight per lane. Where there are few rows, a
// thread holds one, so that the rows spread over the whole GPU: the launch is then bound by latency. States
// in the 16 bits of the io dtype are held and computed on in f32 the same way, at half the bytes in flight.

#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/common/vector.cuh"
#include "kernels/selective_state_update/args.h"
#include "kernels/selective_state_update/step/map.h"

namespace ssmbench::step {

/// A lane's states of a row; zeros past its end and where there is no row.
template <RowShape kShape, class T>
__device__ void load_row(float (&values)[states_per_row(kShape)], const T* row, int lane,
                         const StepPlan& plan, int dstate) {
  constexpr int kWidth = kShape == RowShape::scalars ? 1 : 4;
#pragma unroll
  for (int i = 0; i < states_per_row(kShape) / kWidth; ++i) {
    const int n = state_of(kShape, lane, plan.lanes(), i);
    const bool is_there = row != nullptr && n < dstate;
    if constexpr (kWidth == 1) {
      values[i] = is_there ? to_float(row[n]) : 0.0F;
    } else {
      Elements4<T> vector{};
      if (is_there) vector = *reinterpret_cast<const Elements4<T>*>(row + n);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[4 * i + j] = to_float(vector.values[j]);
    }
  }
}

template <RowShape kShape, class T>
__device__ void store_row(const float (&values)[states_per_row(kShape)], T* row, int lane,
                          const StepPlan& plan, int dstate) {
  constexpr int kWidth = kShape == RowShape::scalars ? 1 : 4;
#pragma unroll
  for (int i = 0; i < states_per_row(kShape) / kWidth; ++i) {
    const int n = state_of(kShape, lane, plan.lanes(), i);
    if (n >= dstate) continue;
    if constexpr (kWidth == 1) {
      row[n] = from_float<T>(values[i]);
    } else {
      Elements4<T> vector;
#pragma unroll
      for (int j = 0; j < 4; ++j) vector.values[j] = from_float<T>(values[4 * i + j]);
      *reinterpret_cast<Elements4<T>*>(row + n) = vector;
    }
  }
}

/// The scalars of a row, as loaded: a conversion waits for its value, and other loads are to be in flight
/// first.
template <class Io>
struct RowScalars {
  Io x{}, z{}, dt{};
  float dt_bias = 0.0F, D = 0.0F;

  __device__ float step_size(bool dt_softplus) const {
    const float delta = to_float(dt) + dt_bias;
    return dt_softplus ? softplus(delta) : delta;
  }
};

/// Sums over the lanes of a row, for kRows rows at once. Returns the sum of row r to every lane whose number
/// is r modulo kRows: lanes that differ in their last bits exchange the rows that the other one keeps, so
/// that each round halves what is left to add.
template <int kRows>
__device__ float reduce_rows(const float (&y)[kRows], int lane, int lanes) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  float sums[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = y[r];
#pragma unroll
  for (int distance = 1; distance < kRows; distance *= 2) {
    const bool odd = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < kRows / (2 * distance); ++i) {
      const float keep = odd ? sums[2 * i + 1] : sums[2 * i];
      const float give = odd ? sums[2 * i] : sums[2 * i + 1];
      sums[i] = keep + __shfl_xor_sync(kAll, give, distance);
    }
  }
  for (int distance = kRows; distance < lanes; distance *= 2)
    sums[0] += __shfl_xor_sync(kAll, sums[0], distance);
  return sums[0];
}

template <class Io, class State, bool kRatePerState, RowShape kShape, bool kMany>
__global__ void __launch_bounds__(kStepMaxWarps* kStepWarp)
    step_kernel(const StateUpdateArgs args, const StepPlan plan, const unsigned heads_per_group) {
  constexpr int kStates = states_per_row(kShape);
  constexpr int kRows = rows_per_thread(kShape, kMany);
  const auto blocks_per_section = static_cast<unsigned>(plan.blocks_per_section);
  const unsigned section = blockIdx.x / blocks_per_section;
  const unsigned tile = blockIdx.x % blocks_per_section * plan.warps + threadIdx.x / kStepWarp;
  const int lane = static_cast<int>(threadIdx.x) & (plan.lanes() - 1);
  const int dstate = static_cast<int>(args.dstate);
  const std::int64_t first =
      std::int64_t{tile} * plan.rows_per_warp() + (threadIdx.x % kStepWarp >> plan.lanes_log2);
  const std::int64_t origin = section * plan.section_rows;  // of the section's rows among all
  // Form mamba1: the section is a group, its rows are heads. Form mamba2: it is a head.
  const auto sections_per_batch = static_cast<unsigned>(kRatePerState ? args.groups : args.heads);
  const std::int64_t first_head =
      section % sections_per_batch * (kRatePerState ? plan.section_rows : std::int64_t{1});
  const std::int64_t projection = kRatePerState ? section : section / heads_per_group;

  State* const state = static_cast<State*>(args.state) + origin * dstate;

  // All loads come before the first store, which they could not pass, and before the first use.
  const std::int64_t own_row = first + lane * plan.rows_per_pass();
  const std::int64_t own_head = first_head + (kRatePerState ? own_row : 0);
  const bool owns = lane < kRows && own_row < plan.section_rows;
  RowScalars<Io> own;
  if (owns) {
    own.x = static_cast<const Io*>(args.x)[origin + own_row];
    if (args.z != nullptr) own.z = static_cast<const Io*>(args.z)[origin + own_row];
    if (args.D != nullptr) own.D = args.D[own_head];
  }
  if (owns || !kRatePerState) {  // every lane needs the step size of a head
    own.dt = static_cast<const Io*>(args.dt)[kRatePerState ? origin + own_row : section];
    if (args.dt_bias != nullptr) own.dt_bias = args.dt_bias[own_head];
  }
  float h[kRows][kStates], B[kStates], C[kStates];
  float rate[kRatePerState ? kRows : 1][kStates];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = first + r * plan.rows_per_pass();
    const bool is_there = row < plan.section_rows;
    load_row<kShape>(h[r], is_there ? state + row * dstate : nullptr, lane, plan, dstate);
    if constexpr (kRatePerState)
      load_row<kShape>(rate[r], is_there ? args.A + (first_head + row) * dstate : nullptr, lane, plan,
                       dstate);
  }
  load_row<kShape>(B, static_cast<const Io*>(args.B) + projection * dstate, lane, plan, dstate);
  load_row<kShape>(C, static_cast<const Io*>(args.C) + projection * dstate, lane, plan, dstate);
  const float head_rate = kRatePerState ? 0.0F : args.A[first_head];

  const float delta = own.step_size(args.dt_softplus);
  const float head_decay = kRatePerState ? 0.0F : expf(delta * head_rate);
  const float x = to_float(own.x);
  const float own_delta_x = delta * x;

  float y[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float row_delta = kRatePerState ? __shfl_sync(0xFFFFFFFFU, delta, r, plan.lanes()) : delta;
    const float delta_x = __shfl_sync(0xFFFFFFFFU, own_delta_x, r, plan.lanes());
    y[r] = 0.0F;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      float decay = head_decay;
      if constexpr (kRatePerState) decay = expf(row_delta * rate[r][s]);
      h[r][s] = decay * h[r][s] + delta_x * B[s];
      y[r] += C[s] * h[r][s];
    }
    const std::int64_t row = first + r * plan.rows_per_pass();
    if (row < plan.section_rows) store_row<kShape>(h[r], state + row * dstate, lane, plan, dstate);
  }
  float own_y = reduce_rows<kRows>(y, lane, plan.lanes());
  if (!owns) return;
  if (args.D != nullptr) own_y += own.D * x;
  if (args.z != nullptr) own_y *= silu(to_float(own.z));
  static_cast<Io*>(args.out)[origin + own_row] = from_float<Io>(own_y);
}

}  // namespace ssmbench::step
