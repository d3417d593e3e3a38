// cuda-recurrent: the recurrence as it is defined, step after step, the state in registers. The simple
// implementation that the chunked ones are compared with: three multiply-adds per state and step on the
// ordinary pipe, and as many steps in a row as the sequence has.
//
//   block    (b, h) and up to 256 threads: rows of the state (of P) times lanes of 32 states (of N) each; one
//            block holds 64 × 128 states. At dstate 128 four lanes:
//
//     thread      0       1       2        3    |   4       5  ...
//     row                     0                 |       1      ...
//     states   0-3,16-  4-7,20-  8-11,  12-15,  | 0-3,16-      ...
//
//   tile     16 time steps through shared memory as f32:
//
//     stage    Δ and e^(Δ·A), x, B, C           threads along what is contiguous in memory
//     scan     h ← e^(Δ·A)·h + Δ·x·B, y = Σ C·h threads over (row, states), step after step; the lanes of a
//                                               row add their sums by shuffles. A reset is a decay of 0
//     finish   out = (y + D·x)·silu(z)          threads as in stage
//
// Registers: h is 32 a thread, B and C come from shared memory four at a time, the same address for all rows
// of a warp. Shared memory: 36 KB at dstate 256, less below.

#include "device/cuda_check.h"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/delta.cuh"
#include "kernels/ssd_chunk_scan/recurrent_map.h"

namespace ssmbench {
namespace {

/// Shared memory of a block, laid out as RecurrentPlan says.
struct Tiles {
  float* B;
  float* C;
  float* x;
  float* y;
  float* delta;
  float* decay;

  __device__ Tiles(float* shared, const RecurrentPlan& plan)
      : B(shared),
        C(B + plan.projection_floats()),
        x(C + plan.projection_floats()),
        y(x + plan.row_floats()),
        delta(y + plan.row_floats()),
        decay(delta + kRecurrentSteps) {}
};

/// What a block works on: rows `row` … + `count` − 1 of head h in batch b.
struct Block {
  std::int64_t b, h, row;
  int count;
};

/// [step][0 … count − 1] from rows of a tensor `stride` elements apart, zeros up to `width`.
template <class T>
__device__ void stage(float* tile, const T* source, std::int64_t stride, int steps, int count, int width,
                      int threads) {
  for (int i = threadIdx.x; i < steps * width; i += threads) {
    const int t = i / width;
    const int column = i % width;
    tile[i] = column < count ? to_float(source[t * stride + column]) : 0.0F;
  }
}

/// Δ and decay of a tile's steps; a step whose seq_idx is not that of the step before forgets the state.
template <class T>
__device__ void stage_steps(const Tiles& tiles, const SsdInputs& in, const Block& block, std::int64_t start,
                            int steps) {
  const int t = threadIdx.x;
  if (t >= steps) return;
  const std::int64_t time = block.b * in.seqlen + start + t;
  const StepRule rule{in.dt_softplus, in.dt_low, in.dt_high};
  const float dt = to_float(static_cast<const T*>(in.dt)[time * in.nheads + block.h]);
  const float delta = step_size(dt, in.dt_bias == nullptr ? 0.0F : in.dt_bias[block.h], rule);
  bool reset = false;
  if (in.seq_idx != nullptr)
    reset = in.seq_idx[time] != (start + t == 0 ? 0 : in.seq_idx[time - 1]);  // initial_states: sequence 0
  tiles.delta[t] = delta;
  tiles.decay[t] = reset ? 0.0F : expf(delta * in.A[block.h]);
}

template <class T>
__device__ void finish(const Tiles& tiles, const SsdArgs& args, const Block& block, std::int64_t origin,
                       int steps, const RecurrentPlan& plan) {
  const SsdInputs& in = args.in;
  for (int i = threadIdx.x; i < steps * plan.rows; i += plan.threads()) {
    const int row = i % plan.rows;
    if (row >= block.count) continue;
    const std::int64_t at = origin + i / plan.rows * in.nheads * in.headdim + row;
    float y = tiles.y[i];
    if (in.D != nullptr)
      y += in.D[in.skip_per_headdim ? block.h * in.headdim + block.row + row : block.h] * tiles.x[i];
    if (in.z != nullptr) y *= silu(to_float(static_cast<const T*>(in.z)[at]));
    static_cast<T*>(args.out)[at] = from_float<T>(y);
  }
}

template <class T>
__global__ void __launch_bounds__(kRecurrentMaxThreads)
    recurrent_kernel(const SsdArgs args, const RecurrentPlan plan) {
  extern __shared__ float4 shared[];
  const Tiles tiles(reinterpret_cast<float*>(shared), plan);
  const SsdInputs& in = args.in;
  const std::int64_t head = blockIdx.x / plan.blocks_per_head;
  const std::int64_t first_row = blockIdx.x % plan.blocks_per_head * plan.rows;
  const Block block{head / in.nheads, head % in.nheads, first_row,
                    steps_within(first_row, plan.rows, in.headdim)};
  const int row = plan.row_of(threadIdx.x);
  const int lane = plan.lane_of(threadIdx.x);
  const std::int64_t state_at = (head * in.headdim + first_row + row) * in.dstate;
  const auto exists = [&](int i) { return row < block.count && plan.state_of(lane, i) < in.dstate; };

  float h[kRecurrentStates] = {};
#pragma unroll
  for (int i = 0; i < kRecurrentStates; ++i)
    if (in.initial_states != nullptr && exists(i))
      h[i] = in.initial_states[state_at + plan.state_of(lane, i)];

  for (std::int64_t start = 0; start < in.seqlen; start += kRecurrentSteps) {
    const int steps = steps_within(start, kRecurrentSteps, in.seqlen);
    const std::int64_t time = block.b * in.seqlen + start;
    const std::int64_t origin = (time * in.nheads + block.h) * in.headdim + first_row;
    const std::int64_t projection = (time * in.groups + block.h / in.heads_per_group) * in.dstate;
    // No barrier between finish and the next stage: x is read and rewritten by the same thread, y is not
    // staged, and the scan's reads of the rest lie before the barrier that precedes finish.
    stage(tiles.x, static_cast<const T*>(in.x) + origin, in.nheads * in.headdim, steps, block.count,
          plan.rows, plan.threads());
    stage(tiles.B, static_cast<const T*>(in.B) + projection, in.groups * in.dstate, steps,
          static_cast<int>(in.dstate), plan.states(), plan.threads());
    stage(tiles.C, static_cast<const T*>(in.C) + projection, in.groups * in.dstate, steps,
          static_cast<int>(in.dstate), plan.states(), plan.threads());
    stage_steps<T>(tiles, in, block, start, steps);
    __syncthreads();

    for (int t = 0; t < steps; ++t) {
      const float decay = tiles.decay[t];
      const float input = tiles.delta[t] * tiles.x[t * plan.rows + row];
      float y = 0.0F;
#pragma unroll
      for (int i = 0; i < kRecurrentStates; i += 4) {
        const int n = t * plan.states() + plan.state_of(lane, i);
        const float4 b = *reinterpret_cast<const float4*>(tiles.B + n);
        const float4 c = *reinterpret_cast<const float4*>(tiles.C + n);
        h[i] = decay * h[i] + input * b.x;
        h[i + 1] = decay * h[i + 1] + input * b.y;
        h[i + 2] = decay * h[i + 2] + input * b.z;
        h[i + 3] = decay * h[i + 3] + input * b.w;
        y += c.x * h[i] + c.y * h[i + 1] + c.z * h[i + 2] + c.w * h[i + 3];
      }
      for (int distance = plan.lanes / 2; distance > 0; distance /= 2)
        y += __shfl_xor_sync(0xFFFFFFFFU, y, distance);
      if (lane == 0) tiles.y[t * plan.rows + row] = y;
    }
    __syncthreads();
    finish<T>(tiles, args, block, origin, steps, plan);
  }

  if (args.final_states == nullptr) return;
#pragma unroll
  for (int i = 0; i < kRecurrentStates; ++i)
    if (exists(i)) args.final_states[state_at + plan.state_of(lane, i)] = h[i];
}

using Kernel = void (*)(SsdArgs, RecurrentPlan);

std::optional<std::string> unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const RecurrentPlan plan = plan_recurrent(scan.headdim, scan.dstate);
  if (scan.nheads > kMaxGridX / plan.blocks_per_head ||
      scan.batch > kMaxGridX / (scan.nheads * plan.blocks_per_head))
    return "needs at most 2147483647 blocks: one per batch, head and " + std::to_string(plan.rows) +
           " of headdim";
  return {};
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-recurrent " + *reason);
  const SsdArgs args = bind_ssd(problem, tensors);
  const RecurrentPlan plan = plan_recurrent(args.in.headdim, args.in.dstate);
  const Kernel kernel = with_io_type(
      problem.dtype(), []<class T>(std::type_identity<T>) -> Kernel { return recurrent_kernel<T>; });
  const auto blocks = static_cast<unsigned>(args.in.batch * args.in.nheads * plan.blocks_per_head);
  const auto threads = static_cast<unsigned>(plan.threads());
  const auto shared_bytes = static_cast<std::size_t>(plan.shared_bytes());
  return [=](void* stream) {
    kernel<<<blocks, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(args, plan);
    check_cuda(cudaGetLastError());
  };
}

const Registration registration{{.name = "cuda-recurrent",
                                 .op = "ssd_chunk_scan_fwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "the recurrence, step after step, state in registers",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .work = ssd_work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
