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
//
// Where sequences are few and long, their items are cut into parts of time instead, a block each, as those of
// batches are (plan.h); how many, the same kernel computes.

namespace ssmbench::ssd_hopper {

/// Chunks of a sequence. Without steps it has one, in which its state passes through.
SSMBENCH_HD constexpr int packed_chunks(int steps) {
  return steps <= kSteps ? 1 : (steps - 1) / kSteps + 1;
}

/// Places for parts of `each` steps of all sequences, without a sum over those before: that of the first part
/// of a sequence that begins at step `begin`. Below packed_slots().
SSMBENCH_HD constexpr int packed_slot(int begin, int sequence, int each) {
  return begin / each + sequence;
}
SSMBENCH_HD constexpr std::int64_t packed_slots(std::int64_t steps, std::int64_t sequences, int each) {
  return steps / each + sequences;
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

/// Looks for the first number that fits, from `least` to `most`, where all after it fit, too, and `most`
/// does: by halves.
struct FirstThatFits {
  int least, most;

  SSMBENCH_HD constexpr bool is_found() const { return least >= most; }
  SSMBENCH_HD constexpr int tried() const { return (least + most) / 2; }
  SSMBENCH_HD constexpr void narrow(bool tried_fits) {
    if (tried_fits)
      most = tried();
    else
      least = tried() + 1;
  }
};

/// The part in a place: of which sequence, which of its parts, and the steps, the first one in all of the batch.
/// Where no part is, it has no steps.
struct PackedPart {
  int sequence, index;
  std::int64_t first;
  int steps;
  bool ends;  ///< its sequence; a sequence without steps has one part
};
SSMBENCH_HD constexpr PackedPart packed_part_at(const std::int32_t* cu_seqlens, int sequences, int slot,
                                                int each) {
  FirstThatFits search{0, sequences - 1};
  while (!search.is_found())
    search.narrow(packed_slot(cu_seqlens[search.tried() + 1], search.tried() + 1, each) > slot);
  const int begin = cu_seqlens[search.most];
  const int index = slot - packed_slot(begin, search.most, each);
  const std::int64_t first = begin + std::int64_t{index} * each;
  const std::int64_t left = cu_seqlens[search.most + 1] - first;
  return {search.most, index, first,
          static_cast<int>(left < 0      ? 0
                           : left < each ? left
                                         : each),
          left <= each && (left > 0 || index == 0)};
}

/// Whether a sequence ends with a step.
SSMBENCH_HD constexpr bool ends_packed(const std::int32_t* cu_seqlens, int sequences, std::int64_t step) {
  FirstThatFits search{1, sequences};
  while (!search.is_found()) search.narrow(cu_seqlens[search.tried()] > step);
  return cu_seqlens[search.most] == step + 1;
}

/// Items in parts: each has a block for every `chunks` chunks.
struct PackedParts {
  int items;   ///< of a sequence
  int chunks;  ///< of a part; of an item's last one what is left

  SSMBENCH_HD constexpr int of_item(int its_chunks) const { return (its_chunks - 1) / chunks + 1; }
  /// Sets where the blocks start that have a sequence, from block `first` on, and the first blocks of its
  /// items.
  SSMBENCH_HD constexpr void starts_in(int sequence, int first, int its_chunks, PackedStart* starts,
                                       std::int32_t* firsts) const {
    const int parts = of_item(its_chunks);
    for (int item = 0; item < items; ++item) {
      firsts[sequence * items + item] = first + item * parts;
      for (int part = 0; part < parts; ++part) {
        const int begin = part * chunks;
        const int end = begin + chunks < its_chunks ? begin + chunks : its_chunks;
        starts[first + item * parts + part] = {sequence, item, end, end - begin};
      }
    }
  }
};

/// A state on the way that is wanted.
struct alignas(8) PackedStop {
  std::int32_t step;   ///< the one after which it is
  std::int32_t index;  ///< in states_at
};

/// The first of stops, which are in the order of their steps, at `step` or later; `count` if there is none.
SSMBENCH_HD constexpr int first_stop_from(const PackedStop* stops, int count, int step) {
  FirstThatFits search{0, count};
  while (!search.is_found()) search.narrow(stops[search.tried()].step >= step);
  return search.most;
}

/// Where there is none: a step behind all of a sequence, and room to count on.
inline constexpr std::int32_t kNoStop = 0x7ffffff0;

/// The step of a stop in the sequence of `steps` steps from `begin` on, kNoStop if that has it not.
SSMBENCH_HD constexpr std::int32_t row_of_stop(const PackedStop* stops, int count, int stop, int begin,
                                               int steps) {
  const std::int32_t row = stop == count ? kNoStop : stops[stop].step - begin;
  return row < steps ? row : kNoStop;
}
/// The first one of a sequence, `step` being the one in the sequence.
SSMBENCH_HD constexpr PackedStop first_stop_of(const PackedStop* stops, int count, int begin, int steps) {
  const int first = first_stop_from(stops, count, begin);
  return {row_of_stop(stops, count, first, begin, steps), first};
}

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

/// Of one of the sequences: items of the plan are a sequence's. Follows from the number of sequences and
/// steps. With more than one part each of its items is in parts, that many in the mean.
constexpr Plan packed_plan_with(const PackedSizes& of, int multiprocessors, int tiles_per_item) {
  Plan plan = plan_with({1, of.steps, of.nheads, of.groups, of.headdim}, multiprocessors, tiles_per_item, 1);
  const std::int64_t most = plan.items * (of.steps / kSteps + of.sequences);
  plan.blocks = static_cast<int>(std::min<std::int64_t>(most, multiprocessors));
  return plan;
}

/// Two tiles share loads and the state warpgroup; one tile is sooner through the longest sequence. Parts make
/// more of few items; half of each item's last part is for nothing. Sequences are taken for ones of the mean
/// length.
constexpr Plan packed_plan_for(const PackedSizes& of, int multiprocessors, int most_tiles = 2) {
  const double each = static_cast<double>(of.steps) / static_cast<double>(of.sequences) / kSteps + 0.5;
  const auto cycles = [&](const Plan& plan) {
    const double share = each * static_cast<double>(of.sequences) * plan.items / multiprocessors;
    return kCycles.chunk[plan.tiles_per_item - 1] * std::max(share, each);
  };
  const Plan one = packed_plan_with(of, multiprocessors, 1);
  const Plan two = packed_plan_with(of, multiprocessors, 2);
  Plan best = most_tiles == 1 || cycles(one) < cycles(two) ? one : two;
  double least = cycles(best);
  for (int parts = 2; parts <= multiprocessors / (one.items * of.sequences); ++parts) {
    const double in_parts = (kCycles.chunk[0] + kCycles.state_chunk[0]) * each / (parts - 0.5) +
                            kCycles.parts[0] + kPartCycles * parts;
    if (in_parts >= least) continue;
    least = in_parts;
    best = one;
    best.parts = parts;
    best.blocks = one.items * static_cast<int>(of.sequences) * parts;
  }
  return best;
}

}  // namespace ssmbench::ssd_hopper
