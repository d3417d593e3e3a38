#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ssd_chunk_scan/hopper/plan.h"

// How cuda-hopper spreads packed sequences over thread blocks. Host and device, so that the CPU tests cover it.
//
// Sequences have their own chunks, and the same items each (plan.h): one or two row tiles, over all chunks of
// the sequence. Chunks of all items of all sequences, in this order, are cut evenly, a run for each block. Lengths
// are known on the device alone: a kernel of its own computes from them where blocks start (packed.cu).
//
// A run is no shorter than the longest sequence, so that an item is in two of them at most. Then no block waits
// for one that waits itself.

namespace ssmbench::ssd_hopper {

/// Chunks of a sequence. Without steps it has one, in which its state passes through.
SSMBENCH_HD constexpr int packed_chunks(int steps) {
  return steps <= kSteps ? 1 : (steps - 1) / kSteps + 1;
}

/// Where a block starts: at its last segment.
struct alignas(16) PackedStart {
  int sequence;
  int item;    ///< of the sequence
  int end;     ///< of the segment
  int chunks;  ///< that the block has, of all of its segments
};

/// How many chunks blocks have.
struct PackedShares {
  std::int64_t items;   ///< of a sequence
  std::int64_t chunks;  ///< of all items of all sequences
  std::int64_t share;   ///< of a block; of the last ones less

  /// `chunks`: of all sequences; `longest`: of one of them.
  SSMBENCH_HD constexpr PackedShares(int items_each, int blocks, std::int64_t all, std::int64_t longest)
      : items(items_each), chunks(all * items_each), share((chunks + blocks - 1) / blocks) {
    if (share < longest) share = longest;
  }

  /// Sets those of the blocks that start in a sequence. `before`: chunks of those before it. Blocks that start in
  /// none have no chunks.
  SSMBENCH_HD constexpr void starts_in(int sequence, std::int64_t before, int its_chunks,
                                       PackedStart* starts) const {
    const std::int64_t begin = before * items;
    const std::int64_t end = begin + its_chunks * items;
    for (std::int64_t first = begin / share * share; first < chunks; first += share) {
      const std::int64_t behind = first + share < chunks ? first + share : chunks;
      if (behind > end) break;
      const std::int64_t last = behind - 1 - begin;
      starts[first / share] = {sequence, static_cast<int>(last / its_chunks),
                               static_cast<int>(last % its_chunks) + 1, static_cast<int>(behind - first)};
    }
  }
};

/// The segments of a block, the last one first, as Plan::segment() has them. Lengths are read when they are
/// needed: roles have few registers to spare.
class PackedSegments {
 public:
  SSMBENCH_HD PackedSegments(const PackedStart& start, int items, const std::int32_t* cu_seqlens)
      : cu_seqlens_(cu_seqlens), items_(items), at_(start) {}
  SSMBENCH_HD bool done() const { return at_.chunks == 0; }
  SSMBENCH_HD void advance() {
    at_.chunks -= length();
    if (done()) return;
    if (at_.item == 0) {
      at_.item = items_;
      --at_.sequence;
    }
    --at_.item;
    at_.end = packed_chunks(steps());
  }

  /// `item`: of the sequence.
  SSMBENCH_HD Segment segment() const { return {at_.item, at_.end - length(), at_.end}; }
  SSMBENCH_HD int sequence() const { return at_.sequence; }
  SSMBENCH_HD int begin() const { return cu_seqlens_[at_.sequence]; }  ///< the sequence's first step
  SSMBENCH_HD int steps() const { return cu_seqlens_[at_.sequence + 1] - begin(); }  ///< of the sequence
  /// Whether the segment is its item's last.
  SSMBENCH_HD bool ends(const Segment& of) const { return of.end == packed_chunks(steps()); }

 private:
  SSMBENCH_HD int length() const { return at_.end < at_.chunks ? at_.end : at_.chunks; }

  const std::int32_t* cu_seqlens_;
  int items_;
  PackedStart at_;  ///< chunks that are left
};

/// Sizes of packed sequences that a plan depends on.
struct PackedSizes {
  std::int64_t sequences, steps, nheads, groups, headdim;
};

/// Of one of the sequences: items() of the plan are a sequence's. Follows from the number of sequences and steps.
constexpr Plan packed_plan_with(const PackedSizes& of, int multiprocessors, int tiles_per_item) {
  Plan plan = plan_with({1, of.steps, of.nheads, of.groups, of.headdim}, multiprocessors, tiles_per_item, 1);
  const std::int64_t most = plan.items * (of.steps / kSteps + of.sequences);
  plan.blocks = static_cast<int>(std::min<std::int64_t>(most, multiprocessors));
  return plan;
}

/// Two tiles share loads and the state warpgroup; one tile is sooner through the longest sequence, which is
/// taken for one of the mean length.
constexpr Plan packed_plan_for(const PackedSizes& of, int multiprocessors, int most_tiles = 2) {
  const double each = static_cast<double>(of.steps) / static_cast<double>(of.sequences) / kSteps + 0.5;
  const auto cycles = [&](const Plan& plan) {
    const double share = each * static_cast<double>(of.sequences) * plan.items / multiprocessors;
    return kCycles.chunk[plan.tiles_per_item - 1] * std::max(share, each);
  };
  const Plan one = packed_plan_with(of, multiprocessors, 1);
  const Plan two = packed_plan_with(of, multiprocessors, 2);
  return most_tiles == 1 || cycles(one) < cycles(two) ? one : two;
}

}  // namespace ssmbench::ssd_hopper
