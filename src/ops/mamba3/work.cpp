#include "ops/mamba3/work.h"

#include <algorithm>

#include "ops/mamba3/mamba3.h"

namespace ssmbench {
namespace {

/// What matrix products are counted in.
struct ChunkProducts {
  double others;    ///< updates of state elements at steps after the first chunk
  double before;    ///< … at steps that have a state before their chunk
  double behind;    ///< … at steps whose chunk has a state behind it that is used
  double triangle;  ///< (batch, head, step, step of its chunk that is not later)

  explicit ChunkProducts(const Mamba3& scan) {
    const std::int64_t steps = std::max<std::int64_t>(1, 64 / scan.rank);
    const double of_step = scan.updates() / static_cast<double>(scan.seqlen);
    others = of_step * static_cast<double>(std::max<std::int64_t>(0, scan.seqlen - steps));
    before = scan.has_initial_states ? scan.updates() : others;
    behind = scan.has_final_states ? scan.updates() : others;
    const std::int64_t chunks = scan.seqlen / steps;
    const std::int64_t rest = scan.seqlen % steps;
    const std::int64_t of_sequence = chunks * (steps * (steps + 1) / 2) + rest * (rest + 1) / 2;
    triangle = static_cast<double>(scan.batch * scan.nheads * of_sequence);
  }
};

double forward_fmas(const Mamba3& scan) {
  const ChunkProducts p(scan);
  const auto rank = static_cast<double>(scan.rank);
  const auto row = static_cast<double>(scan.dstate + scan.headdim);
  return rank * (p.before + p.behind) + rank * rank * p.triangle * row;
}

double backward_fmas(const Mamba3& scan) {
  const ChunkProducts p(scan);
  const auto rank = static_cast<double>(scan.rank);
  const double y = scan.has_z ? 1 : 0;
  const auto headdim = static_cast<double>(scan.headdim);
  const auto dstate = static_cast<double>(scan.dstate);
  return rank * (p.others + (2 + y) * p.before + 2 * p.behind) +
         rank * rank * p.triangle * (3 * dstate + (2 + y) * headdim);
}

/// Bytes and exponentials of a launch.
Work without_products(const Problem& problem) {
  const Mamba3 scan(problem);
  const double steps =
      static_cast<double>(scan.batch) * static_cast<double>(scan.seqlen) * static_cast<double>(scan.nheads);
  const double gates = scan.has_z ? static_cast<double>(scan.rank * scan.headdim) : 0;
  return {.bytes = tensor_bytes(problem),
          .exponentials = steps * (2 + 3 * static_cast<double>(scan.angles) + gates)};
}

bool on_tensor_cores(Math math) {
  return math == Math::tf32 || math == Math::f16 || math == Math::bf16;
}

}  // namespace

Work mamba3_least_work(const Problem& problem, Math math) {
  const Mamba3 scan(problem);
  Work work = without_products(problem);
  const double sequential = (1 + 2 * static_cast<double>(scan.rank)) * scan.updates();
  if (on_tensor_cores(math) && !scan.is_step)
    work.tensor_flops = 2 * forward_fmas(scan);
  else
    work.fmas = scan.is_step ? sequential : std::min(sequential, forward_fmas(scan));
  return work;
}

Work mamba3_bwd_least_work(const Problem& problem, Math math) {
  const Mamba3 scan(problem);
  Work work = without_products(problem);
  const double of_rank = scan.has_z ? 6 : 5;
  const double sequential = (3 + of_rank * static_cast<double>(scan.rank)) * scan.updates();
  if (on_tensor_cores(math))
    work.tensor_flops = 2 * backward_fmas(scan);
  else
    work.fmas = std::min(sequential, backward_fmas(scan));
  return work;
}

}  // namespace ssmbench
