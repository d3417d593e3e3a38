#pragma once

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/selective_scan/algorithms/f32_row.cuh"
#include "kernels/selective_scan/bind.h"

// selective_scan_fwd, f32, method zoh, by any algorithm that scans a tile in shared memory
// (common/scan/: blelloch.cuh, hillis_steele.cuh, logcumsum.cuh).
//
//   grid     one block per row (b, d)
//   block    walks the row in tiles, and in each tile the states n one after the other; the state at the end
//            of a tile waits in shared memory, per n, for the next one
//   thread   kItems steps, kThreads apart, so that neighbouring threads read neighbouring steps:
//
//     step in tile    0 .. kThreads-1 | kThreads .. 2·kThreads-1
//     item                   0        |            1
//     thread          0 .. kThreads-1 |      0 .. kThreads-1
//
// Shared memory: the algorithm's, and 1 KiB of states. Meant for negative A, as cuda-blockscan is: a growing
// product of decays can overflow before h does.

namespace ssmbench {

template <class Algorithm>
__global__ void __launch_bounds__(Algorithm::kThreads) tiled_selective_scan_kernel(const ScanArgs args) {
  constexpr int kItems = Algorithm::kItems;
  __shared__ typename Algorithm::Shared shared;
  __shared__ float states[kMaxDState];
  const F32Row row(args, blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int dstate = static_cast<int>(args.dstate);

  for (int n = thread; n < dstate; n += Algorithm::kThreads) states[n] = row.initial_state(n);
  __syncthreads();
  for (std::int64_t start = 0; start < args.seqlen; start += Algorithm::kTileSteps) {
    const std::int64_t t0 = start + thread;
    F32Row::Step steps[kItems];
    for (int i = 0; i < kItems; ++i) steps[i] = row.step(t0 + i * Algorithm::kThreads);

    for (int n = 0; n < dstate; ++n) {
      DecayValue maps[kItems];
      float h[kItems];
      for (int i = 0; i < kItems; ++i)
        maps[i] = Algorithm::of_exponent(steps[i].delta * row.A(n),
                                         steps[i].delta_u * row.B(n, t0 + i * Algorithm::kThreads));
      // Every thread has read the state before the first barrier in there, and it is replaced after the last.
      Algorithm::scan(shared, thread, maps, states[n], h);
      for (int i = 0; i < kItems; ++i) steps[i].y += row.C(n, t0 + i * Algorithm::kThreads) * h[i];
      if (thread == Algorithm::kThreads - 1) states[n] = h[kItems - 1];
      __syncthreads();
    }
    for (int i = 0; i < kItems; ++i) row.write_out(t0 + i * Algorithm::kThreads, steps[i].y);
  }
  for (int n = thread; n < dstate; n += Algorithm::kThreads) row.write_last_state(n, states[n]);
}

/// The registry entry of an algorithm for selective_scan_fwd.
template <class Algorithm>
Implementation tiled_selective_scan(std::string name, std::string summary, std::string known_failure = {}) {
  const auto unsupported = [](const Problem& problem) -> std::optional<std::string> {
    if (auto reason = not_f32_rows(problem)) return reason;
    return grid_too_large({problem.size("batch"), problem.size("dim")}, "row of batch x dim");
  };
  const auto bind = [name, unsupported](const Problem& problem, const TensorSet& tensors,
                                        void* /*workspace*/) -> Launch {
    if (auto reason = unsupported(problem)) throw ContractError(name + " " + *reason);
    const ScanArgs args = bind_scan(problem, tensors);
    return launch_of(tiled_selective_scan_kernel<Algorithm>, args.batch * args.dim, Algorithm::kThreads, 0,
                     args);
  };
  return {.name = name,
          .op = "selective_scan_fwd",
          .device = DeviceKind::cuda,
          .summary = std::move(summary),
          .known_failure = std::move(known_failure),
          .only_when_named = true,
          .unsupported = unsupported,
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = bind};
}

}  // namespace ssmbench
