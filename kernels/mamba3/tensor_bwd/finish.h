#pragma once

// What comes after the products of cuda-chunked's gradients of Mamba-3: sums over time, heads and sequences. Team
// and Io as in prepare.h.

#include <cmath>
#include <cstdint>

#include "kernels/mamba3/tensor_bwd/prepare.h"

namespace ssmbench::mamba3_bwd {

/// Σ dθ of each chunk to those of all chunks after it, with the cotangent of the final angle; at the end that is
/// the gradient of the input angle.
template <class Team>
SSMBENCH_TEAM void add_turns(const Mamba3BwdArgs& args, const Workspace& to,
                             const ChunkScan<float, Team>& scan) {
  const Plan& plan = scan.plan;
  scan.run(
      [&](int head, int pair) -> ChunkColumn<float> {
        const auto nheads = static_cast<int>(plan.nheads);
        const ChunkRun chunks = chunks_of(plan, to, head / nheads);
        const std::int64_t last = (chunks.first + chunks.count - 1) * nheads + head % nheads;
        const float after =
            args.dfinal_angle == nullptr ? 0.0F : args.dfinal_angle[std::int64_t{head} * plan.angles + pair];
        return {after, to.turns + last * plan.angles + pair, -plan.nheads * plan.angles, chunks.count};
      },
      [&](int head, int pair, float sum) {
        if (args.dinput_angle != nullptr) args.dinput_angle[std::int64_t{head} * plan.angles + pair] = sum;
      });
}

/// Where SSD's walk leaves the gradients of the states that sequences start with.
SSMBENCH_HD inline float* first_adjoint_of(const Mamba3BwdArgs& args, const Plan& plan,
                                           const Workspace& work) {
  return plan.halves ? work.first_adjoint : args.dinput_ssm;
}

/// The gradients of the input states of a head whose sequence has no steps: those of the final states, which they are.
template <class Io, class Team>
SSMBENCH_TEAM void pass_cotangents(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                                   std::int64_t head, const Team& team) {
  const int headdim = plan.headdim;
  const int dstate = plan.dstate;
  const bool given = args.dfinal_ssm != nullptr;
  const std::int64_t state = head * headdim * dstate;
  team.for_all(headdim * dstate,
               [&](int i) { args.dinput_ssm[state + i] = given ? args.dfinal_ssm[state + i] : 0.0F; });
  team.for_all(plan.ranks * dstate, [&](int i) {
    const std::int64_t at = k_state_at(plan, head, i / dstate) + i % dstate;
    args.dinput_k[at] = given ? args.dfinal_k[at] : 0.0F;
  });
  team.for_all(headdim, [&](int p) {
    const std::int64_t at = head * headdim + p;
    args.dinput_v[at] = given ? Io::load(args.dfinal_v, at) : 0.0F;
  });
  if (!args.in.scan.is_mimo) return;
  team.for_all(plan.ranks * headdim, [&](int i) { to.first_ups[head * plan.ranks * headdim + i] = 0; });
}

/// The gradients of the input states of a head, and ds of the step that they are of, from that of the state that the
/// head starts with. `terms`: [rank][state].
template <class Io, class Team>
SSMBENCH_TEAM void store_start(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                               std::int64_t head, float* terms, const Team& team) {
  const int headdim = plan.headdim;
  const int dstate = plan.dstate;
  if (is_empty(args.in, plan, head / plan.nheads)) return pass_cotangents<Io>(args, plan, to, head, team);
  const float weight = scalars_of<Io>(args.in, first_scalar(args.in, plan, head)).previous();
  const float* const adjoint = first_adjoint_of(args, plan, to) + head * headdim * dstate;
  const float* const v = args.in.input_v + head * headdim;
  const auto factor = [&](int r, int p) { return factor_of(args.in.mimo_v, plan, head % plan.nheads, r, p); };
  team.for_all(plan.ranks * dstate, [&](int i) {
    const int r = i / dstate;
    const int n = i % dstate;
    const std::int64_t at = k_state_at(plan, head, r) + plan.state_of(n);
    float read = 0;
    for (int p = 0; p < headdim; ++p) read += adjoint[p * dstate + n] * (factor(r, p) * v[p]);
    args.dinput_k[at] = weight * read;
    terms[i] = read * args.in.input_k[at];
  });
  team.for_all(headdim + 1, [&](int p) {
    float sum = 0;
    if (p == headdim) {
      for (int i = 0; i < plan.ranks * dstate; ++i) sum += terms[i];
      to.first_own[head] = sum;
      return;
    }
    for (int r = 0; r < plan.ranks; ++r) {
      float read = 0;
      for (int n = 0; n < dstate; ++n)
        read += adjoint[p * dstate + n] * args.in.input_k[k_state_at(plan, head, r) + plan.state_of(n)];
      sum += factor(r, p) * (weight * read);
      if (args.in.scan.is_mimo) to.first_ups[(head * plan.ranks + r) * headdim + p] = weight * read * v[p];
    }
    args.dinput_v[head * headdim + p] = sum;
  });
  if (!plan.halves) return;
  float* const dinput = args.dinput_ssm + head * headdim * dstate;
  team.for_all(headdim * dstate,
               [&](int i) { dinput[i - i % dstate + plan.state_of(i % dstate)] = adjoint[i]; });
}

/// Parts that the sums over a step's pairs are cut into.
inline constexpr int kQuarters = 4;

/// What the gradients of a span's steps are made of.
struct alignas(16) StepFlows {
  float flows[kFlowRows][kSteps];
  float run_flows[2][kSpanSums];  ///< sums of kFlowOut and kFlowIn
  float past[kSteps];             ///< what flows past a step
  float before[kSteps];           ///< ds of the step before
  StepScalars steps[kSteps];
};

/// dADT, dDT and dTrap of a span's steps: what flows, then its sums over runs, then what flows past steps, then theirs.
template <class Io, class Form>
struct StepGradients {
  const Mamba3BwdArgs& args;
  const Plan& plan;
  const Workspace& from;
  StepFlows& memory;
  const Span& row;

  /// One of [flow][step], from memory.
  SSMBENCH_TEAM float flow_at(int at) const {
    const int t = at % kSpanSteps;
    const std::int64_t flows = row.row_of(plan, t / kEach) * kFlowRows + at / kSpanSteps;
    return t / kEach * kEach < row.steps ? Io::fetch(from.flows + flows * kSteps + t % kEach) : 0.0F;
  }
  SSMBENCH_TEAM void keep_flow(int at, float flow) const {
    memory.flows[at / kSpanSteps][at % kSpanSteps] = flow;
  }
  /// What there is of a step.
  SSMBENCH_TEAM void load_step(int t) const {
    memory.before[t] = before(t);
    memory.steps[t] = scalars_of<Io>(args.in, row.scalar(plan, t));
  }
  /// One of [flow][step], and with the first ones what there is of the step.
  SSMBENCH_TEAM void load_flow(int at) const {
    keep_flow(at, flow_at(at));
    if (at < row.steps) load_step(at);
  }
  /// One of [kFlowOut, kFlowIn][run].
  SSMBENCH_TEAM void add_run(int at) const {
    const int run = at % kSpanSums;
    const int which = at / kSpanSums;
    float sum = 0;
    for (int u = 0; u < kSumSteps; ++u) sum += memory.flows[which][run * kSumSteps + u];
    memory.run_flows[which][run] = sum;
  }
  SSMBENCH_TEAM void add_past(int t) const { memory.past[t] = flows_past(t); }
  /// `of_rates`: Σ ω·Θ over the step's pairs.
  SSMBENCH_TEAM void store(int t, float of_rates) const {
    const std::int64_t to = row.scalar(plan, t);
    const StepScalars step = memory.steps[t];
    const float earlier = memory.before[t];
    const float now = memory.flows[kFlowScale][t] + memory.flows[kFlowOwn][t];
    // Nothing flows past the first step where no state enters: the sums cancel there, but for their rounding.
    const bool enters = !row.opens || t > 0 || args.in.input_ssm != nullptr;
    args.dadt[to] = enters ? memory.past[t] : 0.0F;
    args.ddt[to] = step.closed * earlier + step.open * now + of_rates;
    Io::store(args.dtrap, to, step.open * step.closed * step.dt * (now - earlier));
  }

 private:
  static constexpr int kEach = kChunkSteps<Form>;

  /// What flows past step t within its chunk: into the state before it, and out of it from there on.
  SSMBENCH_TEAM float flows_past(int t) const {
    const int own = t / kSumSteps;
    const int first = own / kSums<Form> * kSums<Form>;
    float sum = 0;
    for (int u = own * kSumSteps; u < (own + 1) * kSumSteps; ++u)
      sum += memory.flows[u < t ? kFlowIn : kFlowOut][u];
    for (int run = first; run < first + kSums<Form>; ++run)
      if (run != own) sum += memory.run_flows[run < own ? kFlowIn : kFlowOut][run];
    return sum;
  }

  /// ds of the step before.
  SSMBENCH_TEAM float before(int t) const {
    if (row.opens && t == 0)
      return args.in.input_ssm == nullptr ? 0.0F : from.first_own[row.sequence * plan.nheads + row.head];
    // The chunk before the span is a row before it.
    const int earlier = t - 1 + kEach;
    const std::int64_t scales = row.row_of(plan, earlier / kEach - 1) * kFlowRows + kFlowScale;
    return Io::fetch(from.flows + scales * kSteps + earlier % kEach);
  }
};

/// Memory of a block that finishes a span.
struct alignas(16) FinishMemory {
  float turns[kSteps * kMaxAnglePitch];  ///< [step][pair]: Σ dθ from the step to the end of its run; then ω·Θ
  float runs[kSpanSums][kMaxAngles];  ///< Σ dθ
  float quarters[kQuarters][kSteps];
  StepFlows flows;
};

/// dAngles, dADT, dDT and dTrap of a span, whose chunks are as many as there are ranks. A thread has a pair of a run of
/// steps.
template <class Io, class Form, class Team>
struct Finish {
  const Mamba3BwdArgs& args;
  const Plan& plan;
  const Workspace& from;
  FinishMemory& memory;
  Span row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int of_runs = kSpanSums * plan.angles;
    team.for_all(of_runs + kFlowRows * kSpanSteps, [&](int i) {
      const Split at = split<kTilePairs>(i, plan.angles);
      if (i < of_runs) return load_turns(at.of, at.rest);
      flows().load_flow(i - of_runs);
    });
    team.for_all(of_runs + 2 * kSpanSums, [&](int i) {
      const Split at = split<kTilePairs>(i, plan.angles);
      if (i < of_runs) return store_rates(at.of, at.rest);
      flows().add_run(i - of_runs);
    });
    constexpr int kTurned = kQuarters * kSpanSteps;
    team.for_all(kTurned + kSpanSteps, [&](int i) {
      if (i < kTurned) return add_turned(i % kQuarters, i / kQuarters);
      flows().add_past(i - kTurned);
    });
    team.for_all(row.steps, [&](int t) {
      float of_rates = 0;
      for (int quarter = 0; quarter < kQuarters; ++quarter) of_rates += memory.quarters[quarter][t];
      flows().store(t, of_rates);
    });
  }

 private:
  static constexpr int kEach = kChunkSteps<Form>;

  SSMBENCH_TEAM int pitch() const { return angle_pitch(plan); }
  SSMBENCH_TEAM StepGradients<Io, Form> flows() const { return {args, plan, from, memory.flows, row}; }

  /// dθ of a run's steps, summed from the last one on.
  SSMBENCH_TEAM void load_turns(int run, int pair) const {
    const int first = run * kSumSteps;
    float sum = 0;
    if (first < row.steps) {
      const float* const tile = from.dtheta +
                                plan.angle_tile(row.row_of(plan, first / kEach), pair / kTilePairs) +
                                angle_offset<Form::kRanks>(first % kEach, pair % kTilePairs);
      float of_step[kSumSteps];
      for (int u = 0; u < kSumSteps; ++u) of_step[u] = Io::fetch(tile + angle_offset<Form::kRanks>(u, 0));
      float* const to = memory.turns + first * pitch() + pair;
      for (int u = kSumSteps - 1; u >= 0; --u) {
        sum += first + u < row.steps ? of_step[u] : 0.0F;
        to[u * pitch()] = sum;
      }
    }
    memory.runs[run][pair] = sum;
  }

  SSMBENCH_TEAM void store_rates(int run, int pair) const {
    constexpr float kPi = 0.5F * kTurnInRadians;
    const int first = run * kSumSteps;
    const int last = row.steps - 1 - first;
    if (last < 0) return;
    const int to_pitch = static_cast<int>(plan.nheads) * plan.angles;
    const std::int64_t at = row.step(plan, first) * plan.angles + pair;
    float rates[kSumSteps];
    for (int u = 0; u < kSumSteps; ++u)
      rates[u] = Io::template load_rate<Form::kIsMimo>(args.in.rates, at + (u < last ? u : last) * to_pitch);
    float behind = Io::fetch(from.turns + row.row_of(plan, first / kEach) * plan.angles + pair);
    for (int later = (run / kSums<Form> + 1) * kSums<Form> - 1; later > run; --later)
      behind += memory.runs[later][pair];
    float* const turns = memory.turns + first * pitch() + pair;
    for (int u = 0; u < kSumSteps; ++u) {
      if (u > last) break;
      const float rate = mamba3_hopper::fast_tanh(rates[u]);
      const float turn = kPi * (behind + turns[u * pitch()]);
      turns[u * pitch()] = rate * turn;
      Io::template store_rate<Form::kIsMimo>(args.drates, at + u * to_pitch,
                                             (1.0F - rate * rate) * memory.flows.steps[first + u].dt * turn);
    }
  }

  /// Σ ω·Θ over each fourth pair.
  SSMBENCH_TEAM void add_turned(int quarter, int t) const {
    const float* const turns = memory.turns + t * pitch();
    float sum = 0;
    for (int pair = quarter; pair < plan.angles; pair += kQuarters) sum += turns[pair];
    memory.quarters[quarter][t] = sum;
  }
};

/// dQ and dK, octet `at` of (batch, time, rank, group, state): sums over the heads of the group, in order.
template <class Io>
SSMBENCH_TEAM void add_heads(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& from,
                             std::int64_t at) {
  const std::int64_t each = plan.nheads / plan.groups;
  const std::int64_t octets = plan.dstate / kOctet;
  const std::int64_t row = at / octets;
  const int octet = static_cast<int>(at - row * octets);
  const std::int64_t first = row * each * plan.dstate + octet * kOctet;
  Octet dQ{};
  Octet dK{};
  const auto add = [](Octet& sum, const Octet& term) {
    for (int i = 0; i < kOctet; ++i) sum.state[i] += term.state[i];
  };
  for (std::int64_t head = 0; head < each; ++head) {
    add(dQ, Io::load_floats(from.dq + first + head * plan.dstate));
    add(dK, Io::load_floats(from.dk + first + head * plan.dstate));
  }
  store_states<Io>(plan, args.dQ, row * plan.dstate, octet, dQ);
  store_states<Io>(plan, args.dK, row * plan.dstate, octet, dK);
}

inline constexpr int kSumColumns = 32;
inline constexpr int kSumParts = 16;

/// Sums of a head's columns from `first` on, over `rows` rows of `width` numbers for each head: store(column, sum).
/// `parts`: [kSumParts][kSumColumns].
template <class Team, class Store>
SSMBENCH_TEAM void add_columns(const float* from, std::int64_t rows, std::int64_t nheads, int width,
                               std::int64_t head, int first, float* parts, const Team& team,
                               const Store& store) {
  const int count = width - first < kSumColumns ? width - first : kSumColumns;
  team.for_all(kSumParts * kSumColumns, [&](int i) {
    float sum = 0;
    if (i % kSumColumns < count)
      for (std::int64_t part = i / kSumColumns; part < rows; part += kSumParts)
        sum += from[(part * nheads + head) * width + first + i % kSumColumns];
    parts[i] = sum;
  });
  team.for_all(count, [&](int i) {
    float sum = 0;
    for (int part = 0; part < kSumParts; ++part) sum += parts[part * kSumColumns + i];
    store(first + i, sum);
  });
}

/// The gradients of a head's biases and D: sums over sequences and chunks, column `first` and those after it.
template <class Team>
SSMBENCH_TEAM void add_rows(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& from,
                            std::int64_t head, int first, float* parts, const Team& team) {
  const int biases = plan.ranks * plan.dstate;
  add_columns(from.row_sums, all_chunks(plan, from), plan.nheads, plan.sums, head, first, parts, team,
              [&](int column, float sum) {
                if (column == 2 * biases) {
                  if (args.dD != nullptr) args.dD[head] = sum;
                  return;
                }
                const int at = column % biases;
                const int n = at % plan.dstate;
                (column < biases ? args.dQ_bias : args.dK_bias)[head * biases + at - n + plan.state_of(n)] =
                    sum;
              });
}

}  // namespace ssmbench::mamba3_bwd
