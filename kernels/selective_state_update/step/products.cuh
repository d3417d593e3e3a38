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
//   warp     16 rows of a head. Lane (g, q) has rows g and g + 8, and of each run of four 16-byte vectors of
//            a row the q-th: the two states at 2p and 2p + 1 of a vector are what it has of a fragment
//            (common/mma.cuh)
//   C·h_0    A: 16 rows × states, B: states × 8 tokens; of C lane (g, q) loads token g, at its states
//   B·Δx     A: 16 rows × 8 tokens, B: 8 tokens × states, loaded like C and transposed by the warp
//   C·B      A: 8 tokens × states (B), B: states × 8 tokens (C)
//
// Operands in bf16 are exact: B and C are, and states and w·Δ·x are sums of up to three numbers in bf16, by
// truncation. Nothing is shared between warps, and there is no barrier. Tokens that come after t have no part
// in y_t and h_t, whatever they are: what could be infinite or NaN is left out, not multiplied by zero.

#include "kernels/common/mma.cuh"
#include "kernels/common/movmatrix.cuh"
#include "kernels/common/prefetch.cuh"
#include "kernels/selective_state_update/step/coded_row.cuh"

namespace ssmbench::step {

/// Blocks that a multiprocessor has registers for, 128 or 168 a thread: vectors of f32 are twice as many, and
/// rows with scales are kept until their largest state is known.
template <DType kState>
constexpr int kProductBlocks = kState == DType::bf16 || kState == DType::f16 ? 8 : 6;

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

/// Where a lane is, and its rows r = 0, 1: g and g + 8 of a warp's.
struct ProductRows {
  int head, first;  ///< row 0 of the head
  int column;       ///< q
  int token;        ///< g: that it loads B, C and dt of
  std::int64_t b;
  bool is_there[2];

  /// The first 16 of a warp that has `tiles` as many.
  template <class Args>
  __device__ ProductRows(const Args& args, int tiles) : head(static_cast<int>(blockIdx.y)), b(blockIdx.z) {
    const auto warp = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarpThreads);
    token = static_cast<int>(threadIdx.x % kWarpThreads) / 4;
    column = static_cast<int>(threadIdx.x) % 4;
    first = warp * tiles * kProductRows + token;
    for (int r = 0; r < 2; ++r) is_there[r] = first + kProductRows / 2 * r < args.headdim;
  }
  /// To the 16 rows behind them.
  template <class Args>
  __device__ void advance(const Args& args) {
    first += kProductRows;
    for (int r = 0; r < 2; ++r) is_there[r] = first + kProductRows / 2 * r < args.headdim;
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
};

/// x and the gate of a lane's rows at tokens 2q and 2q + 1, as they lie in memory.
struct RowTokens {
  __nv_bfloat16 x[2][2]{}, z[2][2]{};

  template <class Args>
  __device__ RowTokens(const Args& args, const ProductRows& rows) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int t = 2 * rows.column + c;
      if (t >= args.tokens) continue;
      const std::int64_t at = rows.row(args, rows.step(args, t));
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!rows.is_there[r]) continue;
        x[r][c] = static_cast<const __nv_bfloat16*>(args.x)[at + kProductRows / 2 * r];
        if (args.z != nullptr) z[r][c] = static_cast<const __nv_bfloat16*>(args.z)[at + kProductRows / 2 * r];
      }
    }
  }
};

/// What all rows of a head have in common: of lane (g, q), the decay of token g, Δ of 2q and 2q + 1, P of
/// these, and w·(C·B) of every token s beside them, for s up to them.
struct TokenWeights {
  float decay, delta[2], kept[2], within[kProductTokens][2];

  /// `delta_of_token`: Δ of token g, 0 where there is none. `products`: C·B of (g, 2q) and (g, 2q + 1).
  __device__ TokenWeights(float delta_of_token, float rate, const float (&products)[4],
                          const ProductRows& rows) {
    constexpr unsigned kAll = 0xFFFFFFFFU;
    decay = exp2_approximate(delta_of_token * (rate * kLog2E));
    const int even = 2 * rows.column;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      delta[c] = __shfl_sync(kAll, delta_of_token, 4 * (even + c));
      kept[c] = 0.0F;
    }
    const float odd_decay = __shfl_sync(kAll, decay, 4 * (even + 1));
    float weight = 1.0F;  // of token s beside 2q
    float next = 1.0F;    // decay of token s + 1
#pragma unroll
    for (int s = kProductTokens - 1; s >= 0; --s) {
      if (s < even) weight *= next;
      next = __shfl_sync(kAll, decay, 4 * s);
      const float even_product = __shfl_sync(kAll, products[0], 4 * s + rows.column);
      const float odd_product = __shfl_sync(kAll, products[1], 4 * s + rows.column);
      within[s][0] = s <= even ? weight * even_product : 0.0F;
      within[s][1] = s <= even ? weight * odd_decay * odd_product : s == even + 1 ? odd_product : 0.0F;
    }
    kept[0] = weight * next;
    kept[1] = kept[0] * odd_decay;
  }
};

/// Σ C·h of rows r and tokens 2q + c: sums[2·r + c]. states(v, h): puts vector v of them into h, sums of
/// kParts numbers in bf16.
template <int kParts, int kWidth, int kVectors, class Projection, class States>
__device__ void contract(float (&sums)[4], const Projection& C, const States& states) {
  float parts[kParts][4]{};  // smaller ones apart: they would drown in the sum of the larger
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float h[2][kWidth];
    states(v, h);
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      std::uint32_t pairs[4][kParts];
      split(h[0][i], h[0][i + 1], pairs[0]);
      split(h[1][i], h[1][i + 1], pairs[1]);
      split(h[0][i + 2], h[0][i + 3], pairs[2]);
      split(h[1][i + 2], h[1][i + 3], pairs[3]);
      const int word = (v * kWidth + i) / 2;
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        mma_bf16(parts[part], {pairs[0][part], pairs[1][part], pairs[2][part], pairs[3][part]}, C.word(word),
                 C.word(word + 1));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] = parts[kParts - 1][i];
#pragma unroll
    for (int part = kParts - 2; part >= 0; --part) sums[i] += parts[part][i];
  }
}

/// out of rows r at tokens 2q + c from y = P·Σ C·h_0, to which the tokens themselves are added.
template <class Args>
__device__ void store_outputs(const Args& args, const ProductRows& rows, float (&y)[2][2],
                              const TokenWeights& weights, const RowTokens& inputs,
                              const float (&delta_x)[2][2], float skip, bool is_padding) {
  const int even = 2 * rows.column;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int s = 0; s < kProductTokens; ++s) {
      const float of_token = __shfl_sync(0xFFFFFFFFU, delta_x[r][s % 2], s / 2, 4);
      if (s <= even) y[r][0] += weights.within[s][0] * of_token;
      if (s <= even + 1) y[r][1] += weights.within[s][1] * of_token;
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (!rows.is_there[r] || even + c >= args.tokens) continue;
      float out = y[r][c];
      if (args.D != nullptr) out += skip * to_float(inputs.x[r][c]);
      if (args.z != nullptr) out *= fast_silu(to_float(inputs.z[r][c]));
      static_cast<__nv_bfloat16*>(
          args.out)[rows.row(args, rows.step(args, even + c)) + kProductRows / 2 * r] =
          from_float<__nv_bfloat16>(is_padding ? 0.0F : out);
    }
  }
}

/// w·Δ·x of a lane's rows and tokens at one token t as operands A, 0 for later tokens: the upper two parts in
/// one, the third in the other.
struct UpdateOperands {
  std::uint32_t upper[4], lower[4];
  std::uint32_t mask;  ///< of B of a lane's tokens that are not later

  __device__ UpdateOperands(const float (&weight)[2], const float (&delta_x)[2][2], int even, int t) {
    const bool has_even = even <= t;
    const bool has_odd = even < t;
    std::uint32_t pairs[2][3];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      split(has_even ? weight[0] * delta_x[r][0] : 0.0F, has_odd ? weight[1] * delta_x[r][1] : 0.0F,
            pairs[r]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      upper[r] = pairs[r][0];
      upper[2 + r] = pairs[r][1];
      lower[r] = pairs[r][2];
      lower[2 + r] = 0;
    }
    mask = (has_even ? 0x0000FFFFU : 0U) | (has_odd ? 0xFFFF0000U : 0U);
  }
};

/// h_t of rows r, vector v, from h_0 in units of `kept`, the P_t and scale of each row. `B`: transposed.
template <int kWidth, int kWords>
__device__ void update_vector(float (&h)[2][kWidth], const float (&kept)[2], const UpdateOperands& operands,
                              const std::uint32_t (&B)[kWords], int v) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 2) {
    const std::uint32_t tokens = B[(v * kWidth + i) / 2] & operands.mask;
    float added[4]{};
    mma_bf16(added, operands.lower, tokens, 0);
    mma_bf16(added, operands.upper, tokens, tokens);
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int k = 0; k < 2; ++k) h[r][i + k] = kept[r] * h[r][i + k] + added[2 * r + k];
  }
}

/// Computes h_t of the warp's rows and stores it at rows `first` and first + 8 of a tensor of states.
template <DType kState, int kVectors, int kWords>
__device__ void store_update(const QuantizedPart<kState, Quad<kState, 1>> (&stored)[2][kVectors],
                             const float (&kept)[2], const UpdateOperands& operands,
                             const std::uint32_t (&B)[kWords], void* states, float* scales,
                             std::int64_t first, const ProductRows& rows, int dstate,
                             const Rounding& rounding) {
  using Vector = Quad<kState, 1>;
  using Bits = StateBits<kState>;
  constexpr int kWidth = Vector::kWidth;
  constexpr int kPass = kProductRows / 2;
  Bits* const to = static_cast<Bits*>(states) + first * dstate;
  if constexpr (kHasScale<kState>) {  // which takes all states of a row
    using Row = Quad<kState, kVectors>;
    const Row division{rows.column, dstate, 0};
    float all[2][Row::kStates];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float h[2][kWidth];
      stored[0][v].decode(h[0]);
      stored[1][v].decode(h[1]);
      update_vector(h, kept, operands, B, v);
#pragma unroll
      for (int i = 0; i < 2 * kWidth; ++i)
        all[i / kWidth][v * kWidth + i % kWidth] = h[i / kWidth][i % kWidth];
    }
    QuantizedPart<kState, Row> parts[2];
    const float scale = quantize(parts, all, first, kPass, division, rounding);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!rows.is_there[r]) continue;
      parts[r].store(to + kPass * r * dstate, division);
      if (rows.column == r) scales[first + kPass * r] = scale;
    }
  } else {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Vector division{rows.column, dstate, v * 4 * kWidth};
      float h[2][kWidth];
      stored[0][v].decode(h[0]);
      stored[1][v].decode(h[1]);
      update_vector(h, kept, operands, B, v);
      QuantizedPart<kState, Vector> parts[2];
      quantize(parts, h, first, kPass, division, rounding);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (rows.is_there[r]) parts[r].store(to + kPass * r * dstate, division);
    }
  }
}

/// The compiler loads before this, and decodes after it. Else it would decode before a loop for all of its
/// rounds, in twice as many registers, and load where states are used first.
template <DType kState, int kVectors>
__device__ void keep_coded(QuantizedPart<kState, Quad<kState, 1>> (&stored)[2][kVectors]) {
#pragma unroll
  for (int i = 0; i < 2 * kVectors; ++i)
#pragma unroll
    for (std::uint32_t& word : stored[i / kVectors][i % kVectors].part.pieces[0][0].words)
      asm volatile("" : "+r"(word));
}

/// A warp's 16 rows as they lie in memory.
template <DType kState, int kVectors>
struct ProductTile {
  using Vector = Quad<kState, 1>;
  QuantizedPart<kState, Vector> stored[2][kVectors];
  float scale[2]{1.0F, 1.0F};
  RowTokens inputs;

  /// `source`: the slot, −1 for padding, which has no state.
  __device__ ProductTile(const StateUpdateArgs& args, const StateStorage& storage, const ProductRows& rows,
                         std::int64_t source)
      : inputs(args, rows) {
    const auto dstate = static_cast<int>(args.dstate);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int64_t row = rows.row(args, source) + kProductRows / 2 * r;
      const bool is_there = rows.is_there[r] && source >= 0;
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        stored[r][v].load(static_cast<const StateBits<kState>*>(args.state) + row * dstate,
                          Vector{rows.column, dstate, v * 4 * Vector::kWidth}, is_there);
      if (kHasScale<kState> && is_there) scale[r] = storage.scale[row];
    }
    keep_coded(stored);
  }
};

/// Outputs of a tile's tokens, and its states where they are stored. B: transposed.
template <DType kState, int kVectors, class Projection, int kWords>
__device__ __forceinline__ void step_tile(const StateUpdateArgs& args, const StateStorage& storage,
                                          const ProductRows& rows, ProductTile<kState, kVectors>& tile,
                                          const Projection& C, const std::uint32_t (&B)[kWords],
                                          const TokenWeights& weights, float skip, bool is_padding) {
  float sums[4], y[2][2], delta_x[2][2];
  contract<kStateParts<kState>, Quad<kState, 1>::kWidth, kVectors>(sums, C, [&](int v, auto& h) {
    tile.stored[0][v].decode(h[0]);
    tile.stored[1][v].decode(h[1]);
  });
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      y[r][c] = weights.kept[c] * (tile.scale[r] * sums[2 * r + c]);
      delta_x[r][c] = weights.delta[c] * to_float(tile.inputs.x[r][c]);
    }
  store_outputs(args, rows, y, weights, tile.inputs, delta_x, skip, is_padding);

  const int even = 2 * rows.column;
  float weight[2]{0.0F, 0.0F};  // w of tokens 2q and 2q + 1 up to now
  float kept[2]{tile.scale[0], tile.scale[1]};
#pragma unroll 1
  for (int t = 0; t < static_cast<int>(args.tokens); ++t) {
    const float decay = __shfl_sync(0xFFFFFFFFU, weights.decay, 4 * t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      kept[i] *= decay;
      weight[i] = t == even + i ? 1.0F : weight[i] * decay;
    }
    const std::int64_t destination = destination_of(args, rows.b, t);
    if (destination < 0 && args.intermediate == nullptr) continue;
    const UpdateOperands operands(weight, delta_x, even, t);
#pragma unroll 1
    for (int tensor = 0; tensor < (kHasScale<kState> ? 1 : 2); ++tensor) {  // the states, intermediate
      keep_coded(tile.stored);
      if (tensor == 0 ? destination < 0 : args.intermediate == nullptr) continue;
      store_update<kState>(tile.stored, kept, operands, B, tensor == 0 ? args.state : args.intermediate,
                           storage.scale, rows.row(args, tensor == 0 ? destination : rows.step(args, t)),
                           rows, static_cast<int>(args.dstate),
                           Rounding(storage, static_cast<std::uint32_t>(tensor)));
    }
  }
}

/// Starts to bring a warp's states into the L2, a line a lane: they arrive while B, C and Δ are waited for,
/// and tiles of states are loaded from there.
template <DType kState, int kDstate>
__device__ void prefetch_states(const StateUpdateArgs& args, const ProductRows& rows, std::int64_t source,
                                int tiles) {
  constexpr int kRowBytes = kDstate * static_cast<int>(sizeof(StateBits<kState>));
  constexpr int kLineBytes = 128;
  const int first = rows.first - rows.token;
  const int bytes = min(tiles * kProductRows, static_cast<int>(args.headdim) - first) * kRowBytes;
  const auto* from =
      static_cast<const unsigned char*>(args.state) + (rows.row(args, source) - rows.token) * kRowBytes;
  for (int at = static_cast<int>(threadIdx.x % kWarpThreads) * kLineBytes; at < bytes;
       at += kWarpThreads * kLineBytes)
    prefetch_to_l2(from + at);
}

/// `tiles`: of 16 rows, that a warp takes one after the other.
template <DType kState, int kDstate>
__global__ void __launch_bounds__(kStepHeadWarps* kWarpThreads, kProductBlocks<kState>)
    tokens_products(const StateUpdateArgs args, const StateStorage storage, const int heads_per_group,
                    const int tiles) {
  constexpr int kVectors = kDstate / (4 * Quad<kState, 1>::kWidth);
  using Row = Quad<kState, kVectors>;
  ProductRows rows(args, tiles);
  const std::int64_t source = source_of(args, rows.b);
  if (source >= 0) prefetch_states<kState, kDstate>(args, rows, source, tiles);
  const std::int64_t step = rows.step(args, rows.token);
  const bool has_token = rows.token < args.tokens;
  const std::int64_t projection = (step * args.groups + rows.head / heads_per_group) * kDstate;
  const Row division{rows.column, kDstate, 0};
  ProjectionPart<Row> B, C;
  B.part.load(static_cast<const __nv_bfloat16*>(args.B) + projection, division, has_token);
  C.part.load(static_cast<const __nv_bfloat16*>(args.C) + projection, division, has_token);
  const float rate = args.A[rows.head];
  const float skip = args.D != nullptr ? args.D[rows.head] : 0.0F;
  float delta = 0.0F;
  if (has_token)
    delta = StoredDt<__nv_bfloat16>(args, step * args.heads + rows.head)
                .step_size(args, args.dt_bias != nullptr ? args.dt_bias[rows.head] : 0.0F);

  float products[4]{};  // C·B
  std::uint32_t tokens_of_B[ProjectionPart<Row>::kWords];
#pragma unroll
  for (int i = 0; i < ProjectionPart<Row>::kWords; i += 2) {
    mma_bf16(products, {B.word(i), 0, B.word(i + 1), 0}, C.word(i), C.word(i + 1));
    tokens_of_B[i] = transposed(B.word(i));
    tokens_of_B[i + 1] = transposed(B.word(i + 1));
  }
  const TokenWeights weights(delta, rate, products, rows);
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    ProductTile<kState, kVectors> tile(args, storage, rows, source);
    step_tile(args, storage, rows, tile, C, tokens_of_B, weights, skip, source < 0);
    rows.advance(args);
  }
}

}  // namespace ssmbench::step
