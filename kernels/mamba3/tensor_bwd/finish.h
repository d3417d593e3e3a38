#pragma once

// What comes after the products of cuda-chunked's gradients of Mamba-3: sums over time, heads and sequences. Team
// and Io as in prepare.h.

#include <cmath>
#include <cstdint>

#include "kernels/mamba3/tensor_bwd/prepare.h"

namespace ssmbench::mamba3_bwd {

/// Σ dθ of each chunk to those of all chunks after it, with the cotangent of the final angle; at the end that is
/// the gradient of the input angle. `at`: of (batch, head, pair).
SSMBENCH_TEAM inline void add_turns(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                                    std::int64_t at) {
  const std::int64_t b = at / plan.angles / plan.nheads;
  float sum = args.dfinal_angle == nullptr ? 0.0F : args.dfinal_angle[at];
  float* const turns =
      to.turns + plan.row(b, 0, 0, plan.nheads) * plan.angles + at % (plan.nheads * plan.angles);
  const std::int64_t pitch = plan.nheads * plan.angles;
  for (std::int64_t last = plan.chunks - 1; last >= 0; last -= kBatch) {
    float shares[kBatch];
    for (int i = 0; i < kBatch; ++i) shares[i] = last >= i ? turns[(last - i) * pitch] : 0.0F;
    for (int i = 0; i < kBatch; ++i) {
      if (last >= i) turns[(last - i) * pitch] = sum;
      sum += shares[i];
    }
  }
  if (args.dinput_angle != nullptr) args.dinput_angle[at] = sum;
}

/// The gradients of the input k and V of a head, and ds of the step that they are of, from that of the state that
/// the head starts with.
template <class Io, class Team>
SSMBENCH_TEAM void store_start(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                               std::int64_t head, float* terms, const Team& team) {
  const int headdim = plan.headdim;
  const int dstate = plan.dstate;
  const float weight = scalars_of<Io>(args.in, head * plan.seqlen).previous();
  const float* const adjoint = args.dinput_ssm + head * headdim * dstate;
  const float* const k = args.in.input_k + head * dstate;
  const float* const v = args.in.input_v + head * headdim;
  team.for_all(dstate, [&](int n) {
    float read = 0;
    for (int p = 0; p < headdim; ++p) read += adjoint[p * dstate + n] * v[p];
    args.dinput_k[head * dstate + n] = weight * read;
    terms[n] = read * k[n];
  });
  team.for_all(headdim + 1, [&](int p) {
    float sum = 0;
    if (p == headdim) {
      for (int n = 0; n < dstate; ++n) sum += terms[n];
      to.first_own[head] = sum;
      return;
    }
    for (int n = 0; n < dstate; ++n) sum += adjoint[p * dstate + n] * k[n];
    args.dinput_v[head * headdim + p] = weight * sum;
  });
}

/// Memory of a block that finishes a row.
struct FinishMemory {
  float turns[kSteps * (kMaxAngles +
                        1)];  ///< [step][pair], a float between rows: Σ dθ to the end of the part; then ω·Θ
  float parts[kParts * kMaxAngles];  ///< [part][pair]: behind the part
  float flows[kFlowRows][kSteps];
  float past[kSteps];  ///< what flows past a step
};

/// dAngles, dADT, dDT and dTrap of a row.
template <class Io, class Team>
struct Finish {
  const Mamba3BwdArgs& args;
  const Plan& plan;
  const Workspace& from;
  FinishMemory& memory;
  Row row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int angles = plan.angles;
    team.for_all(kParts * angles + kFlowRows * kSteps, [&](int i) {
      const int flow = i - kParts * angles;
      if (flow < 0) return add_part(i / angles, i % angles);
      memory.flows[flow / kSteps][flow % kSteps] =
          Io::fetch(from.flows + row.index * kFlowRows * kSteps + flow);
    });
    team.for_all(kSteps + angles, [&](int i) {
      if (i < kSteps) return add_flows(i);
      float sum = from.turns[row.index * angles + i - kSteps];
      for (int part = kParts - 1; part >= 0; --part) {
        float& behind = memory.parts[part * angles + i - kSteps];
        const float share = behind;
        behind = sum;
        sum += share;
      }
    });
    team.for_all(kParts * angles, [&](int i) { store_rates(i / angles, i % angles); });
    team.for_all(row.steps, [&](int t) { store_scalars(t); });
  }

 private:
  SSMBENCH_TEAM float& turn(int t, int pair) const { return memory.turns[t * (plan.angles + 1) + pair]; }

  SSMBENCH_TEAM void add_part(int part, int pair) const {
    float terms[kPartSteps];
    for (int u = 0; u < kPartSteps; ++u) {
      const int t = part * kPartSteps + u;
      terms[u] = t < row.steps ? Io::fetch(from.dtheta + row.step(plan, t) * plan.angles + pair) : 0.0F;
    }
    float sum = 0;
    for (int u = kPartSteps - 1; u >= 0; --u) {
      sum += terms[u];
      turn(part * kPartSteps + u, pair) = sum;
    }
    memory.parts[part * plan.angles + pair] = sum;
  }

  SSMBENCH_TEAM void add_flows(int t) const {
    float sum = 0;
    for (int u = 0; u < kSteps; ++u) sum += memory.flows[u < t ? kFlowIn : kFlowOut][u];
    memory.past[t] = sum;
  }

  SSMBENCH_TEAM void store_rates(int part, int pair) const {
    constexpr float kPi = 0.5F * kTurnInRadians;
    const int first = part * kPartSteps;
    float dt[kPartSteps], rates[kPartSteps];
    for (int u = 0; u < kPartSteps; ++u) {  // all loads before the first is waited for
      const int t = first + u < row.steps ? first + u : row.steps - 1;
      dt[u] = Io::fetch(args.in.dt + row.scalar(plan, t));
      rates[u] = Io::load(args.in.rates, row.step(plan, t) * plan.angles + pair);
    }
    const float behind = memory.parts[part * plan.angles + pair];
    for (int u = 0; u < kPartSteps && first + u < row.steps; ++u) {
      const int t = first + u;
      const float rate = tanhf(rates[u]);
      const float theta = turn(t, pair) + behind;
      Io::store(args.drates, row.step(plan, t) * plan.angles + pair,
                kPi * (1.0F - rate * rate) * dt[u] * theta);
      turn(t, pair) = kPi * rate * theta;
    }
  }

  /// ds of the step before.
  SSMBENCH_TEAM float before(int t) const {
    if (t > 0) return memory.flows[kFlowScale][t - 1];
    if (row.chunk > 0)
      return from.flows[((row.index - plan.nheads) * kFlowRows + kFlowScale) * kSteps + kSteps - 1];
    return args.in.input_ssm == nullptr ? 0.0F : from.first_own[row.b * plan.nheads + row.head];
  }

  SSMBENCH_TEAM void store_scalars(int t) const {
    const std::int64_t at = row.scalar(plan, t);
    const StepScalars step = scalars_of<Io>(args.in, at);
    const float earlier = before(t);
    const float now = memory.flows[kFlowScale][t] + memory.flows[kFlowOwn][t];
    float turned = 0;
    for (int pair = 0; pair < plan.angles; ++pair) turned += turn(t, pair);
    // Nothing flows past the first step where no state enters: the sums cancel there, but for their rounding.
    const bool enters = row.start + t > 0 || args.in.input_ssm != nullptr;
    args.dadt[at] = enters ? memory.past[t] : 0.0F;
    args.ddt[at] = step.closed * earlier + step.open * now + turned;
    Io::store(args.dtrap, at, step.open * step.closed * step.dt * (now - earlier));
  }
};

/// dQ and dK, octet `at` of (batch, time, group, state): sums over the heads of the group, in order.
template <class Io>
SSMBENCH_TEAM void add_heads(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& from,
                             std::int64_t at) {
  const std::int64_t each = plan.nheads / plan.groups;
  const std::int64_t octets = plan.dstate / kOctet;
  const std::int64_t first = at / octets * each * plan.dstate + at % octets * kOctet;
  Octet dQ{};
  Octet dK{};
  const auto add = [](Octet& sum, const Octet& term) {
    for (int i = 0; i < kOctet; ++i) sum.state[i] += term.state[i];
  };
  for (std::int64_t head = 0; head < each; ++head) {
    add(dQ, Io::load_floats(from.dq + first + head * plan.dstate));
    add(dK, Io::load_floats(from.dk + first + head * plan.dstate));
  }
  Io::store_octet(args.dQ, kOctet * at, dQ);
  Io::store_octet(args.dK, kOctet * at, dK);
}

inline constexpr int kSumColumns = 32;
inline constexpr int kSumParts = 16;

/// The gradients of a head's biases and D: sums over sequences and chunks, column `first` and those after it.
/// `parts`: [kSumParts][kSumColumns].
template <class Team>
SSMBENCH_TEAM void add_rows(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& from,
                            std::int64_t head, int first, float* parts, const Team& team) {
  const int count = plan.sums - first < kSumColumns ? plan.sums - first : kSumColumns;
  team.for_all(kSumParts * kSumColumns, [&](int i) {
    float sum = 0;
    if (i % kSumColumns < count)
      for (std::int64_t part = i / kSumColumns; part < plan.batch * plan.chunks; part += kSumParts)
        sum += from.row_sums[(part * plan.nheads + head) * plan.sums + first + i % kSumColumns];
    parts[i] = sum;
  });
  team.for_all(count, [&](int i) {
    float sum = 0;
    for (int part = 0; part < kSumParts; ++part) sum += parts[part * kSumColumns + i];
    const int n = first + i;
    if (n < plan.dstate)
      args.dQ_bias[head * plan.dstate + n] = sum;
    else if (n < 2 * plan.dstate)
      args.dK_bias[head * plan.dstate + n - plan.dstate] = sum;
    else if (args.dD != nullptr)
      args.dD[head] = sum;
  });
}

}  // namespace ssmbench::mamba3_bwd
