#pragma once

#include "kernels/ssd_chunk_scan/handed.h"
#include "kernels/ssd_chunk_scan/hopper/plan.h"

// How cuda-hopper's scan that rotates q and k itself has its blocks. Host alone, so that the CPU tests cover
// it.

namespace ssmbench::mamba3_hopper {

/// Multiprocessors of an H200; a GPU with fewer runs the last blocks after the first.
inline constexpr int kMultiprocessors = 132;

/// Two heads of a group a block take less time than one after the other, but each of them more than a head
/// that has a multiprocessor for itself. Which is faster follows from the chunks that a block has, and from
/// whether blocks hand states on.
struct RotatedPlan {
  ssd_hopper::Plan plan;
  bool has_pairs;  ///< two heads of a group a block, otherwise one

  constexpr explicit RotatedPlan(const ssd_hopper::PlanSizes& of) : plan{}, has_pairs(false) {
    ssd_hopper::PlanSizes heads = of;  // each is a group: q and k are its own
    heads.groups = of.nheads;
    const ssd_hopper::Plan one = ssd_hopper::plan_with(heads, kMultiprocessors, 1, 1);
    const ssd_hopper::Plan pairs = ssd_hopper::plan_with(of, kMultiprocessors, 2, 1);
    has_pairs = microseconds(pairs) < microseconds(one);
    plan = has_pairs ? pairs : one;
  }

  /// What a scan takes on an H200 by measurements of 224 to 640 heads of 1024 to 4096 steps: of a block's
  /// chunks, of one head and of two, and where items are cut.
  static constexpr double microseconds(const ssd_hopper::Plan& of) {
    const bool two = of.tiles_per_item == 2;
    const double chunks = static_cast<double>(of.chunks.value) * of.items / of.blocks;
    return (two ? 4.33 : 2.21) * chunks + (of.hands_over() ? (two ? 20 : 14) : 0);
  }

  /// States that are handed on, and their flags: the heads of a block have their own.
  constexpr std::int64_t givers() const {
    return plan.hands_over() ? std::int64_t{plan.blocks} * plan.tiles_per_item : 0;
  }
  /// `states`: dstate, padded.
  constexpr HandedLayout handed_layout_of(int states) const {
    return handed_layout(givers(), 1, ssd_hopper::kRows * states);
  }
};

}  // namespace ssmbench::mamba3_hopper
