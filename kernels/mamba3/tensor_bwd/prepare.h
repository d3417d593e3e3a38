#pragma once

// What comes before the products of cuda-chunked's gradients of Mamba-3: rotated q and k, and the numbers of
// each step. Written as loops over elements that do not depend on one another, Team::for_all(), as in
// chunked_bwd/gradients.h, so that CPU tests run the same code. Io: load(data, at) and store(data, at, value)
// of the io dtype, the same of a Pair, `at` a multiple of 2, and of an Octet, a multiple of 8, and of the
// halves of one, which lie `apart` and take turns in the octet, both multiples of 4; load_word(data, at), a
// Pair as it is stored, and unpack_word(word); load_floats() and load_float_halves() of floats;
// load_rate<f32>(data, at) and store_rate<f32>() of the io dtype or f32, load_rates() of four, `at` a
// multiple of 4; fetch(), the value at a pointer, and prefetch(), which has no effect; element(data, at), a
// pointer to an element of the io dtype; and store_words(), of an aligned vector of 16 bytes. What they load
// is not written by the same kernel, but for load_shared(), of such a vector in shared memory. Form: Siso or
// a Mimo.

#include <cmath>
#include <cstdint>

#include "kernels/common/activations.h"
#include "kernels/mamba3/args.h"
#include "kernels/mamba3/chunked_bwd/team.h"
#include "kernels/mamba3/hopper/increments.h"
#include "kernels/mamba3/phase.h"
#include "kernels/mamba3/tensor_bwd/chunk_scan.h"
#include "kernels/mamba3/tensor_bwd/plan.h"

namespace ssmbench::mamba3_bwd {

/// Neighbouring states: 16 bytes of the io dtype.
inline constexpr int kOctet = 8;
struct Octet {
  float state[kOctet];
};
/// Neighbouring head dims.
struct Pair {
  float x[2];
};

/// Octet `octet` of a row of states in the order of the workspace, from tensors and to them; `at`: of its first
/// state. `halves`: Plan::halves, a constant where branches cost.
template <class Io>
SSMBENCH_TEAM Octet load_states(const Plan& plan, bool halves, const void* data, std::int64_t at, int octet) {
  if (halves) return Io::load_halves(data, at + octet * (kOctet / 2), plan.dstate / 2);
  return Io::load_octet(data, at + octet * kOctet);
}
template <class Io>
SSMBENCH_TEAM Octet load_states(const Plan& plan, bool halves, const float* row, int octet) {
  if (halves) return Io::load_float_halves(row + octet * (kOctet / 2), plan.dstate / 2);
  return Io::load_floats(row + octet * kOctet);
}
template <class Io>
SSMBENCH_TEAM void store_states(const Plan& plan, void* data, std::int64_t at, int octet, const Octet& from) {
  if (plan.halves) return Io::store_halves(data, at + octet * (kOctet / 2), plan.dstate / 2, from);
  Io::store_octet(data, at + octet * kOctet, from);
}

struct Turn {
  float cosine, sine;
};
/// On the GPU by the hardware's functions, 8 roundoffs at most within ±π: what is turned is rounded to 16 bits
/// before or after.
SSMBENCH_TEAM inline Turn turn_of(std::uint32_t phase) {
#ifdef __CUDA_ARCH__
  const float angle = static_cast<float>(static_cast<std::int32_t>(phase)) * (kTurnInRadians * 0x1p-32F);
  return {__cosf(angle), __sinf(angle)};
#else
  const float angle = kTurnInRadians * turns_of_phase(phase);
  return {cosf(angle), sinf(angle)};
#endif
}

/// silu_slope by the hardware's exponential and reciprocal. Where e^-z overflows, under -88.7, both are 0 and not the
/// 1e-36 or less that they should be. (fast_silu_slope limits the exponential: there that is 10 times what a gradient
/// may be off by.)
SSMBENCH_TEAM inline ValueSlope gate_of(float z) {
  const float open = reciprocal_approximate(1.0F + exp2_approximate(z * -kLog2E));
  const float value = z * open;
  return {value, fmaf(value, 1.0F - open, open)};
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

/// Parts that the steps of a span are cut into for sums over time, how many steps each has, and how many parts
/// a chunk.
inline constexpr int kSpanParts = 16;
inline constexpr int kPartSteps = kSpanSteps / kSpanParts;
template <class Form>
inline constexpr int kParts = kChunkSteps<Form> / kPartSteps;
/// The same where a thread has one number of each step: no chunk has fewer steps.
inline constexpr int kSumSteps = 8;
inline constexpr int kSpanSums = kSpanSteps / kSumSteps;
template <class Form>
inline constexpr int kSums = kChunkSteps<Form> / kSumSteps;

/// Vectors of neighbouring pairs, of which a thread takes one.
SSMBENCH_TEAM inline int angle_vectors(const Plan& plan) {
  return (plan.angles + kAngleVector - 1) / kAngleVector;
}
inline constexpr int kTileVectors = kTilePairs / kAngleVector;
/// Elements between the sums of one part and those of the next, and between the angles of one step and those
/// of the next: whole vectors, and rows of a tile of pairs in different banks.
inline constexpr int kPartPitch = kMaxAngles;
SSMBENCH_TEAM inline int angle_pitch(const Plan& plan) {
  return (angle_vectors(plan) + 1) * kAngleVector;
}
inline constexpr int kMaxAnglePitch = kMaxAngles + kAngleVector;

/// Rates of a vector of pairs from `pair` on.
using Rates = float[kAngleVector];

/// Rates of the steps of a part, one of which is there at least; others where a step or a pair is not there.
/// Without branches, so that all loads are on their way before the first is waited for.
template <class Io, class Form>
SSMBENCH_TEAM void load_rates(const Mamba3Args& args, const Plan& plan, const Span& row, int part, int pair,
                              Rates (&rates)[kPartSteps]) {
  const int first = part * kPartSteps;
  const int pitch = static_cast<int>(plan.nheads) * plan.angles;
  const int last = row.steps - 1 - first;
  const std::int64_t at = row.step(plan, first) * plan.angles + pair;
  if (plan.angles % kAngleVector == 0) {
    for (int u = 0; u < kPartSteps; ++u)
      Io::template load_rates<Form::kIsMimo>(rates[u], args.rates, at + (u < last ? u : last) * pitch);
    return;
  }
  const int most = plan.angles - 1 - pair;
  for (int u = 0; u < kPartSteps; ++u)
    for (int i = 0; i < kAngleVector; ++i)
      rates[u][i] = Io::template load_rate<Form::kIsMimo>(
          args.rates, at + (u < last ? u : last) * pitch + (i < most ? i : most));
}

/// Visits the increments of the phases of a part's steps: visit(step, increments), 0 where no step is.
template <class Io, class Form, class Visit>
SSMBENCH_TEAM void for_increments(const Mamba3Args& args, const Plan& plan, const Span& row, int part,
                                  int pair, const Visit& visit) {
  const int first = part * kPartSteps;
  const int last = row.steps - 1 - first;
  std::uint32_t increments[kPartSteps][kAngleVector] = {};
  if (last >= 0) {
    const float* const from = args.dt + row.scalar(plan, first);
    float dt[kPartSteps];
    Rates turns[kPartSteps];
    for (int u = 0; u < kPartSteps; ++u) dt[u] = Io::fetch(from + (u < last ? u : last));
    load_rates<Io, Form>(args, plan, row, part, pair, turns);
    bool wide = false;  // more than half a turn a step
    for (int u = 0; u < kPartSteps; ++u) {
      const float half = u <= last ? 0.5F * dt[u] : 0.0F;
      wide = wide || !(half <= 0.5F);
      for (float& turn : turns[u]) turn = half * mamba3_hopper::fast_tanh(turn);
    }
    if (wide)
      for (Rates& of_step : turns)
        for (float& turn : of_step) turn -= rintf(turn);
    for (int u = 0; u < kPartSteps; ++u)
      for (int i = 0; i < kAngleVector; ++i) increments[u][i] = mamba3_hopper::phase_of_part(turns[u][i]);
  }
  for (int u = 0; u < kPartSteps; ++u) visit(first + u, increments[u]);
}

/// Spans of a block that adds increments up.
inline constexpr int kIncrementSpans = 2;

/// What all steps of each chunk of some spans add to the phases, to `starts`: of `first` and those after it
/// that there are. `parts`: [kIncrementSpans][kSpanParts][kPartPitch].
template <class Io, class Form, class Team>
SSMBENCH_TEAM void add_increments(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                                  std::int64_t first, std::uint32_t* parts, const Team& team) {
  const std::int64_t left = plan.batch * plan.spans * plan.nheads - first;
  const SequenceSpan* const table = to.table.spans;
  const int spans = left < kIncrementSpans ? static_cast<int>(left) : kIncrementSpans;
  const int vectors = angle_vectors(plan);
  team.for_all(spans * kSpanParts * vectors, [&](int i) {
    const Split at = split<kTileVectors>(i, vectors);
    std::uint32_t sums[kAngleVector] = {};
    for_increments<Io, Form>(args, plan, Span(plan, first + at.of / kSpanParts, table), at.of % kSpanParts,
                             kAngleVector * at.rest,
                             [&](int, const std::uint32_t(&increments)[kAngleVector]) {
                               for (int k = 0; k < kAngleVector; ++k) sums[k] += increments[k];
                             });
    Io::store_words(parts + at.of * kPartPitch + kAngleVector * at.rest, sums);
  });
  team.for_all(spans * Form::kRanks * plan.angles, [&](int i) {
    const Split at = split<kTilePairs>(i, plan.angles);
    const Span span(plan, first + at.of / Form::kRanks, table);
    const int chunk = at.of % Form::kRanks;
    if (chunk * kChunkSteps<Form> >= span.steps) return;
    std::uint32_t sum = 0;
    for (int part = 0; part < kParts<Form>; ++part)
      sum += parts[(at.of * kParts<Form> + part) * kPartPitch + at.rest];
    to.starts[span.row_of(plan, chunk) * plan.angles + at.rest] = sum;
  });
}

/// Where the numbers of a head's steps begin, in [B, H, L]; `head`: of (sequence, head).
SSMBENCH_TEAM inline std::int64_t first_scalar(const Mamba3Args& args, const Plan& plan, std::int64_t head) {
  if (!plan.packed) return head * plan.seqlen;
  return head % plan.nheads * plan.seqlen + args.cu_seqlens[head / plan.nheads];
}
SSMBENCH_TEAM inline bool is_empty(const Mamba3Args& args, const Plan& plan, std::int64_t sequence) {
  return plan.packed && args.cu_seqlens[sequence] == args.cu_seqlens[sequence + 1];
}

/// The phase that a pair of a head starts with; `head`: of (sequence, head).
SSMBENCH_TEAM inline std::uint32_t first_phase(const Mamba3Args& args, const Plan& plan, std::int64_t head,
                                               int pair) {
  return args.input_angle == nullptr ? 0U : phase_of_radians(args.input_angle[head * plan.angles + pair]);
}

/// From shares to the phases before each chunk.
template <class Team>
SSMBENCH_TEAM void add_starts(const Mamba3Args& args, const Workspace& to,
                              const ChunkScan<std::uint32_t, Team>& scan) {
  const Plan& plan = scan.plan;
  scan.run(
      [&](int head, int pair) -> ChunkColumn<std::uint32_t> {
        const auto nheads = static_cast<int>(plan.nheads);
        const ChunkRun chunks = chunks_of(plan, to, head / nheads);
        const std::int64_t row = chunks.first * nheads + head % nheads;
        return {first_phase(args, plan, head, pair), to.starts + row * plan.angles + pair,
                plan.nheads * plan.angles, chunks.count};
      },
      [](int, int, std::uint32_t) {});
}

/// MIMO_V, MIMO_Z or MIMO_Out of rank r of a head; 1 where there is none.
SSMBENCH_TEAM inline float factor_of(const float* all, const Plan& plan, std::int64_t head, int r, int p) {
  return all == nullptr ? 1.0F : all[(head * plan.ranks + r) * plan.headdim + p];
}
/// The first state of rank r of a K state, `head` of all batches.
SSMBENCH_TEAM inline std::int64_t k_state_at(const Plan& plan, std::int64_t head, int r) {
  return ((head / plan.nheads * plan.ranks + r) * plan.nheads + head % plan.nheads) * plan.dstate;
}

/// The state that a head starts with: the input state with what the first step adds of the step before. `at`: of
/// (sequence, head, P, N).
template <class Io>
SSMBENCH_TEAM void make_seed(const Mamba3Args& args, const Plan& plan, const Workspace& to, std::int64_t at) {
  const int n = plan.state_of(static_cast<int>(at % plan.dstate));
  const std::int64_t row = at / plan.dstate;
  const int p = static_cast<int>(row % plan.headdim);
  const std::int64_t head = row / plan.headdim;
  if (is_empty(args, plan, head / plan.nheads)) return;
  const float weight = scalars_of<Io>(args, first_scalar(args, plan, head)).previous();
  float sum = 0;
  for (int r = 0; r < plan.ranks; ++r)
    sum +=
        factor_of(args.mimo_v, plan, head % plan.nheads, r, p) * args.input_k[k_state_at(plan, head, r) + n];
  to.seeds[at] = args.input_ssm[row * plan.dstate + n] + weight * args.input_v[row] * sum;
}

/// dFinal_SSM_State in the order of the workspace, for pairs that are halves apart.
SSMBENCH_TEAM inline void copy_last_adjoint(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                                            std::int64_t at) {
  const int n = static_cast<int>(at % plan.dstate);
  to.last_adjoint[at] = args.dfinal_ssm[at - n + plan.state_of(n)];
}

/// Q and K in the order of the workspace, octet `at` of (batch, time, rank, group, N).
template <class Io>
SSMBENCH_TEAM void pair_states(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                               std::int64_t at) {
  const int octets = plan.dstate / kOctet;
  const std::int64_t row = at / octets;
  const int octet = static_cast<int>(at - row * octets);
  Io::store_octet(to.paired_q, at * kOctet, load_states<Io>(plan, true, args.Q, row * plan.dstate, octet));
  Io::store_octet(to.paired_k, at * kOctet, load_states<Io>(plan, true, args.K, row * plan.dstate, octet));
}

/// Q_bias and K_bias in the order of Plan::bias_at(), element `at`.
SSMBENCH_TEAM inline void order_biases(const Mamba3Args& args, const Plan& plan, const Workspace& to,
                                       std::int64_t at) {
  const int each = plan.ranks * plan.dstate_tiles * kSteps;
  const int of_head = static_cast<int>(at / each);
  const BiasAt from = plan.bias_at(static_cast<int>(at - std::int64_t{of_head} * each));
  const float* const biases = of_head % 2 == 0 ? args.Q_bias : args.K_bias;
  to.biases[at] = from.n < plan.dstate
                      ? biases[(of_head / 2 * plan.ranks + from.rank) * plan.dstate + plan.state_of(from.n)]
                      : 0.0F;
}

/// The numbers of a span's steps: decays, s and γ. A part's sums first, then rows.
template <class Io, class Form>
struct StepNumbers {
  const Mamba3Args& args;
  const Plan& plan;
  const Workspace& to;
  const Span& row;
  float* sums;  ///< [kSpanSteps]: of ADT, from the part's first step on

  /// ADT of the steps of a part, summed from its first one on.
  SSMBENCH_TEAM void add_part(int part) const {
    const int first = part * kPartSteps;
    const std::int64_t at = row.scalar(plan, first);
    float adt[kPartSteps];
    for (int u = 0; u < kPartSteps; ++u) adt[u] = first + u < row.steps ? Io::fetch(args.adt + at + u) : 0.0F;
    float sum = 0;
    for (int u = 0; u < kPartSteps; ++u) sums[first + u] = sum += adt[u];
  }
  /// Row i of a chunk. Sums from the chunk's first step on, of parts and then within one, so that the last
  /// step's weight behind it is exactly 1.
  SSMBENCH_TEAM void make_row(int chunk, int i) const {
    if (chunk * kChunkSteps<Form> >= row.steps) {
      if (plan.packed) pass_row(row.row_of(plan, chunk), i);
      return;
    }
    const int of_chunk = i / Form::kRanks;
    const float* const adt = sums + chunk * kChunkSteps<Form>;
    float before = 0;
    float total = 0;
    for (int part = 0; part < kParts<Form>; ++part) {
      const float of_part = adt[part * kPartSteps + kPartSteps - 1];
      total += of_part;
      before += part < of_chunk / kPartSteps ? of_part : 0.0F;
    }
    const float decay = before + adt[of_chunk];
    const int t = chunk * kChunkSteps<Form> + of_chunk;
    StepScalars here{0, 0, 0};
    float later = 0;
    if (t < row.steps) here = scalars_of<Io>(args, row.scalar(plan, t));
    if (t < row.steps && !(row.closes && t + 1 == row.steps))
      later = scalars_of<Io>(args, row.scalar(plan, t) + 1).previous();
    const std::int64_t index = row.row_of(plan, chunk);
    float* const steps = to.steps + index * kStepFloats * kSteps + i;
    steps[kStepDelta * kSteps] = here.own() + later;
    steps[kStepDecay * kSteps] = decay;
    steps[kStepEnter * kSteps] = expf(decay);
    steps[kStepLeave * kSteps] = expf(total - decay);
    to.owns[index * kSteps + i] = here.own();
  }

 private:
  /// Row i of a chunk that a packed sequence's last span lacks: states pass, sums over chunks get nothing.
  SSMBENCH_TEAM void pass_row(std::int64_t index, int i) const {
    float* const steps = to.steps + index * kStepFloats * kSteps + i;
    steps[kStepDelta * kSteps] = steps[kStepDecay * kSteps] = 0;
    steps[kStepEnter * kSteps] = steps[kStepLeave * kSteps] = 1;
    for (int column = i; column < plan.sums; column += kSteps) to.row_sums[index * plan.sums + column] = 0;
  }
};

/// Runs of rows that an octet's rotation is cut into, all of one rank, and how many rows are loaded at once.
/// With one rank a run is a part.
inline constexpr int kRuns = kSpanParts;
inline constexpr int kRunRows = 2;
static_assert(kRuns % kMaxRanks == 0);

/// Memory of a block that prepares a span.
struct alignas(16) PrepareMemory {
  std::uint32_t phases[kSteps * kMaxAnglePitch];  ///< [step][pair]: from the part's first step on
  std::uint32_t parts[kSpanParts * kPartPitch];   ///< [part][pair]: sums; then θ before the part
  float adt[kSteps];                              ///< from the part's first step on
};

/// The phases of a span, its q and k where they are not made later, and the numbers of its steps. A span has as many
/// chunks as there are ranks.
template <class Io, class Form, bool kHalves, class Team>
struct Preparation {
  const Mamba3Args& args;
  const Plan& plan;
  const Workspace& to;
  PrepareMemory& memory;
  Span row;
  bool rotates;  ///< makes q and k
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int of_parts = kSpanParts * angle_vectors(plan);
    team.for_all(of_parts + kSpanParts, [&](int i) {
      const Split at = split<kTileVectors>(i, angle_vectors(plan));
      if (i < of_parts) return add_part(at.of, kAngleVector * at.rest);
      numbers().add_part(i - of_parts);
    });
    const int starts = Form::kRanks * plan.angles;
    team.for_all(Form::kRanks * kSteps + starts, [&](int i) {
      if (i < Form::kRanks * kSteps) return numbers().make_row(i / kSteps, i % kSteps);
      const Split at = split<kTilePairs>(i - Form::kRanks * kSteps, plan.angles);
      add_before(at.of, at.rest);
    });
    // Octets that turn first, so that the threads of a warp do the same.
    const int octets = plan.dstate / kOctet;
    static_assert(kOctet == 2 * kAngleVector);
    const int turning = angle_vectors(plan);
    const int vectors = Form::kRanks * plan.angle_tiles * plan.angle_elements() / kAngleVector;
    const int runs = rotates ? kRuns : 0;
    team.for_all(runs * octets + vectors, [&](int i) {
      const int still = i - runs * turning;
      if (still < 0) {
        const Split at = split<kMaxStates / kOctet / 2>(i, turning);
        return rotate<true>(at.of, at.rest);
      }
      if (i >= runs * octets) return store_phases(i - runs * octets);
      const Split at = split<kMaxStates / kOctet / 2>(still, octets - turning);
      rotate<false>(at.of, turning + at.rest);
    });
  }

 private:
  SSMBENCH_TEAM StepNumbers<Io, Form> numbers() const { return {args, plan, to, row, memory.adt}; }
  SSMBENCH_TEAM void add_part(int part, int pair) const {
    const int pitch = angle_pitch(plan);
    std::uint32_t sums[kAngleVector] = {};
    for_increments<Io, Form>(args, plan, row, part, pair,
                             [&](int t, const std::uint32_t(&increments)[kAngleVector]) {
                               for (int k = 0; k < kAngleVector; ++k) sums[k] += increments[k];
                               Io::store_words(memory.phases + t * pitch + pair, sums);
                             });
    Io::store_words(memory.parts + part * kPartPitch + pair, sums);
  }
  SSMBENCH_TEAM void add_before(int chunk, int pair) const {
    if (!exists(chunk)) return;
    std::uint32_t* const parts = memory.parts + chunk * kParts<Form> * kPartPitch + pair;
    std::uint32_t sums[kParts<Form>];
    for (int part = 0; part < kParts<Form>; ++part) sums[part] = parts[part * kPartPitch];
    std::uint32_t before = Io::fetch(to.starts + row.row_of(plan, chunk) * plan.angles + pair);
    for (int part = 0; part < kParts<Form>; ++part) {
      parts[part * kPartPitch] = before;
      before += sums[part];
    }
  }
  /// θ of step t.
  SSMBENCH_TEAM std::uint32_t phase_of(int t, int pair) const {
    return memory.phases[t * angle_pitch(plan) + pair] + memory.parts[t / kPartSteps * kPartPitch + pair];
  }

  SSMBENCH_TEAM bool exists(int chunk) const { return chunk * kChunkSteps<Form> < row.steps; }

  /// A vector of the angle tiles of the span: [tile][chunk][vector].
  SSMBENCH_TEAM void store_phases(int index) const {
    constexpr int kVectors = kAngleTile / Form::kRanks / kAngleVector;  // of a tile
    constexpr int kApart = kApartSteps / Form::kRanks;
    const int tile = index / kVectors / Form::kRanks;
    const int chunk = index / kVectors % Form::kRanks;
    if (!exists(chunk)) return;
    const AngleAt at = angle_at<Form::kRanks>(index % kVectors);
    const int pair = tile * kTilePairs + at.pair;
    const int t = chunk * kChunkSteps<Form> + at.t;
    std::uint32_t vector[kAngleVector] = {};
    if (pair < plan.angles) {
      vector[0] = phase_of(t, pair);
      vector[1] = phase_of(t + kApart, pair);
    }
    if (pair + kApartPairs < plan.angles) {
      vector[2] = phase_of(t, pair + kApartPairs);
      vector[3] = phase_of(t + kApart, pair + kApartPairs);
    }
    Io::store_words(
        to.phases + plan.angle_tile(row.row_of(plan, chunk), tile) + index % kVectors * kAngleVector, vector);
  }

  /// An octet of q and k of the rows of a run: with one rank neighbours, else `run`, `run` + kRuns and so on.
  template <bool kTurns>
  SSMBENCH_TEAM void rotate(int run, int octet) const {
    constexpr int kPairs = kOctet / 2;
    constexpr int kRows = kSpanSteps * Form::kRanks / kRuns;
    constexpr int kApart = Form::kRanks == 1 ? 1 : kRuns;
    const int first = Form::kRanks == 1 ? run * kRows : run;
    const int rows = row.rows(plan);
    if (first >= rows) return;
    const int all = (rows - 1 - first) / kApart;
    const int last = all < kRows ? all : kRows - 1;
    const std::int64_t bias = (row.head * Form::kRanks + first % Form::kRanks) * plan.dstate;
    const Octet of_q = load_states<Io>(plan, kHalves, args.Q_bias + bias, octet);
    const Octet of_k = load_states<Io>(plan, kHalves, args.K_bias + bias, octet);
    const std::int64_t from = row.vector(plan, first) + octet * (kHalves ? kPairs : kOctet);
    const std::int64_t at = row.ranked(plan, first) * plan.dstate + octet * kOctet;
    const void* const from_q = Io::element(args.Q, from);
    const void* const from_k = Io::element(args.K, from);
    void* const to_q = Io::element(to.q, at);
    void* const to_k = Io::element(to.k, at);
    const int from_pitch = kApart * static_cast<int>(plan.groups) * plan.dstate;
    const int to_pitch = kApart * static_cast<int>(plan.nheads) * plan.dstate;
    std::uint32_t before[kPairs] = {};
    if constexpr (kTurns && Form::kRanks == 1)
      Io::load_shared(before, memory.parts + run * kPartPitch + octet * kPairs);
    for (int begin = 0; begin <= last; begin += kRunRows) {
      Octet q[kRunRows], k[kRunRows];
      for (int u = 0; u < kRunRows; ++u) {  // all loads before the first is waited for
        const int t = begin + u < last ? begin + u : last;
        q[u] = load_states<Io>(plan, kHalves, from_q, t * from_pitch, 0);
        k[u] = load_states<Io>(plan, kHalves, from_k, t * from_pitch, 0);
      }
      for (int u = 0; u < kRunRows; ++u) {
        if (begin + u > last) break;
        add_octet(q[u], of_q);
        add_octet(k[u], of_k);
        if constexpr (kTurns) {
          const int step = first / Form::kRanks + (begin + u) * kApart / Form::kRanks;
          std::uint32_t of_step[kPairs];
          Io::load_shared(of_step, memory.phases + step * angle_pitch(plan) + octet * kPairs);
          if constexpr (Form::kRanks > 1)
            Io::load_shared(before, memory.parts + step / kPartSteps * kPartPitch + octet * kPairs);
          for (int i = 0; i < kPairs; ++i) {
            const bool exists = octet * kPairs + i < plan.angles;
            const Turn turn = turn_of(exists ? before[i] + of_step[i] : 0U);
            rotate_pair(q[u].state + 2 * i, turn);
            rotate_pair(k[u].state + 2 * i, turn);
          }
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
