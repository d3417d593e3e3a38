#pragma once

// What comes before the products of cuda-chunked's gradients of Mamba-3: rotated q and k, and the numbers of each
// step. Written as loops over elements that do not depend on one another, Team::for_all(), as in
// chunked_bwd/gradients.h, so that CPU tests run the same code. Io: load(data, at) and store(data, at, value) of
// the io dtype, the same of an Octet, `at` a multiple of 8; load_floats() of eight floats; fetch(), the value at a
// pointer; element(data, at), a pointer to an element of the io dtype; and load_words() and store_words(), of an
// aligned vector of 16 bytes. What they load is not written by the same kernel.

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

/// Rates of the steps of a part that exist, of a pair; 0 for others.
template <class Io>
SSMBENCH_TEAM void load_rates(const Mamba3Args& args, const Plan& plan, const Row& row, int part, int pair,
                              float (&rates)[kPartSteps]) {
  const int first = part * kPartSteps;
  const int pitch = static_cast<int>(plan.nheads) * plan.angles;
  const void* const from = Io::element(args.rates, row.step(plan, first) * plan.angles + pair);
  for (int u = 0; u < kPartSteps; ++u) rates[u] = first + u < row.steps ? Io::load(from, u * pitch) : 0.0F;
}

/// Visits the increments of the phases of a part's steps: visit(step, increment), 0 where no step is.
template <class Io, class Visit>
SSMBENCH_TEAM void for_increments(const Mamba3Args& args, const Plan& plan, const Row& row, int part,
                                  int pair, const Visit& visit) {
  const int first = part * kPartSteps;
  const float* const from = args.dt + row.scalar(plan, first);
  float dt[kPartSteps], rates[kPartSteps];
  for (int u = 0; u < kPartSteps; ++u) dt[u] = first + u < row.steps ? Io::fetch(from + u) : 0.0F;
  load_rates<Io>(args, plan, row, part, pair, rates);
  for (int u = 0; u < kPartSteps; ++u) visit(first + u, phase_step(dt[u], rates[u]));
}

/// What all steps of a row add to the phases, to `starts`. `parts`: [kParts][pair].
template <class Io, class Team>
SSMBENCH_TEAM void add_increments(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                                  const Row& row, std::uint32_t* parts, const Team& team) {
  const int angles = plan.angles;
  team.for_all(kParts * angles, [&](int i) {
    const Split at = split<kTilePairs>(i, angles);
    std::uint32_t sum = 0;
    for_increments<Io>(args, plan, row, at.of, at.rest,
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
      const Split at = split<kTilePairs>(i, angles);
      if (t < 0) return add_part(at.of, at.rest);
      memory.adt[t] = t < row.steps ? Io::fetch(args.adt + row.scalar(plan, t)) : 0.0F;
    });
    team.for_all(kParts * angles + kSteps, [&](int i) {
      const Split at = split<kTilePairs>(i, angles);
      if (i < kParts * angles)
        add_before(at.of, at.rest);
      else
        make_step(i - kParts * angles);
    });
    const int octets = plan.dstate / kOctet;
    const int vectors = plan.angle_tiles * kAngleTile / kAngleVector;
    team.for_all(vectors + kRuns * octets, [&](int i) {
      const Split at = split<kMaxStates / kOctet>(i, octets);
      if (i < kRuns * octets)
        rotate(at.of, at.rest);
      else
        store_phases(i - kRuns * octets);
    });
  }

 private:
  SSMBENCH_TEAM int pitch() const { return plan.angles + kAngleVector; }

  SSMBENCH_TEAM void add_part(int part, int pair) const {
    std::uint32_t sum = 0;
    std::uint32_t* const phases = memory.phases + pair;
    for_increments<Io>(args, plan, row, part, pair,
                       [&](int t, std::uint32_t increment) { phases[t * pitch()] = sum += increment; });
    memory.parts[part * plan.angles + pair] = sum;
  }
  SSMBENCH_TEAM void add_before(int part, int pair) const {
    std::uint32_t before = Io::fetch(to.starts + row.index * plan.angles + pair);
    for (int earlier = 0; earlier < kParts - 1; ++earlier)
      before += earlier < part ? memory.parts[earlier * plan.angles + pair] : 0U;
    std::uint32_t* const phases = memory.phases + part * kPartSteps * pitch() + pair;
    for (int u = 0; u < kPartSteps; ++u) phases[u * pitch()] += before;
  }

  /// A vector of the row's angle tiles.
  SSMBENCH_TEAM void store_phases(int index) const {
    constexpr int kTileVectors = kAngleTile / kAngleVector;
    const AngleAt at = angle_at(index % kTileVectors);
    const int pair = index / kTileVectors * kTilePairs + at.pair;
    const std::uint32_t* const from = memory.phases + at.t * pitch() + pair;
    const bool first = pair < plan.angles;
    const bool second = pair + kApartPairs < plan.angles;
    const std::uint32_t vector[kAngleVector] = {
        first ? from[0] : 0U, first ? from[kApartSteps * pitch()] : 0U, second ? from[kApartPairs] : 0U,
        second ? from[kApartSteps * pitch() + kApartPairs] : 0U};
    Io::store_words(to.phases + plan.angle_tile(row.index, 0) + index * kAngleVector, vector);
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
    if (first >= row.steps) return;
    const Octet of_q = Io::load_floats(args.Q_bias + row.head * plan.dstate + octet * kOctet);
    const Octet of_k = Io::load_floats(args.K_bias + row.head * plan.dstate + octet * kOctet);
    const int rotated = plan.angles - octet * kPairs;  // of the octet's pairs, those below
    const std::int64_t from = row.vector(plan, first) + octet * kOctet;
    const std::int64_t at = row.step(plan, first) * plan.dstate + octet * kOctet;
    const void* const from_q = Io::element(args.Q, from);
    const void* const from_k = Io::element(args.K, from);
    void* const to_q = Io::element(to.q, at);
    void* const to_k = Io::element(to.k, at);
    const int from_pitch = kRuns * static_cast<int>(plan.groups) * plan.dstate;
    const int to_pitch = kRuns * static_cast<int>(plan.nheads) * plan.dstate;
    const std::uint32_t* const phases = memory.phases + first * pitch() + octet * kPairs;
    const int last = (row.steps - 1 - first) / kRuns;
    for (int begin = 0; begin <= last; begin += kRunSteps) {
      Octet q[kRunSteps], k[kRunSteps];
      for (int u = 0; u < kRunSteps; ++u) {  // all loads before the first is waited for
        const int step = begin + u < last ? begin + u : last;
        q[u] = Io::load_octet(from_q, step * from_pitch);
        k[u] = Io::load_octet(from_k, step * from_pitch);
      }
      for (int u = 0; u < kRunSteps; ++u) {
        if (begin + u > last) break;
        add_octet(q[u], of_q);
        add_octet(k[u], of_k);
        if (rotated > 0)
          for (int i = 0; i < kPairs; ++i) {
            const Turn turn = turn_of(i < rotated ? phases[(begin + u) * kRuns * pitch() + i] : 0U);
            rotate_pair(q[u].state + 2 * i, turn);
            rotate_pair(k[u].state + 2 * i, turn);
          }
        Io::store_octet(to_q, (begin + u) * to_pitch, q[u]);
        Io::store_octet(to_k, (begin + u) * to_pitch, k[u]);
      }
    }
  }

  SSMBENCH_TEAM static void add_octet(Octet& to, const Octet& of) {
    for (int i = 0; i < kOctet; ++i) to.state[i] += of.state[i];
  }
  SSMBENCH_TEAM static void rotate_pair(float* x, Turn turn) {
    const float x0 = x[0];
    const float x1 = x[1];
    x[0] = x0 * turn.cosine - x1 * turn.sine;
    x[1] = x0 * turn.sine + x1 * turn.cosine;
  }
};

}  // namespace ssmbench::mamba3_bwd
