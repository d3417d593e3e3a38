// cuda-fused for selective_scan_bwd, the common case: real A, zoh, variable B and C, 9 to 16 states. Segments
// of time are done side by side, so that a batch of one fills the GPU too.
//
//   block    4 warps: 64 channels of one group, one segment of 64 to 256 steps
//   warp     16 channels; a thread has two of them and four states of each
//
//     lane        0      1      2       3     |   4      5   ...
//     channels             0, 1               |     2, 3     ...
//     states    0..3   4..7   8..11  12..15   | 0..3   4..7  ...
//
//   segment_kernel   ├──►  ├──►  ├──►  all segments from zero: h at each tile and at the end, and what the
//                    ◄──┤  ◄──┤  ◄──┤  end's carry is at the start, Σ_t (Π_{s≤t} Ā_s)·dy_t·C_t, on the way
//   combine_kernel   ├─────►─────►──►  the true h at the starts, the true carries at the ends: a chain over
//                    ◄──◄─────◄──────┤ segments with Ā = e^(A·ΣΔ), a thread per state
//   gradient_kernel  ◄──┤  ◄──┤  ◄──┤  all segments, last tile first
//   share_kernel, sums_kernel          sums over blocks of dB and dC, over segments and batches of the rest
//
// With carry_t = Ā_t·g_t, g_t = dy_t·C_t + carry_{t+1}. If the workspace would grow too large, states at
// tiles are kept for a span of several segments only: segment_kernel goes over each span once more.
//
// gradient_kernel, a tile of 16 steps:
//
//     stage    {Δ, Δ·u, dy, u}, {Δ's slope, dz/y}      a warp its own channels, in 16-byte pieces of time; B
//              and C, as four copies                   and C by the block
//     forward  h before every second step, to shared memory
//     back     two steps at a time: h between them again; sums over states (du, ∂Δ, y) and over channels
//              (dB, dC) by shuffles, which leave each lane one (channel, step) and one (state, step);
//              then du, ddelta, dz of these
//     store    du, ddelta, dz as staged; dB and dC added over the warps, to the workspace
//
// Exchanging sums between lanes takes two instructions per pair of values where lanes keep their states and
// channels in orders of their own (ParallelLane), four where what is kept is selected. That is why B and C
// lie in shared memory in each of the four orders.
//
// Registers: per pair of channel and state h, carry, A, the sum of dA: 32, and B, C, Δ, Δ·u, dy of two steps;
// capped at 168. Shared memory: 65 KB, half of it the states of a tile, so that three blocks share an SM.
// Decays are computed again on the way back: kept beside the states, they would take as much shared memory
// and its bandwidth once more. No atomics, all orders of sums are fixed. What was measured:
// docs/performance-notes.md.

#include "kernels/selective_scan/fused_bwd_parallel.h"

#include "device/cuda_check.h"
#include "kernels/selective_scan/fused_bwd_parallel_tile.cuh"

namespace ssmbench {
namespace {

using namespace parallel_bwd;

constexpr int kSumSlices = 8;
constexpr int kSumWidth = kCombineThreads / kSumSlices;

/// Everything that kernels know of a problem.
struct ParallelProblem {
  ScanGradientArgs args;
  DType io;
  bool pieces;  ///< in_pieces
  FusedBackwardParallelPlan plan;
  FusedBackwardParallelWorkspace at;
  float* workspace;
};

/// Shared memory of both kernels that go over time; the gradient kernel has all of it.
struct ParallelShared {
  float projections[2][kParallelSteps * kProjectionPitch];
  float bias[kParallelChannels], D[kParallelChannels];
  float4 sequences[kParallelChannels / kWarpChannels][kParallelSteps * kWarpChannels];
};
struct GradientShared : ParallelShared {
  float2 factors[kParallelChannels / kWarpChannels][kParallelSteps * kWarpChannels];
  /// [warp][pair of steps][r][lane] states; then, of each pair of steps, [dB, dC][step][state]
  float4 states[kParallelChannels / kWarpChannels][kParallelSteps / 2][kLaneChannels * 32];
};

using LaneStates = float[kLaneChannels][kLaneStates];

/// A thread's states in the workspace.
__device__ void load_lane(LaneStates& to, const float* from, std::int64_t at) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) load_states(to[r], from + at + r * kParallelThreads * kLaneStates);
}
__device__ void store_lane(float* to, std::int64_t at, const LaneStates& from) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) store_states(to + at + r * kParallelThreads * kLaneStates, from[r]);
}

/// A·log2(e) of a thread's states; zero where there is none.
__device__ void load_exponents(LaneStates& to, const ScanArgs& args, const ParallelPlace& place) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s)
      to[r][s] = place.exists(r, s, args.dstate) ? kLog2e * args.A[place.state_at(r, s, args.dstate)] : 0.0F;
}

template <bool with_carry>
__global__ void __launch_bounds__(kParallelThreads, 4)
    segment_kernel(const ParallelProblem problem, const std::int64_t first_segment, const bool keep_tiles) {
  __shared__ ParallelShared shared;
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const ParallelPlace place(args, plan, first_segment);
  load_channels(shared.bias, shared.D, args, place);
  __syncthreads();

  LaneStates A, h = {}, product, carry = {};
  load_exponents(A, args, place);
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s) product[r][s] = 1.0F;
  float delta_sum[kLaneChannels] = {};
  float4* const own = shared.sequences[place.warp];

  for (std::int64_t tile = 0; tile < place.tiles(plan); ++tile) {
    const std::int64_t start = place.begin + tile * kParallelSteps;
    if (tile > 0) {
      if (keep_tiles) {
        const std::int64_t inner = (place.segment - first_segment) * (plan.tiles() - 1) + tile - 1;
        store_lane(problem.workspace + at.tile_states + inner * plan.state_floats(), place.lane_at, h);
        store_row_sums(problem.workspace + at.tile_sums + inner * plan.rows(), delta_sum, place);
      }
      __syncthreads();
    }
    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      stage_tile<Io, pieces, false>(shared.projections, own, nullptr, shared.bias, problem.args, place, start,
                                    start + kParallelSteps);
    });
    __syncthreads();
#pragma unroll 4
    for (int t = 0; t < kParallelSteps; ++t) {
      float B[kLaneStates], C[kLaneStates];
      load_states(B, shared.projections[0] + place.projection_at(t));
      if constexpr (with_carry) load_states(C, shared.projections[1] + place.projection_at(t));
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r) {
        const float4 step = own[t * kWarpChannels + place.lane.channel(r)];
        delta_sum[r] += step.x;
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s) {
          const float decay = exp2_fast(step.x * A[r][s]);
          h[r][s] = fmaf(decay, h[r][s], step.y * B[s]);
          if constexpr (with_carry) {
            product[r][s] *= decay;
            carry[r][s] = fmaf(product[r][s], step.z * C[s], carry[r][s]);
          }
        }
      }
    }
  }
  if constexpr (with_carry) {
    const std::int64_t states_at = place.segment * plan.state_floats() + place.lane_at;
    store_lane(problem.workspace + at.states, states_at, h);
    store_lane(problem.workspace + at.carries, states_at, carry);
    store_row_sums(problem.workspace + at.delta_sums + place.segment * plan.rows(), delta_sum, place);
  }
}

/// blockIdx.y 0: `states` from those at the ends of segments to those at their starts; 1: `carries`, the
/// other way.
///
///   block    256 neighbouring states of the grid, in the order of the workspace; a thread each
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(const ParallelProblem problem) {
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const StoredState state(args, plan, static_cast<std::int64_t>(blockIdx.x) * kCombineThreads + threadIdx.x);
  const bool forward = blockIdx.y == 0;
  const float A = state.exists ? kLog2e * args.A[state.in_channels] : 0.0F;
  float value =
      forward && state.exists && args.initial_state != nullptr ? args.initial_state[state.in_batches] : 0.0F;
  float* const own = problem.workspace + (forward ? problem.at.states : problem.at.carries) + state.index;
  const float* const sums = problem.workspace + problem.at.delta_sums + state.row;
  const std::int64_t segments = plan.segments();
  constexpr int kAtOnce = 8;  // loads under way together
  for (std::int64_t first = 0; first < segments; first += kAtOnce) {
    float local[kAtOnce], sum[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t i = min(first + k, segments - 1);
      const std::int64_t segment = forward ? i : segments - 1 - i;
      local[k] = own[segment * plan.state_floats()];
      sum[k] = sums[segment * plan.rows()];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t i = first + k;
      if (i >= segments) break;
      own[(forward ? i : segments - 1 - i) * plan.state_floats()] = value;
      value = fmaf(exp2_fast(sum[k] * A), value, local[k]);
    }
  }
}

__global__ void __launch_bounds__(kParallelThreads, 3)
    gradient_kernel(const ParallelProblem problem, const std::int64_t first_segment) {
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<GradientShared*>(memory);
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const ParallelPlace place(args, plan, first_segment);
  load_channels(shared.bias, shared.D, args, place);
  __syncthreads();

  LaneStates A, carry, dA = {};
  load_exponents(A, args, place);
  float* const segment_states = problem.workspace + at.states + place.segment * plan.state_floats();
  load_lane(carry, problem.workspace + at.carries + place.segment * plan.state_floats(), place.lane_at);
  float dD = 0.0F;
  float ddelta_bias = 0.0F;
  float4* const own = shared.sequences[place.warp];
  float2* const factors = shared.factors[place.warp];
  auto& states = shared.states[place.warp];
  const int lane = place.lane.lane;
  // What is this lane's once sums over states and channels are done.
  const int own_channel = place.lane.channel(0);
  const float D = shared.D[place.warp * kWarpChannels + own_channel];
  const bool own_is_odd = (lane & 2) != 0;  // of a pair of steps
  const int own_element = (own_is_odd ? kWarpChannels : 0) + own_channel;
  const int own_sum = (lane >> 4) * kParallelStates + place.lane.state(0);

  for (std::int64_t tile = place.tiles(plan) - 1; tile >= 0; --tile) {
    const std::int64_t start = place.begin + tile * kParallelSteps;
    // All loads of a tile are under way together: what it waits for is the latency of memory.
    LaneStates h, local = {};
    float elapsed[kLaneChannels] = {};
    load_lane(h, segment_states, place.lane_at);
    if (tile > 0) {
      const std::int64_t inner = (place.segment - first_segment) * (plan.tiles() - 1) + tile - 1;
      load_lane(local, problem.workspace + at.tile_states + inner * plan.state_floats(), place.lane_at);
      const float* sums = problem.workspace + at.tile_sums + inner * plan.rows() + place.row();
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r) elapsed[r] = sums[place.lane.channel(r)];
    }
    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      stage_tile<Io, pieces, true>(shared.projections, own, factors, shared.bias, problem.args, place, start,
                                   start - kParallelSteps);
    });
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s)
        h[r][s] = fmaf(exp2_fast(elapsed[r] * A[r][s]), h[r][s], local[r][s]);
    __syncthreads();

#pragma unroll 4
    for (int t = 0; t < kParallelSteps; ++t) {
      if (t % 2 == 0) {
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r)
          states[t / 2][r * 32 + lane] = {h[r][0], h[r][1], h[r][2], h[r][3]};
      }
      float B[kLaneStates];
      load_states(B, shared.projections[0] + place.projection_at(t));
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r) {
        const float2 step = *reinterpret_cast<const float2*>(&own[t * kWarpChannels + place.lane.channel(r)]);
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s)
          h[r][s] = fmaf(exp2_fast(step.x * A[r][s]), h[r][s], step.y * B[s]);
      }
    }

#pragma unroll 2
    for (int pair = kParallelSteps / 2 - 1; pair >= 0; --pair) {
      StepSums even, odd;
      float4 step;  // the lane's own
      {
        float B[2][kLaneStates], C[2][kLaneStates];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          load_states(B[k], shared.projections[0] + place.projection_at(2 * pair + k));
          load_states(C[k], shared.projections[1] + place.projection_at(2 * pair + k));
        }
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r) {
          const int element = 2 * pair * kWarpChannels + place.lane.channel(r);
          const float4 first = own[element];
          const float4 second = own[element + kWarpChannels];
          if (r == 0) step = own_is_odd ? second : first;
          float before[kLaneStates];
          load_states(before, reinterpret_cast<const float*>(&states[pair][r * 32 + lane]));
#pragma unroll
          for (int s = 0; s < kLaneStates; ++s) {
            const float decay = exp2_fast(first.x * A[r][s]);
            const float between = fmaf(decay, before[s], first.y * B[0][s]);
            step_back(carry[r][s], dA[r][s], odd, r, s, second, exp2_fast(second.x * A[r][s]), A[r][s],
                      B[1][s], C[1][s], between, h[r][s]);
            step_back(carry[r][s], dA[r][s], even, r, s, first, decay, A[r][s], B[0][s], C[0][s], before[s],
                      between);
            h[r][s] = before[s];
          }
        }
      }
      add_over_states(even, odd, lane);
      add_over_channels(even, odd, lane);
      // Each lane has read what it needs of the states and of the sequences of these steps.
      __syncwarp();
      float* const sums = reinterpret_cast<float*>(states[pair]);
      sums[own_sum] = even.dB[0];
      sums[2 * kParallelStates + own_sum] = even.dC[0];
      const int element = 2 * pair * kWarpChannels + own_element;
      const float2 factor = factors[element];
      const float of_delta = (kLn2 * even.of_exponent[0] + step.w * even.of_input[0]) * factor.x;
      dD += step.z * step.w;
      ddelta_bias += of_delta;
      own[element] = {fmaf(step.x, even.of_input[0], D * step.z), of_delta,
                      fmaf(D, step.w, even.y[0]) * factor.y, 0.0F};
    }
    __syncthreads();

    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      store_sequences<Io, pieces>(own, problem.args, place, start);
    });
    // dB and dC of the tile, four states of a step a thread.
    const int which = threadIdx.x / (kParallelThreads / 2);
    const int quad = threadIdx.x % (kParallelThreads / 2);
    const int step = quad / (kParallelStates / 4);
    const int from = which * kParallelStates / 2 + step % 2 * kParallelStates / 4 + quad % 4;
    float4 sum = shared.states[0][step / 2][from];
#pragma unroll
    for (int warp = 1; warp < kParallelChannels / kWarpChannels; ++warp) {
      const float4 term = shared.states[warp][step / 2][from];
      sum = {sum.x + term.x, sum.y + term.y, sum.z + term.z, sum.w + term.w};
    }
    const std::int64_t share = place.block_index * plan.span + start - first_segment * plan.segment + step;
    float* const shares = problem.workspace + (which == 0 ? at.shares_B : at.shares_C);
    *reinterpret_cast<float4*>(shares + share * kParallelStates + quad % 4 * 4) = sum;
  }

  store_lane(segment_states, place.lane_at, dA);
  // The other lane that has this channel has the other step of each pair.
  dD += shuffle_xor(dD, 2);
  ddelta_bias += shuffle_xor(ddelta_bias, 2);
  if ((lane & 2) == 0) {
    const std::int64_t row = place.segment * plan.rows() + place.row() + own_channel;
    problem.workspace[at.dD + row] = dD;
    problem.workspace[at.ddelta_bias + row] = ddelta_bias;
  }
  if (place.segment > 0 || problem.args.dinitial_state == nullptr) return;
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s)
      if (place.exists(r, s, args.dstate))
        problem.args
            .dinitial_state[place.block.b * args.dim * args.dstate + place.state_at(r, s, args.dstate)] =
            carry[r][s];
}

/// dA, dD, ddelta_bias: sums over batches and segments. In order.
///
///   block    32 neighbouring states of the channels, in the order of the workspace, then, in the last
///   blocks,
///            32 channels; times 8 slices: every eighth segment of all batches
__global__ void __launch_bounds__(kCombineThreads)
    sums_kernel(const ParallelProblem problem, const std::int64_t state_blocks) {
  __shared__ float partial[kSumSlices][kSumWidth];
  const FusedBackwardParallelPlan& plan = problem.plan;
  const ScanGradientArgs& args = problem.args;
  const int column = static_cast<int>(threadIdx.x) % kSumWidth;
  const int slice = static_cast<int>(threadIdx.x) / kSumWidth;
  // Complete in slice 0; all threads of a block have to call it.
  const auto sum = [&](std::int64_t from, std::int64_t of_segment) {
    const std::int64_t of_batch = of_segment / plan.batch;
    float total = 0.0F;
    for (std::int64_t b = 0; b < plan.batch; ++b)
#pragma unroll 4
      for (std::int64_t segment = slice; segment < plan.segments(); segment += kSumSlices)
        total += problem.workspace[from + segment * of_segment + b * of_batch];
    __syncthreads();
    partial[slice][column] = total;
    __syncthreads();
    for (int other = 1; slice == 0 && other < kSumSlices; ++other) total += partial[other][column];
    return total;
  };
  if (blockIdx.x < state_blocks) {
    const StoredState state(args.scan, plan, static_cast<std::int64_t>(blockIdx.x) * kSumWidth + column);
    const float dA = sum(problem.at.states + state.index, plan.state_floats());
    if (slice == 0 && state.exists) args.dA[state.in_channels] = dA;
    return;
  }
  const StoredRow row(plan, (blockIdx.x - state_blocks) * kSumWidth + column);
  const float dD = sum(problem.at.dD + row.index, plan.rows());
  const float ddelta_bias = sum(problem.at.ddelta_bias + row.index, plan.rows());
  if (slice != 0 || !row.exists) return;
  if (args.dD != nullptr) args.dD[row.d] = dD;
  if (args.ddelta_bias != nullptr) args.ddelta_bias[row.d] = ddelta_bias;
}

unsigned grid_of(std::int64_t blocks) {
  return static_cast<unsigned>(blocks);
}

}  // namespace

ParallelBackward::ParallelBackward(const ScanGradientArgs& args, DType io,
                                   const FusedBackwardParallelPlan& plan, float* workspace)
    : args_(args), io_(io), plan_(plan), workspace_(workspace) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(gradient_kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(GradientShared)));
}

void ParallelBackward::launch(cudaStream_t stream, const AddShares& add_shares) const {
  const ParallelProblem problem{
      args_, io_, in_pieces(args_, io_), plan_, fused_backward_parallel_workspace(plan_), workspace_};
  const bool one_span = plan_.spans() == 1;
  segment_kernel<true>
      <<<grid_of(plan_.segments() * plan_.blocks()), kParallelThreads, 0, stream>>>(problem, 0, one_span);
  check_cuda(cudaGetLastError());
  combine_kernel<<<dim3(grid_of(plan_.state_floats() / kCombineThreads), 2), kCombineThreads, 0, stream>>>(
      problem);
  check_cuda(cudaGetLastError());
  for (std::int64_t span = plan_.spans() - 1; span >= 0; --span) {
    const std::int64_t first = span * plan_.span_segments();
    const std::int64_t end = std::min((span + 1) * plan_.span, plan_.seqlen);
    const unsigned grid =
        grid_of((std::min(first + plan_.span_segments(), plan_.segments()) - first) * plan_.blocks());
    if (!one_span) {
      segment_kernel<false><<<grid, kParallelThreads, 0, stream>>>(problem, first, true);
      check_cuda(cudaGetLastError());
    }
    gradient_kernel<<<grid, kParallelThreads, sizeof(GradientShared), stream>>>(problem, first);
    check_cuda(cudaGetLastError());
    add_shares(problem.at.shares_B, args_.dB, args_.scan.b_strides, {span * plan_.span, end});
    add_shares(problem.at.shares_C, args_.dC, args_.scan.c_strides, {span * plan_.span, end});
  }
  const std::int64_t state_blocks = plan_.state_floats() / plan_.batch / kSumWidth;
  const std::int64_t row_blocks = plan_.rows() / plan_.batch / kSumWidth;
  sums_kernel<<<grid_of(state_blocks + row_blocks), kCombineThreads, 0, stream>>>(problem, state_blocks);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
