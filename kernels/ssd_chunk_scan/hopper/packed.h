#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ssd_chunk_scan/hopper/plan.h"

// How cuda-hopper spreads packed sequences over thread blocks. Host and device, so that the CPU tests cover it.
//
// Sequences have their own chunks, and the same items each (plan.h): one or two row tiles, over all chunks of
// the sequence. Chunks of all items of all sequences, in this order, are cut into runs of the same cost, one
// for each block. Lengths are known on the device alone: a kernel of its own computes from them where blocks
// start (packed.cu).
//
// A run costs no less than an item of the longest sequence, so that an item is in two of them at most. Then
// no block waits for one that waits itself.

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

/// What an item costs besides its chunks, in chunks: the pipeline is empty where it begins (measured).
inline constexpr std::int64_t kItemCost = 1;

/// How blocks share the chunks of all items. Each item has its cost in front of its chunks.
struct PackedShares {
  std::int64_t items;  ///< of a sequence
  std::int64_t cost;   ///< of all items of all sequences
  std::int64_t share;  ///< of a block; of the last one less

  /// `chunks`: of all sequences; `longest`: of one of them.
  SSMBENCH_HD constexpr PackedShares(int items_each, int blocks, std::int64_t sequences, std::int64_t chunks,
                                     std::int64_t longest)
      : items(items_each),
        cost((chunks + sequences * kItemCost) * items_each),
        share((cost + blocks - 1) / blocks) {
    if (share < longest + kItemCost) share = longest + kItemCost;
  }

  /// Sets where the blocks start that start in a sequence, and what is known there of how many chunks
  /// blocks have: `starts` are zeros before. `before`: chunks of the sequences before it. Blocks without a
  /// share have no chunks.
  SSMBENCH_HD void starts_in(int sequence, std::int64_t before, int its_chunks, PackedStart* starts) const {
    const std::int64_t each = its_chunks + kItemCost;
    const std::int64_t begin = (before + sequence * kItemCost) * items;
    const std::int64_t end = begin + each * items;
    // A block does not end with what an item costs in front of its chunks, but with the item before.
    for (std::int64_t block = (begin + kItemCost) / share; block * share < cost; ++block) {
      const std::int64_t behind = block * share + share < cost ? block * share + share : cost;
      if (behind > end + kItemCost) break;
      const std::int64_t item = (behind - begin - kItemCost - 1) / each;
      const std::int64_t of_item = behind - begin - item * each - kItemCost;
      const int last = static_cast<int>(of_item < its_chunks ? of_item : its_chunks);
      PackedStart& start = starts[block];
      start.sequence = sequence;
      start.item = static_cast<int>(item);
      start.end = last;
      const int until = static_cast<int>(before * items + item * its_chunks + last);  // of all chunks
      add_chunks(start, until);
      if (behind < cost) add_chunks(starts[block + 1], -until);
    }
  }

 private:
  /// Two sequences may add to a block at the same time.
  SSMBENCH_HD static void add_chunks(PackedStart& start, int chunks) {
#ifdef __CUDA_ARCH__
    atomicAdd(&start.chunks, chunks);
#else
    start.chunks += chunks;
#endif
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
