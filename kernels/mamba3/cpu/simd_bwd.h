#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/cpu/simd_lanes.h"
#include "kernels/common/index_math.h"
#include "ops/mamba3/mamba3.h"

// cpu-simd for Mamba-3's gradients: what the code for each instruction set shares with the code that is
// compiled once.

namespace ssmbench::simd {

/// The most steps of a chunk, and the most rows, one for each (step, rank).
inline constexpr std::size_t kMamba3ChunkSteps = 32;
inline constexpr std::size_t kMamba3ChunkRows = 64;
/// Chunks of a segment, whose states are made anew from the one that enters it.
inline constexpr std::int64_t kMamba3Segment = 64;
/// The least number of tasks, each with sums of its own. It is not the number of threads, so that results do
/// not depend on that.
inline constexpr std::int64_t kMamba3BwdTasks = 32;

/// A task: some heads of one group of a sequence, one after the other.
struct Mamba3BwdTask {
  std::int64_t sequence, slice, first_head, last_head;
};

/// Where sums of a head begin: over steps, of each rank.
struct Mamba3HeadSums {
  std::int64_t dQ_bias, dK_bias;             ///< [rank][state], in the order of state_of()
  std::int64_t dmimo_v, dmimo_z, dmimo_out;  ///< [rank][head dim]
  std::int64_t dnorm, dD;                    ///< [rank][head dim], to be summed over ranks, dD over all
  std::int64_t count;
};

/// The tasks, and the layout of the workspace in floats.
struct Mamba3BwdPlan {
  std::int64_t chunk;                      ///< steps
  std::int64_t sequences, groups, slices;  ///< tasks
  std::int64_t heads_per_group, per_slice;
  std::int64_t headdim, dstate;  ///< strides of rows: rounded up to the lanes of any vector
  std::int64_t state;            ///< floats of one, whose rows transpose() takes in fours
  std::int64_t segments;         ///< of the longest sequence
  std::int64_t threads;
  Mamba3HeadSums sums;
  std::int64_t part;         ///< floats of a slice's dQ or dK
  std::int64_t projections;  ///< [slice][dQ, dK][batch][time][rank][group][state, in the order of state_of()]
  std::int64_t entering;     ///< [thread][segment]: states that enter the segments of a head
  std::int64_t states;       ///< [thread][chunk of a segment]: states that enter the chunks of a segment
  std::int64_t angles;       ///< [thread][time][cosine, sine, tanh of the rate][pair]
  std::int64_t of_steps;     ///< [thread][4][time + 1]
  std::int64_t head_sums;    ///< [sequence][head][sums]
  std::int64_t floats;       ///< in all

  std::int64_t tasks() const { return sequences * groups * slices; }
  Mamba3BwdTask task(std::int64_t index) const {
    const std::int64_t begin = index / slices % groups * heads_per_group;
    const std::int64_t first = index % slices * per_slice;
    return {index / (slices * groups), index % slices, begin + first,
            begin + std::min(heads_per_group, first + per_slice)};
  }
};

inline Mamba3BwdPlan plan_mamba3_bwd(const Mamba3& scan, std::int64_t threads) {
  constexpr auto kLanes = static_cast<std::int64_t>(kMaxLanes);
  Mamba3BwdPlan plan{};
  plan.chunk = std::min<std::int64_t>(kMamba3ChunkSteps, kMamba3ChunkRows / scan.rank);
  plan.sequences = scan.sequences;
  plan.groups = scan.groups;
  plan.heads_per_group = scan.heads_per_group();
  const std::int64_t wanted = std::clamp<std::int64_t>(
      ceil_div(kMamba3BwdTasks, scan.sequences * scan.groups), 1, plan.heads_per_group);
  plan.per_slice = ceil_div(plan.heads_per_group, wanted);
  plan.slices = ceil_div(plan.heads_per_group, plan.per_slice);
  plan.headdim = ceil_div(scan.headdim, kLanes) * kLanes;
  plan.dstate = ceil_div(scan.dstate, kLanes) * kLanes;
  plan.state = ceil_div(scan.dstate, 4) * 4 * plan.headdim;
  plan.segments = ceil_div(ceil_div(scan.seqlen, plan.chunk), kMamba3Segment);
  plan.threads = std::min(threads, plan.tasks());
  std::int64_t* const of_states[] = {&plan.sums.dQ_bias, &plan.sums.dK_bias};
  std::int64_t* const of_headdims[] = {&plan.sums.dmimo_v, &plan.sums.dmimo_z, &plan.sums.dmimo_out,
                                       &plan.sums.dnorm, &plan.sums.dD};
  const auto take = [](std::int64_t& all, std::int64_t count) { return (all += count) - count; };
  for (auto* at : of_states) *at = take(plan.sums.count, scan.rank * plan.dstate);
  for (auto* at : of_headdims) *at = take(plan.sums.count, scan.rank * plan.headdim);
  plan.part = scan.batch * scan.seqlen * scan.rank * scan.groups * plan.dstate;
  plan.projections = take(plan.floats, plan.slices * 2 * plan.part);
  plan.entering = take(plan.floats, plan.threads * plan.segments * plan.state);
  plan.states = take(plan.floats, plan.threads * kMamba3Segment * plan.state);
  plan.angles = take(plan.floats, plan.threads * scan.seqlen * 3 * scan.angles);
  plan.of_steps = take(plan.floats, plan.threads * 4 * (scan.seqlen + 1));
  plan.head_sums = take(plan.floats, scan.sequences * scan.nheads * plan.sums.count);
  return plan;
}

/// The state at position `at` of rows here: first members of the rotated pairs, then the second ones, then
/// those that are left alone.
inline std::int64_t state_of(const Mamba3& scan, std::int64_t at) {
  if (at < scan.angles) return scan.first_of_pair(at);
  if (at < 2 * scan.angles) return scan.second_of_pair(at - scan.angles);
  return !scan.interleaved && at < scan.angles + scan.dstate / 2 ? at - scan.angles : at;
}

/// One thread's working memory. Rows are as long as the plan's headdim or dstate, or kMamba3ChunkRows. Arrays
/// of floats start at multiples of the largest vector.
struct alignas(64) Mamba3BwdScratch {
  static constexpr std::size_t kDim = static_cast<std::size_t>(kMaxMamba3Dim);
  static constexpr std::size_t kRanks = static_cast<std::size_t>(kMaxMamba3Rank);
  static constexpr std::size_t kRow = kMamba3ChunkRows * kDim;
  static constexpr std::size_t kState = kDim * kDim;
  static constexpr std::size_t kSquare = kMamba3ChunkRows * kMamba3ChunkRows;

  float q[kRow], k[kRow], dq[kRow], dk[kRow];         ///< [step, rank][state]
  float v[kRow], y[kRow], dy[kRow], dv[kRow];         ///< [step, rank][head dim]; v is V·MIMO_V
  float weighted[kRow];                               ///< v or dy times a weight of its row
  float gates[kRow], downs[kRow], norms[kRow];        ///< terms of dMIMO_Z, dMIMO_Out and of the norm's
  float plain_v[kMamba3ChunkSteps * kDim];            ///< [step][head dim]: V
  float k_columns[kRow], v_columns[kRow];             ///< [state or head dim][step, rank]
  float state[kState], adjoint[kState];               ///< [state][head dim]
  float state_rows[kState], adjoint_rows[kState];     ///< [head dim][state]
  float scores[kSquare], crosses[kSquare];            ///< q·k and dy·v, [row][row]
  float mixing[kSquare], mixing_of_crosses[kSquare];  ///< with decay and weight, earlier steps alone
  float decay[kMamba3ChunkSteps * kMamba3ChunkRows];  ///< [step][earlier row]: Π α of the steps in between
  float flows[kMamba3ChunkRows];   ///< by row: Σ over later ones of scores·crosses·decay
  float weight[kMamba3ChunkRows];  ///< s of the row's step
  float alpha[kMamba3ChunkSteps], own[kMamba3ChunkSteps], later[kMamba3ChunkSteps];  ///< α, γ, s
  float enter[kMamba3ChunkSteps], leave[kMamba3ChunkSteps];  ///< Π α up to the step, and of those behind it
  double inputs[kMamba3ChunkSteps];  ///< ⟨W, Σ v ⊗ k⟩, W the adjoint of the state but for the step's own y
  double entered[kMamba3ChunkSteps];  ///< ⟨dy, y⟩ of what y has of the state that entered
  double leaving[kMamba3ChunkSteps];  ///< flows from steps before to the adjoint that leaves
  double within[kMamba3ChunkSteps];   ///< flows from steps before to the step and later ones
  float turning[kDim];                ///< Σ dθ of later steps
  float Q_bias[kRanks * kDim], K_bias[kRanks * kDim];
  float up[kRanks * kDim], gate[kRanks * kDim], down[kRanks * kDim], norm[kDim];
  float row[kDim], z[kDim], sum[kDim];
  double sums[(2 + 5) * kRanks * kDim];  ///< of the head
};

}  // namespace ssmbench::simd
