#pragma once

// cuda-step with one token of sequences in bf16, form mamba2, and states of 8 bits with a scale for each row.
//
// Instructions bind nearly as soon as memory (quantized.cuh). So lanes and dtypes are known when this is
// compiled, and a row is computed in units of u = scale·decay, as its codes are:
//
//   h/u = q + (Δx/u)·B      y = u·Σ C·h/u      the new scale is u/Q times the largest magnitude of h/u
//
//   thread   as many neighbouring rows of a head as lanes share a row, 16 bytes of each; and the same ones of
//            the next heads of a group, which have B and C in common
//   rows     wait in shared memory, each lane's vectors where no other lane looks. Two at a time are read, and
//            those of the next head copied to where they were
//   lane r   owns row r: x, z, out and its scale, which it loads a head ahead

#include "kernels/common/mma.cuh"
#include "kernels/selective_state_update/step/coded_row.cuh"

namespace ssmbench::step {

/// What a lane needs of a head beside its states, as it lies in memory: x, z and the scale of its own row.
struct HeadInputs {
  __nv_bfloat16 x, z{};
  float scale;
  StoredDt<__nv_bfloat16> dt;
  float rate, dt_bias = 0.0F, skip = 0.0F;

  /// `of_head`: among the heads of all sequences. `at`: the own row of x; its scale is *scale_from.
  __device__ HeadInputs(const StateUpdateArgs& args, int head, std::int64_t of_head, std::int64_t at,
                        const float* scale_from)
      : x(static_cast<const __nv_bfloat16*>(args.x)[at]),
        scale(*scale_from),
        dt(args, of_head),
        rate(args.A[head]) {
    if (args.z != nullptr) z = static_cast<const __nv_bfloat16*>(args.z)[at];
    if (args.dt_bias != nullptr) dt_bias = args.dt_bias[head];
    if (args.D != nullptr) skip = args.D[head];
  }
};

/// What a lane computes of its own row.
struct OwnRow {
  float delta_x, unit, gate, skipped;
  float y = 0.0F, scale = 1.0F;

  __device__ OwnRow(const StateUpdateArgs& args, const HeadInputs& in) {
    const float delta = in.dt.step_size(args, in.dt_bias);
    const float x = to_float(in.x);
    delta_x = delta * x;
    unit = exp2_approximate(delta * (in.rate * kLog2E)) * in.scale;
    skipped = in.skip * x;
    gate = args.z != nullptr ? to_float(in.z) : 0.0F;
  }
  __device__ float out(const StateUpdateArgs& args) const {
    float out = y;
    if (args.D != nullptr) out += skipped;
    return args.z != nullptr ? out * fast_silu(gate) : out;
  }
};

/// Codes of two rows to h in units of `unit`, and Σ C·h of each. Where such units would lose the codes, or
/// not be finite, h is in units of 1, which `unit` becomes.
template <int kStates>
__device__ __forceinline__ void advance_codes(float (&h)[2][kStates], float (&unit)[2],
                                              const float (&delta_x)[2], float (&y)[2],
                                              const float (&B)[kStates], const float (&C)[kStates]) {
  float added[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) added[r] = delta_x[r] * reciprocal_approximate(unit[r]);
  if (!have_units(fminf(unit[0], unit[1]), fmaxf(fabsf(added[0]), fabsf(added[1]))))
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (float& state : h[r]) state *= unit[r];
      added[r] = delta_x[r];
      unit[r] = 1.0F;
    }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = 0.0F;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      h[r][s] += added[r] * B[s];
      sum += C[s] * h[r][s];
    }
    y[r] = sum * unit[r];
  }
}

/// Codes of two rows h·unit, 2k and 2k + 1 of their head. Returns the scale of row (lane modulo 2).
template <DType kState, bool kStochastic, class Division>
__device__ __forceinline__ float encode_rows(QuantizedPart<kState, Division> (&parts)[2],
                                             const float (&h)[2][Division::kStates], const float (&unit)[2],
                                             std::int64_t row, const Division& division,
                                             const Rounding& rounding) {
  constexpr float kMost = StateCodes<kState>::kMost;
  float largest[2]{}, factors[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (const float state : h[r]) largest[r] = fmaxf(largest[r], fabsf(state));
  const float of_row =
      reduce_rows<2>(largest, division.lane, division.lanes, [](float a, float b) { return fmaxf(a, b); });
  const float own_unit = division.lane % 2 == 0 ? unit[0] : unit[1];
  const float scale = scale_of_row(of_row * own_unit, 1.0F / kMost);
  const float factor = kStochastic ? factor_of_row(of_row, kMost) : own_unit * reciprocal_approximate(scale);
#pragma unroll
  for (int r = 0; r < 2; ++r) factors[r] = __shfl_sync(0xFFFFFFFFU, factor, r, division.lanes);
  if constexpr (kStochastic) {
    encode_stochastically<kState, true>(parts, h, factors, CodedRows{row, 1, false}, division, rounding);
  } else {
#pragma unroll
    for (int r = 0; r < 2; ++r) parts[r].encode(h[r], factors[r]);
  }
  return scale;
}

/// `run`: heads of a block, all of one group.
template <DType kState, bool kStochastic, int kLanes>
__global__ void __launch_bounds__(kStepHeadWarps* kWarpThreads,
                                  kStochastic ? kStepRandomQuantizedBlocks : kStepQuantizedBlocks)
    coded_heads(const StateUpdateArgs args, const StateStorage storage, const int heads_per_group,
                const int run) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  constexpr int kThreads = kStepHeadWarps * kWarpThreads;
  constexpr int kRows = kLanes;
  using Bits = StateBits<kState>;
  using Division = Lanes<Bits, RowShape::one_vector>;
  constexpr int kDstate = kLanes * Division::kWidth;
  using Vector = typename RowPart<Bits, Division>::Vector;
  __shared__ Vector staged[kRows][kThreads];
  const auto headdim = static_cast<int>(args.headdim);
  const Division division{static_cast<int>(threadIdx.x) % kLanes, kLanes, kDstate};
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / kLanes * kRows;
  const bool is_there = row < headdim;  // else a thread has the rows of the first one, and stores nothing
  const int first = is_there ? row : 0;
  const int head = static_cast<int>(blockIdx.y) * run;
  const std::int64_t b = blockIdx.z;
  const std::int64_t source = source_of(args, b);
  const std::int64_t destination = destination_of(args, b, 0);
  const std::int64_t of_head = b * args.heads + head;
  const std::int64_t own_at = of_head * headdim + first + division.lane;
  __nv_bfloat16* const out = static_cast<__nv_bfloat16*>(args.out) + own_at;
  if (source < 0) {  // padding
    for (int k = 0; k < run; ++k)
      if (is_there) out[k * headdim] = from_float<__nv_bfloat16>(0.0F);
    return;
  }
  const std::int64_t from_row = (source * args.heads + head) * headdim + first;
  const Bits* from = static_cast<const Bits*>(args.state) + from_row * kDstate + division.first(0);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    copy_async_16(shared_address(&staged[r][threadIdx.x]), from + r * kDstate);
    if (r % 2 != 0) copy_async_commit();
  }
  const float* const scale_from = storage.scale + from_row + division.lane;
  HeadInputs next(args, head, of_head, own_at, scale_from);
  float B[Division::kStates], C[Division::kStates];
  {
    const std::int64_t projection = (b * args.groups + head / heads_per_group) * kDstate + division.first(0);
    RowPart<__nv_bfloat16, Division> stored_B, stored_C;
    stored_B.load_vector(static_cast<const __nv_bfloat16*>(args.B) + projection);
    stored_C.load_vector(static_cast<const __nv_bfloat16*>(args.C) + projection);
    stored_B.unpack(B);
    stored_C.unpack(C);
  }
  Rounding rounding(storage, 0);
  std::int64_t to_row = (destination * args.heads + head) * headdim + first;
  const bool stores = destination >= 0 && is_there;
#pragma unroll 1
  for (int k = 0; k < run; ++k) {
    const bool is_last = k + 1 == run;
    OwnRow own(args, next);
    if (!is_last)
      next = HeadInputs(args, head + k + 1, of_head + k + 1, own_at + (k + 1) * headdim,
                        scale_from + (k + 1) * headdim);
    from += headdim * kDstate;
    Bits* const to = static_cast<Bits*>(args.state) + to_row * kDstate + division.first(0);
#pragma unroll 1
    for (int r = 0; r < kRows; r += 2) {
      QuantizedPart<kState, Division> parts[2];
      float h[2][Division::kStates], y[2], unit[2], delta_x[2];
      copy_async_wait<kRows / 2 - 1>();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        delta_x[i] = __shfl_sync(kAll, own.delta_x, r + i, kLanes);
        unit[i] = __shfl_sync(kAll, own.unit, r + i, kLanes);
        parts[i].part.pieces[0][0] = staged[r + i][threadIdx.x];
        parts[i].decode(h[i]);
      }
      advance_codes(h, unit, delta_x, y, B, C);
      const float row_y = reduce_rows<2>(y, division.lane, kLanes);
      const float scale = encode_rows<kState, kStochastic>(parts, h, unit, to_row + r, division, rounding);
      if (division.lane / 2 == r / 2) {
        own.y = row_y;
        own.scale = scale;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (stores) parts[i].part.pieces[0][0].write(to + (r + i) * kDstate);
        if (!is_last) copy_async_16(shared_address(&staged[r + i][threadIdx.x]), from + (r + i) * kDstate);
      }
      copy_async_commit();
    }
    if (stores) storage.scale[to_row + division.lane] = own.scale;
    if (is_there) out[k * headdim] = from_float<__nv_bfloat16>(own.out(args));
    to_row += headdim;
  }
}

}  // namespace ssmbench::step
