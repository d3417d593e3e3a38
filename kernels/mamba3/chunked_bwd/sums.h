#pragma once

// What cuda-chunked-f32's gradients of Mamba-3 sum up once all heads are done: over heads, sequences and ranks.

#include <cstdint>

#include "kernels/mamba3/args.h"
#include "kernels/mamba3/chunked_bwd/plan.h"
#include "kernels/mamba3/chunked_bwd/team.h"

namespace ssmbench::mamba3 {

/// dQ and dK, element `at` of (batch, time, rank, group, state): sums over the heads of its group, in order.
template <class Io>
SSMBENCH_TEAM void add_vector(const Mamba3BwdArgs& args, const GradientPlan& plan, const float* workspace,
                              std::int64_t at) {
  const Mamba3& scan = args.in.scan;
  const std::int64_t each = scan.nheads / scan.groups;
  const std::int64_t n = at % plan.dstate;
  const std::int64_t group = at / plan.dstate % scan.groups;
  const std::int64_t row = at / plan.dstate / scan.groups;
  const float* from = workspace + plan.vectors + (row * scan.nheads + group * each) * plan.dstate + n;
  float dQ = 0;
  float dK = 0;
  for (std::int64_t head = 0; head < each; ++head, from += plan.dstate) {
    dQ += from[0];
    dK += from[plan.part_floats];
  }
  Io::store(args.dQ, at, dQ);
  Io::store(args.dK, at, dK);
}

/// The gradients of a head's parameters: sums over sequences, in order. `i` < sums.count.
SSMBENCH_TEAM inline void add_sums(const Mamba3BwdArgs& args, const GradientPlan& plan, float* workspace,
                                   std::int64_t head, int i) {
  const Mamba3& scan = args.in.scan;
  float total = 0;
  for (std::int64_t m = 0; m < scan.sequences; ++m)
    total += workspace[plan.head_sums + (m * scan.nheads + head) * plan.sums.count + i];
  const std::int64_t states = head * plan.rank * plan.dstate;
  const std::int64_t headdims = head * plan.rank * plan.headdim;
  const GradientSums& at = plan.sums;
  if (i < at.dK_bias)
    args.dQ_bias[states + i - at.dQ_bias] = total;
  else if (i < at.dmimo_v)
    args.dK_bias[states + i - at.dK_bias] = total;
  else if (i < at.dmimo_z && args.dmimo_v != nullptr)
    args.dmimo_v[headdims + i - at.dmimo_v] = total;
  else if (i >= at.dmimo_z && i < at.dmimo_out && args.dmimo_z != nullptr)
    args.dmimo_z[headdims + i - at.dmimo_z] = total;
  else if (i >= at.dmimo_out && i < at.dnorm && args.dmimo_out != nullptr)
    args.dmimo_out[headdims + i - at.dmimo_out] = total;
  else if (i >= at.dnorm)
    workspace[plan.totals + head * (plan.sums.count - at.dnorm) + i - at.dnorm] = total;
}

/// dD, and the norm's weight's gradient: the sums of add_sums() over ranks. `p` ≤ headdim.
SSMBENCH_TEAM inline void add_ranks(const Mamba3BwdArgs& args, const GradientPlan& plan,
                                    const float* workspace, std::int64_t head, int p) {
  const int count = plan.rank * plan.headdim;
  const float* const norms = workspace + plan.totals + head * 2 * count;
  float sum = 0;
  if (p == plan.headdim) {
    for (int i = 0; i < count; ++i) sum += norms[count + i];
    if (args.dD != nullptr) args.dD[head] = sum;
    return;
  }
  for (int r = 0; r < plan.rank; ++r) sum += norms[r * plan.headdim + p];
  if (args.dnorm != nullptr) args.dnorm[head * plan.headdim + p] = sum;
}

}  // namespace ssmbench::mamba3
