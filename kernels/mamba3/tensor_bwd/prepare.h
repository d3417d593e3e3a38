#pragma once

// What comes before the products of cuda-chunked's gradients of Mamba-3: rotated q and k, and the numbers of each
// step. Written as loops over elements that do not depend on one another, Team::for_all(), as in
// chunked_bwd/gradients.h, so that CPU tests run the same code. Io: load(data, at) and store(data, at, value) of
// the io dtype, and the same of a pair from an even `at` on.

#include <cmath>
#include <cstdint>

#include "kernels/mamba3/args.h"
#include "kernels/mamba3/chunked_bwd/team.h"
#include "kernels/mamba3/phase.h"
#include "kernels/mamba3/tensor_bwd/plan.h"

namespace ssmbench::mamba3_bwd {

/// Two neighbouring states.
struct Pair {
  float first, second;
};

struct Turn {
  float cosine, sine;
};
/// On the GPU by the hardware's functions, 8 roundoffs at most within ±π: what is turned is rounded to 16 bits
/// before or after.
SSMBENCH_TEAM inline Turn turn_of(std::uint32_t phase) {
  const float angle = kTurnInRadians * turns_of_phase(phase);
#ifdef __CUDA_ARCH__
  return {__cosf(angle), __sinf(angle)};
#else
  return {cosf(angle), sinf(angle)};
#endif
}

/// λ, 1 − λ and DT of a step.
struct StepScalars {
  float open, closed, dt;
  SSMBENCH_TEAM float own() const { return open * dt; }  ///< γ
  SSMBENCH_TEAM float previous() const {
    return closed * dt;
  }  ///< what the input of the step before gets of it
};
template <class Io>
SSMBENCH_TEAM StepScalars scalars_of(const Mamba3Args& args, std::int64_t at) {
  const float trap = Io::load(args.trap, at);
  return {1.0F / (1.0F + expf(-trap)), 1.0F / (1.0F + expf(trap)), args.dt[at]};
}

template <class Io>
SSMBENCH_TEAM std::uint32_t increment_of(const Mamba3Args& args, const Plan& plan, const Row& row, int t,
                                         int pair) {
  return phase_step(args.dt[row.scalar(plan, t)],
                    Io::load(args.rates, row.step(plan, t) * plan.angles + pair));
}

/// A row's share of the phases, to `starts`: pair i of S.
template <class Io>
SSMBENCH_TEAM void add_increments(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                                  std::int64_t at) {
  const Row row(plan, at / plan.angles);
  const int pair = static_cast<int>(at % plan.angles);
  std::uint32_t sum = 0;
  for (int t = 0; t < row.steps; ++t) sum += increment_of<Io>(args, plan, row, t, pair);
  to.starts[at] = sum;
}

/// From shares to the phases before each chunk. `at`: of (batch, head, pair).
SSMBENCH_TEAM inline void add_starts(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                                     std::int64_t at) {
  const std::int64_t b = at / plan.angles / plan.nheads;
  std::uint32_t phase = args.input_angle == nullptr ? 0U : phase_of_radians(args.input_angle[at]);
  for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    std::uint32_t& start =
        to.starts[plan.row(b, chunk, 0, plan.nheads) * plan.angles + at % (plan.nheads * plan.angles)];
    const std::uint32_t share = start;
    start = phase;
    phase += share;
  }
}

/// The state that a head starts with: the input state with what the first step adds of the step before. `at`: of
/// (batch, head, P, N).
template <class Io>
SSMBENCH_TEAM void make_seed(const Mamba3Args& args, const Plan& plan, const Workspace& to, std::int64_t at) {
  const std::int64_t n = at % plan.dstate;
  const std::int64_t p = at / plan.dstate % plan.headdim;
  const std::int64_t head = at / plan.dstate / plan.headdim;
  const float weight = scalars_of<Io>(args, head * plan.seqlen).previous();
  to.seeds[at] = args.input_ssm[at] +
                 weight * args.input_v[head * plan.headdim + p] * args.input_k[head * plan.dstate + n];
}

/// Parts that the steps of a chunk are cut into for sums over time, and how many steps each has.
inline constexpr int kParts = 8;
inline constexpr int kPartSteps = kSteps / kParts;

/// Memory of a block that prepares a row.
struct PrepareMemory {
  std::uint32_t phases[kSteps * kMaxAngles];  ///< [step][pair]: from the part's first step on
  std::uint32_t parts[kParts * kMaxAngles];   ///< [part][pair]: before the part
  float decays[kSteps];                       ///< ADT
};

/// A row's q, k and phases, and the numbers of its steps.
template <class Io, class Team>
struct Preparation {
  const Mamba3Args& args;
  const Plan& plan;
  const Workspace& to;
  PrepareMemory& memory;
  Row row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int angles = plan.angles;
    team.for_all(kParts * angles, [&](int i) { add_part(i / angles, i % angles); });
    team.for_all(kSteps,
                 [&](int t) { memory.decays[t] = t < row.steps ? args.adt[row.scalar(plan, t)] : 0.0F; });
    team.for_all(kSteps + angles, [&](int i) {
      if (i < kSteps) return make_step(i);
      std::uint32_t phase = to.starts[row.index * angles + i - kSteps];
      for (int part = 0; part < kParts; ++part) {
        std::uint32_t& before = memory.parts[part * angles + i - kSteps];
        const std::uint32_t share = before;
        before = phase;
        phase += share;
      }
    });
    constexpr int kRuns = 4;
    const int pairs = plan.dstate / 2;
    team.for_all(kRuns * pairs, [&](int i) {
      const int pair = i % pairs;
      const std::int64_t bias = row.head * plan.dstate + 2 * pair;
      const Pair of_q{args.Q_bias[bias], args.Q_bias[bias + 1]};
      const Pair of_k{args.K_bias[bias], args.K_bias[bias + 1]};
      for (int t = i / pairs; t < row.steps; t += kRuns) rotate(t, pair, of_q, of_k);
    });
  }

 private:
  /// Phases of a pair from the part's first step on.
  SSMBENCH_TEAM void add_part(int part, int pair) const {
    std::uint32_t sum = 0;
    for (int t = part * kPartSteps; t < (part + 1) * kPartSteps; ++t) {
      if (t < row.steps) sum += increment_of<Io>(args, plan, row, t, pair);
      memory.phases[t * plan.angles + pair] = sum;
    }
    memory.parts[part * plan.angles + pair] = sum;
  }

  /// Sums from the chunk's first step on, so that the last step's weight behind it is exactly 1.
  SSMBENCH_TEAM void make_step(int t) const {
    float decay = 0;
    float total = 0;
    for (int u = 0; u < kSteps; ++u) {
      total += memory.decays[u];
      if (u == t) decay = total;
    }
    StepScalars here{0, 0, 0};
    float later = 0;
    if (t < row.steps) here = scalars_of<Io>(args, row.scalar(plan, t));
    if (t < row.steps && row.start + t + 1 < plan.seqlen)
      later = scalars_of<Io>(args, row.scalar(plan, t) + 1).previous();
    float* const steps = to.steps + row.index * kStepFloats * kSteps + t;
    steps[kStepDelta * kSteps] = here.own() + later;
    steps[kStepDecay * kSteps] = decay;
    steps[kStepEnter * kSteps] = expf(decay);
    steps[kStepLeave * kSteps] = expf(total - decay);
    to.owns[row.index * kSteps + t] = here.own();
  }

  /// A pair of q and k of step t, and its phase.
  SSMBENCH_TEAM void rotate(int t, int pair, Pair of_q, Pair of_k) const {
    Turn turn{1, 0};
    if (pair < plan.angles) {
      const std::uint32_t phase =
          memory.phases[t * plan.angles + pair] + memory.parts[t / kPartSteps * plan.angles + pair];
      turn = turn_of(phase);
      to.phases[row.step(plan, t) * plan.angles + pair] = phase;
    }
    const std::int64_t from = row.vector(plan, t) + 2 * pair;
    const std::int64_t at = row.step(plan, t) * plan.dstate + 2 * pair;
    const Pair q = Io::load_pair(args.Q, from);  // both before the first store, which might change them
    const Pair k = Io::load_pair(args.K, from);
    const auto turned = [&](Pair x, Pair bias) {
      const float x0 = x.first + bias.first;
      const float x1 = x.second + bias.second;
      return Pair{x0 * turn.cosine - x1 * turn.sine, x0 * turn.sine + x1 * turn.cosine};
    };
    Io::store_pair(to.q, at, turned(q, of_q));
    Io::store_pair(to.k, at, turned(k, of_k));
  }
};

}  // namespace ssmbench::mamba3_bwd
