#pragma once

// cuda-step of replays with up to eight new tokens of sequences in bf16, by tensor cores: warps, lanes and
// products are those of steps of several tokens (selective_state_update/step/token_products.cuh).
//
//   old tokens   eight at a time, the oldest first: h ← P·h + Σ w·Δ·x·B, P and w over these eight
//   state ← h    if K + T > W
//   new tokens   y from C·h, C·B and Δ·x; their x, B and Δ to the ring
//
// h is in registers in f32 all the while: 64 floats a lane at a dstate of 128.

#include "kernels/selective_state_replay/step/kernel.cuh"
#include "kernels/selective_state_update/step/token_products.cuh"

namespace ssmbench::replay {

/// Eight tokens of the ring, or fewer, from `first` on.
template <class Row>
struct OldTokens {
  float decay = 1.0F, delta = 0.0F;  ///< of token g
  step::ProjectionPart<Row> B;       ///< of token g
  float x[2][2]{};                   ///< of rows r, tokens 2q + c

  __device__ OldTokens(const StateReplayArgs& args, const Tile& tile, const step::ProductRows& rows,
                       int first, int tokens) {
    const bool has_token = rows.token < tokens;
    const int token = has_token ? first + rows.token : 0;
    B.part.load(static_cast<const __nv_bfloat16*>(args.ring_B) + tile.ring_b_at(args, token) * args.dstate,
                Row{rows.column, static_cast<int>(args.dstate), 0}, has_token);
    if (has_token) delta = args.ring_dt[tile.ring_at(args, token)];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int t = 2 * rows.column + c;
      if (t >= tokens) continue;
      const std::int64_t at = tile.ring_at(args, first + t) * args.headdim + rows.first;
      if (!rows.are_there) continue;
      const auto pair =
          *reinterpret_cast<const std::uint32_t*>(static_cast<const __nv_bfloat16*>(args.ring_x) + at);
#pragma unroll
      for (int r = 0; r < 2; ++r) x[r][c] = step::RowTokens::of_row(pair, r);
    }
    decay = exp2_approximate(delta * (args.A[tile.head] * kLog2E));
  }

  /// h after these tokens.
  template <int kVectors, int kWidth>
  __device__ void advance(float (&h)[kVectors][2][kWidth], const step::ProductRows& rows) const {
    constexpr unsigned kAll = 0xFFFFFFFFU;
    const int even = 2 * rows.column;
    float weight[2]{1.0F, 1.0F}, delta_x[2][2];
    float kept[2]{1.0F, 1.0F};
#pragma unroll
    for (int s = 0; s < kProductTokens; ++s) {
      const float of_token = __shfl_sync(kAll, decay, 4 * s);
      kept[0] *= of_token;
      if (s > even) weight[0] *= of_token;
      if (s > even + 1) weight[1] *= of_token;
    }
    kept[1] = kept[0];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float of_token = __shfl_sync(kAll, delta, 4 * (even + c));
#pragma unroll
      for (int r = 0; r < 2; ++r) delta_x[r][c] = of_token * x[r][c];
    }
    step::RegisterWords<step::ProjectionPart<Row>::kWords> tokens_of_B(0);
#pragma unroll
    for (int i = 0; i < step::ProjectionPart<Row>::kWords; ++i) tokens_of_B.words[i] = transposed(B.word(i));
    const step::UpdateOperands operands(weight, delta_x, even, 0, kProductTokens - 1);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) step::update_vector(h[v], kept, operands, tokens_of_B, v);
  }
};

/// New tokens to the ring, bit by bit, behind `count` old ones; `delta`: Δ of token g.
template <class Row>
__device__ void store_ring(const StateReplayArgs& args, const Tile& tile, const step::ProductRows& rows,
                           int count, const step::ProjectionPart<Row>& B, const step::RowTokens& inputs,
                           float delta) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int t = 2 * rows.column + c;
    if (t >= args.tokens) continue;
    const std::int64_t at = tile.ring_at(args, count + t) * args.headdim + rows.first;
    if (rows.are_there)
      *reinterpret_cast<std::uint32_t*>(static_cast<__nv_bfloat16*>(args.ring_x) + at) = inputs.x[c];
  }
  if (rows.token >= args.tokens) return;
  if (tile.is_first_of_head && rows.column == 0) args.ring_dt[tile.ring_at(args, count + rows.token)] = delta;
  if (tile.is_first_of_group)
    B.part.store(
        static_cast<__nv_bfloat16*>(args.ring_B) + tile.ring_b_at(args, count + rows.token) * args.dstate,
        Row{rows.column, static_cast<int>(args.dstate), 0});
}

template <DType kState, int kDstate>
__global__ void __launch_bounds__(kStepHeadWarps* kWarpThreads, product_blocks(DType::f32, kDstate))
    replay_products(const StateReplayArgs args, const int heads_per_group) {
  using Vector = step::Quad<kState, 1>;
  using Bits = step::StateBits<kState>;
  constexpr int kVectors = kDstate / (4 * Vector::kWidth);
  using Row = step::Quad<kState, kVectors>;
  const step::ProductRows rows(args, blockIdx.z, static_cast<int>(blockIdx.y),
                               static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarpThreads));
  const std::int64_t slot = args.source == nullptr ? rows.b : std::int64_t{args.source[rows.b]};
  const bool is_padding = slot < 0;
  const bool is_first = blockIdx.x == 0 && threadIdx.x < kWarpThreads;
  const Tile tile{.b = rows.b,
                  .slot = slot,
                  .head = rows.head,
                  .group = rows.head / heads_per_group,
                  .first_row = rows.first - 2 * rows.token,
                  .rows = kProductRows,
                  .is_first_of_head = is_first,
                  .is_first_of_group = is_first && rows.head % heads_per_group == 0,
                  .start = is_padding ? 0 : args.start[slot],
                  .ring = static_cast<int>(args.window + args.tokens)};
  const int count = is_padding ? 0 : args.count[slot];
  const float skip = args.D != nullptr ? args.D[rows.head] : 0.0F;

  float h[kVectors][2][Vector::kWidth];
  Bits* const states = static_cast<Bits*>(args.state) + rows.row(args, slot) * kDstate;
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      step::QuantizedPart<kState, Vector> stored;
      stored.load(states + r * kDstate, Vector{rows.column, kDstate, v * 4 * Vector::kWidth},
                  rows.are_there && !is_padding);
      stored.decode(h[v][r]);
    }
#pragma unroll 1
  for (int first = 0; first < count; first += kProductTokens)
    OldTokens<Row>(args, tile, rows, first, min(kProductTokens, count - first)).advance(h, rows);
  if (!is_padding && count + args.tokens > args.window)
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        step::QuantizedPart<kState, Vector> part;
        part.encode(h[v][r], 1.0F);
        if (rows.are_there)
          part.store(states + r * kDstate, Vector{rows.column, kDstate, v * 4 * Vector::kWidth});
      }

  const std::int64_t token = rows.step(args, rows.token);
  const bool has_token = rows.token < args.tokens;
  const std::int64_t projection = (token * args.groups + tile.group) * kDstate;
  const Row division{rows.column, kDstate, 0};
  step::ProjectionPart<Row> B, C;
  B.part.load(static_cast<const __nv_bfloat16*>(args.B) + projection, division, has_token);
  C.part.load(static_cast<const __nv_bfloat16*>(args.C) + projection, division, has_token);
  const step::RowTokens inputs(args, rows);
  float delta = 0.0F;
  if (has_token)
    delta = step::StoredDt<__nv_bfloat16>(args, token * args.heads + rows.head)
                .step_size(args, args.dt_bias != nullptr ? args.dt_bias[rows.head] : 0.0F);
  if (!is_padding) store_ring(args, tile, rows, count, B, inputs, delta);

  float products[4]{};  // C·B
#pragma unroll
  for (int i = 0; i < step::ProjectionPart<Row>::kWords; i += 2)
    mma_bf16(products, {C.word(i), 0, C.word(i + 1), 0}, B.word(i), B.word(i + 1));
  float sums[4], y[2][2], delta_x[2][2];
  step::contract<3, Vector::kWidth, kVectors>(sums, C, [&](int v, int i, auto& pairs) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      step::split(h[v][k % 2][i + k / 2 * 2], h[v][k % 2][i + k / 2 * 2 + 1], pairs[k]);
  });
  const step::TokenWeights weights(delta, args.A[rows.head], products, rows);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      y[r][c] = weights.kept[c] * sums[2 * r + c];
      delta_x[r][c] = weights.delta[c] * step::RowTokens::of_row(inputs.x[c], r);
    }
  step::finish_outputs(args, rows, y, weights, inputs, delta_x, skip, is_padding);
  auto* const out = static_cast<__nv_bfloat16*>(args.out) + rows.own;
#pragma unroll
  for (int c = 0; c < 2; ++c)
    if (rows.has_token(args, c))
      *reinterpret_cast<std::uint32_t*>(out + c * rows.token_rows) =
          pack_pair<__nv_bfloat16>(y[0][c], y[1][c]);
}

}  // namespace ssmbench::replay
