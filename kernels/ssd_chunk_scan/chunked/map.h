#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// How cuda-chunked cuts a problem up, which warp computes which tile of a chunk, and where the tiles of a
// block lie. Host and device, so that the CPU tests cover it.

namespace ssmbench {

inline constexpr int kChunkSteps = 64;  ///< time steps of a chunk, whatever chunk_size says
inline constexpr int kChunkRows = 64;   ///< rows of the state (of P) that a block holds
inline constexpr int kSlabs = 4;        ///< of 16 rows: of time, or of the state
/// What a block may use of Hopper's shared memory, and what one of two blocks of an SM may.
inline constexpr int kSharedBytesPerBlock = h200::shared_bytes_of_each(1);
inline constexpr int kSharedBytesOfTwo = 113 * 1024;

/// The tile of a warp in every product of a chunk: 16 rows and a part of the columns, a half or a quarter.
/// Warps w, w + 4, … run on the same quarter of an SM; every other one of them has little to do below the
/// diagonal where its neighbours have much.
template <int kParts>
struct WarpTile {
  int slab;  ///< rows 16·slab … 16·slab + 15
  int part;  ///< columns, in units of the product's width / kParts

  SSMBENCH_HD constexpr explicit WarpTile(int warp) : slab(slab_of(warp)), part(warp / kSlabs) {}
  /// C·Bᵀ is cut finer, into 16 × 16 squares, since those above the diagonal are not computed: part i has
  /// column i of squares, and every kParts-th one after it.
  SSMBENCH_HD constexpr int square_column(int j) const { return part + kParts * j; }
  SSMBENCH_HD constexpr int squares() const { return slab < part ? 0 : (slab - part) / kParts + 1; }

 private:
  SSMBENCH_HD static constexpr int slab_of(int warp) {
    if (kParts > 2) warp %= 2 * kSlabs;
    return warp < kSlabs ? warp : 2 * kSlabs - 1 - warp;
  }
};

/// dstate rounded up to what a kernel is compiled for.
constexpr int padded_states(std::int64_t dstate) {
  return dstate <= 64 ? 64 : dstate <= 128 ? 128 : 256;
}

/// The numbers of a chunk that belong to a time step, and those that belong to the chunk.
struct ChunkScalars {
  float sum[kChunkSteps];       ///< Σ Δ·A from the chunk's first step to this one, included
  float sum_rest[kChunkSteps];  ///< what rounding took from `sum`
  float delta[kChunkSteps];     ///< Δ
  float weight[kChunkSteps];    ///< scale·Δ·(decay from this step to the chunk's end)
  float carry[kChunkSteps];     ///< decay from the chunk's begin to this step; 0 after a reset
  int sequence[kChunkSteps];    ///< seq_idx
  float decay;                  ///< carry of the whole chunk
  float scale, unscale;         ///< a power of two, and its inverse
  float unused;                 ///< keeps the size a multiple of 16
};

/// Shared memory of a block, in bytes. A stage is what a chunk reads: B and C (64 × kStates), x (64 × 64),
/// and the scalars. There are two, one being filled while the other is computed on, where they fit. Then the
/// operands that the block makes: the state (64 × kStates) and the masked C·Bᵀ (64 × 64); and D of its rows.
template <int kElementBytes, int kStates>
struct ChunkedLayout {
  static constexpr int kStateTile = kChunkSteps * kStates * kElementBytes;
  static constexpr int kSquareTile = kChunkSteps * kChunkRows * kElementBytes;
  static constexpr int kB = 0;
  static constexpr int kC = kStateTile;
  static constexpr int kX = 2 * kStateTile;
  static constexpr int kScalars = kX + kSquareTile;
  static constexpr int kStage = kScalars + static_cast<int>(sizeof(ChunkScalars));
  static constexpr int kState = 0;  // from kStages · kStage on, as what follows
  static constexpr int kSquare = kStateTile;
  static constexpr int kSkip = kSquare + kSquareTile;
  static constexpr int kMaxima = 2 * kSlabs;  ///< one of each warp, where there are two parts
  static constexpr int kSlabMaxima = kSkip + kChunkRows * static_cast<int>(sizeof(float));
  static constexpr int kSquareMaxima = kSlabMaxima + kMaxima * static_cast<int>(sizeof(float));
  static constexpr int kOwn = kSquareMaxima + kMaxima * static_cast<int>(sizeof(float));
  static constexpr int kStages = 2 * kStage + kOwn <= kSharedBytesPerBlock ? 2 : 1;
  static constexpr int kBytes = kStages * kStage + kOwn;
  static constexpr int kBlocksPerSm = kBytes <= kSharedBytesOfTwo ? 2 : 1;
  static_assert(kBytes <= kSharedBytesPerBlock);
};

/// Chunks of a sequence, from first to end − 1.
struct ChunkRange {
  std::int64_t first, end;
};

/// A block per sequence, head, 64 rows of the state, and segment of time: a run of whole chunks, none in some
/// segments of the shorter packed sequences. With several segments a first pass computes the end state of each
/// from nothing, and a second from those the state that enters each. That costs about half as much again, and
/// is done where there are too few blocks to fill a large GPU otherwise.
struct ChunkedPlan {
  std::int64_t row_tiles;  ///< ⌈P / 64⌉
  std::int64_t segments;

  /// End states that a first pass has room for: of all segments but the last, or of the only one.
  SSMBENCH_HD constexpr std::int64_t cuts() const { return segments > 1 ? segments - 1 : 1; }
  /// The chunks of a segment in a sequence of `steps` steps.
  SSMBENCH_HD constexpr ChunkRange chunks_of(std::int64_t segment, std::int64_t steps) const {
    const std::int64_t chunks = ceil_div(steps, kChunkSteps);
    const std::int64_t each = ceil_div(chunks, segments);
    const std::int64_t first = segment * each;
    const std::int64_t end = first + each;
    return {first < chunks ? first : chunks, end < chunks ? end : chunks};
  }
};

/// The number of blocks from which on time is not cut: the 132 SMs of an H200 have one each but for four.
inline constexpr std::int64_t kEnoughBlocks = 128;
/// What cutting aims at: two blocks for each SM.
inline constexpr std::int64_t kWantedBlocks = 256;
inline constexpr std::int64_t kMinChunksPerSegment = 4;

/// `steps`: of a sequence; of packed ones, in the mean.
constexpr ChunkedPlan plan_chunked(std::int64_t sequences, std::int64_t nheads, std::int64_t headdim,
                                   std::int64_t steps) {
  ChunkedPlan plan{.row_tiles = ceil_div(headdim, kChunkRows), .segments = 1};
  const std::int64_t chunks = ceil_div(steps, kChunkSteps);
  const std::int64_t blocks = sequences * nheads * plan.row_tiles;
  if (blocks < kEnoughBlocks)
    plan.segments = std::clamp<std::int64_t>(chunks / kMinChunksPerSegment, 1, kWantedBlocks / blocks);
  plan.segments = ceil_div(chunks, ceil_div(chunks, plan.segments));  // none is empty
  return plan;
}

/// What a block works on.
struct ChunkedBlock {
  std::int64_t sequence, h, segment;
  int row;  ///< first row of the state
};

/// Block → work. Heads of one sequence and segment are neighbours, so that their B and C come from the cache.
SSMBENCH_HD constexpr ChunkedBlock chunked_block(const ChunkedPlan& plan, std::int64_t index,
                                                 std::int64_t nheads, std::int64_t segments) {
  const std::int64_t tile = index % plan.row_tiles;
  const std::int64_t head = index / plan.row_tiles;
  const std::int64_t segment = head / nheads;
  return {segment / segments, head % nheads, segment % segments, static_cast<int>(tile) * kChunkRows};
}

}  // namespace ssmbench
