#pragma once

#include <cstdint>

#include "kernels/mamba3/chunked_bwd/team.h"
#include "kernels/mamba3/tensor_bwd/plan.h"

// Sums over the chunks of a sequence, for each pair of a head: a block has the chunks of a few heads in segments, which it
// sums up first. Team as in prepare.h.

namespace ssmbench::mamba3_bwd {

inline constexpr int kScanThreads = 256;
inline constexpr int kMaxScanSegments = kScanThreads / kTilePairs;
/// Chunks whose loads are all on their way before the first is waited for.
inline constexpr int kBatch = 16;

/// What a pair of a head has in each chunk, in the order of the sum. It is replaced by the sum before the chunk.
template <class T>
struct ChunkColumn {
  T before;  ///< the first chunk
  T* first;
  std::int64_t pitch, count;
};

/// Segments of a sequence: one for each batch of loads, roughly, of sequences of the mean length.
inline int scan_segments(const Plan& plan) {
  const std::int64_t batches = plan.batch * plan.chunks / plan.sequences / kBatch;
  int segments = 1;
  while (segments < kMaxScanSegments && segments < batches) segments *= 2;
  return segments;
}
/// Tiles of pairs of a head that a block has.
SSMBENCH_HD constexpr int scan_tiles(int segments) {
  return kMaxScanSegments / segments;
}
inline std::int64_t scan_blocks(const Plan& plan, int segments) {
  return ceil_div(plan.sequences * plan.nheads * plan.angle_tiles, scan_tiles(segments));
}

template <class T, class Team>
struct ChunkScan {
  const Plan& plan;
  std::int64_t block;
  int segments;
  T* sums;  ///< [kScanThreads]
  const Team& team;

  /// column_of(head, pair), `head` of (sequence, head), is a ChunkColumn; end(head, pair, the sum of all).
  template <class ColumnOf, class End>
  SSMBENCH_TEAM void run(const ColumnOf& column_of, const End& end) const {
    if (segments > 1)
      team.for_all(kScanThreads, [&](int i) {
        const Place place(*this, i);
        T sum = 0;
        if (place.exists) {
          const ChunkColumn<T> column = column_of(place.head, place.pair);
          for_segment(column, place.segment, [&](T* /*chunk*/, T share) { sum += share; });
        }
        sums[i] = sum;
      });
    team.for_all(kScanThreads, [&](int i) {
      const Place place(*this, i);
      if (!place.exists) return;
      const ChunkColumn<T> column = column_of(place.head, place.pair);
      T sum = column.before;
      for (int earlier = place.segment; earlier > 0; --earlier) sum += sums[i - earlier * kTilePairs];
      for_segment(column, place.segment, [&](T* chunk, T share) {
        *chunk = sum;
        sum += share;
      });
      if (place.segment == segments - 1) end(place.head, place.pair, sum);
    });
  }

 private:
  /// By 32-bit divisions: a grid has no more heads and tiles.
  struct Place {
    int head, pair, segment;
    bool exists;

    SSMBENCH_TEAM Place(const ChunkScan& scan, int i) {
      const int row = i / kTilePairs;
      segment = row % scan.segments;
      const int tile = static_cast<int>(scan.block) * scan_tiles(scan.segments) + row / scan.segments;
      head = tile / scan.plan.angle_tiles;
      pair = (tile - head * scan.plan.angle_tiles) * kTilePairs + i % kTilePairs;
      exists = head < scan.plan.sequences * scan.plan.nheads && pair < scan.plan.angles;
    }
  };

  /// visit(where the share of a chunk is, the share) for the chunks of a segment, in order.
  template <class Visit>
  SSMBENCH_TEAM void for_segment(const ChunkColumn<T>& column, int segment, const Visit& visit) const {
    const std::int64_t each = (column.count + segments - 1) / segments;
    const std::int64_t begin = segment * each;
    const std::int64_t last = begin + each < column.count ? begin + each : column.count;
    for (std::int64_t first = begin; first < last; first += kBatch) {
      T shares[kBatch];
      for (int u = 0; u < kBatch; ++u)
        shares[u] = first + u < last ? column.first[(first + u) * column.pitch] : 0;
      for (int u = 0; u < kBatch; ++u)
        if (first + u < last) visit(column.first + (first + u) * column.pitch, shares[u]);
    }
  }
};

}  // namespace ssmbench::mamba3_bwd
