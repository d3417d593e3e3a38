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

}  // namespace ssmbench::step
