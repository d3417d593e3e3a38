#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// How SSD kernels that keep the states of all chunks in a workspace cut a problem up: chunks of time, and
// square tiles of matrices. Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// An f32 element of tiles whose products are f32 multiply-adds. (Products of float tiles are tf32.)
template <int kTileSide>
struct ExactF32 {
  float value;
};
/// Tiles like those of the tensor cores: the kernels need up to 182 KB of shared memory per block.
using WideF32 = ExactF32<64>;
/// Tiles for the 64 KB that every GPU has.
using CompactF32 = ExactF32<32>;

/// Side of the square tiles that all matrix products are made of, and steps of a chunk.
template <class T>
inline constexpr int kSide = 64;
template <int kTileSide>
inline constexpr int kSide<ExactF32<kTileSide>> = kTileSide;
template <class T>
inline constexpr int kTileElements = kSide<T>* kSide<T>;

/// Whether sums of Δ·A are kept in two floats: a decay between two steps late in a chunk is the difference of
/// two sums, whose rounding an f32 product would show.
template <class T>
inline constexpr bool kSplitSums = false;
template <int kTileSide>
inline constexpr bool kSplitSums<ExactF32<kTileSide>> = true;

// What the steps of one (batch, chunk, head) need to know of time: rows of a float per step. Steps past
// the sequence's end have Δ = 0 and the cumulated decay of the last step.
inline constexpr int kStepDelta = 0;  ///< Δ_t
inline constexpr int kStepDecay = 1;  ///< Σ Δ_s·A over the chunk's steps s ≤ t
inline constexpr int kStepEnter = 2;  ///< e^decay_t, the weight of the state that enters; 0 behind a reset
/// e^(decay_last − decay_t), the weight of step t in the state that leaves; 0 ahead of a reset
inline constexpr int kStepLeave = 3;
inline constexpr int kStepDecayRest = 4;  ///< what rounding took from the decay; only with kSplitSums
template <class T>
inline constexpr int kStepRows = kSplitSums<T> ? 5 : 4;

/// In f16 the images of states and of their gradients are scaled by powers of two; each tile has the two
/// inverses. They are padded to 16 bytes, which one asynchronous copy fetches.
inline constexpr int kUnscaleState = 0;
inline constexpr int kUnscaleGradient = 1;
inline constexpr int kUnscales = 4;

/// A problem in chunks and tiles.
struct ChunkGrid {
  int side;             ///< of a tile, and steps of a chunk
  int headdim_tiles;    ///< P in tiles
  int dstate_tiles;     ///< N in tiles
  std::int64_t chunks;  ///< per sequence
  std::int64_t rows;    ///< batch × chunks × heads

  SSMBENCH_HD constexpr std::int64_t row(std::int64_t b, std::int64_t chunk, std::int64_t head,
                                         std::int64_t nheads) const {
    return (b * chunks + chunk) * nheads + head;
  }
  SSMBENCH_HD constexpr std::int64_t state_tile(std::int64_t row, int p_tile, int n_tile) const {
    return (row * headdim_tiles + p_tile) * dstate_tiles + n_tile;
  }
  /// The number of state tiles of all rows.
  SSMBENCH_HD constexpr std::int64_t tiles() const { return rows * headdim_tiles * dstate_tiles; }
};

constexpr ChunkGrid chunk_grid(std::int64_t batch, std::int64_t seqlen, std::int64_t nheads,
                               std::int64_t headdim, std::int64_t dstate, int side) {
  const std::int64_t chunks = ceil_div(seqlen, side);
  return {side, static_cast<int>(ceil_div(headdim, side)), static_cast<int>(ceil_div(dstate, side)), chunks,
          batch * chunks * nheads};
}

/// What a workspace depends on besides the problem.
struct TileKind {
  int side;                   ///< kSide
  int step_rows;              ///< kStepRows
  std::size_t element_bytes;  ///< of the images of states
  bool scaled_states;         ///< whether they are scaled into the range of their type
};

/// The tiles of f32 arithmetic: T is an ExactF32.
template <class T>
constexpr TileKind tile_kind_of() {
  return {kSide<T>, kStepRows<T>, sizeof(T), false};
}

/// Elements of a 16-byte vector.
template <class T>
inline constexpr int kVectorElements = 16 / static_cast<int>(sizeof(T));

/// Element of a tile in shared memory and in the workspace. Rows are 16-byte vectors, permuted by the row, so
/// that eight vectors of one column lie in different banks: as swizzled() of mma.cuh does it.
template <class T>
SSMBENCH_HD constexpr int tile_offset(int row, int column) {
  constexpr int kElements = kVectorElements<T>;
  return row * kSide<T> + ((column / kElements ^ (row & 7)) * kElements) + column % kElements;
}

}  // namespace ssmbench
