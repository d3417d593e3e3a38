#include "kernels/distributed/host_implementation.h"

namespace ssmbench {

const Implementation* host_implementation(const Problem& problem) {
  const Implementation* found = nullptr;
  for (const auto& one : implementations())
    if (one.op == problem.op().name && !one.unsupported(problem) &&
        (one.name == "cpu-simd" || (one.name == "cpu-scalar" && found == nullptr)))
      found = &one;
  return found;
}

}  // namespace ssmbench
