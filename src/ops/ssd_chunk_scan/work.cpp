#include "ops/ssd_chunk_scan/work.h"

#include <algorithm>

#include "model/problem.h"
#include "ops/ssd_chunk_scan/sequences.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

namespace ssmbench {
namespace {

/// What matrix products are counted in.
struct ChunkProducts {
  double before;        ///< updates of state elements at steps that have a state before their chunk
  double behind;        ///< … at steps whose chunk has a state behind it that is used
  double triangle;      ///< (batch, step, step of its chunk that is not later)
  double rows, states;  ///< of all heads together, and of all groups together

  explicit ChunkProducts(const Problem& problem) {
    const SsdChunkScan scan(problem);
    const SsdSequences sequences(problem);
    constexpr std::int64_t kSteps = 64;
    const double of_step = scan.updates() / static_cast<double>(scan.seqlen);
    const auto all = static_cast<double>(scan.seqlen);
    // Packed sequences, whose lengths are values, need least where all have the same length.
    const std::int64_t firsts = kSteps * (sequences.packed ? sequences.count : 1);
    const auto others = static_cast<double>(std::max<std::int64_t>(0, scan.seqlen - firsts));
    before = of_step * (scan.has_initial_states ? all : others);
    behind = of_step * (scan.has_final_states ? all : others);
    const std::int64_t chunks = scan.seqlen / kSteps;
    const std::int64_t rest = scan.seqlen % kSteps;
    const std::int64_t of_sequence = chunks * (kSteps * (kSteps + 1) / 2) + rest * (rest + 1) / 2;
    triangle = sequences.packed ? packed_triangle(all, static_cast<double>(sequences.count))
                                : static_cast<double>(scan.batch * of_sequence);
    rows = static_cast<double>(scan.nheads * scan.headdim);
    states = static_cast<double>(scan.groups * scan.dstate);
  }

 private:
  /// A sequence of n steps has at least n²/2 pairs in its chunks up to 32 steps, and 32·n − 512 beyond: a convex
  /// function, so that the sum over sequences is least where all are of one length.
  static double packed_triangle(double steps, double sequences) {
    const double each = steps / sequences;
    return sequences * (each <= 32 ? each * each / 2 : 32 * each - 512);
  }
};

double forward_fmas(const Problem& problem) {
  const ChunkProducts p(problem);
  return p.behind + p.before + p.triangle * (p.states + p.rows);
}

double backward_fmas(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const ChunkProducts p(problem);
  const double y = scan.has_z ? 1 : 0;
  // Adjoints and dC need what is before a chunk, dB and dx what is behind; states come from one chunk to the
  // next, as they do without final_states.
  const double others = scan.updates() * static_cast<double>(std::max<std::int64_t>(0, scan.seqlen - 64)) /
                        static_cast<double>(scan.seqlen);
  return others + (2 + y) * p.before + 2 * p.behind + p.triangle * (3 * p.states + (2 + y) * p.rows);
}

bool on_tensor_cores(Math math) {
  return math == Math::tf32 || math == Math::f16 || math == Math::bf16;
}

Work work_of(const Problem& problem, Math math, double sequential_fmas, double chunked_fmas) {
  const SsdChunkScan scan(problem);
  const double steps =
      static_cast<double>(scan.batch) * static_cast<double>(scan.seqlen) * static_cast<double>(scan.nheads);
  double exponentials = steps * (scan.dt_softplus ? 3 : 1);
  if (scan.has_z) exponentials += steps * static_cast<double>(scan.headdim);
  Work work{.bytes = tensor_bytes(problem), .exponentials = exponentials};
  if (on_tensor_cores(math))
    work.tensor_flops = 2 * chunked_fmas;
  else
    work.fmas = std::min(sequential_fmas, chunked_fmas);
  return work;
}

}  // namespace

Work ssd_least_work(const Problem& problem, Math math) {
  return work_of(problem, math, 3 * SsdChunkScan(problem).updates(), forward_fmas(problem));
}

Work ssd_bwd_least_work(const Problem& problem, Math math) {
  const SsdChunkScan scan(problem);
  return work_of(problem, math, (scan.has_z ? 9 : 8) * scan.updates(), backward_fmas(problem));
}

}  // namespace ssmbench
