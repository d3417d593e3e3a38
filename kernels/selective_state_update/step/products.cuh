#pragma once

// cuda-step with two to eight tokens of sequences in bf16, form mamba2, by tensor cores. With P_t the product
// of the decays of tokens 1 … t, and w_{s,t} that of tokens s + 1 … t,
//
//   y_t = P_t·(C_t·h_0) + Σ_{s≤t} w_{s,t}·(C_t·B_s)·Δ_s·x_s
//   h_t = P_t·h_0 + Σ_{s≤t} w_{s,t}·Δ_s·x_s·B_s
//
// so that all tokens take one product with h_0 as it was loaded, and h_t is computed where it is stored only.
// A recurrence over tokens takes 3 instructions a state and token, and these are 6 a state for all of them.
//
//   warp     16 rows of a head. Lane (g, q) has rows 2g and 2g + 1, rows g and g + 8 of fragments, and of each
//            run of four 16-byte vectors of a row the q-th: the two states at 2p and 2p + 1 of a vector are what
//            it has of a fragment (common/mma.cuh)
//   C·h_0    A: 16 rows × states, B: states × 8 tokens; of C lane (g, q) loads token g, at its states
//   B·Δx     A: 16 rows × 8 tokens, B: 8 tokens × states, loaded like C and transposed by the warp. Codes of 8
//            bits are the accumulators, so that h is in units of scale·decay
//   C·B      A: 8 tokens × states (B), B: states × 8 tokens (C)
//   tiles    a warp takes several such tiles of its head one after the other: C, B and what they share stay in
//            registers (C and B in shared memory beside states in f16, bf16 and 8 bits), and the states of the
//            next tile are on their way to shared memory meanwhile
//
// Operands in bf16 are exact: B and C are, and states and w·Δ·x are sums of up to three numbers in bf16, by
// truncation. Nothing is shared between warps. Tokens that come after t have no part
// in y_t and h_t, whatever they are: what could be infinite or NaN is left out, not multiplied by zero.

#include "kernels/selective_state_update/step/tile_states.cuh"

namespace ssmbench::step {

/// What a tile has beside its states.
template <DType kState>
struct TileInputs {
  float scale[2]{1.0F, 1.0F};
  RowTokens tokens;

  /// `scales`: of row `first` and those behind it; they are not read for padding.
  __device__ TileInputs(const StateUpdateArgs& args, const float* scales, const ProductRows& rows,
                        bool is_padding)
      : tokens(args, rows) {
    if (!kHasScale<kState> || !rows.are_there || is_padding) return;
    const float2 two = *reinterpret_cast<const float2*>(scales);
    scale[0] = two.x;
    scale[1] = two.y;
  }
};

/// A token whose state is stored.
struct StoredToken {
  int token = -1, destination = -1;
  float weight[2]{0.0F, 0.0F};  ///< w up to it of tokens 2q and 2q + 1
  float passed = 1.0F;          ///< the product of the decays since the one before

  /// To the next one, or past the last token. `destinations`: of token g.
  __device__ void next(const StateUpdateArgs& args, float decays, int destinations) {
    constexpr unsigned kAll = 0xFFFFFFFFU;
    const int even = static_cast<int>(threadIdx.x) % 4 * 2;
    passed = 1.0F;
#pragma unroll 1
    while (++token < static_cast<int>(args.tokens)) {
      const float decay = __shfl_sync(kAll, decays, 4 * token);
      passed *= decay;
#pragma unroll
      for (int i = 0; i < 2; ++i) weight[i] = token == even + i ? 1.0F : weight[i] * decay;
      destination = __shfl_sync(kAll, destinations, 4 * token);
      if (destination >= 0 || args.intermediate != nullptr) return;
    }
  }
};

/// What the tiles of a head have in common. B: transposed.
template <DType kState, int kVectors>
struct ProductHead {
  using Row = Quad<kState, kVectors>;
  static constexpr int kWords = ProjectionPart<Row>::kWords;
  static constexpr bool kKnowsFirst = kState != DType::f32;  // that has no registers left for it
  using Words = std::conditional_t<stages_projections(kState),
                                   SharedWords<kWords, kProductStages * 2 * kVectors>, RegisterWords<kWords>>;
  Words B{0}, C{1};
  TokenWeights weights;
  float skip;
  int destinations;  ///< of token g
  StoredToken known_first;

  __device__ ProductHead(const StateUpdateArgs& args, const ProductRows& rows, int heads_per_group) {
    const std::int64_t step = rows.step(args, rows.token);
    const bool has_token = rows.token < static_cast<int>(args.tokens);
    const std::int64_t projection = (step * args.groups + rows.head / heads_per_group) * args.dstate;
    const Row division{rows.column, static_cast<int>(args.dstate), 0};
    ProjectionPart<Row> stored_B, stored_C;
    stored_B.part.load(static_cast<const __nv_bfloat16*>(args.B) + projection, division, has_token);
    stored_C.part.load(static_cast<const __nv_bfloat16*>(args.C) + projection, division, has_token);
    const float rate = args.A[rows.head];
    skip = args.D != nullptr ? args.D[rows.head] : 0.0F;
    destinations = has_token ? static_cast<int>(destination_of(args, rows.b, rows.token)) : -1;
    float delta = 0.0F;
    if (has_token)
      delta = StoredDt<__nv_bfloat16>(args, step * args.heads + rows.head)
                  .step_size(args, args.dt_bias != nullptr ? args.dt_bias[rows.head] : 0.0F);
    float products[4]{};  // C·B
    std::uint32_t words_of_B[kWords], words_of_C[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words_of_C[i] = stored_C.word(i);
#pragma unroll
    for (int i = 0; i < kWords; i += 2) {
      mma_bf16(products, {words_of_C[i], 0, words_of_C[i + 1], 0}, stored_B.word(i), stored_B.word(i + 1));
      words_of_B[i] = transposed(stored_B.word(i));
      words_of_B[i + 1] = transposed(stored_B.word(i + 1));
    }
    B.set(words_of_B);
    C.set(words_of_C);
    weights = TokenWeights(delta, rate, products, rows);
    if constexpr (kKnowsFirst) known_first.next(args, weights.decay, destinations);
  }
  /// The first token whose state is stored.
  __device__ StoredToken first_stored(const StateUpdateArgs& args) const {
    if constexpr (kKnowsFirst) return known_first;
    StoredToken first;
    first.next(args, weights.decay, destinations);
    return first;
  }
};

/// States of vector v of two rows to their places among all of a lane's.
template <int kStates, int kWidth>
__device__ void put_vector(float (&to)[2][kStates], const float (&vector)[2][kWidth], int v) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[r][v * kWidth + i] = vector[r][i];
}

/// h_t of rows r in units of `kept`, from an earlier h in units of what that was before: accumulators start
/// from it. In units of 1 where rows have no unit.
template <int kStates, class Words>
__device__ void update_codes(float (&h)[2][kStates], float (&kept)[2], const float (&delta_x)[2][2],
                             const StoredToken& stored, int even, int from, const Words& B) {
  float added[2][2], largest = 0.0F;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float inverse = reciprocal_approximate(kept[r]);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      added[r][c] = delta_x[r][c] * inverse;
      largest = fmaxf(largest, fabsf(added[r][c]));
    }
  }
  if (!have_units(fminf(kept[0], kept[1]), largest))
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int s = 0; s < kStates; ++s) h[r][s] *= kept[r];
      added[r][0] = delta_x[r][0];
      added[r][1] = delta_x[r][1];
      kept[r] = 1.0F;
    }
  const UpdateOperands operands(stored.weight, added, even, from, stored.token);
#pragma unroll
  for (int s = 0; s < kStates; s += 2) {
    float four[4]{h[0][s], h[0][s + 1], h[1][s], h[1][s + 1]};
    operands.add(four, B.word(s / 2) & operands.mask);
#pragma unroll
    for (int i = 0; i < 4; ++i) h[i / 2][s + i % 2] = four[i];
  }
}

/// States of a tile with scales. `h`: those before the first token, where they are unpacked once.
template <DType kState, bool kStochastic, int kVectors>
__device__ __forceinline__ void step_coded(const StateUpdateArgs& args, const StateStorage& storage,
                                           const ProductRows& rows,
                                           float (&h)[2][Quad<kState, kVectors>::kStates],
                                           const StagedTile<kState, kVectors>& staged,
                                           const float (&scale)[2], const float (&delta_x)[2][2],
                                           const ProductHead<kState, kVectors>& of_head) {
  constexpr int kWidth = Quad<kState, 1>::kWidth;
  using Row = Quad<kState, kVectors>;
  const int even = 2 * rows.column;
  float kept[2]{scale[0], scale[1]};
  int from = 0;  // tokens before it are in h
  Rounding rounding(storage, 0);
  rounding.is_stochastic = kStochastic;
#pragma unroll 1
  for (StoredToken stored = of_head.first_stored(args); stored.token < static_cast<int>(args.tokens);
       stored.next(args, of_head.weights.decay, of_head.destinations)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) kept[r] *= stored.passed;
    if constexpr (kUnpackedOnce<kState>) {
      update_codes(h, kept, delta_x, stored, even, from, of_head.B);
      from = stored.token + 1;
    } else {
      // Else they would be loaded before the loop, to registers for all rounds.
      asm volatile("" ::: "memory");
      const UpdateOperands operands(stored.weight, delta_x, even, from, stored.token);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        float vector[2][kWidth];
        staged.decode(v, vector);
        update_vector(vector, kept, operands, of_head.B, v);
        put_vector(h, vector, v);
      }
    }
    const float unit[2]{kUnpackedOnce<kState> ? kept[0] : 1.0F, kUnpackedOnce<kState> ? kept[1] : 1.0F};
    store_coded<kState, kStochastic, Row>(h, unit, args.state, storage.scale,
                                          rows.row(args, stored.destination), rows, rounding);
  }
}

/// The same without scales.
template <DType kState, bool kStochastic, int kVectors>
__device__ __forceinline__ void step_states(const StateUpdateArgs& args, const StateStorage& storage,
                                            const ProductRows& rows,
                                            const StagedTile<kState, kVectors>& staged,
                                            const float (&delta_x)[2][2],
                                            const ProductHead<kState, kVectors>& of_head) {
  float kept[2]{1.0F, 1.0F};
#pragma unroll 1
  for (StoredToken stored = of_head.first_stored(args); stored.token < static_cast<int>(args.tokens);
       stored.next(args, of_head.weights.decay, of_head.destinations)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) kept[r] *= stored.passed;
    const UpdateOperands operands(stored.weight, delta_x, 2 * rows.column, 0, stored.token);
#pragma unroll 1
    for (int tensor = 0; tensor < 2; ++tensor) {  // the states, intermediate
      // Else states would be loaded before the loop, to registers for all rounds.
      asm volatile("" ::: "memory");
      if (tensor == 0 ? stored.destination < 0 : args.intermediate == nullptr) continue;
      Rounding rounding(storage, static_cast<std::uint32_t>(tensor));
      rounding.is_stochastic = kStochastic;
      store_update<kState>(staged, kept, operands, of_head.B, tensor == 0 ? args.state : args.intermediate,
                           rows.row(args, tensor == 0 ? stored.destination : rows.step(args, stored.token)),
                           rows, rounding);
    }
  }
}

/// Outputs of a tile's tokens, and its states where they are stored.
template <DType kState, bool kStochastic, int kVectors>
__device__ __forceinline__ void step_tile(const StateUpdateArgs& args, const StateStorage& storage,
                                          const ProductRows& rows, const StagedTile<kState, kVectors>& staged,
                                          const TileInputs<kState>& inputs,
                                          const ProductHead<kState, kVectors>& of_head, bool is_padding) {
  using Vector = Quad<kState, 1>;
  using Row = Quad<kState, kVectors>;
  const TokenWeights& weights = of_head.weights;
  float sums[4], y[2][2], delta_x[2][2];
  [[maybe_unused]] float h[2][kHasScale<kState> ? Row::kStates : 1];
  if constexpr (kUnpackedOnce<kState>) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float vector[2][Vector::kWidth];
      staged.decode(v, vector);
      put_vector(h, vector, v);
    }
#pragma unroll
    for (int i = 0; i < 2 * Row::kStates; ++i)  // else they are made again
      asm volatile("" : "+f"(h[i / Row::kStates][i % Row::kStates]));
    contract<kStateParts<kState>, Vector::kWidth, kVectors>(sums, of_head.C, [&](int v, int i, auto& pairs) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const two = h[k % 2] + v * Vector::kWidth + i + k / 2 * 2;
        split(two[0], two[1], pairs[k]);
      }
    });
  } else {
    contract<kStateParts<kState>, Vector::kWidth, kVectors>(
        sums, of_head.C, [&](int v, int i, auto& pairs) { staged.operands(v, i, pairs); });
  }
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      y[r][c] = weights.kept[c] * (inputs.scale[r] * sums[2 * r + c]);
      delta_x[r][c] = weights.delta[c] * RowTokens::of_row(inputs.tokens.x[c], r);
    }
  store_outputs(args, rows, y, weights, inputs.tokens, delta_x, of_head.skip, is_padding);
  if constexpr (kHasScale<kState>)
    step_coded<kState, kStochastic, kVectors>(args, storage, rows, h, staged, inputs.scale, delta_x, of_head);
  else
    step_states<kState, kStochastic>(args, storage, rows, staged, delta_x, of_head);
}

/// A warp takes `run` tiles of a head one after the other, and has the states of the next one under way.
template <DType kState, bool kStochastic, int kDstate>
__global__ void __launch_bounds__(kStepHeadWarps* kWarpThreads, product_blocks(kState))
    tokens_products(const StateUpdateArgs args, const StateStorage storage, const int heads_per_group,
                    const int run) {
  using Staged = StagedTile<kState, kDstate / (4 * Quad<kState, 1>::kWidth)>;
  const int first = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarpThreads) * run;
  const std::int64_t source = source_of(args, blockIdx.z);
  ProductRows rows(args, blockIdx.z, static_cast<int>(blockIdx.y), first);
  const std::int64_t of_source = rows.row(args, source) - rows.first;
  int ahead = first * kProductRows;  // tiles are loaded from this row of the head on
  const auto load = [&](int i) {
    if (i < run)
      Staged(i % kProductStages)
          .load(static_cast<const StateBits<kState>*>(args.state) + (of_source + ahead) * kDstate,
                source < 0 ? 0 : rows.headdim - ahead);
    copy_async_commit();
    ahead += kProductRows;
  };
  const auto inputs_of = [&](const ProductRows& of) {
    return TileInputs<kState>(args, storage.scale + of_source + of.first, of, source < 0);
  };
#pragma unroll
  for (int i = 0; i < kProductStages; ++i) load(i);
  TileInputs<kState> next = inputs_of(rows);
  const ProductHead<kState, Staged::kVectors> of_head(args, rows, heads_per_group);
#pragma unroll 1
  for (int i = 0; i < run; ++i) {
    const TileInputs<kState> inputs = next;
    const ProductRows here = rows;
    rows.advance();
    if (i + 1 < run) next = inputs_of(rows);
    copy_async_wait<kProductStages - 1>();
    __syncwarp();  // what other lanes have copied
    step_tile<kState, kStochastic>(args, storage, here, Staged(i % kProductStages), inputs, of_head,
                                   source < 0);
    __syncwarp();  // all have read it
    load(i + kProductStages);
  }
}

}  // namespace ssmbench::step
