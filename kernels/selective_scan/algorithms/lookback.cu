// cuda-lookback for selective_scan_fwd: the single-pass scan of common/scan/lookback.cuh, f32, method zoh.
//
//   block    one row (b, d), one tile of 256 time steps; the states n one after the other
//   thread   one step
//
// Within a tile CUB's block scan composes the maps; thread 0 publishes the map of the whole tile, looks
// back for the state that enters, and hands it out through shared memory: h = decay·state + value at every
// step. Tiles of a row run side by side, which is what helps when there are few rows. Shared memory: one
// pair per warp and the state. Meant for negative A, as cuda-blockscan is.

#include <cub/block/block_scan.cuh>

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/scan/lookback.cuh"
#include "kernels/selective_scan/algorithms/f32_row.cuh"
#include "kernels/selective_scan/bind.h"

namespace ssmbench {
namespace {

constexpr int kThreads = 256;

struct Combine {
  __device__ DecayValue operator()(DecayValue first, DecayValue second) const {
    return combine(first, second);
  }
};

__global__ void __launch_bounds__(kThreads)
    lookback_selective_kernel(const ScanArgs args, const LookbackWorkspace workspace) {
  using Scan = cub::BlockScan<DecayValue, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ float entering;

  const std::int64_t rows = args.batch * args.dim;
  const auto [tile, row_index] = lookback_tile(take_ticket(workspace), rows);
  const F32Row row(args, row_index);
  const std::int64_t t = tile * kThreads + threadIdx.x;
  const int dstate = static_cast<int>(args.dstate);
  const bool is_last_step = t == args.seqlen - 1;
  const std::int64_t stride = rows * dstate;
  TileRecord* own = workspace.records + tile * stride + row_index * dstate;

  F32Row::Step step = row.step(t);
  for (int n = 0; n < dstate; ++n) {
    DecayValue map{expf(step.delta * row.A(n)), step.delta_u * row.B(n, t)};
    DecayValue whole;
    Scan(storage).InclusiveScan(map, map, Combine(), whole);
    if (threadIdx.x == 0) entering = entering_state(own + n, stride, tile, whole, row.initial_state(n));
    __syncthreads();
    const float h = map.decay * entering + map.value;
    step.y += row.C(n, t) * h;
    if (is_last_step) row.write_last_state(n, h);
    __syncthreads();  // before `storage` and `entering` are used again
  }
  row.write_out(t, step.y);
}

std::int64_t tiles(const SelectiveScan& scan) {
  return ceil_div(scan.seqlen, kThreads);
}
std::int64_t records(const SelectiveScan& scan) {
  return tiles(scan) * scan.batch * scan.dim * scan.dstate;
}

std::optional<std::string> unsupported(const Problem& problem) {
  if (auto reason = not_f32_rows(problem)) return reason;
  const SelectiveScan scan(problem);
  return grid_too_large({scan.batch, scan.dim, tiles(scan)}, "row of batch x dim and 256 steps");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-lookback " + *reason);
  const SelectiveScan scan(problem);
  return lookback_launch(lookback_selective_kernel, bind_scan(problem, tensors), workspace, records(scan),
                         scan.batch * scan.dim * tiles(scan), kThreads);
}

const Registration registration{
    {.name = "cuda-lookback",
     .op = "selective_scan_fwd",
     .device = DeviceKind::cuda,
     .summary = "single pass with decoupled look-back, one block per row and tile of 256 steps",
     .only_when_named = true,
     .deterministic = false,
     .unsupported = unsupported,
     .workspace_bytes =
         [](const Problem& problem) { return lookback_bytes(records(SelectiveScan(problem))); },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench
