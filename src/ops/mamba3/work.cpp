#include "ops/mamba3/work.h"

#include <algorithm>

#include "ops/mamba3/mamba3.h"

namespace ssmbench {
namespace {

double chunked_fmas(const Mamba3& scan) {
  const std::int64_t steps = std::max<std::int64_t>(1, 64 / scan.rank);
  const auto rank = static_cast<double>(scan.rank);
  const double of_step = scan.updates() / static_cast<double>(scan.seqlen);
  const auto all = static_cast<double>(scan.seqlen);
  const auto others = static_cast<double>(std::max<std::int64_t>(0, scan.seqlen - steps));
  const double before = of_step * (scan.has_initial_states ? all : others);
  const double behind = of_step * (scan.has_final_states ? all : others);
  const std::int64_t chunks = scan.seqlen / steps;
  const std::int64_t rest = scan.seqlen % steps;
  const std::int64_t of_sequence = chunks * (steps * (steps + 1) / 2) + rest * (rest + 1) / 2;
  const auto triangle = static_cast<double>(scan.batch * scan.nheads * of_sequence);
  const auto row = static_cast<double>(scan.dstate + scan.headdim);
  return rank * (before + behind) + rank * rank * triangle * row;
}

}  // namespace

Work mamba3_least_work(const Problem& problem, Math math) {
  const Mamba3 scan(problem);
  const double steps =
      static_cast<double>(scan.batch) * static_cast<double>(scan.seqlen) * static_cast<double>(scan.nheads);
  const double gates = scan.has_z ? static_cast<double>(scan.rank * scan.headdim) : 0;
  Work work{.bytes = tensor_bytes(problem),
            .exponentials = steps * (2 + 3 * static_cast<double>(scan.angles) + gates)};
  const double sequential = (1 + 2 * static_cast<double>(scan.rank)) * scan.updates();
  const bool on_tensor_cores = math == Math::tf32 || math == Math::f16 || math == Math::bf16;
  if (on_tensor_cores && !scan.is_step)
    work.tensor_flops = 2 * chunked_fmas(scan);
  else
    work.fmas = scan.is_step ? sequential : std::min(sequential, chunked_fmas(scan));
  return work;
}

}  // namespace ssmbench
