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

#include "kernels/common/mma_k8.cuh"
#include "kernels/common/movmatrix.cuh"
#include "kernels/selective_state_update/step/coded_row.cuh"

namespace ssmbench::step {

/// How the four lanes of a row divide kCount vectors of each, from state `begin` on.
template <DType kState, int kCount>
struct Quad {
  static constexpr int kWidth = 16 / sizeof(StateBits<kState>);
  static constexpr int kVectors = kCount;
  static constexpr int kStates = kWidth * kVectors;
  int lane, dstate, begin;
  int lanes = 4;

  __device__ int first(int vector) const { return begin + state_of(lane, lanes, vector, kWidth); }
  __device__ static constexpr bool has(int /*vector*/) { return true; }
};

/// Numbers in bf16 whose sum is a state, or its code.
template <DType kState>
constexpr int kStateParts = kState == DType::f32                           ? 3
                            : kState == DType::f16 || kState == DType::i16 ? 2
                                                                           : 1;

/// Two floats as sums of kParts pairs in bf16, the largest first; exact if they have 8·kParts significant
/// bits.
template <int kParts>
__device__ void split(float first, float second, std::uint32_t (&pairs)[kParts]) {
  constexpr std::uint32_t kUpper = 0xFFFF0000U;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    pairs[i] = select_bytes(__float_as_uint(first), __float_as_uint(second), 0x7632U);
    first -= __uint_as_float(__float_as_uint(first) & kUpper);
    second -= __uint_as_float(__float_as_uint(second) & kUpper);
  }
}

/// Words of a row of B or C that a lane has, each two states.
template <class Division>
struct ProjectionPart {
  using Part = RowPart<__nv_bfloat16, Division>;
  static constexpr int kWords = Division::kStates / 2;
  Part part;

  __device__ std::uint32_t word(int i) const {
    constexpr int kOfPiece = Part::Piece::kWords;
    constexpr int kOfVector = Division::kWidth / 2;
    return part.pieces[i / kOfVector][i % kOfVector / kOfPiece].words[i % kOfPiece];
  }
};

/// Where a lane is, and its rows r = 0, 1: 2g and 2g + 1 of a warp's, row g and g + 8 of fragments.
struct ProductRows {
  int head, first;  ///< row 0 of the head
  int headdim;
  int column;  ///< q
  int token;   ///< g: that it loads B, C and dt of
  std::int64_t b;
  std::int64_t own;  ///< of tensors (B, T, H, P): row `first` at token 2q
  int token_rows;    ///< from there to the next token
  bool are_there;    ///< both or neither: headdim is even

  /// Tile `tile` of 16 rows of a head.
  template <class Args>
  __device__ ProductRows(const Args& args, std::int64_t b, int head, int tile) : head(head), b(b) {
    token = static_cast<int>(threadIdx.x % kWarpThreads) / 4;
    column = static_cast<int>(threadIdx.x) % 4;
    first = tile * kProductRows + 2 * token;
    headdim = static_cast<int>(args.headdim);
    token_rows = static_cast<int>(args.heads) * headdim;
    asm("" : "+r"(token_rows));  // else it is multiplied again where it is used
    own = row(args, step(args, 2 * column));
    look();
  }
  /// To the tile behind.
  __device__ void advance() {
    first += kProductRows;
    own += kProductRows;
    look();
  }
  /// Row 0 of the head in slot, or token, `i` of a tensor (·, H, P).
  template <class Args>
  __device__ std::int64_t row(const Args& args, std::int64_t i) const {
    return (i * args.heads + head) * args.headdim + first;
  }
  template <class Args>
  __device__ std::int64_t step(const Args& args, int t) const {
    return b * args.tokens + t;
  }
  /// Whether the lane's rows have token 2q + c.
  template <class Args>
  __device__ bool has_token(const Args& args, int c) const {
    return are_there && 2 * column + c < static_cast<int>(args.tokens);
  }

 private:
  __device__ void look() { are_there = first < headdim; }
};

/// x and the gate of a lane's rows at tokens 2q and 2q + 1, as they lie in memory: neighbours.
struct RowTokens {
  std::uint32_t x[2]{}, z[2]{};

  template <class Args>
  __device__ RowTokens(const Args& args, const ProductRows& rows) {
    const auto load = [&](std::uint32_t(&to)[2], const void* from) {
      const auto* const own = static_cast<const __nv_bfloat16*>(from) + rows.own;
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (rows.has_token(args, c))
          to[c] = *reinterpret_cast<const std::uint32_t*>(own + c * rows.token_rows);
    };
    load(x, args.x);
    if (args.z != nullptr) load(z, args.z);
  }
  /// That of row r.
  __device__ static float of_row(std::uint32_t pair, int r) {
    const float2 two = unpack_pair<__nv_bfloat16>(pair);
    return r == 0 ? two.x : two.y;
  }
};

/// What all rows of a head have in common: of lane (g, q), the decay of token g, Δ of tokens 2q + c and P of
/// these, and w·(C·B) from 2q + c to g, 0 where that comes before.
struct TokenWeights {
  float decay, delta[2], kept[2]{1.0F, 1.0F}, within[2];

  TokenWeights() = default;

  /// `delta_of_token`: Δ of token g, 0 where there is none. `products`: C·B of (g, 2q) and (g, 2q + 1).
  __device__ TokenWeights(float delta_of_token, float rate, const float (&products)[4],
                          const ProductRows& rows) {
    constexpr unsigned kAll = 0xFFFFFFFFU;
    decay = exp2_approximate(delta_of_token * (rate * kLog2E));
    float weight[2]{1.0F, 1.0F};
#pragma unroll
    for (int s = 0; s < kProductTokens; ++s) {
      const float of_token = __shfl_sync(kAll, decay, 4 * s);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (s <= 2 * rows.column + c) kept[c] *= of_token;
        if (s > 2 * rows.column + c && s <= rows.token) weight[c] *= of_token;
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      delta[c] = __shfl_sync(kAll, delta_of_token, 4 * (2 * rows.column + c));
      within[c] = 2 * rows.column + c <= rows.token ? weight[c] * products[c] : 0.0F;
    }
  }
};

/// Σ C·h of rows r and tokens 2q + c: sums[2·r + c]. operands(v, i, pairs): puts states i … i + 3 of vector v
/// into pairs, sums of kParts numbers in bf16: (0, i), (1, i), (0, i + 2) and (1, i + 2) of rows r.
template <int kParts, int kWidth, int kVectors, class Words, class Operands>
__device__ void contract(float (&sums)[4], const Words& C, const Operands& operands) {
  float parts[kParts][4]{};  // smaller ones apart: they would drown in the sum of the larger
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      std::uint32_t pairs[4][kParts];
      operands(v, i, pairs);
      const int word = (v * kWidth + i) / 2;
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        mma_bf16(parts[part], {pairs[0][part], pairs[1][part], pairs[2][part], pairs[3][part]}, C.word(word),
                 C.word(word + 1));
    }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] = parts[kParts - 1][i];
#pragma unroll
    for (int part = kParts - 2; part >= 0; --part) sums[i] += parts[part][i];
  }
}

/// y[r][c] += Σ within·Δx over the tokens, of rows r and tokens 2q + c: by products of three parts in bf16
/// each, the smallest first, those below 2^-24 left out. Where something is infinite or NaN, token by token:
/// earlier ones have no part in it.
__device__ inline void add_within(float (&y)[2][2], const TokenWeights& weights, const float (&delta_x)[2][2],
                                  const ProductRows& rows) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  float magnitude = fabsf(weights.within[0]) + fabsf(weights.within[1]);
#pragma unroll
  for (int r = 0; r < 2; ++r) magnitude += fabsf(delta_x[r][0]) + fabsf(delta_x[r][1]);
  if (__all_sync(kAll, static_cast<int>(magnitude < INFINITY))) {
    std::uint32_t a[2][3], b[3], parts[3][2];
    split(weights.within[0], weights.within[1], b);
#pragma unroll
    for (int r = 0; r < 2; ++r) split(delta_x[r][0], delta_x[r][1], a[r]);
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) parts[i][r] = a[r][i];
    float small[4]{};
    float sums[4]{};
    mma_bf16(small, parts[2], b[0]);
    mma_bf16(sums, parts[0], b[0]);
    mma_bf16(small, {parts[0][0], parts[0][1], parts[1][0], parts[1][1]}, b[2], b[1]);
    mma_bf16(small, {parts[1][0], parts[1][1], parts[0][0], parts[0][1]}, b[0], b[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i / 2][i % 2] += sums[i] + small[i];
    return;
  }
#pragma unroll 1
  for (int s = 0; s < kProductTokens; ++s)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int t = 2 * rows.column + c;
      const int from = 4 * t + s / 2;
      const float even = __shfl_sync(kAll, weights.within[0], from);
      const float odd = __shfl_sync(kAll, weights.within[1], from);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float even_x = __shfl_sync(kAll, delta_x[r][0], s / 2, 4);
        const float odd_x = __shfl_sync(kAll, delta_x[r][1], s / 2, 4);
        if (s <= t) y[r][c] += (s % 2 == 0 ? even : odd) * (s % 2 == 0 ? even_x : odd_x);
      }
    }
}

/// out of rows r at tokens 2q + c from y = P·Σ C·h_0, to which the tokens themselves are added.
template <class Args>
__device__ void store_outputs(const Args& args, const ProductRows& rows, float (&y)[2][2],
                              const TokenWeights& weights, const RowTokens& inputs,
                              const float (&delta_x)[2][2], float skip, bool is_padding) {
  add_within(y, weights, delta_x, rows);
  const auto for_each = [](const auto& visit) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < 2; ++c) visit(r, c);
  };
  if (args.D != nullptr) for_each([&](int r, int c) { y[r][c] += skip * RowTokens::of_row(inputs.x[c], r); });
  if (args.z != nullptr)
    for_each([&](int r, int c) { y[r][c] *= fast_silu(RowTokens::of_row(inputs.z[c], r)); });
  if (is_padding) for_each([&](int r, int c) { y[r][c] = 0.0F; });
  auto* const out = static_cast<__nv_bfloat16*>(args.out) + rows.own;
#pragma unroll
  for (int c = 0; c < 2; ++c)
    if (rows.has_token(args, c))
      *reinterpret_cast<std::uint32_t*>(out + c * rows.token_rows) =
          pack_pair<__nv_bfloat16>(y[0][c], y[1][c]);
}

/// w·Δ·x of a lane's rows and tokens from token `from` to one token t as operands A, sums of three parts, 0
/// for others.
struct UpdateOperands {
  std::uint32_t parts[3][2];
  std::uint32_t mask;  ///< of B of these

  /// The smallest parts first; the two others as one product, twice as deep.
  __device__ void add(float (&to)[4], std::uint32_t tokens) const {
    mma_bf16(to, parts[2], tokens);
    mma_bf16(to, {parts[1][0], parts[1][1], parts[0][0], parts[0][1]}, tokens, tokens);
  }

  __device__ UpdateOperands(const float (&weight)[2], const float (&delta_x)[2][2], int even, int from,
                            int t) {
    const bool has_even = from <= even && even <= t;
    const bool has_odd = from <= even + 1 && even < t;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      std::uint32_t pairs[3];
      split(has_even ? weight[0] * delta_x[r][0] : 0.0F, has_odd ? weight[1] * delta_x[r][1] : 0.0F, pairs);
#pragma unroll
      for (int i = 0; i < 3; ++i) parts[i][r] = pairs[i];
    }
    mask = (has_even ? 0x0000FFFFU : 0U) | (has_odd ? 0xFFFF0000U : 0U);
  }
};

/// h_t of rows r, from an earlier h in units of `kept`: of the lane's states from vector `v` of that many on.
/// `B`: transposed.
template <int kWidth, class Words>
__device__ void update_vector(float (&h)[2][kWidth], const float (&kept)[2], const UpdateOperands& operands,
                              const Words& B, int v) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 2) {
    const std::uint32_t tokens = B.word((v * kWidth + i) / 2) & operands.mask;
    float added[4]{};
    operands.add(added, tokens);
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int k = 0; k < 2; ++k) h[r][i + k] = kept[r] * h[r][i + k] + added[2 * r + k];
  }
}

/// Whether the states of a tile are unpacked once, and go from one token that is stored to the next: codes of
/// 8 bits. (Those of 16 take two operands each, for which no registers would be left.)
template <DType kState>
constexpr bool kUnpackedOnce = kHasScale<kState> && sizeof(StateBits<kState>) == 1;

/// Where a 16-byte vector of a tile's 16 rows lies in shared memory, by vectors: in the order of rows, but
/// that every other two rows have the halves of eight vectors swapped, so that the eight lanes that read at
/// once find theirs in different banks. `vectors`: of a row.
__device__ inline int staged_at(int row, int vector, int vectors) {
  return (row * vectors + vector) ^ ((row & 2) << 1);
}

/// A warp's 16 rows as they lie in memory: one run of it. They wait in shared memory: what is under way
/// takes no registers. All lanes copy whole lines before each reads its own vectors; of states of 8 bits,
/// for which registers are few, each copies its own. h_0 is unpacked from there once for the product with C,
/// and again for each token whose state is stored.
template <DType kState, int kCount>
struct StagedTile {
  static constexpr int kVectors = kCount;
  using Vector = Quad<kState, 1>;
  using Part = QuantizedPart<kState, Vector>;
  using Staged = typename RowPart<StateBits<kState>, Vector>::Vector;
  static constexpr int kPerWord = Part::kPerWord;
  static constexpr int kDstate = kVectors * 4 * Vector::kWidth;
  using Row = Quad<kState, kVectors>;
  static constexpr int kOfRow = 4 * kVectors;  // vectors
  static constexpr bool kWholeLines = !kUnpackedOnce<kState>;
  Staged* vectors;

  /// Stage `i` of a warp's.
  __device__ explicit StagedTile(int i) {
    extern __shared__ uint4 staged[];
    const auto warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    vectors = reinterpret_cast<Staged*>(staged) + (warp * kProductStages + i) * 2 * kVectors * kWarpThreads;
  }
  __device__ Staged& at(int r, int v) const {
    const auto lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    return kWholeLines ? vectors[staged_at(lane / 4 * 2 + r, v * 4 + lane % 4, kOfRow)]
                       : vectors[(r * kVectors + v) * kWarpThreads + lane];
  }
  /// Starts to bring it from row 0 of the tile on, of which `rows` are there; all lanes take part.
  __device__ void load(const StateBits<kState>* from, int rows) const {
    const auto lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int i = 0; i < 2 * kVectors; ++i) {
      const int vector = kWholeLines ? i * kWarpThreads + lane
                                     : (lane / 4 * 2 + i / kVectors) * kOfRow + i % kVectors * 4 + lane % 4;
      copy_async_16(shared_address(kWholeLines ? &line(i) : &at(i / kVectors, i % kVectors)),
                    from + vector * Vector::kWidth, vector < rows * kOfRow ? 16 : 0);
    }
  }
  /// States of vector v of both rows.
  __device__ void decode(int v, float (&h)[2][Vector::kWidth]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Part part;
      part.part.pieces[0][0] = at(r, v);
      part.decode(h[r]);
    }
  }
  /// States i … i + 3 of vector v as operands of contract().
  __device__ void operands(int v, int i, std::uint32_t (&pairs)[4][kStateParts<kState>]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Staged vector = at(r, v);
      if constexpr (kState == DType::bf16) {
        pairs[r][0] = vector.words[i / 2];
        pairs[2 + r][0] = vector.words[i / 2 + 1];
      } else {
        float h[4];
#pragma unroll
        for (int k = 0; k < 4; k += kPerWord)
          StateCodes<kState>::decode(vector.words[(i + k) / kPerWord], h + k);
        split(h[0], h[1], pairs[r]);
        split(h[2], h[3], pairs[2 + r]);
      }
    }
  }

 private:
  /// What the lane copies of the i-th 512 bytes.
  __device__ Staged& line(int i) const {
    const int vector = i * kWarpThreads + static_cast<int>(threadIdx.x) % kWarpThreads;
    return vectors[staged_at(vector / kOfRow, vector % kOfRow, kOfRow)];
  }
};

/// The codes of a lane's two rows 2k and 2k + 1 (`first`), of states h·unit, which four lanes share; and the
/// scales of both.
template <DType kState, bool kStochastic, class Row>
__device__ void quantize_rows(QuantizedPart<kState, Row> (&parts)[2], float (&scales)[2],
                              const float (&h)[2][Row::kStates], const float (&unit)[2], std::int64_t first,
                              const Row& division, const Rounding& rounding) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  constexpr float kMost = StateCodes<kState>::kMost;
  float largest[2]{}, factors[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int s = 0; s < Row::kStates; ++s) largest[r] = fmaxf(largest[r], fabsf(h[r][s]));
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2)
#pragma unroll
    for (int r = 0; r < 2; ++r) largest[r] = fmaxf(largest[r], __shfl_xor_sync(kAll, largest[r], distance));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    scales[r] = scale_of_row(largest[r] * unit[r], 1.0F / kMost);
    factors[r] = kStochastic ? factor_of_row(largest[r], kMost) : unit[r] * reciprocal_approximate(scales[r]);
  }
  if constexpr (kStochastic) {
    encode_stochastically<kState, true>(parts, h, factors, CodedRows{first, 1, false}, division, rounding);
  } else {
#pragma unroll
    for (int r = 0; r < 2; ++r) parts[r].encode(h[r], factors[r]);
  }
}

/// Stores h·unit of the warp's rows at rows `first` and first + 1 of a tensor of states with scales.
template <DType kState, bool kStochastic, class Row>
__device__ void store_coded(const float (&h)[2][Row::kStates], const float (&unit)[2], void* states,
                            float* scales, std::int64_t first, const ProductRows& rows,
                            const Rounding& rounding) {
  constexpr int kDstate = 4 * Row::kStates;
  const Row division{rows.column, kDstate, 0};
  QuantizedPart<kState, Row> parts[2];
  float new_scales[2];
  quantize_rows<kState, kStochastic>(parts, new_scales, h, unit, first, division, rounding);
  if (!rows.are_there) return;
  StateBits<kState>* const to = static_cast<StateBits<kState>*>(states) + first * kDstate;
#pragma unroll
  for (int r = 0; r < 2; ++r) parts[r].store(to + r * kDstate, division);
  if (rows.column < 2) scales[first + rows.column] = rows.column == 0 ? new_scales[0] : new_scales[1];
}

/// Whether rows of the warp may be computed in units, of which the smallest of a lane and the largest
/// magnitude of what tokens add are given: not where that would lose the codes, or not be finite.
__device__ inline bool have_units(float smallest, float largest) {
  return __all_sync(0xFFFFFFFFU,
                    static_cast<int>(smallest >= 0x1p-40F) & static_cast<int>(largest < 0x1p100F)) != 0;
}

/// Computes h_t of the warp's rows and stores it at rows `first` and first + 1 of a tensor of states.
template <DType kState, int kVectors, class Words>
__device__ void store_update(const StagedTile<kState, kVectors>& staged, const float (&kept)[2],
                             const UpdateOperands& operands, const Words& B, void* states, std::int64_t first,
                             const ProductRows& rows, const Rounding& rounding) {
  constexpr int dstate = StagedTile<kState, kVectors>::kDstate;
  using Vector = Quad<kState, 1>;
  using Bits = StateBits<kState>;
  constexpr int kWidth = Vector::kWidth;
  Bits* const to = static_cast<Bits*>(states) + first * dstate;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Vector division{rows.column, dstate, v * 4 * kWidth};
    float h[2][kWidth];
    staged.decode(v, h);
    update_vector(h, kept, operands, B, v);
    QuantizedPart<kState, Vector> parts[2];
    quantize<kState, true>(parts, h, CodedRows{first, 1, false}, division, rounding);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (rows.are_there) parts[r].store(to + r * dstate, division);
  }
}

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

/// Words of a lane, in registers.
template <int kWords>
struct RegisterWords {
  std::uint32_t words[kWords];

  __device__ explicit RegisterWords(int /*tensor*/) {}
  __device__ std::uint32_t word(int i) const { return words[i]; }
  __device__ void set(const std::uint32_t (&to)[kWords]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = to[i];
  }
};
/// The same in shared memory, where no other lane looks, behind the stages of all warps.
template <int kWords, int kStageVectors>
struct SharedWords {
  struct alignas(16) Four {
    std::uint32_t words[4];
  };
  Four* fours;

  __device__ explicit SharedWords(int tensor) {
    extern __shared__ uint4 staged[];
    const auto warps = static_cast<int>(blockDim.x) / kWarpThreads;
    const auto warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    fours = reinterpret_cast<Four*>(staged) +
            (warps * kStageVectors + (warp * 2 + tensor) * (kWords / 4)) * kWarpThreads +
            threadIdx.x % kWarpThreads;
  }
  __device__ std::uint32_t word(int i) const { return fours[i / 4 * kWarpThreads].words[i % 4]; }
  __device__ void set(const std::uint32_t (&to)[kWords]) {
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      fours[i / 4 * kWarpThreads] = Four{{to[i], to[i + 1], to[i + 2], to[i + 3]}};
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
