#pragma once

// What cuda-step's products of tokens with states are made of (products.cuh, and those of
// selective_state_replay): a lane's rows, words of B and C, weights of tokens, and the products themselves. Places of
// lanes and the formulas are those at the top of products.cuh.

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

  RowTokens() = default;
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

/// Makes out of rows r at tokens 2q + c from y = P·Σ C·h_0, to which the tokens themselves are added.
template <class Args>
__device__ void finish_outputs(const Args& args, const ProductRows& rows, float (&y)[2][2],
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
}

/// w·Δ·x of a lane's rows and tokens from token `from` to one token t as operands A, sums of three parts, 0
/// for others.
struct UpdateOperands {
  std::uint32_t parts[3][2];
  std::uint32_t mask;  ///< of B of these

  /// The smallest parts first; the two others as one product, twice as deep, or `kByParts` one by one, which
  /// takes no second register for the tokens.
  template <bool kByParts = false>
  __device__ void add(float (&to)[4], std::uint32_t tokens) const {
    mma_bf16(to, parts[2], tokens);
    if constexpr (kByParts) {
      mma_bf16(to, parts[1], tokens);
      mma_bf16(to, parts[0], tokens);
    } else {
      mma_bf16(to, {parts[1][0], parts[1][1], parts[0][0], parts[0][1]}, tokens, tokens);
    }
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
template <bool kByParts = false, int kWidth, class Words>
__device__ void update_vector(float (&h)[2][kWidth], const float (&kept)[2], const UpdateOperands& operands,
                              const Words& B, int v) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 2) {
    const std::uint32_t tokens = B.word((v * kWidth + i) / 2) & operands.mask;
    float added[4]{};
    operands.add<kByParts>(added, tokens);
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int k = 0; k < 2; ++k) h[r][i + k] = kept[r] * h[r][i + k] + added[2 * r + k];
  }
}

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
/// Four words of a lane.
struct alignas(16) FourWords {
  std::uint32_t words[4];
};
/// RegisterWords in shared memory, where no other lane looks, behind the stages of all warps.
template <int kWords, int kStageVectors>
struct SharedWords {
  FourWords* fours;

  __device__ explicit SharedWords(int tensor) {
    extern __shared__ uint4 staged[];
    const auto warps = static_cast<int>(blockDim.x) / kWarpThreads;
    const auto warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    fours = reinterpret_cast<FourWords*>(staged) +
            (warps * kStageVectors + (warp * 2 + tensor) * (kWords / 4)) * kWarpThreads +
            threadIdx.x % kWarpThreads;
  }
  __device__ std::uint32_t word(int i) const { return fours[i / 4 * kWarpThreads].words[i % 4]; }
  __device__ void set(const std::uint32_t (&to)[kWords]) {
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      fours[i / 4 * kWarpThreads] = FourWords{{to[i], to[i + 1], to[i + 2], to[i + 3]}};
  }
};

}  // namespace ssmbench::step
