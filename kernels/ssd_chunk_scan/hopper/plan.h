#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// How cuda-hopper spreads a problem over thread blocks. Host and device, so that the CPU tests cover it.
//
// A head is cut into tiles of 64 rows of its state. One or two tiles whose heads read the same B and C are an
// item, a scan over all chunks of a sequence. Two tiles are in one thread block; with more than 128 states they
// are in the two blocks of a cluster, which count as one here.
//
// Where there are more items than multiprocessors, all of them together are cut evenly: a block takes a run of
// (item, chunk), which begins and ends anywhere, as segments of items, and hands the state of its last one on.
// (With more than 128 states a block takes one item where that leaves few multiprocessors idle at the end: items
// that begin together find B and C in the L2 cache.)
// Where there are few, each item is cut into parts, a block each. The states that enter the parts are computed
// before, by kernels of their own (handed.h), so that all parts of an item run at once.

namespace ssmbench::ssd_hopper {

inline constexpr int kSteps = 64;  ///< time steps of a chunk
inline constexpr int kRows = 64;   ///< rows of the state in a tile

struct RowTile {
  int head;  ///< −1 where the tile is absent
  int row;   ///< its first
};

/// One or two row tiles of a group. The second is absent where a group has an odd number of them.
struct Item {
  int b, group;
  RowTile first, second;

  SSMBENCH_HD constexpr RowTile tile(int index) const {  // by parts, or it takes an address
    return {index == 0 ? first.head : second.head, index == 0 ? first.row : second.row};
  }
};

/// Chunks first … end − 1 of an item. Where `first` is not 0 the state comes from the block before, and where
/// `end` is not the sequence's it goes to the block after. (From and by handed.h, if items are in parts.)
struct Segment {
  int item;
  int first, end;
};

/// Division by a number that is known at launch, of what is below 2^31: two instructions.
/// Source: Granlund & Montgomery, "Division by invariant integers using multiplication" (1994), theorem 4.2.
struct Divisor {
  int value = 1;
  std::uint32_t multiplier = 0x80000000U;  ///< ⌈2^(31 + bits) / value⌉
  int shift = 31;                          ///< 31 + bits, bits = ⌈log₂ value⌉

  constexpr Divisor() = default;
  constexpr explicit Divisor(int of) : value(of) {
    while ((std::int64_t{1} << (shift - 31)) < of) ++shift;
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + of - 1) / of);
  }
  SSMBENCH_HD constexpr int quotient(int number) const {
    return static_cast<int>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(number)) * multiplier >>
                            shift);
  }
};

struct Plan {
  int tiles_per_item;  ///< 1 or 2
  int cluster;         ///< thread blocks to one of the plan: 2 where each has one of an item's two tiles
  int heads_per_group;
  Divisor row_tiles;  ///< of a head
  Divisor groups;
  Divisor items_per_group;
  Divisor chunks;
  int items;
  int blocks;
  int parts;  ///< of an item; 1 where items are not cut, or all together
  /// Blocks that share chunks evenly: those of an item in parts, otherwise all.
  Divisor team;
  /// Chunks of a team: `share`·team + `rest`. Its first `rest` blocks have one more.
  int team_chunks, share, rest;

  SSMBENCH_HD constexpr Item item(int index) const {
    const int outer = items_per_group.quotient(index);
    const int b = groups.quotient(outer);
    const int group = outer - b * groups.value;
    const int tile = (index - outer * items_per_group.value) * tiles_per_item;
    return {b, group, row_tile(group, tile),
            tiles_per_item == 2 ? row_tile(group, tile + 1) : RowTile{-1, 0}};
  }
  /// A row tile of a group.
  SSMBENCH_HD constexpr RowTile row_tile(int group, int index) const {
    const int head = row_tiles.quotient(index);
    if (head >= heads_per_group) return {-1, 0};
    return {group * heads_per_group + head, (index - head * row_tiles.value) * kRows};
  }

  /// Chunks of all items: a block takes those from first_unit(block) to first_unit(block + 1).
  SSMBENCH_HD constexpr int first_unit(int block) const {
    const int which = team.quotient(block);
    const int member = block - which * team.value;
    return which * team_chunks + member * share + (member < rest ? member : rest);
  }
  SSMBENCH_HD constexpr int segments(int block) const {
    const int begin = first_unit(block);
    const int end = first_unit(block + 1);
    return begin == end ? 0 : chunks.quotient(end - 1) - chunks.quotient(begin) + 1;
  }
  /// In the order that the block takes them, the last item first: what the next block waits for comes first,
  /// and what waits for the block before comes last.
  SSMBENCH_HD constexpr Segment segment(int block, int index) const {
    const int begin = first_unit(block);
    const int end = first_unit(block + 1);
    const int item = chunks.quotient(end - 1) - index;
    const int start = item * chunks.value;
    return {item, begin > start ? begin - start : 0, end < start + chunks.value ? end - start : chunks.value};
  }
  /// Whether a block may wait for the states that the one before it hands on.
  SSMBENCH_HD constexpr bool hands_over() const { return parts == 1 && items % blocks != 0; }
  /// Whether states go from block to block, in either way.
  constexpr bool states_cross() const { return parts > 1 || hands_over(); }
};

/// Sizes of a problem that a plan depends on.
struct PlanSizes {
  std::int64_t batch, seqlen, nheads, groups, headdim;
  int states = 128;  ///< dstate, padded
  bool f32 = false;  ///< tensors are: then all items have two tiles
};

/// `parts` is 1 where there are more items than multiprocessors, and at most the number of chunks.
constexpr Plan plan_with(const PlanSizes& of, int multiprocessors, int tiles_per_item, int parts) {
  Plan plan{};
  plan.tiles_per_item = tiles_per_item;
  plan.cluster = of.states > 128 ? tiles_per_item : 1;
  plan.heads_per_group = static_cast<int>(of.nheads / of.groups);
  plan.row_tiles = Divisor(static_cast<int>(ceil_div(of.headdim, kRows)));
  plan.groups = Divisor(static_cast<int>(of.groups));
  plan.items_per_group = Divisor(
      static_cast<int>(ceil_div(std::int64_t{plan.heads_per_group} * plan.row_tiles.value, tiles_per_item)));
  plan.chunks = Divisor(static_cast<int>(ceil_div(of.seqlen, kSteps)));
  plan.items = static_cast<int>(of.batch * of.groups * plan.items_per_group.value);
  plan.parts = parts;
  plan.blocks = parts > 1 ? plan.items * parts : std::min(plan.items, multiprocessors / plan.cluster);
  plan.team = Divisor(parts > 1 ? parts : plan.blocks);
  plan.team_chunks = parts > 1 ? plan.chunks.value : plan.items * plan.chunks.value;
  plan.share = plan.team_chunks / plan.team.value;
  plan.rest = plan.team_chunks % plan.team.value;
  return plan;
}

/// Cycles of an H200 (measured): of items of one tile, of two.
struct PlanCycles {
  double chunk[2];
  double state_chunk[2];  ///< in the pass before, of states alone
  /// What parts cost besides: two more kernels, states to and from memory, the sum over an item's parts.
  double parts[2];
};
inline constexpr PlanCycles kCycles = {{2100, 3800}, {800, 1400}, {14000, 26000}};
inline constexpr PlanCycles kWideCycles = {{3500, 2900}, {1500, 1400}, {26000, 26000}};  ///< of 256 states
/// Counted. (Measured since, where all multiprocessors are busy: 8300 a chunk.)
inline constexpr PlanCycles kF32Cycles = {{0, 6000}, {0, 2500}, {0, 26000}};
inline constexpr double kPartCycles = 400;

/// Cycles that a plan of these sizes takes.
constexpr double plan_cycles(const PlanSizes& of, const Plan& plan) {
  const PlanCycles& cycles = of.f32 ? kF32Cycles : of.states > 128 ? kWideCycles : kCycles;
  const int tiles = plan.tiles_per_item - 1;
  if (plan.parts == 1) return cycles.chunk[tiles] * plan.chunks.value * plan.items / plan.blocks;
  const double chunks = plan.share + (plan.rest > 0 ? 1 : 0);
  return (cycles.chunk[tiles] + cycles.state_chunk[tiles]) * chunks + cycles.parts[tiles] +
         kPartCycles * plan.parts;
}

/// Whether items of 256 states, a block each, keep as many multiprocessors busy as items that are cut evenly,
/// but for a twentieth.
constexpr bool in_whole_rounds(const PlanSizes& of, const Plan& plan, int multiprocessors) {
  const int at_once = multiprocessors / plan.cluster;
  const std::int64_t places = ceil_div(std::int64_t{plan.items}, at_once) * at_once;
  return of.states > 128 && plan.parts == 1 && plan.items > at_once &&
         places * 19 <= std::int64_t{plan.items} * 20;
}
constexpr Plan with_block_an_item(Plan plan) {
  plan.blocks = plan.items;
  plan.team = Divisor(plan.items);
  plan.share = plan.chunks.value;
  plan.rest = 0;
  return plan;
}

/// Two tiles share loads and the state warpgroup; one tile makes twice the items, and parts make more of few.
/// Follows from the shape and the number of multiprocessors alone, so that results are the same on every GPU.
constexpr Plan plan_for(const PlanSizes& of, int multiprocessors, int most_tiles = 2) {
  if (of.nheads == of.groups && of.headdim <= kRows && !of.f32) most_tiles = 1;  // a group has no more
  Plan best = plan_with(of, multiprocessors, most_tiles, 1);
  for (int tiles = most_tiles; tiles >= (of.f32 ? 2 : 1); --tiles) {
    const Plan whole = plan_with(of, multiprocessors, tiles, 1);
    const int most = std::min(multiprocessors / (whole.cluster * whole.items), whole.chunks.value);
    for (int parts = 1; parts <= std::max(most, 1); ++parts) {
      const Plan plan = plan_with(of, multiprocessors, tiles, parts);
      if (plan_cycles(of, plan) < plan_cycles(of, best)) best = plan;
    }
  }
  return in_whole_rounds(of, best, multiprocessors) ? with_block_an_item(best) : best;
}

}  // namespace ssmbench::ssd_hopper
