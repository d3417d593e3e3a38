#pragma once

// Sums of dB and dC over the blocks of a group, whose shares lie in the workspace: each rounded once, in
// order.

#include <type_traits>

#include "kernels/common/complex.h"
#include "kernels/common/index_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/segment_range.h"

namespace ssmbench {

inline constexpr int kShareThreads = 256;
inline constexpr int kSharesAtOnce = 8;  ///< loads in flight together

/// Shares of dB or dC in the workspace: [group of all batches][block][step][state].
struct ShareLayout {
  std::int64_t groups, blocks_per_group, steps;
  int states_log2;

  SSMBENCH_HD std::int64_t values() const { return steps << states_log2; }  // of a block
  /// Blocks of kShareThreads threads, each with so many values, that add dB or dC of a group, or of all.
  SSMBENCH_HD std::int64_t blocks_of_group(int of_thread) const {
    return ceil_div(values(), kShareThreads * of_thread);
  }
  SSMBENCH_HD std::int64_t blocks(int of_thread) const { return groups * blocks_of_group(of_thread); }
};

/// The shares of dB or dC of some steps, and where their sums go.
struct Shares {
  const float* shares;
  void* gradient;
  ProjectionStrides strides;
  SegmentRange steps;
  std::int64_t groups;  ///< of a batch
  std::int64_t states;
  ShareLayout layout;
};

/// Thread block `block` of layout.blocks(of_thread): neighbouring (step, state) of one (batch, group),
/// of_thread states of a step a thread.
template <class Io, class Value, int of_thread>
__device__ void add_shares(const Shares& all, unsigned block) {
  const ShareLayout& layout = all.layout;
  // There are fewer than 2^31 blocks; a division of 64 bits takes a hundred instructions.
  const auto blocks_of_group = static_cast<unsigned>(layout.blocks_of_group(of_thread));
  const unsigned group = block / blocks_of_group;  // over all batches
  const std::int64_t i =
      (static_cast<std::int64_t>(block - group * blocks_of_group) * kShareThreads + threadIdx.x) * of_thread;
  const std::int64_t n = i & ((1 << layout.states_log2) - 1);
  const std::int64_t t = all.steps.begin + (i >> layout.states_log2);
  if (n >= all.states || t >= all.steps.end) return;
  const Value* const share =
      reinterpret_cast<const Value*>(all.shares) + group * layout.blocks_per_group * layout.values() + i;
  Value sums[of_thread]{};
  for (std::int64_t first = 0; first < layout.blocks_per_group; first += kSharesAtOnce) {
    Value terms[kSharesAtOnce][of_thread]{};
#pragma unroll
    for (int k = 0; k < kSharesAtOnce; ++k)
      if (first + k < layout.blocks_per_group) {
        const Value* const term = share + (first + k) * layout.values();
        if constexpr (of_thread == 1)
          terms[k][0] = *term;
        else
          load_vectors(terms[k], term);
      }
#pragma unroll
    for (int k = 0; k < kSharesAtOnce; ++k)
#pragma unroll
      for (int s = 0; s < of_thread; ++s) sums[s] = sums[s] + terms[k][s];
  }
  const auto groups = static_cast<unsigned>(all.groups);
  const std::int64_t to = group / groups * all.strides.batch + group % groups * all.strides.group +
                          n * all.strides.state + t * all.strides.time;
#pragma unroll
  for (int s = 0; s < of_thread; ++s) {
    if (n + s >= all.states) break;
    if constexpr (std::is_same_v<Value, Complex>)
      static_cast<Complex*>(all.gradient)[to + s * all.strides.state] = sums[s];
    else
      static_cast<Io*>(all.gradient)[to + s * all.strides.state] = from_float<Io>(sums[s]);
  }
}

}  // namespace ssmbench
