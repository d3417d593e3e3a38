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
//            next tile are on their way to shared memory meanwhile. x, z and the scales of all tiles are
//            copied there first, and out overwrites x: tiles find them without addresses of their own
//
// Operands in bf16 are exact: B and C are, and states and w·Δ·x are sums of up to three numbers in bf16, by
// truncation. Nothing is shared between warps. Tokens that come after t have no part in y_t and h_t, whatever
// they are: what could be infinite or NaN is left out, not multiplied by zero.

#include "kernels/selective_state_update/step/tile_states.cuh"

namespace ssmbench::step {

/// x, z and out of a warp's rows at all tokens, and the scales of these, in shared memory. They are brought
/// and stored by vectors of eight rows, and used by words of two.
class RunInputs {
 public:
  /// Behind `stage_bytes` of each warp's states. `rows`: the warp's first tile. `run`: its tiles.
  __device__ RunInputs(const StateUpdateArgs& args, const ProductRows& rows, int run, int state_bytes,
                       int stage_bytes)
      : words_(product_token_words(run, state_bytes)), tokens_(static_cast<int>(args.tokens)) {
    extern __shared__ uint4 staged[];
    const auto warps = static_cast<int>(blockDim.x) / kWarpThreads;
    const auto warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    x_ = reinterpret_cast<std::uint32_t*>(reinterpret_cast<char*>(staged) + warps * stage_bytes +
                                          warp * product_row_bytes(run, state_bytes, tokens_));
    tile_ = x_ + 2 * rows.column * words_ + rows.token;
    has_token_[0] = 2 * rows.column < tokens_;
    has_token_[1] = 2 * rows.column + 1 < tokens_;
    const int first = rows.first - 2 * rows.token;
    vectors_ = min(run * kProductRows, rows.headdim - first) / kRowsOfVector;
    run_vectors_ = run * kProductRows / kRowsOfVector;
    token_log2_ = kWarpThreads - __clz(run_vectors_ - 1);
    token_vectors_ = static_cast<unsigned>(args.heads) * rows.headdim / kRowsOfVector;
    from_ = (rows.step(args, 0) * args.heads + rows.head) * rows.headdim + first;
  }
  /// Starts to bring x and z: zeros of rows that are not there.
  __device__ void load(const StateUpdateArgs& args) const {
    for_each_vector([&](int shared, std::int64_t at, bool is_there) {
      const int bytes = is_there ? 16 : 0;
      copy_async_16(shared_address(x_ + shared), static_cast<const __nv_bfloat16*>(args.x) + at, bytes);
      if (args.z != nullptr)
        copy_async_16(shared_address(x_ + tokens_ * words_ + shared),
                      static_cast<const __nv_bfloat16*>(args.z) + at, bytes);
    });
  }
  /// Starts to bring scales from that of row 0 on.
  __device__ void load_scales(const float* from, bool is_padding) const {
    if (lane() < 2 * vectors_)
      copy_async_16(shared_address(scale_of(4 * lane())), from + 4 * lane(), is_padding ? 0 : 16);
  }
  /// To the tile behind.
  __device__ void advance() { tile_ += kProductRows / 2; }

  /// Of the lane's two rows at tokens 2q and 2q + 1.
  __device__ RowTokens tokens(bool has_z) const {
    RowTokens of;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (has_token_[c]) of.x[c] = tile_[c * words_];
      if (has_token_[c] && has_z) of.z[c] = tile_[(tokens_ + c) * words_];
    }
    return of;
  }
  __device__ void put_out(const float (&y)[2][2]) {
#pragma unroll
    for (int c = 0; c < 2; ++c)
      if (has_token_[c]) tile_[c * words_] = pack_pair<__nv_bfloat16>(y[0][c], y[1][c]);
  }
  /// Scales of rows `row` and row + 1 of the warp's.
  __device__ float2 scales(int row) const {
    return *reinterpret_cast<const float2*>(scale_of(row));
  }
  /// Stores out of all tiles; all lanes of the warp take part.
  __device__ void store_outputs(const StateUpdateArgs& args) const {
    __syncwarp();
    for_each_vector([&](int shared, std::int64_t at, bool is_there) {
      if (is_there)
        *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(args.out) + at) =
            *reinterpret_cast<const uint4*>(x_ + shared);
    });
  }

 private:
  static constexpr int kRowsOfVector = 8;
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  __device__ std::uint32_t* scale_of(int row) const {
    return x_ + 2 * tokens_ * words_ + row;
  }
  /// Calls `visit` for the lane's vectors of all tokens: its first word here, its row in memory, and whether
  /// that row exists.
  template <class Visit>
  __device__ void for_each_vector(const Visit& visit) const {
#pragma unroll 1
    for (int i = lane(); i < tokens_ << token_log2_; i += kWarpThreads) {
      const int t = i >> token_log2_;
      const int vector = i - (t << token_log2_);
      if (vector < run_vectors_)
        visit(t * words_ + vector * kRowsOfVector / 2,
              from_ + (std::uint64_t{static_cast<unsigned>(t)} * token_vectors_ + vector) * kRowsOfVector,
              vector < vectors_);
    }
  }

  int words_, tokens_;
  std::uint32_t *x_, *tile_;  ///< the lane's words of its tile at token 2q
  bool has_token_[2];
  int run_vectors_;         ///< of rows of all tiles
  int vectors_;             ///< of those that are there
  int token_log2_;          ///< numbers of vectors from one token to the next
  unsigned token_vectors_;  ///< vectors from one token to the next in memory
  std::int64_t from_;       ///< the warp's first row at token 0 there
};

/// Where a lane's rows of a tile are in each slot, or step, of a tensor of states.
template <DType kState, int kDstate>
class TilePlaces {
 public:
  using Bits = StateBits<kState>;

  __device__ TilePlaces(const StateUpdateArgs& args, const ProductRows& rows)
      : slot_rows_(static_cast<unsigned>(args.heads) * rows.headdim),
        row_(static_cast<unsigned>(rows.head) * rows.headdim + rows.first) {}
  __device__ void advance() { row_ += kProductRows; }
  /// The lane's first vector.
  __device__ Bits* state(void* states, int slot, int column) const {
    return row_at(static_cast<Bits*>(states) + std::uint64_t{row_} * kDstate + column * (16 / sizeof(Bits)),
                  slot, slot_rows_ * static_cast<unsigned>(kDstate * sizeof(Bits)));
  }
  /// The scale of row first + q.
  __device__ float* scale(float* scales, int slot, int column) const {
    return row_at(scales + row_ + column, slot, slot_rows_ * static_cast<unsigned>(sizeof(float)));
  }
  /// Row `first` among those of all slots.
  __device__ std::int64_t row(int slot) const { return std::int64_t{slot} * slot_rows_ + row_; }

 private:
  unsigned slot_rows_, row_;
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

/// What the tiles of a head have in common, as it lies in memory.
template <class Row>
struct StoredHead {
  ProjectionPart<Row> B, C;  ///< of token g
  StoredDt<__nv_bfloat16> dt;
  float rate, skip = 0.0F, dt_bias = 0.0F;
  int destinations = -1;  ///< of token g
  bool has_token;

  __device__ StoredHead(const StateUpdateArgs& args, const ProductRows& rows, int heads_per_group)
      : rate(args.A[rows.head]), has_token(rows.token < static_cast<int>(args.tokens)) {
    const std::int64_t step = rows.step(args, rows.token);
    const std::int64_t projection = (step * args.groups + rows.head / heads_per_group) * args.dstate;
    const Row division{rows.column, static_cast<int>(args.dstate), 0};
    B.part.load(static_cast<const __nv_bfloat16*>(args.B) + projection, division, has_token);
    C.part.load(static_cast<const __nv_bfloat16*>(args.C) + projection, division, has_token);
    if (args.D != nullptr) skip = args.D[rows.head];
    if (args.dt_bias != nullptr) dt_bias = args.dt_bias[rows.head];
    if (!has_token) return;
    dt = StoredDt<__nv_bfloat16>(args, step * args.heads + rows.head);
    destinations = static_cast<int>(destination_of(args, rows.b, rows.token));
  }
};

/// What they share. B: transposed.
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

  __device__ ProductHead(const StateUpdateArgs& args, const ProductRows& rows, const StoredHead<Row>& stored)
      : skip(stored.skip), destinations(stored.destinations) {
    const float delta = stored.has_token ? stored.dt.step_size(args, stored.dt_bias) : 0.0F;
    float products[4]{};  // C·B
    std::uint32_t words_of_B[kWords], words_of_C[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words_of_C[i] = stored.C.word(i);
#pragma unroll
    for (int i = 0; i < kWords; i += 2) {
      mma_bf16(products, {words_of_C[i], 0, words_of_C[i + 1], 0}, stored.B.word(i), stored.B.word(i + 1));
      words_of_B[i] = transposed(stored.B.word(i));
      words_of_B[i + 1] = transposed(stored.B.word(i + 1));
    }
    B.set(words_of_B);
    C.set(words_of_C);
    weights = TokenWeights(delta, stored.rate, products, rows);
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
__device__ __forceinline__ void step_coded(
    const StateUpdateArgs& args, const StateStorage& storage, const ProductRows& rows,
    const TilePlaces<kState, 4 * Quad<kState, kVectors>::kStates>& places,
    float (&h)[2][Quad<kState, kVectors>::kStates], const StagedTile<kState, kVectors>& staged,
    const float (&scale)[2], const float (&delta_x)[2][2], const ProductHead<kState, kVectors>& of_head) {
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
    store_coded<kState, kStochastic, Row>(h, unit, places.state(args.state, stored.destination, rows.column),
                                          places.scale(storage.scale, stored.destination, rows.column),
                                          places.row(stored.destination), rows, rounding);
  }
}

/// The same without scales.
template <DType kState, bool kStochastic, int kVectors>
__device__ __forceinline__ void step_states(
    const StateUpdateArgs& args, const StateStorage& storage, const ProductRows& rows,
    const TilePlaces<kState, 4 * Quad<kState, kVectors>::kStates>& places,
    const StagedTile<kState, kVectors>& staged, const float (&delta_x)[2][2],
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
      const int at = tensor == 0 ? stored.destination : static_cast<int>(rows.step(args, stored.token));
      store_update<kState>(staged, kept, operands, of_head.B,
                           places.state(tensor == 0 ? args.state : args.intermediate, at, rows.column),
                           places.row(at), rows, rounding);
    }
  }
}

/// Outputs of a tile's tokens, and its states where they are stored.
template <DType kState, bool kStochastic, int kVectors>
__device__ __forceinline__ void step_tile(
    const StateUpdateArgs& args, const StateStorage& storage, const ProductRows& rows,
    const TilePlaces<kState, 4 * Quad<kState, kVectors>::kStates>& places,
    const StagedTile<kState, kVectors>& staged, RunInputs& inputs, const float (&scale)[2],
    const ProductHead<kState, kVectors>& of_head, bool is_padding) {
  using Vector = Quad<kState, 1>;
  using Row = Quad<kState, kVectors>;
  const TokenWeights& weights = of_head.weights;
  float sums[4], y[2][2], delta_x[2][2];
  [[maybe_unused]] float h[2][kHasScale<kState> ? Row::kStates : 1];
  if constexpr (kUnpackedOnce<kState>) {
    staged.decode_all(h);
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
  const RowTokens tokens = inputs.tokens(args.z != nullptr);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      y[r][c] = weights.kept[c] * (scale[r] * sums[2 * r + c]);
      delta_x[r][c] = weights.delta[c] * RowTokens::of_row(tokens.x[c], r);
    }
  finish_outputs(args, rows, y, weights, tokens, delta_x, of_head.skip, is_padding);
  inputs.put_out(y);
  if constexpr (kHasScale<kState>)
    step_coded<kState, kStochastic, kVectors>(args, storage, rows, places, h, staged, scale, delta_x,
                                              of_head);
  else
    step_states<kState, kStochastic>(args, storage, rows, places, staged, delta_x, of_head);
}

/// The slot that row b of the batch starts from, as a number of each lane: one that is known to be the same
/// in all would be moved to a uniform register, and be waited for there.
__device__ inline int slot_of_lane(const StateUpdateArgs& args, int b) {
  unsigned lane = 0;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return args.source == nullptr ? b : args.source[b + lane / kWarpThreads];
}

/// A warp takes `run` tiles of a head one after the other, and has the states of the next one under way.
template <DType kState, bool kStochastic, int kDstate>
__global__ void __launch_bounds__(kStepHeadWarps* kWarpThreads, product_blocks(kState, kDstate))
    tokens_products(const StateUpdateArgs args, const StateStorage storage, const int heads_per_group,
                    const int run) {
  using Staged = StagedTile<kState, kDstate / (4 * Quad<kState, 1>::kWidth)>;
  constexpr int kWidth = Quad<kState, 1>::kWidth;
  const int first = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarpThreads) * run;
  // What does not depend on the slot is on its way before that is waited for.
  const int source = slot_of_lane(args, static_cast<int>(blockIdx.z));
  ProductRows rows(args, blockIdx.z, static_cast<int>(blockIdx.y), first);
  RunInputs inputs(args, rows, run, sizeof(StateBits<kState>),
                   product_state_bytes(kDstate, sizeof(StateBits<kState>), kState));
  inputs.load(args);
  const StoredHead<Quad<kState, Staged::kVectors>> stored(args, rows, heads_per_group);
  TilePlaces<kState, kDstate> places(args, rows);
  int ahead = rows.headdim - first * kProductRows;  // rows from the next tile to be loaded on
  const StateBits<kState>* from = static_cast<const StateBits<kState>*>(args.state) +
                                  (rows.row(args, source) - 2 * rows.token) * kDstate +
                                  Staged::first_copied() * kWidth;
  const auto load = [&](int i) {
    if (i < run) Staged(i % kProductStages).load(from, source < 0 ? 0 : ahead);
    copy_async_commit();
    from += kProductRows * kDstate;
    ahead -= kProductRows;
  };
  if constexpr (kHasScale<kState>)
    inputs.load_scales(storage.scale + rows.row(args, source) - 2 * rows.token, source < 0);
#pragma unroll
  for (int i = 0; i < kProductStages; ++i) load(i);
  const ProductHead<kState, Staged::kVectors> of_head(args, rows, stored);
#pragma unroll 1
  for (int i = 0; i < run; ++i) {
    copy_async_wait<kProductStages - 1>();
    __syncwarp();  // what other lanes have copied
    float scale[2]{1.0F, 1.0F};
    if (kHasScale<kState> && rows.are_there && source >= 0) {
      const float2 two = inputs.scales(i * kProductRows + 2 * rows.token);
      scale[0] = two.x;
      scale[1] = two.y;
    }
    step_tile<kState, kStochastic>(args, storage, rows, places, Staged(i % kProductStages), inputs, scale,
                                   of_head, source < 0);
    __syncwarp();  // all have read it
    load(i + kProductStages);
    rows.advance();
    places.advance();
    inputs.advance();
  }
  inputs.store_outputs(args);
}

}  // namespace ssmbench::step
