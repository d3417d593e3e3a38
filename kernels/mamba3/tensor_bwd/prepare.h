#pragma once

// What comes before the products of cuda-chunked's gradients of Mamba-3: rotated q and k, and the numbers of each
// step. Written as loops over elements that do not depend on one another, Team::for_all(), as in
// chunked_bwd/gradients.h, so that CPU tests run the same code. Io: load(data, at) and store(data, at, value) of
// the io dtype, the same of an Octet, `at` a multiple of 8; load_floats() of eight floats; fetch(), the value at a
// pointer; and load_words() and store_words(), of an aligned vector of 16 bytes. What they load is not written by the
// same kernel.

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

/// Visits the increments of the phases of `kPartSteps` steps from `first` on: visit(step, increment), 0 where no step
/// is.
template <class Io, class Visit>
SSMBENCH_TEAM void for_increments(const Mamba3Args& args, const Plan& plan, const Row& row, int first,
                                  int pair, const Visit& visit) {
  float dt[kPartSteps], rates[kPartSteps];
  for (int u = 0; u < kPartSteps; ++u) {  // all loads before the first is waited for
    const int t = first + u < row.steps ? first + u : row.steps - 1;
    dt[u] = Io::fetch(args.dt + row.scalar(plan, t));
    rates[u] = Io::load(args.rates, row.step(plan, t) * plan.angles + pair);
  }
  for (int u = 0; u < kPartSteps; ++u)
    visit(first + u, first + u < row.steps ? phase_step(dt[u], rates[u]) : 0U);
}

/// What all steps of a row add to the phases, to `starts`. `parts`: [kParts][pair].
template <class Io, class Team>
SSMBENCH_TEAM void add_increments(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                                  const Row& row, std::uint32_t* parts, const Team& team) {
  const int angles = plan.angles;
  team.for_all(kParts * angles, [&](int i) {
    std::uint32_t sum = 0;
    for_increments<Io>(args, plan, row, i / angles * kPartSteps, i % angles,
                       [&](int, std::uint32_t increment) { sum += increment; });
    parts[i] = sum;
  });
  team.for_all(angles, [&](int pair) {
    std::uint32_t sum = 0;
    for (int part = 0; part < kParts; ++part) sum += parts[part * angles + pair];
    to.starts[row.index * angles + pair] = sum;
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

/// Runs of steps that an octet's rotation is cut into, and how many steps are loaded at once.
inline constexpr int kRuns = 16;
inline constexpr int kRunSteps = 2;

/// Memory of a block that prepares a row.
struct PrepareMemory {
  /// [step][pair], some floats between rows: from the part's first step on; then θ.
  std::uint32_t phases[kSteps * (kMaxAngles + kAngleVector)];
  std::uint32_t parts[kParts * kMaxAngles];  ///< [part][pair]
  float adt[kSteps];
};

/// A row's phases, its q and k, and the numbers of its steps.
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
    team.for_all(kParts * angles + kSteps, [&](int i) {
      const int t = i - kParts * angles;
      if (t < 0) return add_part(i / angles, i % angles);
      memory.adt[t] = t < row.steps ? Io::fetch(args.adt + row.scalar(plan, t)) : 0.0F;
    });
    team.for_all(kParts * angles + kSteps, [&](int i) {
      if (i < kParts * angles)
        add_before(i / angles, i % angles);
      else
        make_step(i - kParts * angles);
    });
    const int octets = plan.dstate / kOctet;
    const int vectors = plan.angle_tiles * kAngleTile / kAngleVector;
    team.for_all(vectors + kRuns * octets, [&](int i) {
      if (i < kRuns * octets)
        rotate(i / octets, i % octets);
      else
        store_phases(i - kRuns * octets);
    });
  }

 private:
  SSMBENCH_TEAM std::uint32_t& phase(int t, int pair) const {
    return memory.phases[t * (plan.angles + kAngleVector) + pair];
  }

  SSMBENCH_TEAM void add_part(int part, int pair) const {
    std::uint32_t sum = 0;
    for_increments<Io>(args, plan, row, part * kPartSteps, pair,
                       [&](int t, std::uint32_t increment) { phase(t, pair) = sum += increment; });
    memory.parts[part * plan.angles + pair] = sum;
  }
  SSMBENCH_TEAM void add_before(int part, int pair) const {
    std::uint32_t before = Io::fetch(to.starts + row.index * plan.angles + pair);
    for (int earlier = 0; earlier < part; ++earlier) before += memory.parts[earlier * plan.angles + pair];
    for (int u = 0; u < kPartSteps; ++u) phase(part * kPartSteps + u, pair) += before;
  }

  /// A vector of an angle tile.
  SSMBENCH_TEAM void store_phases(int vector) const {
    constexpr int kTileVectors = kAngleTile / kAngleVector;
    std::uint32_t of_pairs[kAngleVector];
    for (int i = 0; i < kAngleVector; ++i) {
      const AngleAt at = angle_at(vector % kTileVectors * kAngleVector + i);
      const int pair = vector / kTileVectors * kTilePairs + at.pair;
      of_pairs[i] = pair < plan.angles ? phase(at.t, pair) : 0U;
    }
    Io::store_words(to.phases + plan.angle_tile(row.index, 0) + vector * kAngleVector, of_pairs);
  }

  /// Sums from the chunk's first step on, so that the last step's weight behind it is exactly 1.
  SSMBENCH_TEAM void make_step(int t) const {
    float decay = 0;
    float total = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 16
#endif
    for (int u = 0; u < kSteps; ++u) {
      const float adt = memory.adt[u];
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
    const Octet of_q = Io::load_floats(args.Q_bias + row.head * plan.dstate + octet * kOctet);
    const Octet of_k = Io::load_floats(args.K_bias + row.head * plan.dstate + octet * kOctet);
    const int rotated = plan.angles - octet * kPairs;  // of the octet's pairs, those below
    for (int begin = first; begin < row.steps; begin += kRuns * kRunSteps) {
      Octet q[kRunSteps], k[kRunSteps];
      for (int u = 0; u < kRunSteps; ++u) {  // all loads before the first is waited for
        const int t = begin + u * kRuns < row.steps ? begin + u * kRuns : row.steps - 1;
        q[u] = Io::load_octet(args.Q, row.vector(plan, t) + octet * kOctet);
        k[u] = Io::load_octet(args.K, row.vector(plan, t) + octet * kOctet);
      }
      for (int u = 0; u < kRunSteps; ++u) {
        const int t = begin + u * kRuns;
        if (t >= row.steps) break;
        for (int i = 0; i < kPairs; ++i) {
          const Turn turn = i < rotated ? turn_of(phase(t, octet * kPairs + i)) : Turn{1, 0};
          rotate_pair(q[u].state + 2 * i, of_q.state + 2 * i, turn);
          rotate_pair(k[u].state + 2 * i, of_k.state + 2 * i, turn);
        }
        const std::int64_t at = row.step(plan, t) * plan.dstate + octet * kOctet;
        Io::store_octet(to.q, at, q[u]);
        Io::store_octet(to.k, at, k[u]);
      }
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
