#pragma once

// cuda-step with one token: bound by reading and writing the state once.
//
//   state, a matrix of rows (slot, head, p) of dstate values:
//
//            lanes 0 … lanes-1, 16 bytes each ────────►  n
//   row 0    ┌────┬────┬────┬────┐  pass 0: rows_per_pass() neighbouring rows of a warp
//   row 1    ├────┼────┼────┼────┤          (dstate 128 in bf16: two rows on 16 lanes each)
//    …       ├────┼────┼────┼────┤  pass 1: the next ones, held by the same threads
//            └────┴────┴────┴────┘
//   block    up to four warps, in a run of rows that share B, C and the decay: those of a head
//
// A thread loads its states of all its rows before it needs any: eight vectors of 16 bytes whatever the
// dtype, so that states in 16 bits have as many bytes in flight as those in f32, for half of the time. They
// are held as they lie in memory and unpacked row by row. B and C of its states stay in registers for all its
// rows. What a row has one of (x, the gate) belongs to one lane of those that share it: lane r owns row r,
// hands out Δ·x by shuffles, and gets the sum y, in a fixed order (reduce_rows). No shared memory.
//
// Form mamba1 has a decay for each state, from A (D, N) in f32, which is more to read than the state where that
// has 16 bits. There the rows of a thread are the same channel of several sequences, and A is read once. Where
// there are few rows, a thread holds one, so that they spread over the whole GPU: the launch is then bound by
// latency.

#include "kernels/selective_state_update/step/row.cuh"

namespace ssmbench::step {

/// Form mamba2.
template <class Io, class State, RowShape kShape, int kRows>
__global__ void __launch_bounds__(kStepHeadWarps* kWarpThreads)
    step_heads(const StateUpdateArgs args, const StepPlan plan, const int heads_per_group) {
  using Division = Lanes<State, kShape>;
  const HeadRows<Division, kRows> rows(args, plan);
  const Division& division = rows.division;

  // All loads come before the first use, and before the first store, which they could not pass.
  Io stored_x{}, stored_z{};
  float skip = 0.0F, dt_bias = 0.0F;
  if (rows.owns) stored_x = static_cast<const Io*>(args.x)[rows.own];
  if (rows.owns && args.z != nullptr) stored_z = static_cast<const Io*>(args.z)[rows.own];
  if (args.D != nullptr) skip = args.D[rows.head];
  if (args.dt_bias != nullptr) dt_bias = args.dt_bias[rows.head];
  const StoredDt<Io> dt(args, rows.of_head);
  const float rate = args.A[rows.head];
  const std::int64_t projection = (rows.b * args.groups + rows.head / heads_per_group) * division.dstate;
  RowPart<Io, Division> stored_B, stored_C;
  stored_B.load(static_cast<const Io*>(args.B) + projection, division, true);
  stored_C.load(static_cast<const Io*>(args.C) + projection, division, true);
  if (rows.source < 0) {  // padding
    if (rows.owns) static_cast<Io*>(args.out)[rows.own] = from_float<Io>(0.0F);
    return;
  }
  RowPart<State, Division> stored[kRows];
  const State* const from =
      static_cast<const State*>(args.state) + rows.of_slot(args, rows.source, 0) * division.dstate;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    stored[r].load(from + static_cast<std::int64_t>(rows.row_to_load(r)) * division.dstate, division, true);

  const float delta = dt.step_size(args, dt_bias);
  const float decay = exp2_approximate(delta * (rate * kLog2E));
  const float x = to_float(stored_x);
  const float own_delta_x = delta * x;
  float B[Division::kStates], C[Division::kStates], y[kRows];
  stored_B.unpack(B);
  stored_C.unpack(C);
  State* to =
      static_cast<State*>(args.state) + rows.of_slot(args, rows.destination, rows.first) * division.dstate;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float delta_x = __shfl_sync(0xFFFFFFFFU, own_delta_x, r, division.lanes);
    float h[Division::kStates];
    stored[r].unpack(h);
    y[r] = advance(h, decay, delta_x, B, C);
    stored[r].pack(h);
    if (rows.destination >= 0 && rows.has(r)) stored[r].store_whole(to, division);
    to += rows.pass * division.dstate;
  }
  float own_y = reduce_rows<kRows>(y, division.lane, division.lanes);
  if (!rows.owns) return;
  if (args.D != nullptr) own_y += skip * x;
  if (args.z != nullptr) own_y *= fast_silu(to_float(stored_z));
  static_cast<Io*>(args.out)[rows.own] = from_float<Io>(own_y);
}

/// A lane's part of a row that is there. A lane past the end of rows of one vector each takes the last one
/// along.
template <RowShape kShape, class T, class Division>
__device__ void load_row(RowPart<T, Division>& part, const T* row, const Division& division) {
  if constexpr (kShape == RowShape::one_vector)
    part.load_vector(row + min(division.first(0), division.dstate - Division::kWidth));
  else
    part.load(row, division, true);
}

/// Form mamba1: the rows of a thread are sequences, kRows at a time, lane r owns that of sequence r and
/// looks up its slots. What a channel has stays in registers for plan.turns times as many. By machine code
/// it is bound by instructions nearly as soon as by memory, where states have 16 bits: addresses are one
/// multiply-add each, and sequences and channels that are not there are others again, of which nothing is
/// stored.
template <class Io, class State, RowShape kShape, int kRows>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads)
    step_channels(const StateUpdateArgs args, const StepPlan plan, const int heads_per_group) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  using Division = Lanes<State, kShape>;
  const int dstate = static_cast<int>(args.dstate);
  const int lanes = plan.lanes();
  const Division division{static_cast<int>(threadIdx.x) & (lanes - 1), lanes, dstate};
  const int warp = static_cast<int>(blockIdx.x * plan.warps + threadIdx.x / kWarpThreads);
  const int of_group =
      warp * plan.rows_per_pass() + (static_cast<int>(threadIdx.x % kWarpThreads) >> plan.lanes_log2);
  const bool is_there = of_group < heads_per_group;
  const std::int64_t channel =
      static_cast<std::int64_t>(blockIdx.y) * heads_per_group + (is_there ? of_group : 0);
  const int batch = static_cast<int>(args.batch);
  const int begin = static_cast<int>(blockIdx.z) * kRows * plan.turns;
  const int end = min(begin + kRows * plan.turns, batch);

  const auto heads = static_cast<unsigned>(args.heads);
  unsigned state_bytes = heads * static_cast<unsigned>(dstate * sizeof(State));
  unsigned io_bytes = heads * static_cast<unsigned>(sizeof(Io));
  unsigned projection_bytes = static_cast<unsigned>(args.groups) * static_cast<unsigned>(dstate * sizeof(Io));
  // Else they are multiplied again where they are used.
  asm("" : "+r"(state_bytes), "+r"(io_bytes), "+r"(projection_bytes));
  State* const states = static_cast<State*>(args.state) + channel * dstate;
  const Io* const of_x = static_cast<const Io*>(args.x) + channel;
  const Io* const of_B = static_cast<const Io*>(args.B) + std::int64_t{blockIdx.y} * dstate;
  const Io* const of_C = static_cast<const Io*>(args.C) + std::int64_t{blockIdx.y} * dstate;
  RowPart<float, Division> stored_rate;
  load_row<kShape>(stored_rate, args.A + channel * dstate, division);
  const float dt_bias = args.dt_bias != nullptr ? args.dt_bias[channel] : 0.0F;
  const float skip = args.D != nullptr ? args.D[channel] : 0.0F;
  float rate[Division::kStates];
  stored_rate.unpack(rate);
#pragma unroll
  for (int s = 0; s < Division::kStates; ++s) rate[s] *= kLog2E;

#pragma unroll 1
  for (int first = begin; first < end; first += kRows) {
    const int own = min(first + division.lane, batch - 1);
    const bool owns = is_there && division.lane < kRows && first + division.lane < end;
    const int source = args.source == nullptr ? own : args.source[own];
    int destination = args.destination == nullptr ? own : args.destination[own];
    if (!owns || source < 0) destination = -1;
    const Io stored_x = *row_at(of_x, own, io_bytes);
    Io stored_z{};
    if (args.z != nullptr) stored_z = *row_at(static_cast<const Io*>(args.z) + channel, own, io_bytes);
    StoredDt<Io> dt;
    if (args.dt_is_f32)
      dt.f32 = *row_at(static_cast<const float*>(args.dt) + channel, own, heads * sizeof(float));
    else
      dt.io = *row_at(static_cast<const Io*>(args.dt) + channel, own, io_bytes);
    RowPart<State, Division> stored[kRows];
    RowPart<Io, Division> stored_B[kRows], stored_C[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int b = min(first + r, batch - 1);
      load_row<kShape>(stored_B[r], row_at(of_B, b, projection_bytes), division);
      load_row<kShape>(stored_C[r], row_at(of_C, b, projection_bytes), division);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      load_row<kShape>(stored[r],
                       row_at<const State>(states, __shfl_sync(kAll, max(source, 0), r, lanes), state_bytes),
                       division);

    const float own_delta = dt.step_size(args, dt_bias);
    const float x = to_float(stored_x);
    const float own_delta_x = own_delta * x;
    float y[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float delta = __shfl_sync(kAll, own_delta, r, lanes);
      const float delta_x = __shfl_sync(kAll, own_delta_x, r, lanes);
      float h[Division::kStates], B[Division::kStates], C[Division::kStates];
      stored[r].unpack(h);
      stored_B[r].unpack(B);
      stored_C[r].unpack(C);
      y[r] = advance(h, rate, delta, delta_x, B, C);
      if (kShape == RowShape::one_vector && !division.has(0)) y[r] = 0.0F;
      stored[r].pack(h);
      const int to = __shfl_sync(kAll, destination, r, lanes);
      if (to >= 0) stored[r].store_whole(row_at(states, to, state_bytes), division);
    }
    float own_y = reduce_rows<kRows>(y, division.lane, lanes);
    if (args.D != nullptr) own_y += skip * x;
    if (args.z != nullptr) own_y *= fast_silu(to_float(stored_z));
    if (owns)
      *row_at(static_cast<Io*>(args.out) + channel, own, io_bytes) =
          from_float<Io>(source < 0 ? 0.0F : own_y);
  }
}

}  // namespace ssmbench::step
