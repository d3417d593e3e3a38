#pragma once

#include "kernels/ssd_chunk_scan/handed.h"
#include "kernels/ssd_chunk_scan/hopper/plan.h"

// How cuda-hopper's scan that rotates q and k itself has its blocks. Host alone, so that the CPU tests cover
// it.

namespace ssmbench::mamba3_hopper {

/// Multiprocessors of an H200; a GPU with fewer runs the last blocks after the first.
inline constexpr int kMultiprocessors = 132;

/// Two heads of a group a block take less time than one after the other, but each of them more than a head
/// that has a multiprocessor for itself. Which is faster follows from the chunks that a block has. Pairs are
/// not cut: each block then has another place in time, and they take as long as heads that are.
struct RotatedPlan {
  ssd_hopper::Plan plan;
  bool has_pairs;  ///< two heads of a group a block, otherwise one

  constexpr explicit RotatedPlan(const ssd_hopper::PlanSizes& of) : plan{}, has_pairs(false) {
    ssd_hopper::PlanSizes heads = of;  // each is a group: q and k are its own
    heads.groups = of.nheads;
    const ssd_hopper::Plan one = ssd_hopper::plan_with(heads, kMultiprocessors, 1, 1);
    const ssd_hopper::Plan pairs = ssd_hopper::plan_with(of, kMultiprocessors, 2, 1);
    has_pairs = !pairs.hands_over() && microseconds(pairs) < microseconds(one);
    plan = has_pairs ? pairs : one;
  }

  /// Of the chunks of a block, on an H200 (measured).
  static constexpr double microseconds(const ssd_hopper::Plan& of) {
    const double chunk = of.tiles_per_item == 2 ? 4.13 : of.hands_over() ? 2.35 : 2.23;
    return chunk * of.chunks.value * of.items / of.blocks;
  }

  /// States that are handed on: of heads that are cut. `states`: dstate, padded.
  constexpr HandedLayout handed_layout_of(int states) const {
    return handed_layout(plan.hands_over() ? plan.blocks : 0, 1, ssd_hopper::kRows * states);
  }
};

}  // namespace ssmbench::mamba3_hopper
