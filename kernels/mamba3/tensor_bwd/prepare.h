#pragma once

// What comes before the products of cuda-chunked's gradients of Mamba-3: rotated q and k, and the numbers of each
// step. Written as loops over elements that do not depend on one another, Team::for_all(), as in
// chunked_bwd/gradients.h, so that CPU tests run the same code. Io: load(data, at) and store(data, at, value) of
// the io dtype, and the same of an Octet, `at` a multiple of 8.

#include <cmath>
#include <cstdint>

#include "kernels/mamba3/args.h"
#include "kernels/mamba3/chunked_bwd/team.h"
#include "kernels/mamba3/phase.h"
#include "kernels/mamba3/tensor_bwd/plan.h"

namespace ssmbench::mamba3_bwd {

/// Neighbouring states: 16 bytes of the io dtype.
inline constexpr int kOctet = 8;
struct Octet {
  float state[kOctet];
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

/// Parts that the steps of a chunk are cut into for sums over time, and how many steps each has.
inline constexpr int kParts = 8;
inline constexpr int kPartSteps = kSteps / kParts;

struct IncrementMemory {
  std::uint32_t phases[kSteps * kMaxAngles];  ///< [step][pair]: from the part's first step on
  std::uint32_t parts[kParts * kMaxAngles];   ///< [part][pair]
};

/// Phases of a row from the chunk's first step on, and what all of its steps add, to `starts`.
template <class Io, class Team>
SSMBENCH_TEAM void add_increments(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                                  const Row& row, IncrementMemory& memory, const Team& team) {
  const int angles = plan.angles;
  team.for_all(kParts * angles, [&](int i) {
    const int first = i / angles * kPartSteps;
    const int pair = i % angles;
    std::uint32_t sum = 0;
    for (int t = first; t < first + kPartSteps; ++t) {
      if (t < row.steps)
        sum +=
            phase_step(args.dt[row.scalar(plan, t)], Io::load(args.rates, row.step(plan, t) * angles + pair));
      memory.phases[t * angles + pair] = sum;
    }
    memory.parts[i] = sum;
  });
  team.for_all(kParts * angles, [&](int i) {
    const int part = i / angles;
    const int pair = i % angles;
    std::uint32_t before = 0;
    for (int u = 0; u < part; ++u) before += memory.parts[u * angles + pair];
    for (int t = part * kPartSteps; t < (part + 1) * kPartSteps && t < row.steps; ++t)
      to.phases[row.step(plan, t) * angles + pair] = before + memory.phases[t * angles + pair];
    if (part == kParts - 1) to.starts[row.index * angles + pair] = before + memory.parts[i];
  });
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

/// A row's q and k, and the numbers of its steps. `decays`: memory for kSteps.
template <class Io, class Team>
struct Preparation {
  const Mamba3Args& args;
  const Plan& plan;
  const Workspace& to;
  float* decays;
  Row row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    team.for_all(kSteps, [&](int t) { decays[t] = t < row.steps ? args.adt[row.scalar(plan, t)] : 0.0F; });
    team.for_all(kSteps, [&](int t) { make_step(t); });
    constexpr int kRuns = 16;
    const int octets = plan.dstate / kOctet;
    team.for_all(kRuns * octets, [&](int i) { rotate(i / octets, kRuns, i % octets); });
  }

 private:
  /// Sums from the chunk's first step on, so that the last step's weight behind it is exactly 1.
  SSMBENCH_TEAM void make_step(int t) const {
    float decay = 0;
    float total = 0;
    for (int u = 0; u < kSteps; ++u) {
      total += decays[u];
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

  /// An octet of q and k of steps `first`, `first + each` and so on.
  SSMBENCH_TEAM void rotate(int first, int each, int octet) const {
    constexpr int kPairs = kOctet / 2;
    const float* const of_q = args.Q_bias + row.head * plan.dstate + octet * kOctet;
    const float* const of_k = args.K_bias + row.head * plan.dstate + octet * kOctet;
    float biases[2][kOctet];
    for (int i = 0; i < kOctet; ++i) {
      biases[0][i] = of_q[i];
      biases[1][i] = of_k[i];
    }
    const int rotated = plan.angles - octet * kPairs;  // of the octet's pairs, those below
    std::uint32_t starts[kPairs];
    for (int i = 0; i < kPairs; ++i)
      starts[i] = i < rotated ? to.starts[row.index * plan.angles + octet * kPairs + i] : 0U;
    for (int t = first; t < row.steps; t += each) {
      const std::int64_t from = row.vector(plan, t) + octet * kOctet;
      const std::int64_t at = row.step(plan, t);
      const std::uint32_t* const phases = to.phases + at * plan.angles + octet * kPairs;
      Octet q = Io::load_octet(args.Q, from);  // both before the first store, which might change them
      Octet k = Io::load_octet(args.K, from);
      for (int i = 0; i < kPairs; ++i) {
        const Turn turn = i < rotated ? turn_of(starts[i] + phases[i]) : Turn{1, 0};
        rotate_pair(q.state + 2 * i, biases[0] + 2 * i, turn);
        rotate_pair(k.state + 2 * i, biases[1] + 2 * i, turn);
      }
      Io::store_octet(to.q, at * plan.dstate + octet * kOctet, q);
      Io::store_octet(to.k, at * plan.dstate + octet * kOctet, k);
    }
  }

  SSMBENCH_TEAM static void rotate_pair(float* x, const float* bias, Turn turn) {
    const float x0 = x[0] + bias[0];
    const float x1 = x[1] + bias[1];
    x[0] = x0 * turn.cosine - x1 * turn.sine;
    x[1] = x0 * turn.sine + x1 * turn.cosine;
  }
};

}  // namespace ssmbench::mamba3_bwd
