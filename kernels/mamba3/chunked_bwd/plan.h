#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/common/index_math.h"
#include "ops/mamba3/mamba3.h"

// How cuda-chunked-f32 cuts a problem into tasks and chunks, and what of the workspace is whose; the picture is
// in gradients.h.

namespace ssmbench::mamba3 {

inline constexpr int kGradientThreads = 256;
/// The most rows, one for each (step, rank), and the most steps of a chunk.
inline constexpr int kGradientRows = 32;
/// Chunks of a segment, whose states are made anew from the one that enters it.
inline constexpr int kSegmentChunks = 64;
/// Blocks at most: each has memory of its own for a head, and takes heads until there are none.
inline constexpr std::int64_t kGradientBlocks = 512;

/// Where sums of a head begin.
struct GradientSums {
  int dQ_bias, dK_bias;             ///< [rank][state]
  int dmimo_v, dmimo_z, dmimo_out;  ///< [rank][head dim]
  int dnorm, dD;                    ///< [rank][head dim], to be summed over ranks, dD over all
  int count;
};

/// A block's memory, in floats from its beginning.
struct GradientMemory {
  std::int64_t q, k, dq, dk;            ///< [row][state]
  std::int64_t v, y, dy, dv;            ///< [row][head dim]; v is V·MIMO_V
  std::int64_t gates, downs, norms;     ///< [row][head dim]: terms of dMIMO_Z, dMIMO_Out and of the norm's
  std::int64_t plain_v;                 ///< [step][head dim]
  std::int64_t state, adjoint;          ///< [state][head dim]
  std::int64_t scores, crosses;         ///< [row][row]: q·k and dy·v
  std::int64_t mixing, mixing_crosses;  ///< the same with decay and weight, of rows of earlier steps alone
  std::int64_t decay;                   ///< [step][row]: Π α of the steps in between
  std::int64_t cosines, sines, rates;   ///< [step][pair]; rates: tanh
  std::int64_t phases;                  ///< [step][pair], u32
  std::int64_t turning;                 ///< [pair]: Σ dθ of later steps, then phases before the chunk, u32
  std::int64_t steps;                   ///< [StepValue][step]
  std::int64_t inverses, means, flows;  ///< [row]
  std::int64_t of_steps;                ///< [4][time + 1]
  std::int64_t entering;                ///< [segment][state, then phases]
  std::int64_t states;                  ///< [chunk of a segment][state, then phases]
  std::int64_t floats;
};

/// What the steps of a chunk have.
enum StepValue : int {
  kAlpha,    ///< α
  kOwn,      ///< γ
  kLater,    ///< s
  kEnter,    ///< Π α up to the step
  kLeave,    ///< Π α of those behind it
  kInputs,   ///< ⟨W, Σ v ⊗ k⟩
  kEntered,  ///< ⟨dy, y⟩ of what y has of the state that entered
  kLeaving,  ///< flows from steps before to the adjoint that leaves
  kWithin,   ///< flows from steps before to the step and later ones
  kStepValues
};

struct GradientPlan {
  int headdim, dstate, rank, angles;
  int chunk;     ///< steps
  int rows;      ///< of a chunk
  int record;    ///< floats of a state and the phases before it
  int segments;  ///< of the longest sequence
  std::int64_t tasks, blocks;
  GradientSums sums;
  GradientMemory memory;
  std::int64_t vector_elements;  ///< of dQ
  std::int64_t part_floats;      ///< of dQ or dK by heads
  std::int64_t vectors;          ///< of the workspace: [dQ, dK][batch][time][rank][head][state]
  std::int64_t head_sums;        ///< [sequence][head][sums]
  std::int64_t totals;           ///< [head][sums from dnorm on]
  std::int64_t own;              ///< [block][memory]
  std::int64_t floats;           ///< in all

  explicit GradientPlan(const Mamba3& scan)
      : headdim(static_cast<int>(scan.headdim)),
        dstate(static_cast<int>(scan.dstate)),
        rank(static_cast<int>(scan.rank)),
        angles(static_cast<int>(scan.angles)) {
    chunk = kGradientRows / rank;
    rows = chunk * rank;
    record = dstate * headdim + angles;
    segments = static_cast<int>(ceil_div(ceil_div(scan.seqlen, chunk), kSegmentChunks));
    tasks = scan.sequences * scan.nheads;
    blocks = std::min(tasks, kGradientBlocks);
    lay_out_sums();
    lay_out_memory(scan.seqlen);
    const auto take = [&](std::int64_t count) { return (floats += count) - count; };
    floats = 0;
    part_floats = scan.batch * scan.seqlen * rank * scan.nheads * dstate;
    vector_elements = part_floats / scan.nheads * scan.groups;
    vectors = take(2 * part_floats);
    head_sums = take(tasks * sums.count);
    totals = take(scan.nheads * (sums.count - sums.dnorm));
    own = take(blocks * memory.floats);
  }

 private:
  void lay_out_sums() {
    sums.count = 0;
    for (int* at : {&sums.dQ_bias, &sums.dK_bias}) *at = (sums.count += rank * dstate) - rank * dstate;
    for (int* at : {&sums.dmimo_v, &sums.dmimo_z, &sums.dmimo_out, &sums.dnorm, &sums.dD})
      *at = (sums.count += rank * headdim) - rank * headdim;
  }
  void lay_out_memory(std::int64_t seqlen) {
    memory.floats = 0;
    const auto take = [&](std::initializer_list<std::int64_t*> arrays, std::int64_t count) {
      for (std::int64_t* at : arrays) *at = (memory.floats += count) - count;
    };
    take({&memory.q, &memory.k, &memory.dq, &memory.dk}, std::int64_t{rows} * dstate);
    take({&memory.v, &memory.y, &memory.dy, &memory.dv, &memory.gates, &memory.downs, &memory.norms},
         std::int64_t{rows} * headdim);
    take({&memory.plain_v}, std::int64_t{chunk} * headdim);
    take({&memory.state, &memory.adjoint}, std::int64_t{dstate} * headdim);
    take({&memory.scores, &memory.crosses, &memory.mixing, &memory.mixing_crosses}, rows * rows);
    take({&memory.decay}, chunk * rows);
    take({&memory.cosines, &memory.sines, &memory.rates, &memory.phases}, chunk * angles);
    take({&memory.turning}, 2 * angles);
    take({&memory.steps}, kStepValues * chunk);
    take({&memory.inverses, &memory.means, &memory.flows}, rows);
    take({&memory.of_steps}, 4 * (seqlen + 1));
    take({&memory.entering}, std::int64_t{segments} * record);
    take({&memory.states}, std::int64_t{kSegmentChunks} * record);
  }
};

}  // namespace ssmbench::mamba3
