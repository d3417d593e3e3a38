#pragma once

// States of a warp's tile of 16 rows in products.cuh: on their way to shared memory, unpacked from there, and as they
// are stored, in codes where they have scales.

#include "kernels/selective_state_update/step/token_products.cuh"

namespace ssmbench::step {

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
  /// What a lane copies of a tile lies behind this one of its vectors.
  __device__ static int first_copied() {
    const auto lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    return kWholeLines ? lane : lane / 4 * 2 * kOfRow + lane % 4;
  }
  /// Starts to bring it, of which `rows` rows are there; all lanes take part. `from`: the lane's first
  /// vector.
  __device__ void load(const StateBits<kState>* from, int rows) const {
    const int left = rows * kOfRow - first_copied();  // vectors
#pragma unroll
    for (int i = 0; i < 2 * kVectors; ++i) {
      const int vector = kWholeLines ? i * kWarpThreads : i / kVectors * kOfRow + i % kVectors * 4;
      copy_async_16(shared_address(kWholeLines ? &line(i) : &at(i / kVectors, i % kVectors)),
                    from + vector * Vector::kWidth, (kWholeLines ? vector : 0) < left ? 16 : 0);
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
  /// The same of all vectors, of codes of 8 bits: f16, which holds them, times the identity by tensor cores.
  __device__ void decode_all(float (&h)[2][Row::kStates]) const {
    constexpr std::uint32_t kOne = 0x3C00U;
    const auto lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const std::uint32_t identity = lane / 8 != lane % 4 ? 0U : lane / 4 % 2 == 0 ? kOne : kOne << 16U;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Staged vectors_of_rows[2]{at(0, v), at(1, v)};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        std::uint32_t pairs[2][2];
#pragma unroll
        for (int r = 0; r < 2; ++r)
          StateCodes<kState>::decode_to_f16(vectors_of_rows[r].words[word], pairs[r]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float four[4]{};
          mma_f16(four, {pairs[0][i], pairs[1][i]}, identity);
#pragma unroll
          for (int k = 0; k < 4; ++k) h[k / 2][v * Vector::kWidth + 4 * word + 2 * i + k % 2] = four[k];
        }
      }
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

/// Stores h·unit of the warp's rows, which are `first` and first + 1 of all slots, with their
/// scales. `to`: the lane's first vector. `scale_to`: the scale of row first + q.
template <DType kState, bool kStochastic, class Row>
__device__ void store_coded(const float (&h)[2][Row::kStates], const float (&unit)[2], StateBits<kState>* to,
                            float* scale_to, std::int64_t first, const ProductRows& rows,
                            const Rounding& rounding) {
  constexpr int kDstate = 4 * Row::kStates;
  QuantizedPart<kState, Row> parts[2];
  float new_scales[2];
  quantize_rows<kState, kStochastic>(parts, new_scales, h, unit, first, Row{rows.column, kDstate, 0},
                                     rounding);
  if (!rows.are_there) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) parts[r].store(to + r * kDstate, Row{0, kDstate, 0});
  if (rows.column < 2) *scale_to = rows.column == 0 ? new_scales[0] : new_scales[1];
}

/// Computes h_t of the warp's rows and stores it: rows `first` and first + 1 of a tensor of states. `to`: the
/// lane's first vector.
template <DType kState, int kVectors, class Words>
__device__ void store_update(const StagedTile<kState, kVectors>& staged, const float (&kept)[2],
                             const UpdateOperands& operands, const Words& B, StateBits<kState>* to,
                             std::int64_t first, const ProductRows& rows, const Rounding& rounding) {
  constexpr int dstate = StagedTile<kState, kVectors>::kDstate;
  using Vector = Quad<kState, 1>;
  constexpr int kWidth = Vector::kWidth;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Vector division{rows.column, dstate, v * 4 * kWidth};
    float h[2][kWidth];
    staged.decode(v, h);
    update_vector<kState == DType::f32>(h, kept, operands, B, v);  // there registers are few
    QuantizedPart<kState, Vector> parts[2];
    quantize<kState, true>(parts, h, CodedRows{first, 1, false}, division, rounding);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (rows.are_there) parts[r].store(to + r * dstate, Vector{0, dstate, v * 4 * kWidth});
  }
}

}  // namespace ssmbench::step
