#pragma once

// MIMO's factors around the products: V and dy of each rank before them; the gradients of V, Z, D and of the factors
// themselves behind them, which need y. Team and Io as in prepare.h.

#include <cstdint>

#include "kernels/common/activations.h"
#include "kernels/mamba3/tensor_bwd/finish.h"

namespace ssmbench::mamba3_bwd {

/// Where dout of a step is for rank r, `step` of (batch, time).
SSMBENCH_TEAM inline std::int64_t dout_at(const Mamba3BwdArgs& args, const Plan& plan, std::int64_t step,
                                          std::int64_t head, int r) {
  const std::int64_t row = args.in.scan.reduces_ranks ? step : step * plan.ranks + r;
  return (row * plan.nheads + head) * plan.headdim;
}

/// V·MIMO_V and dy = dout·MIMO_Out·silu(Z·MIMO_Z) of all ranks, rounded. `at`: octet of (batch, time, head, P).
template <class Io>
SSMBENCH_TEAM void raise_ranks(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                               std::int64_t at) {
  const int octets = plan.headdim / kOctet;
  const std::int64_t row = at / octets;
  const int p = static_cast<int>(at - row * octets) * kOctet;
  const std::int64_t step = row / plan.nheads;
  const std::int64_t head = row - step * plan.nheads;
  const Mamba3Args& in = args.in;
  const Octet v = Io::load_octet(in.V, at * kOctet);
  const Octet z = in.Z == nullptr ? Octet{} : Io::load_octet(in.Z, at * kOctet);
  for (int r = 0; r < plan.ranks; ++r) {
    const std::int64_t factors = (head * plan.ranks + r) * plan.headdim + p;
    const Octet up = Io::load_floats(in.mimo_v + factors);
    Octet raised = Io::load_octet(args.dout, dout_at(args, plan, step, head, r) + p);
    if (in.mimo_out != nullptr) {
      const Octet down = Io::load_floats(in.mimo_out + factors);
      for (int i = 0; i < kOctet; ++i) raised.state[i] *= down.state[i];
    }
    if (in.Z != nullptr) {
      const Octet gate = Io::load_floats(in.mimo_z + factors);
      for (int i = 0; i < kOctet; ++i) raised.state[i] *= gate_of(z.state[i] * gate.state[i]).value;
    }
    Octet product{};
    for (int i = 0; i < kOctet; ++i) product.state[i] = v.state[i] * up.state[i];
    const std::int64_t ranked = ((step * plan.ranks + r) * plan.nheads + head) * plan.headdim + p;
    Io::store_octet(to.v, ranked, product);
    Io::store_octet(to.dy, ranked, raised);
  }
}

/// Whether anything but dV needs y.
SSMBENCH_TEAM inline bool needs_y(const Mamba3BwdArgs& args) {
  return args.in.Z != nullptr || args.in.mimo_out != nullptr;
}

/// Runs of steps that a span is cut into.
inline constexpr int kSpanRuns = 4;
/// Sums of a head dim: dMIMO_V, dMIMO_Z and dMIMO_Out of each rank, then dD.
template <class Form>
inline constexpr int kFactorSums = 3 * Form::kRanks + 1;

/// Memory of a block that lowers ranks.
template <class Form>
struct FactorMemory {
  float runs[kSpanRuns][kFactorSums<Form>][kMaxHeaddim];
  float skips[kMaxHeaddim];
};

/// Of a span of steps of a (batch, head): dV and dZ, and sums for dMIMO_V, dMIMO_Z, dMIMO_Out and dD.
template <class Io, class Form, class Team>
struct LowerRanks {
  const Mamba3BwdArgs& args;
  const Plan& plan;
  const Workspace& work;
  FactorMemory<Form>& memory;
  std::int64_t b, span, head;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int headdim = plan.headdim;
    team.for_all(kSpanRuns * headdim, [&](int i) { lower(i / headdim, i % headdim); });
    float* const sums = work.span_sums + ((b * plan.spans + span) * plan.nheads + head) * plan.factor_sums;
    team.for_all(kFactorSums<Form> * headdim, [&](int i) {
      float sum = 0;
      for (int run = 0; run < kSpanRuns; ++run) sum += memory.runs[run][i / headdim][i % headdim];
      if (i < plan.factor_sums - 1)
        sums[i] = sum;
      else
        memory.skips[i % headdim] = sum;
    });
    team.for_all(1, [&](int) {
      float sum = 0;
      for (int p = 0; p < headdim; ++p) sum += memory.skips[p];
      sums[plan.factor_sums - 1] = sum;
    });
  }

 private:
  static constexpr int kRanks = Form::kRanks;

  /// Factors of a head dim, and what is summed over time.
  struct Column {
    float up[kRanks], gate[kRanks], down[kRanks];
    float of_up[kRanks], of_gate[kRanks], of_down[kRanks], of_skip;
  };

  /// Every kSpanRuns-th step of the span from `run` on.
  SSMBENCH_TEAM void lower(int run, int p) const {
    Column column;
    for (int r = 0; r < kRanks; ++r) {
      column.up[r] = factor_of(args.in.mimo_v, plan, head, r, p);
      column.gate[r] = factor_of(args.in.mimo_z, plan, head, r, p);
      column.down[r] = factor_of(args.in.mimo_out, plan, head, r, p);
      column.of_up[r] = column.of_gate[r] = column.of_down[r] = 0;
    }
    column.of_skip = 0;
    const std::int64_t first = span * kSpanSteps;
    const int steps = static_cast<int>(plan.seqlen - first < kSpanSteps ? plan.seqlen - first : kSpanSteps);
    for (int t = run; t < steps; t += kSpanRuns) lower_step(first + t, p, column);
    for (int r = 0; r < kRanks; ++r) {
      memory.runs[run][r][p] = column.of_up[r];
      memory.runs[run][kRanks + r][p] = column.of_gate[r];
      memory.runs[run][2 * kRanks + r][p] = column.of_down[r];
    }
    memory.runs[run][3 * kRanks][p] = column.of_skip;
  }

  SSMBENCH_TEAM void lower_step(std::int64_t t, int p, Column& column) const {
    const Mamba3Args& in = args.in;
    const std::int64_t step = b * plan.seqlen + t;
    const std::int64_t at = (step * plan.nheads + head) * plan.headdim + p;
    const std::int64_t ranked = (step * kRanks * plan.nheads + head) * plan.headdim + p;
    const std::int64_t pitch = plan.nheads * plan.headdim;
    const float skip = in.D == nullptr ? 0.0F : in.D[head];
    const bool reads_y = needs_y(args);
    float y[kRanks], dv[kRanks], dout[kRanks];
    for (int r = 0; r < kRanks; ++r) {  // all loads before the first is waited for
      y[r] = reads_y ? Io::fetch(work.y + ranked + r * pitch) : 0.0F;
      dv[r] = Io::fetch(work.dv + ranked + r * pitch);
      dout[r] = Io::load(args.dout, dout_at(args, plan, step, head, r) + p);
    }
    const float v = Io::load(in.V, at);
    const float z = in.Z == nullptr ? 0.0F : Io::load(in.Z, at);
    float dV = 0;
    float dZ = 0;
    for (int r = 0; r < kRanks; ++r) {
      const float raised = v * column.up[r];
      const float of_y = dout[r] * column.down[r];
      const float full = y[r] + skip * raised;
      const ValueSlope gate = in.Z == nullptr ? ValueSlope{1.0F, 0.0F} : gate_of(z * column.gate[r]);
      const float dz = of_y * full * gate.slope;
      const float dy = of_y * gate.value;
      const float of_rank = dv[r] + skip * dy;
      dV += of_rank * column.up[r];
      dZ += dz * column.gate[r];
      column.of_up[r] += of_rank * v;
      column.of_gate[r] += dz * z;
      column.of_down[r] += dout[r] * full * gate.value;
      column.of_skip += dy * raised;
    }
    if (args.dfinal_v != nullptr && t + 1 == plan.seqlen)
      dV += Io::load(args.dfinal_v, (b * plan.nheads + head) * plan.headdim + p);
    Io::store(args.dV, at, dV);
    if (in.Z != nullptr) Io::store(args.dZ, at, dZ);
  }
};

/// The gradients of a head's factors and of D: sums over sequences and spans, column `first` and those after it.
template <class Team>
SSMBENCH_TEAM void add_spans(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& from,
                             std::int64_t head, int first, float* parts, const Team& team) {
  const int each = plan.ranks * plan.headdim;
  add_columns(
      from.span_sums, plan.batch * plan.spans, plan.nheads, plan.factor_sums, head, first, parts, team,
      [&](int column, float sum) {
        if (column == 3 * each) {
          if (args.dD != nullptr) args.dD[head] = sum;
          return;
        }
        if (column < each && args.in.input_v != nullptr)
          for (std::int64_t b = 0; b < plan.batch; ++b)
            sum += from.first_ups[(b * plan.nheads + head) * each + column];
        float* const to = column < each ? args.dmimo_v : column < 2 * each ? args.dmimo_z : args.dmimo_out;
        if (to != nullptr) to[head * each + column % each] = sum;
      });
}

}  // namespace ssmbench::mamba3_bwd
