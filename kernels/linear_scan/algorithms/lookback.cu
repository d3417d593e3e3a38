// cuda-lookback for linear_scan: the single-pass scan of lookback.cuh, its tiles 32 steps long.
//
//   block    128 neighbouring channels of a batch, one tile of time
//   thread   one channel: reads the 32 steps of its tile into registers, folds them into one map, looks back
//            for the state that enters, and runs the recurrence from there
//
// No shared memory but the ticket; 64 registers of inputs. Neighbouring threads read neighbouring channels,
// which are neighbours in memory, and their records are too.

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/scan/lookback.cuh"
#include "kernels/linear_scan/bind.h"
#include "kernels/linear_scan/channel_tiles.h"

namespace ssmbench {
namespace {

constexpr int kThreads = 128;
constexpr int kSteps = 32;

__global__ void __launch_bounds__(kThreads)
    lookback_linear_kernel(const LinearScanArgs args, const LookbackWorkspace workspace) {
  const std::int64_t rows = channel_tiles(args.batch, args.dim, kThreads);
  const auto [tile, row] = lookback_tile(take_ticket(workspace), rows);
  const auto [batch, first] = channel_tile(row, args.dim, kThreads);
  const std::int64_t d = first + threadIdx.x;
  if (d >= args.dim) return;
  const std::int64_t start = tile * kSteps;
  const int steps = steps_within(start, kSteps, args.seqlen);
  const std::int64_t at = (batch * args.seqlen + start) * args.dim + d;

  DecayValue maps[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const std::int64_t here = at + i * args.dim;
    maps[i] = {1.0F, 0.0F};
    if (i < steps)
      maps[i] = {static_cast<const float*>(args.a)[here], static_cast<const float*>(args.b)[here]};
  }
  DecayValue whole{1.0F, 0.0F};
#pragma unroll
  for (int i = 0; i < kSteps; ++i) whole = combine(whole, maps[i]);

  const std::int64_t channels = args.batch * args.dim;
  TileRecord* own = workspace.records + tile * channels + batch * args.dim + d;
  float h = entering_state(own, channels, tile, whole, 0.0F);
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    h = maps[i].decay * h + maps[i].value;
    if (i < steps) static_cast<float*>(args.out)[at + i * args.dim] = h;
  }
}

std::int64_t tiles(const LinearScan& scan) {
  return ceil_div(scan.seqlen, kSteps);
}
std::int64_t records(const LinearScan& scan) {
  return tiles(scan) * scan.batch * scan.dim;
}

std::optional<std::string> unsupported(const Problem& problem) {
  if (problem.dtype() != DType::f32) return "supports f32 only: it is kept to compare algorithms";
  const LinearScan scan(problem);
  return grid_too_large({scan.batch, ceil_div(scan.dim, kThreads), tiles(scan)},
                        "batch, 128 channels and 32 steps");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-lookback " + *reason);
  const LinearScan scan(problem);
  const std::int64_t blocks = channel_tiles(scan.batch, scan.dim, kThreads) * tiles(scan);
  return lookback_launch(lookback_linear_kernel, bind_linear_scan(problem, tensors), workspace, records(scan),
                         blocks, kThreads);
}

const Registration registration{
    {.name = "cuda-lookback",
     .op = "linear_scan",
     .device = DeviceKind::cuda,
     .summary = "single pass with decoupled look-back, tiles of 32 steps in registers",
     .deterministic = false,
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem& problem) { return lookback_bytes(records(LinearScan(problem))); },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench
