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

/// Form mamba1: the rows of a thread are sequences, lane r owns that of sequence r.
template <class Io, class State, RowShape kShape, int kRows>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads)
    step_channels(const StateUpdateArgs args, const StepPlan plan, const int heads_per_group) {
  using Division = Lanes<State, kShape>;
  const int dstate = static_cast<int>(args.dstate);
  const int lanes = plan.lanes();
  const Division division{static_cast<int>(threadIdx.x) & (lanes - 1), lanes, dstate};
  const int warp = static_cast<int>(blockIdx.x * plan.warps + threadIdx.x / kWarpThreads);
  const int of_group =
      warp * plan.rows_per_pass() + (static_cast<int>(threadIdx.x % kWarpThreads) >> plan.lanes_log2);
  const bool is_there = of_group < heads_per_group;
  // Lanes without a channel go through the shuffles with the group's first one.
  const std::int64_t channel =
      static_cast<std::int64_t>(blockIdx.y) * heads_per_group + (is_there ? of_group : 0);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * kRows;
  const int rows = steps_within(first, kRows, args.batch);

  std::int64_t source[kRows];
  RowPart<State, Division> stored[kRows];
  RowPart<Io, Division> stored_B[kRows], stored_C[kRows];
  RowPart<float, Division> stored_rate;
#pragma unroll
  for (int r = 0; r < kRows; ++r) source[r] = r < rows ? source_of(args, first + r) : -1;
  const bool owns = division.lane < rows && is_there;
  const std::int64_t own = (first + division.lane) * args.heads + channel;
  Io stored_x{}, stored_z{};
  StoredDt<Io> dt;
  float dt_bias = 0.0F, skip = 0.0F;
  if (owns) {
    stored_x = static_cast<const Io*>(args.x)[own];
    dt = StoredDt<Io>(args, own);
    if (args.z != nullptr) stored_z = static_cast<const Io*>(args.z)[own];
    if (args.dt_bias != nullptr) dt_bias = args.dt_bias[channel];
    if (args.D != nullptr) skip = args.D[channel];
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    stored[r].load(static_cast<const State*>(args.state) + (source[r] * args.heads + channel) * dstate,
                   division, is_there && source[r] >= 0);
  stored_rate.load(args.A + channel * dstate, division, true);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t projection = ((first + r) * args.groups + blockIdx.y) * dstate;
    stored_B[r].load(static_cast<const Io*>(args.B) + projection, division, r < rows);
    stored_C[r].load(static_cast<const Io*>(args.C) + projection, division, r < rows);
  }

  const float own_delta = dt.step_size(args, dt_bias);
  const float x = to_float(stored_x);
  const float own_delta_x = own_delta * x;
  float rate[Division::kStates], y[kRows];
  stored_rate.unpack(rate);
#pragma unroll
  for (int s = 0; s < Division::kStates; ++s) rate[s] *= kLog2E;
  bool is_padding = false;  // the own row
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float delta = __shfl_sync(0xFFFFFFFFU, own_delta, r, lanes);
    const float delta_x = __shfl_sync(0xFFFFFFFFU, own_delta_x, r, lanes);
    float h[Division::kStates], B[Division::kStates], C[Division::kStates];
    stored[r].unpack(h);
    stored_B[r].unpack(B);
    stored_C[r].unpack(C);
    y[r] = advance(h, rate, delta, delta_x, B, C);
    if (division.lane == r) is_padding = source[r] < 0;
    if (!is_there || source[r] < 0) continue;
    const std::int64_t destination = destination_of(args, first + r, 0);
    if (destination < 0) continue;
    stored[r].pack(h);
    stored[r].store_whole(static_cast<State*>(args.state) + (destination * args.heads + channel) * dstate,
                          division);
  }
  float own_y = reduce_rows<kRows>(y, division.lane, lanes);
  if (!owns) return;
  if (args.D != nullptr) own_y += skip * x;
  if (args.z != nullptr) own_y *= fast_silu(to_float(stored_z));
  static_cast<Io*>(args.out)[own] = from_float<Io>(is_padding ? 0.0F : own_y);
}

}  // namespace ssmbench::step
