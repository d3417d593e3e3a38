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

/// Where SSD's walk leaves the gradients of the states that sequences start with.
SSMBENCH_HD inline float* first_adjoint_of(const Mamba3BwdArgs& args, const Plan& plan,
                                           const Workspace& work) {
  return plan.halves ? work.first_adjoint : args.dinput_ssm;
}

/// The gradients of the input states of a head, and ds of the step that they are of, from that of the state that the
/// head starts with. `terms`: [rank][state].
template <class Io, class Team>
SSMBENCH_TEAM void store_start(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                               std::int64_t head, float* terms, const Team& team) {
  const int headdim = plan.headdim;
  const int dstate = plan.dstate;
  const float weight = scalars_of<Io>(args.in, head * plan.seqlen).previous();
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

/// Parts that the sums over a step's pairs, and those over steps, are cut into.
inline constexpr int kQuarters = 4;

/// Memory of a block that finishes a span.
struct alignas(16) FinishMemory {
  float turns[kSteps * kMaxAnglePitch];  ///< [step][pair]: dθ; then ω·Θ
  float parts[kSpanParts * kPartPitch];  ///< [part][pair]: Σ dθ; then that of all later steps
  float flows[kFlowRows][kSteps];
  float quarters[kQuarters][kSteps];
  float past[kSteps];    ///< what flows past a step
  float before[kSteps];  ///< ds of the step before
  StepScalars steps[kSteps];
};

/// dAngles, dADT, dDT and dTrap of a span, whose chunks are as many as there are ranks.
template <class Io, class Form, class Team>
struct Finish {
  const Mamba3BwdArgs& args;
  const Plan& plan;
  const Workspace& from;
  FinishMemory& memory;
  Span row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int angle_vectors_of_step = angle_vectors(plan);
    const int of_parts = kSpanParts * angle_vectors_of_step;
    const int vectors = Form::kRanks * plan.angle_tiles * plan.angle_elements() / kAngleVector;
    team.for_all(vectors + kFlowRows * kSpanSteps, [&](int i) {
      const int flow = i - vectors;
      if (flow < 0) return load_turns(i);
      const int t = flow % kSpanSteps;
      const std::int64_t flows = row.row_of(plan, t / kEach) * kFlowRows + flow / kSpanSteps;
      memory.flows[flow / kSpanSteps][t] =
          t / kEach * kEach < row.steps ? Io::fetch(from.flows + flows * kSteps + t % kEach) : 0.0F;
      if (flow < row.steps) load_step(flow);
    });
    team.for_all(of_parts + kQuarters * kSpanSteps, [&](int i) {
      const int quarter = i - of_parts;
      const Split at = split<kTileVectors>(i, angle_vectors_of_step);
      if (quarter < 0) return add_part(at.of, kAngleVector * at.rest);
      memory.quarters[quarter / kSpanSteps][quarter % kSpanSteps] =
          flows_of(quarter / kSpanSteps, quarter % kSpanSteps);
    });
    team.for_all(kSpanSteps + Form::kRanks * plan.angles, [&](int i) {
      const Split at = split<kTilePairs>(i - kSpanSteps, plan.angles);
      if (i >= kSpanSteps) return add_later(at.of, at.rest);
      memory.past[i] = quarters_of(i);
    });
    team.for_all(of_parts, [&](int i) {
      const Split at = split<kTileVectors>(i, angle_vectors_of_step);
      store_rates(at.of, kAngleVector * at.rest);
    });
    team.for_all(kQuarters * kSpanSteps, [&](int i) { add_turned(i % kQuarters, i / kQuarters); });
    team.for_all(row.steps, [&](int t) { store_scalars(t); });
  }

 private:
  static constexpr int kEach = kChunkSteps<Form>;

  SSMBENCH_TEAM int pitch() const { return angle_pitch(plan); }

  /// A vector of the angle tiles of the span: [tile][chunk][vector].
  SSMBENCH_TEAM void load_turns(int index) const {
    constexpr int kVectors = kAngleTile / Form::kRanks / kAngleVector;  // of a tile
    constexpr int kApart = kApartSteps / Form::kRanks;
    const int tile = index / kVectors / Form::kRanks;
    const int chunk = index / kVectors % Form::kRanks;
    const AngleAt at = angle_at<Form::kRanks>(index % kVectors);
    const int t = chunk * kEach + at.t;
    float vector[kAngleVector] = {};
    if (chunk * kEach < row.steps)
      Io::load_words(vector, from.dtheta + plan.angle_tile(row.row_of(plan, chunk), tile) +
                                 index % kVectors * kAngleVector);
    const int pair = tile * kTilePairs + at.pair;
    float* const to = memory.turns + t * pitch() + pair;
    const bool first = t < row.steps;
    const bool second = t + kApart < row.steps;
    if (pair < plan.angles) {
      to[0] = first ? vector[0] : 0.0F;
      to[kApart * pitch()] = second ? vector[1] : 0.0F;
    }
    if (pair + kApartPairs < plan.angles) {
      to[kApartPairs] = first ? vector[2] : 0.0F;
      to[kApart * pitch() + kApartPairs] = second ? vector[3] : 0.0F;
    }
  }

  SSMBENCH_TEAM void load_step(int t) const {
    memory.before[t] = before(t);
    memory.steps[t] = scalars_of<Io>(args.in, row.scalar(plan, t));
  }

  SSMBENCH_TEAM void add_part(int part, int pair) const {
    const float* const turns = memory.turns + part * kPartSteps * pitch() + pair;
    float sums[kAngleVector] = {};
    for (int u = kPartSteps - 1; u >= 0; --u) {
      float of_step[kAngleVector];
      Io::load_shared(of_step, turns + u * pitch());
      for (int i = 0; i < kAngleVector; ++i) sums[i] += of_step[i];
    }
    Io::store_words(memory.parts + part * kPartPitch + pair, sums);
  }

  SSMBENCH_TEAM void add_later(int chunk, int pair) const {
    if (chunk * kEach >= row.steps) return;
    float* const parts = memory.parts + chunk * kParts<Form> * kPartPitch + pair;
    float sums[kParts<Form>];
    for (int part = 0; part < kParts<Form>; ++part) sums[part] = parts[part * kPartPitch];
    float behind = Io::fetch(from.turns + row.row_of(plan, chunk) * plan.angles + pair);
    for (int part = kParts<Form> - 1; part >= 0; --part) {
      parts[part * kPartPitch] = behind;
      behind += sums[part];
    }
  }

  /// What flows past step t of the steps of a quarter of its chunk.
  SSMBENCH_TEAM float flows_of(int quarter, int t) const {
    constexpr int kOfQuarter = kEach / kQuarters;
    const int first = t / kEach * kEach + quarter * kOfQuarter;
    float sum = 0;
    for (int u = first; u < first + kOfQuarter; ++u) sum += memory.flows[u < t ? kFlowIn : kFlowOut][u];
    return sum;
  }

  SSMBENCH_TEAM float quarters_of(int t) const {
    float sum = 0;
    for (int quarter = 0; quarter < kQuarters; ++quarter) sum += memory.quarters[quarter][t];
    return sum;
  }

  SSMBENCH_TEAM void store_rates(int part, int pair) const {
    constexpr float kPi = 0.5F * kTurnInRadians;
    const int first = part * kPartSteps;
    if (first >= row.steps) return;
    const int to_pitch = static_cast<int>(plan.nheads) * plan.angles;
    const bool whole = plan.angles % kAngleVector == 0;
    Rates rates[kPartSteps];
    load_rates<Io, Form>(args.in, plan, row, part, pair, rates);
    float sums[kAngleVector];
    Io::load_shared(sums, memory.parts + part * kPartPitch + pair);
    float* const turns = memory.turns + first * pitch() + pair;
    const std::int64_t at = row.step(plan, first) * plan.angles + pair;
    for (int u = kPartSteps - 1; u >= 0; --u) {
      if (first + u >= row.steps) continue;
      float of_step[kAngleVector];
      Io::load_shared(of_step, turns + u * pitch());
      const float scale = kPi * memory.steps[first + u].dt;
      Rates gradients;
      for (int i = 0; i < kAngleVector; ++i) {
        const float rate = mamba3_hopper::fast_tanh(rates[u][i]);
        sums[i] += of_step[i];
        of_step[i] = kPi * rate * sums[i];
        gradients[i] = (1.0F - rate * rate) * scale * sums[i];
      }
      Io::store_words(turns + u * pitch(), of_step);
      if (whole) {
        Io::template store_rates<Form::kIsMimo>(args.drates, at + u * to_pitch, gradients);
        continue;
      }
      for (int i = 0; i < kAngleVector && pair + i < plan.angles; ++i)
        Io::template store_rate<Form::kIsMimo>(args.drates, at + u * to_pitch + i, gradients[i]);
    }
  }

  /// Σ ω·Θ over each fourth pair.
  SSMBENCH_TEAM void add_turned(int quarter, int t) const {
    const float* const turns = memory.turns + t * pitch();
    float sum = 0;
    for (int pair = quarter; pair < plan.angles; pair += kQuarters) sum += turns[pair];
    memory.quarters[quarter][t] = sum;
  }

  /// ds of the step before.
  SSMBENCH_TEAM float before(int t) const {
    if (row.start + t == 0)
      return args.in.input_ssm == nullptr ? 0.0F : from.first_own[row.b * plan.nheads + row.head];
    // The chunk before the span is a row before it.
    const int earlier = t - 1 + kEach;
    const std::int64_t scales = row.row_of(plan, earlier / kEach - 1) * kFlowRows + kFlowScale;
    return Io::fetch(from.flows + scales * kSteps + earlier % kEach);
  }

  SSMBENCH_TEAM void store_scalars(int t) const {
    const std::int64_t to = row.scalar(plan, t);
    const StepScalars step = memory.steps[t];
    const float earlier = memory.before[t];
    const float now = memory.flows[kFlowScale][t] + memory.flows[kFlowOwn][t];
    // Nothing flows past the first step where no state enters: the sums cancel there, but for their rounding.
    const bool enters = row.start + t > 0 || args.in.input_ssm != nullptr;
    args.dadt[to] = enters ? memory.past[t] : 0.0F;
    args.ddt[to] = step.closed * earlier + step.open * now + quarters_of(t);
    Io::store(args.dtrap, to, step.open * step.closed * step.dt * (now - earlier));
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
  add_columns(from.row_sums, plan.batch * plan.chunks, plan.nheads, plan.sums, head, first, parts, team,
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
