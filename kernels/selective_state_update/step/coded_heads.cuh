#pragma once

// cuda-step with one token of sequences in bf16, form mamba2, and many states of 8 bits with a scale for
// each row, rounded stochastically.
//
// Random numbers make instructions bind where states take their share of them by themselves (quantized.cuh).
// So what a row gets from its token is a product on tensor cores whose accumulators start from the codes,
//
//   h/u = q + (Δx/u)·B      u = scale·decay of the row
//
// in units of u, as the codes are; the new scale is u/Q times the largest magnitude of these.
//
//   warp     up to four tiles of 16 rows of a head, all under way to shared memory from the start, each lane's
//            vectors where no other lane looks
//   tile     lane (g, q) has rows 2g and 2g + 1, and of each run of four 16-byte vectors of a row the q-th:
//            the two states at 2p and 2p + 1 of a vector are what it has of a fragment (common/mma.cuh)
//   h        A: 16 rows × 8, Δx/u as a sum of three numbers in bf16; B: 8 × states, three rows of B
//   C·q      A: 16 rows × states, B: states × 8, eight columns of C: all lanes of a row have the sum
//   owners   lane (g, q) loads and stores x, z, out and scales of its rows of tile q

#include "kernels/selective_state_update/step/tile_states.cuh"

namespace ssmbench::step {

/// The tiles of a warp, and a lane's rows 2g and 2g + 1 of them.
struct HeadTiles {
  int head, column, headdim, tiles;
  int first;  ///< the lane's first row of tile 0, of the head
  int source, destination;
  std::int64_t b;

  __device__ HeadTiles(const StateUpdateArgs& args, int run)
      : head(static_cast<int>(blockIdx.y)),
        column(static_cast<int>(threadIdx.x) % 4),
        headdim(static_cast<int>(args.headdim)),
        b(blockIdx.z) {
    const int of_warp = static_cast<int>(blockIdx.x) * run * kProductRows;
    tiles = min(run, (headdim - of_warp + kProductRows - 1) / kProductRows);
    first = of_warp + static_cast<int>(threadIdx.x) / 4 * 2;
    source = args.source == nullptr ? static_cast<int>(b) : args.source[b];
    destination = args.destination == nullptr ? static_cast<int>(b) : args.destination[b];
  }
  /// Whether the lane's rows of tile `tile` are there, both or neither: headdim is even.
  __device__ bool has(int tile) const { return tile < tiles && first + tile * kProductRows < headdim; }
  /// The first of them in tile 0, among those of all slots, or sequences.
  __device__ std::int64_t row(const StateUpdateArgs& args, std::int64_t slot) const {
    return (slot * args.heads + head) * headdim + first;
  }
};

/// Two of x, z or out, as they lie in memory.
__device__ inline std::uint32_t load_two(const void* from, std::int64_t at) {
  return *reinterpret_cast<const std::uint32_t*>(static_cast<const __nv_bfloat16*>(from) + at);
}
__device__ inline void store_two(void* to, std::int64_t at, std::uint32_t two) {
  *reinterpret_cast<std::uint32_t*>(static_cast<__nv_bfloat16*>(to) + at) = two;
}

/// What a lane has of its own rows, those of tile q.
struct OwnRows {
  bool are_there;
  std::int64_t at;  ///< of x, z and out
  std::uint32_t x = 0, z = 0;
  float scale[2]{1.0F, 1.0F};
  float sum[2]{};  ///< C·q

  __device__ OwnRows(const StateUpdateArgs& args, const HeadTiles& tiles)
      : are_there(tiles.has(tiles.column)), at(tiles.row(args, tiles.b) + tiles.column * kProductRows) {}
  __device__ void load(const StateUpdateArgs& args, const float* scales) {
    if (!are_there) return;
    const float2 two = *reinterpret_cast<const float2*>(scales);
    scale[0] = two.x;
    scale[1] = two.y;
    x = load_two(args.x, at);
    if (args.z != nullptr) z = load_two(args.z, at);
  }
  /// From u, Δx and C·B.
  __device__ void store_out(const StateUpdateArgs& args, int head, const float (&unit)[2],
                            const float (&delta_x)[2], float product) const {
    const float skip = args.D != nullptr ? args.D[head] : 0.0F;
    float out[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      out[r] = unit[r] * sum[r] + product * delta_x[r];
      if (args.D != nullptr) out[r] += skip * RowTokens::of_row(x, r);
      if (args.z != nullptr) out[r] *= fast_silu(RowTokens::of_row(z, r));
    }
    store_two(args.out, at, pack_pair<__nv_bfloat16>(out[0], out[1]));
  }
};

/// What the rows of a head have in common: C for the lanes of a row, in shared memory; three rows of B,
/// transposed; C·B.
template <class Row>
struct OneTokenHead {
  static constexpr int kWords = ProjectionPart<Row>::kWords;
  std::uint32_t B[kWords];
  float product;
  float delta, decay;

  __device__ OneTokenHead(const StateUpdateArgs& args, const HeadTiles& tiles, int heads_per_group,
                          FourWords (*C)[4]) {
    const Row division{tiles.column, static_cast<int>(args.dstate), 0};
    const std::int64_t projection = (tiles.b * args.groups + tiles.head / heads_per_group) * args.dstate;
    ProjectionPart<Row> stored_B, stored_C;
    stored_B.part.load(static_cast<const __nv_bfloat16*>(args.B) + projection, division, true);
    stored_C.part.load(static_cast<const __nv_bfloat16*>(args.C) + projection, division, true);
    const StoredDt<__nv_bfloat16> dt(args, tiles.b * args.heads + tiles.head);
    const float dt_bias = args.dt_bias != nullptr ? args.dt_bias[tiles.head] : 0.0F;
    const float rate = args.A[tiles.head];
    float products[4]{};  // the same in all lanes
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      C[i / 4][tiles.column] =
          FourWords{{stored_C.word(i), stored_C.word(i + 1), stored_C.word(i + 2), stored_C.word(i + 3)}};
#pragma unroll
      for (int k = i; k < i + 4; k += 2)
        mma_bf16(products, {stored_C.word(k), 0, stored_C.word(k + 1), 0}, stored_B.word(k),
                 stored_B.word(k + 1));
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) B[i] = transposed(threadIdx.x / 4 < 3 ? stored_B.word(i) : 0U);
    product = products[0];
    delta = dt.step_size(args, dt_bias);
    decay = exp2_approximate(delta * (rate * kLog2E));
    __syncwarp();  // C
  }
};

/// C·q of rows 2g and 2g + 1.
template <class Row>
__device__ void contract_codes(float (&sums)[2], const float (&codes)[2][Row::kStates],
                               const FourWords (*C)[4], int column) {
  float products[4]{};
  FourWords four;
#pragma unroll
  for (int s = 0; s < Row::kStates; s += 4) {
    if (s % 8 == 0) four = C[s / 8][column];
    std::uint32_t pairs[4][1];
#pragma unroll
    for (int k = 0; k < 4; ++k) split(codes[k % 2][s + k / 2 * 2], codes[k % 2][s + k / 2 * 2 + 1], pairs[k]);
    mma_bf16(products, {pairs[0][0], pairs[1][0], pairs[2][0], pairs[3][0]}, four.words[s / 2 % 4],
             four.words[s / 2 % 4 + 1]);
  }
  sums[0] = products[0];
  sums[1] = products[2];
}

/// h in units of `unit` from codes; in units of 1, which `unit` becomes, where rows have no unit.
template <class Row>
__device__ void add_token(float (&h)[2][Row::kStates], float (&unit)[2], const float (&delta_x)[2],
                          const OneTokenHead<Row>& head, int column) {
  float added[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) added[r] = delta_x[r] * reciprocal_approximate(unit[r]);
  if (!have_units(fminf(unit[0], unit[1]), fmaxf(fabsf(added[0]), fabsf(added[1]))))
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int s = 0; s < Row::kStates; ++s) h[r][s] *= unit[r];
      added[r] = delta_x[r];
      unit[r] = 1.0F;
    }
  std::uint32_t operands[2];  // columns 0 and 1 of A, and 2; others meet zeros
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    std::uint32_t parts[3];
    split(added[r], 0.0F, parts);
    operands[r] = column == 0 ? select_bytes(parts[0], parts[1], 0x5410U) : parts[2];
  }
#pragma unroll
  for (int s = 0; s < Row::kStates; s += 2) {
    float four[4]{h[0][s], h[0][s + 1], h[1][s], h[1][s + 1]};
    mma_bf16(four, operands, head.B[s / 2]);
#pragma unroll
    for (int i = 0; i < 4; ++i) h[i / 2][s + i % 2] = four[i];
  }
}

/// A block is a warp with `run` tiles of a head.
template <DType kState, int kDstate>
__global__ void __launch_bounds__(kWarpThreads, kCodedHeadsBlocks)
    coded_heads(const StateUpdateArgs args, const StateStorage storage, const int heads_per_group,
                const int run) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  using Bits = StateBits<kState>;
  constexpr int kWidth = Quad<kState, 1>::kWidth;
  constexpr int kVectors = kDstate / (4 * kWidth);
  using Row = Quad<kState, kVectors>;
  using Part = QuantizedPart<kState, Row>;
  __shared__ typename RowPart<Bits, Row>::Vector staged[kCodedHeadsTiles * 2 * kVectors][kWarpThreads];
  __shared__ FourWords C[OneTokenHead<Row>::kWords / 4][4];
  const HeadTiles tiles(args, run);
  OwnRows own(args, tiles);
  if (tiles.source < 0) {  // padding
    if (own.are_there) store_two(args.out, own.at, 0);
    return;
  }
  const std::int64_t of_source = tiles.row(args, tiles.source);
  const Bits* const from = static_cast<const Bits*>(args.state) + of_source * kDstate + tiles.column * kWidth;
#pragma unroll
  for (int i = 0; i < kCodedHeadsTiles * 2 * kVectors; ++i) {
    const int row = i / (2 * kVectors) * kProductRows + i / kVectors % 2;
    copy_async_16(shared_address(&staged[i][threadIdx.x]), from + row * kDstate + i % kVectors * 4 * kWidth,
                  tiles.has(i / (2 * kVectors)) ? 16 : 0);
  }
  copy_async_commit();
  own.load(args, storage.scale + of_source + tiles.column * kProductRows);
  const OneTokenHead<Row> head(args, tiles, heads_per_group, C);
  float own_delta_x[2], own_unit[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    own_delta_x[r] = head.delta * RowTokens::of_row(own.x, r);
    own_unit[r] = head.decay * own.scale[r];
  }
  const std::int64_t to_row = tiles.row(args, tiles.destination);
  Bits* const to = static_cast<Bits*>(args.state) + to_row * kDstate;
  const Row division{tiles.column, kDstate, 0};
  const Rounding rounding(storage, 0);
  copy_async_wait<0>();
#pragma unroll 1
  for (int i = 0; i < tiles.tiles; ++i) {
    float unit[2], delta_x[2], h[2][Row::kStates], sums[2], scales[2];
    Part parts[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unit[r] = __shfl_sync(kAll, own_unit[r], i, 4);
      delta_x[r] = __shfl_sync(kAll, own_delta_x[r], i, 4);
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        parts[r].part.pieces[v][0] = staged[(i * 2 + r) * kVectors + v][threadIdx.x];
      parts[r].decode(h[r]);
    }
    contract_codes<Row>(sums, h, C, tiles.column);
    add_token<Row>(h, unit, delta_x, head, tiles.column);
    quantize_rows<kState, true>(parts, scales, h, unit, to_row + i * kProductRows, division, rounding);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      own.sum[r] = tiles.column == i ? sums[r] : own.sum[r];
      own.scale[r] = tiles.column == i ? scales[r] : own.scale[r];
      if (tiles.destination >= 0 && tiles.has(i))
        parts[r].store(to + (i * kProductRows + r) * kDstate, division);
    }
  }
  if (!own.are_there) return;
  if (tiles.destination >= 0)
    *reinterpret_cast<float2*>(storage.scale + to_row + tiles.column * kProductRows) =
        make_float2(own.scale[0], own.scale[1]);
  own.store_out(args, tiles.head, own_unit, own_delta_x, head.product);
}

}  // namespace ssmbench::step
