#pragma once

// What comes before the products of cuda-chunked's gradients of Mamba-3: rotated q and k, and the numbers of each
// step. Written as loops over elements that do not depend on one another, Team::for_all(), as in
// chunked_bwd/gradients.h, so that CPU tests run the same code. Io: load(data, at) and store(data, at, value) of
// the io dtype, the same of an Octet, `at` a multiple of 8; load_floats()
// of eight floats; and fetch(), the value at a pointer. What they load is not written by the same kernel.

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
  return {1.0F / (1.0F + expf(-trap)), 1.0F / (1.0F + expf(trap)), Io::fetch(args.dt + at)};
}

/// Parts that the steps of a chunk are cut into for sums over time, and how many steps each has.
inline constexpr int kParts = 8;
inline constexpr int kPartSteps = kSteps / kParts;
/// Chunks whose loads are all on their way before the first is waited for.
inline constexpr int kBatch = 16;

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
    float dt[kPartSteps], rates[kPartSteps];
    for (int u = 0; u < kPartSteps; ++u) {  // all loads before the first is waited for
      const int t = first + u < row.steps ? first + u : row.steps - 1;
      dt[u] = Io::fetch(args.dt + row.scalar(plan, t));
      rates[u] = Io::load(args.rates, row.step(plan, t) * angles + pair);
    }
    std::uint32_t sum = 0;
    for (int u = 0; u < kPartSteps; ++u) {
      if (first + u < row.steps) sum += phase_step(dt[u], rates[u]);
      memory.phases[(first + u) * angles + pair] = sum;
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
  std::uint32_t* const starts =
      to.starts + plan.row(b, 0, 0, plan.nheads) * plan.angles + at % (plan.nheads * plan.angles);
  const std::int64_t pitch = plan.nheads * plan.angles;
  for (std::int64_t first = 0; first < plan.chunks; first += kBatch) {
    std::uint32_t shares[kBatch];
    for (int i = 0; i < kBatch; ++i) shares[i] = first + i < plan.chunks ? starts[(first + i) * pitch] : 0U;
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < plan.chunks) starts[(first + i) * pitch] = phase;
      phase += shares[i];
    }
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

/// Items of a block that prepares a row: runs of steps of an octet, then steps.
inline constexpr int kRuns = 16;

/// A row's q and k, and the numbers of its steps.
template <class Io, class Team>
struct Preparation {
  const Mamba3Args& args;
  const Plan& plan;
  const Workspace& to;
  Row row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int octets = plan.dstate / kOctet;
    team.for_all(kRuns * octets + kSteps, [&](int i) {
      if (i < kRuns * octets)
        rotate(i / octets, i % octets);
      else
        make_step(i - kRuns * octets);
    });
  }

 private:
  /// Sums from the chunk's first step on, so that the last step's weight behind it is exactly 1.
  SSMBENCH_TEAM void make_step(int t) const {
    float decay = 0;
    float total = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 16
#endif
    for (int u = 0; u < kSteps; ++u) {
      const float adt = u < row.steps ? Io::fetch(args.adt + row.scalar(plan, u)) : 0.0F;
      total += adt;
      decay += u <= t ? adt : 0.0F;
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

  /// An octet of q and k of steps `first`, `first + kRuns` and so on.
  SSMBENCH_TEAM void rotate(int first, int octet) const {
    constexpr int kPairs = kOctet / 2;
    const float* const of_q = args.Q_bias + row.head * plan.dstate + octet * kOctet;
    const float* const of_k = args.K_bias + row.head * plan.dstate + octet * kOctet;
    float biases[2][kOctet];
    for (int i = 0; i < kOctet; ++i) {
      biases[0][i] = Io::fetch(of_q + i);
      biases[1][i] = Io::fetch(of_k + i);
    }
    const int rotated = plan.angles - octet * kPairs;  // of the octet's pairs, those below
    std::uint32_t starts[kPairs];
    for (int i = 0; i < kPairs; ++i)
      starts[i] = i < rotated ? Io::fetch(to.starts + row.index * plan.angles + octet * kPairs + i) : 0U;
    for (int t = first; t < row.steps; t += kRuns) {
      const std::int64_t from = row.vector(plan, t) + octet * kOctet;
      const std::int64_t at = row.step(plan, t);
      const std::uint32_t* const phases = to.phases + at * plan.angles + octet * kPairs;
      Octet q = Io::load_octet(args.Q, from);
      Octet k = Io::load_octet(args.K, from);
      for (int i = 0; i < kPairs; ++i) {
        const Turn turn = i < rotated ? turn_of(starts[i] + Io::fetch(phases + i)) : Turn{1, 0};
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
