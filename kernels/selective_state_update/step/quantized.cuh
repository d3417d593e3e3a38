#pragma once

// cuda-step with states that have a scale for each row (i8, i16, e4m3), or that are rounded stochastically;
// and with states in 16 bits beside sequences in f32 or the other 16-bit dtype.
//
// A row is loaded, kept and stored by vectors of 16 bytes like any other (kernel.cuh). Its scale takes the
// largest |h| of the row, so that lanes exchange that before they store: one more reduction over the lanes
// that add up y. Scales belong to the lane that owns the row, and neighbouring rows' are stored together.
//
// The machine code is bound by instructions sooner than by memory where states have 8 bits: an H200 has time
// for some 15 of them a state. Hence the decay is multiplied by the scale and not the states, integers
// become floats and back without conversions, one reciprocal serves a row, and a random number has 16 bits.
//
//   quantized_heads  form mamba2, one token, rows of vectors: a thread holds four or eight rows (of 8 bits beside
//                    sequences in bf16 coded_heads.cuh has most)
//   quantized_rows   everything else: both forms, any number of tokens and any dstate; a row on a group of
//   lanes
//
// The io dtype is looked at at run time, in the few lines that load and store it, to have few kernels.

#include "kernels/common/mma.cuh"
#include "kernels/selective_state_update/step/coded_row.cuh"

namespace ssmbench::step {

/// What a lane needs of a token beside its state.
template <class Division>
struct TokenInputs {
  float B[Division::kStates], C[Division::kStates];
  float x = 0.0F, z = 0.0F, dt = 0.0F;

  /// `projection`: where the row of B and C begins. `own`: of x and z; they are not read where `owns` is
  /// false.
  __device__ TokenInputs(const StateUpdateArgs& args, DType io, std::int64_t projection,
                         const Division& division, std::int64_t of_head, std::int64_t own, bool owns) {
    with_device_io(io, [&]<class Io>(Io) {
      RowPart<Io, Division> stored_B, stored_C;
      stored_B.load(static_cast<const Io*>(args.B) + projection, division, true);
      stored_C.load(static_cast<const Io*>(args.C) + projection, division, true);
      Io stored_x{}, stored_z{};
      if (owns) stored_x = static_cast<const Io*>(args.x)[own];
      if (owns && args.z != nullptr) stored_z = static_cast<const Io*>(args.z)[own];
      const StoredDt<Io> stored_dt(args, of_head);
      stored_B.unpack(B);
      stored_C.unpack(C);
      x = to_float(stored_x);
      z = to_float(stored_z);
      dt = args.dt_is_f32 ? stored_dt.f32 : to_float(stored_dt.io);
    });
  }
  __device__ float step_size(const StateUpdateArgs& args, std::int64_t head) const {
    const float delta = args.dt_bias != nullptr ? dt + args.dt_bias[head] : dt;
    return args.dt_softplus ? fast_softplus(delta) : delta;
  }
  /// out of a row whose Σ C·h is y.
  __device__ float output(const StateUpdateArgs& args, std::int64_t head, float y) const {
    if (args.D != nullptr) y += args.D[head] * x;
    return args.z != nullptr ? y * fast_silu(z) : y;
  }
};

__device__ inline void store_out(const StateUpdateArgs& args, DType io, std::int64_t at, float out) {
  with_device_io(io, [&]<class Io>(Io) { static_cast<Io*>(args.out)[at] = from_float<Io>(out); });
}

/// Form mamba2, one token. A thread has neighbouring rows, which wait in shared memory for their turn: its own
/// 16 bytes of each, so that there is no barrier.
template <DType kState, bool kStochastic, int kRows>
__global__ void __launch_bounds__(kStepHeadWarps* kWarpThreads, kStochastic && sizeof(StateBits<kState>) == 1
                                                                    ? kStepRandomQuantizedBlocks
                                                                    : kStepQuantizedBlocks)
    quantized_heads(const StateUpdateArgs args, const StateStorage storage, const StepPlan plan,
                    const DType io, const int heads_per_group) {
  using Bits = StateBits<kState>;
  using Division = Lanes<Bits, RowShape::one_vector>;
  using Vector = typename RowPart<Bits, Division>::Vector;
  constexpr int kGroup = kStepQuantizedGroup;
  __shared__ Vector staged[kRows][kStepHeadWarps * kWarpThreads];
  const HeadRows<Division, kRows, true> rows(args, plan);
  const Division& division = rows.division;
  __builtin_assume(division.lanes >= kRows);  // each row has a lane that owns it
  Rounding rounding(storage, 0);
  rounding.is_stochastic = kStochastic;
  if (rows.source < 0) {  // padding
    if (rows.owns) store_out(args, io, rows.own, 0.0F);
    return;
  }

  // All loads of states are under way before those of inputs are waited for.
  const Bits* from = static_cast<const Bits*>(args.state) +
                     rows.of_slot(args, rows.source, rows.first) * division.dstate + division.first(0);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    copy_async_16(shared_address(&staged[r][threadIdx.x]), from + r * division.dstate,
                  rows.has(r) && division.has(0) ? 16 : 0);
  }
  copy_async_commit();
  float own_scale = 1.0F;
  if (kHasScale<kState> && rows.owns)
    own_scale = storage.scale[rows.of_slot(args, rows.source, rows.own_row)];
  const TokenInputs<Division> inputs(args, io,
                                     (rows.b * args.groups + rows.head / heads_per_group) * division.dstate,
                                     division, rows.of_head, rows.own, rows.owns);

  const float delta = inputs.step_size(args, rows.head);
  const float decay = exp2_approximate(delta * (args.A[rows.head] * kLog2E));
  const float own_delta_x = delta * inputs.x;
  const std::int64_t to_row = rows.of_slot(args, rows.destination, rows.first);
  Bits* to = static_cast<Bits*>(args.state) + to_row * division.dstate;
  float own_y = 0.0F;
  copy_async_wait<0>();
#pragma unroll 1
  for (int group = 0; group < kRows; group += kGroup) {
    QuantizedPart<kState, Division> parts[kGroup];
    float h[kGroup][Division::kStates], y[kGroup];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const int r = group + g;
      const float delta_x = __shfl_sync(0xFFFFFFFFU, own_delta_x, r, division.lanes);
      const float scale = kHasScale<kState> ? __shfl_sync(0xFFFFFFFFU, own_scale, r, division.lanes) : 1.0F;
      parts[g].part.pieces[0][0] = staged[r][threadIdx.x];
      parts[g].decode(h[g]);
      y[g] = advance(h[g], decay * scale, delta_x, inputs.B, inputs.C);
    }
    const float row_y = reduce_rows<kGroup>(y, division.lane, division.lanes);
    const float scale =
        quantize<kState, true>(parts, h, CodedRows{to_row + group, 1, false}, division, rounding);
    if (division.lane / kGroup == group / kGroup) {
      own_scale = scale;
      own_y = row_y;
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      if (rows.destination >= 0 && rows.has(group + g)) parts[g].store(to, division);
      to += division.dstate;
    }
  }
  if (!rows.owns) return;
  if (kHasScale<kState> && rows.destination >= 0)
    storage.scale[rows.of_slot(args, rows.destination, rows.own_row)] = own_scale;
  store_out(args, io, rows.own, inputs.output(args, rows.head, own_y));
}

/// Padding has no state: the outputs of its rows are zeros.
template <DType kState, class Division>
__device__ void clear_row(const StateUpdateArgs& args, DType io, std::int64_t b, int row,
                          const Division& division) {
  for (std::int64_t t = 0; t < args.tokens; ++t) {
    const std::int64_t at = (b * args.tokens + t) * args.heads * args.headdim + row;
    if (division.lane == 0) store_out(args, io, at, 0.0F);
    if (args.intermediate == nullptr) continue;
    QuantizedPart<kState, Division> zeros;
    zeros.load(nullptr, division, false);
    zeros.store(static_cast<StateBits<kState>*>(args.intermediate) + at * division.dstate, division);
  }
}

/// Stores a row of h, rounded, p = 2k + 1 of its head where `is_odd`; all lanes of the warp take part.
template <DType kState, class Division>
__device__ void store_quantized(const float (&h)[Division::kStates], void* states, float* scales,
                                std::int64_t row, bool is_odd, const Division& division,
                                const Rounding& rounding, bool is_there) {
  float rounded[1][Division::kStates];
#pragma unroll
  for (int s = 0; s < Division::kStates; ++s) rounded[0][s] = h[s];
  QuantizedPart<kState, Division> part;
  const float scale = quantize(&part, rounded, CodedRows{row, 0, is_odd}, division, rounding);
  if (!is_there) return;
  part.store(static_cast<StateBits<kState>*>(states) + row * division.dstate, division);
  if (kHasScale<kState> && division.lane == 0) scales[row] = scale;
}

/// Both forms, any number of tokens, rows of any dstate: a row on a group of lanes, in f32 for all tokens.
template <DType kState, RowShape kShape>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads)
    quantized_rows(const StateUpdateArgs args, const StateStorage storage, const StepPlan plan,
                   const DType io, const int heads_per_group) {
  using Division = Lanes<StateBits<kState>, kShape>;
  const int dstate = static_cast<int>(args.dstate);
  const Division division{static_cast<int>(threadIdx.x) & (plan.lanes() - 1), plan.lanes(), dstate};
  const int rows = static_cast<int>(args.heads * args.headdim);
  const auto warp = static_cast<int>(blockIdx.x * plan.warps + threadIdx.x / kWarpThreads);
  const int own =
      warp * plan.rows_per_pass() + (static_cast<int>(threadIdx.x % kWarpThreads) >> plan.lanes_log2);
  const bool is_there = own < rows;
  const int row = is_there ? own : 0;  // that goes through the shuffles
  const int head = row / static_cast<int>(args.headdim);
  const bool is_odd = (row - head * static_cast<int>(args.headdim)) % 2 != 0;
  const std::int64_t b = blockIdx.z;
  const std::int64_t source = source_of(args, b);
  if (source < 0) {  // padding
    if (is_there) clear_row<kState>(args, io, b, row, division);
    return;
  }

  float h[Division::kStates], rate[Division::kStates];
  QuantizedPart<kState, Division> part;
  RowPart<float, Division> stored_rate;
  part.load(static_cast<const StateBits<kState>*>(args.state) + (source * rows + row) * dstate, division,
            is_there);
  const float scale = kHasScale<kState> && is_there ? storage.scale[source * rows + row] : 1.0F;
  stored_rate.load(args.A + std::int64_t{head} * dstate, division, args.rate_per_state);
  const float head_rate = args.rate_per_state ? 0.0F : args.A[head] * kLog2E;
  part.decode(h);
  stored_rate.unpack(rate);
#pragma unroll
  for (int s = 0; s < Division::kStates; ++s) {
    h[s] *= scale;
    rate[s] *= kLog2E;
  }
  const Rounding rounding(storage, 0);
  const Rounding of_intermediate(storage, 1);
  for (std::int64_t t = 0; t < args.tokens; ++t) {
    const std::int64_t token = b * args.tokens + t;
    const std::int64_t at = token * rows + row;
    const TokenInputs<Division> inputs(args, io, (token * args.groups + head / heads_per_group) * dstate,
                                       division, token * args.heads + head, at, true);
    const float delta = inputs.step_size(args, head);
    const float delta_x = delta * inputs.x;
    const float own_y = args.rate_per_state
                            ? advance(h, rate, delta, delta_x, inputs.B, inputs.C)
                            : advance(h, exp2_approximate(delta * head_rate), delta_x, inputs.B, inputs.C);
    const float y = reduce_row(own_y, division.lanes);
    if (is_there && division.lane == 0) store_out(args, io, at, inputs.output(args, head, y));
    const std::int64_t destination = destination_of(args, b, t);
    if (destination >= 0)
      store_quantized<kState>(h, args.state, storage.scale, destination * rows + row, is_odd, division,
                              rounding, is_there);
    if (!kHasScale<kState> && args.intermediate != nullptr)
      store_quantized<kState>(h, args.intermediate, nullptr, at, is_odd, division, of_intermediate, is_there);
  }
}

}  // namespace ssmbench::step
