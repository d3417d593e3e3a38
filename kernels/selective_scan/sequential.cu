// cuda-sequential: sequential in time, channels across threads, states in registers. No scan along time, so
// each (element, state) pair costs one exponential and three multiply-adds and nothing is computed twice.
//
//   block    up to 128 threads: channels of one group times lanes; at dstate 16 two lanes of 8 states each
//
//     thread      0        1     |   2        3     |   4 ...
//     channel         0          |        1         |   2 ...
//     states    0..7    8..15    | 0..7     8..15   |
//
//   tile     32 (or 16) time steps of all of these channels, through shared memory as f32:
//
//     stage    Δ = softplus(delta + bias), u, B, C     threads along whichever axis is contiguous in memory
//     scan     h ← e^(Δ·A)·h + Δ·u·B,  y = Σ C·h       threads over (channel, states), step after step; the
//                                                      lanes of a channel add their sums by shuffles
//     finish   out = (y + D·u)·silu(z)                 threads as in stage
//
// Registers: h, A, B and C of 8 states are 32; with addresses and loads in flight, 96. 8 states on each of 32
// lanes are the largest dstate, 256. Shared memory: B and C, read by all channels of the block, and u, Δ, y:
// 30 KB at dstate 16, under 48 KB always.

#include "device/cuda_check.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/sequential_map.h"

namespace ssmbench {
namespace {

/// Caps registers at 96, the fewest that no dtype spills with: the compiler unrolls the staging loops to fill
/// them.
constexpr int kBlocksPerSm = 5;

/// Shared memory of a block, laid out as SequentialPlan says.
struct Tiles {
  float* B;
  float* C;
  float* u;
  float* delta;
  float* y;
};

__device__ Tiles tiles_in(float* shared, const SequentialPlan& plan) {
  float* sequences = shared + 2 * plan.projection_floats();
  return {shared, shared + plan.projection_floats(), sequences, sequences + plan.sequence_floats(),
          sequences + 2 * plan.sequence_floats()};
}

/// B or C of one group from time `start` on, as [step][state]; zero in the states past dstate.
template <class T>
__device__ void stage_projection(float* tile, const void* source, const ProjectionStrides& strides,
                                 const BlockChannels& block, std::int64_t start, int valid,
                                 std::int64_t dstate, const SequentialPlan& plan) {
  const T* origin = static_cast<const T*>(source) + block.b * strides.batch + block.g * strides.group +
                    start * strides.time;
  for (int i = threadIdx.x; i < plan.states() * plan.steps(); i += plan.threads()) {
    const auto [n, t] = tile_element(i, plan.states_log2(), plan.steps_log2, strides.time == 1);
    if (t >= valid) continue;
    tile[t * plan.projection_pitch() + n] =
        n < dstate ? to_float(origin[n * strides.state + t * strides.time]) : 0.0F;
  }
}

/// u and Δ as [channel][step]; zero in the channels past the group's end, so that their threads compute
/// nothing odd.
template <class T>
__device__ void stage_sequences(const Tiles& tiles, const ScanArgs& args, const BlockChannels& block,
                                std::int64_t origin, int valid, const SequentialPlan& plan) {
  for (int i = threadIdx.x; i < plan.channels() * plan.steps(); i += plan.threads()) {
    const auto [c, t] = tile_element(i, plan.channels_log2, plan.steps_log2, args.sequence.time == 1);
    if (t >= valid) continue;
    float u = 0.0F;
    float delta = 0.0F;
    if (c < block.count) {
      const std::int64_t at = origin + c * args.sequence.dim + t * args.sequence.time;
      u = to_float(static_cast<const T*>(args.u)[at]);
      delta = to_float(static_cast<const T*>(args.delta)[at]);
      if (args.delta_bias != nullptr) delta += args.delta_bias[block.first + c];
      if (args.delta_softplus) delta = softplus(delta);
    }
    tiles.u[c * plan.sequence_pitch() + t] = u;
    tiles.delta[c * plan.sequence_pitch() + t] = delta;
  }
}

template <class T>
__device__ void finish_sequences(const Tiles& tiles, const ScanArgs& args, const BlockChannels& block,
                                 std::int64_t origin, int valid, const SequentialPlan& plan) {
  for (int i = threadIdx.x; i < plan.channels() * plan.steps(); i += plan.threads()) {
    const auto [c, t] = tile_element(i, plan.channels_log2, plan.steps_log2, args.sequence.time == 1);
    if (t >= valid || c >= block.count) continue;
    const std::int64_t at = origin + c * args.sequence.dim + t * args.sequence.time;
    float y = tiles.y[c * plan.sequence_pitch() + t];
    if (args.D != nullptr) y += args.D[block.first + c] * tiles.u[c * plan.sequence_pitch() + t];
    if (args.z != nullptr) y *= silu(to_float(static_cast<const T*>(args.z)[at]));
    static_cast<T*>(args.out)[at] = from_float<T>(y);
  }
}

/// A thread's states, or their B or C, from a [step][state] tile: 32 bytes, aligned to 16.
__device__ void load_states(float (&values)[kStatesPerThread], const float* tile) {
#pragma unroll
  for (int s = 0; s < kStatesPerThread; s += 4) {
    const float4 four = *reinterpret_cast<const float4*>(tile + s);
    values[s] = four.x;
    values[s + 1] = four.y;
    values[s + 2] = four.z;
    values[s + 3] = four.w;
  }
}

/// `count` of a thread's states from f32 memory, zeros after them and where there is no memory.
__device__ void load_states(float (&values)[kStatesPerThread], const float* memory, int count) {
#pragma unroll
  for (int s = 0; s < kStatesPerThread; ++s) values[s] = memory != nullptr && s < count ? memory[s] : 0.0F;
}

template <class T>
__global__ void __launch_bounds__(kSequentialMaxThreads, kBlocksPerSm)
    sequential_kernel(const ScanArgs args, const SequentialPlan plan) {
  extern __shared__ float4 shared[];
  const Tiles tiles = tiles_in(reinterpret_cast<float*>(shared), plan);
  const BlockChannels block = block_channels(plan, blockIdx.x, args.groups, args.channels_per_group);
  const std::int64_t row = block.b * args.sequence.batch + block.first * args.sequence.dim;

  const int c = plan.channel_of(threadIdx.x);
  const int n = plan.first_state_of(threadIdx.x);
  const std::int64_t d = block.first + c;
  const std::int64_t state_at = (block.b * args.dim + d) * args.dstate + n;
  // States that exist. The others keep h = 0: their A, B and C are 0, and zeros are what they add to y.
  const int count = c < block.count ? static_cast<int>(args.dstate) - n : 0;

  float h[kStatesPerThread], A[kStatesPerThread], B[kStatesPerThread], C[kStatesPerThread];
  load_states(h, args.initial_state == nullptr ? nullptr : args.initial_state + state_at, count);
  load_states(A, args.A + d * args.dstate + n, count);
  if (!args.variable_b)
    load_states(B, static_cast<const float*>(args.B) + d * args.b_strides.channel + n, count);
  if (!args.variable_c)
    load_states(C, static_cast<const float*>(args.C) + d * args.c_strides.channel + n, count);

  for (std::int64_t start = 0; start < args.seqlen; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), args.seqlen);
    const std::int64_t origin = row + start * args.sequence.time;
    // No barrier between finish and the next stage: u is read and rewritten by the same thread, y is not
    // staged, and the scan's reads of the rest lie before the barrier that precedes finish.
    stage_sequences<T>(tiles, args, block, origin, valid, plan);
    if (args.variable_b)
      stage_projection<T>(tiles.B, args.B, args.b_strides, block, start, valid, args.dstate, plan);
    if (args.variable_c)
      stage_projection<T>(tiles.C, args.C, args.c_strides, block, start, valid, args.dstate, plan);
    __syncthreads();

    for (int t = 0; t < valid; ++t) {
      const float delta = tiles.delta[c * plan.sequence_pitch() + t];
      const float delta_u = delta * tiles.u[c * plan.sequence_pitch() + t];
      if (args.variable_b) load_states(B, tiles.B + t * plan.projection_pitch() + n);
      if (args.variable_c) load_states(C, tiles.C + t * plan.projection_pitch() + n);
      float y = 0.0F;
#pragma unroll
      for (int s = 0; s < kStatesPerThread; ++s) {
        h[s] = expf(delta * A[s]) * h[s] + delta_u * B[s];
        y += C[s] * h[s];
      }
      for (int distance = plan.lanes() / 2; distance > 0; distance /= 2)
        y += __shfl_xor_sync(0xFFFFFFFFU, y, distance);
      if (n == 0) tiles.y[c * plan.sequence_pitch() + t] = y;
    }
    __syncthreads();
    finish_sequences<T>(tiles, args, block, origin, valid, plan);
  }

#pragma unroll
  for (int s = 0; s < kStatesPerThread; ++s)
    if (s < count) args.last_state[state_at + s] = h[s];
}

using Kernel = void (*)(ScanArgs, SequentialPlan);

std::optional<std::string> unsupported(const Problem& problem) {
  if (auto reason = not_real_zoh(problem)) return reason;
  const SelectiveScan scan(problem);
  const SequentialPlan plan = plan_sequential(scan.channels_per_group(), scan.dstate);
  if (scan.batch > kMaxGridX / (scan.groups * plan.blocks_per_group))
    return "needs at most 2147483647 blocks: one per batch and " + std::to_string(plan.channels()) +
           " channels";
  return std::nullopt;
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-sequential " + *reason);
  const ScanArgs args = bind_scan(problem, tensors);
  const SequentialPlan plan = plan_sequential(args.channels_per_group, args.dstate);
  const Kernel kernel = with_io_type(
      problem.dtype(), []<class T>(std::type_identity<T>) -> Kernel { return sequential_kernel<T>; });
  const auto blocks = static_cast<unsigned>(args.batch * args.groups * plan.blocks_per_group);
  const auto threads = static_cast<unsigned>(plan.threads());
  const auto shared_bytes = static_cast<std::size_t>(plan.shared_bytes());
  return [=](void* stream) {
    kernel<<<blocks, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(args, plan);
    check_cuda(cudaGetLastError());
  };
}

const Registration registration{{.name = "cuda-sequential",
                                 .op = "selective_scan_fwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "sequential in time, states in registers, both layouts",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .work = scan_work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
