#pragma once

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/linear_scan/bind.h"
#include "kernels/linear_scan/channel_tiles.h"

// linear_scan, f32, by any algorithm that scans a tile in shared memory (common/scan/:
// blelloch.cuh, hillis_steele.cuh, logcumsum.cuh).
//
//   grid     one block per 8 neighbouring channels of a batch: 32 bytes, the least that memory moves
//   block    threadIdx.x: channel; threadIdx.y: the algorithm's thread along time
//            walks the row in tiles; the state at the end of a tile enters the next one through shared memory
//
// Channels past dim take part with steps that change nothing.

namespace ssmbench {

/// Channels per block and the algorithm's threads per channel: 512 threads in all.
inline constexpr int kLinearChannels = 8;
inline constexpr int kLinearThreads = 64;

template <class Algorithm>
__global__ void __launch_bounds__(kLinearChannels* Algorithm::kThreads)
    tiled_linear_scan_kernel(const LinearScanArgs args) {
  __shared__ typename Algorithm::Shared shared[kLinearChannels];
  __shared__ float states[kLinearChannels];
  const int channel = static_cast<int>(threadIdx.x);
  const int thread = static_cast<int>(threadIdx.y);
  const auto [batch, first] = channel_tile(blockIdx.x, args.dim, kLinearChannels);
  const bool inside = first + channel < args.dim;
  const std::int64_t column = batch * args.seqlen * args.dim + first + channel;
  const auto* a = static_cast<const float*>(args.a) + column;
  const auto* b = static_cast<const float*>(args.b) + column;
  auto* out = static_cast<float*>(args.out) + column;

  if (thread == 0) states[channel] = 0.0F;
  __syncthreads();
  for (std::int64_t start = 0; start < args.seqlen; start += Algorithm::kTileSteps) {
    DecayValue maps[Algorithm::kItems];
    float h[Algorithm::kItems];
    for (int i = 0; i < Algorithm::kItems; ++i) {
      const std::int64_t t = start + i * Algorithm::kThreads + thread;
      const bool valid = inside && t < args.seqlen;
      maps[i] =
          valid ? Algorithm::of_decay(a[t * args.dim], b[t * args.dim]) : Algorithm::of_decay(1.0F, 0.0F);
    }
    // Every thread has read the state before the first barrier in there, and it is replaced after the last.
    Algorithm::scan(shared[channel], thread, maps, states[channel], h);
    for (int i = 0; i < Algorithm::kItems; ++i) {
      const std::int64_t t = start + i * Algorithm::kThreads + thread;
      if (inside && t < args.seqlen) out[t * args.dim] = h[i];
    }
    if (thread == Algorithm::kThreads - 1) states[channel] = h[Algorithm::kItems - 1];
    __syncthreads();
  }
}

/// The unsupported reason of a kernel in f32 with one block per `channels` channels; nothing when it supports
/// the problem.
inline std::optional<std::string> not_f32_tiles(const Problem& problem, int channels) {
  if (problem.dtype() != DType::f32) return "supports f32 only: it is kept to compare algorithms";
  const LinearScan scan(problem);
  return grid_too_large({scan.batch, ceil_div(scan.dim, channels)},
                        "batch and " + std::to_string(channels) + " channels");
}

/// The registry entry of an algorithm for linear_scan.
template <class Algorithm>
Implementation tiled_linear_scan(std::string name, std::string summary, std::string known_failure = {}) {
  const auto unsupported = [](const Problem& problem) { return not_f32_tiles(problem, kLinearChannels); };
  const auto bind = [name, unsupported](const Problem& problem, const TensorSet& tensors,
                                        void* /*workspace*/) -> Launch {
    if (auto reason = unsupported(problem)) throw ContractError(name + " " + *reason);
    const LinearScanArgs args = bind_linear_scan(problem, tensors);
    return launch_of(tiled_linear_scan_kernel<Algorithm>,
                     channel_tiles(args.batch, args.dim, kLinearChannels),
                     dim3(kLinearChannels, Algorithm::kThreads), 0, args);
  };
  return {.name = name,
          .op = "linear_scan",
          .device = DeviceKind::cuda,
          .summary = std::move(summary),
          .known_failure = std::move(known_failure),
          .unsupported = unsupported,
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = bind};
}

}  // namespace ssmbench
