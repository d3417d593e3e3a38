#pragma once

// The common case of cuda-fused for selective_scan_bwd: the kernel that goes back. What its helpers do
// is in fused_bwd_parallel_helper.cuh, the picture in fused_bwd_parallel.cu.

#include "kernels/common/warp_roles.cuh"
#include "kernels/selective_scan/fused_bwd/producer.cuh"
#include "kernels/selective_scan/fused_bwd/step_back.cuh"

namespace ssmbench::parallel_bwd {

inline constexpr int kGradientThreads = kHelperThreads + kStateThreads;

// Registers of a thread, of helpers and of those that compute; together as many as the kernel is launched
// with.
inline constexpr int kHelperRegisters = 40;
inline constexpr int kComputeRegisters = 216;
static_assert(kHelperThreads * kHelperRegisters + kStateThreads * kComputeRegisters <= 65536);

/// One step of all of a thread's states, whose decays it leaves.
__device__ inline void step_forward(LaneStates& h, LaneStates& decay, const LaneStates& A, const float4* own,
                                    const float* B_of_tile, const ParallelPlace& place, int t) {
  float B[kLaneStates];
  load_states(B, B_of_tile + place.projection_at(t));
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) {
    const float2 step = *reinterpret_cast<const float2*>(&own[row_index(t, place.lane.channel(r))]);
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s) {
      decay[r][s] = exp2_approximate(step.x * A[r][s]);
      h[r][s] = fmaf(decay[r][s], h[r][s], step.y * B[s]);
    }
  }
}

/// What the others do: each warp its 16 channels of all tiles of the block's segments, last first.
template <class Io>
__device__ void go_back(const ParallelProblem& problem, std::int64_t first_segment,
                        GradientShared<Io>& shared) {
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const int thread = static_cast<int>(threadIdx.x);
  const ParallelPlace place(args, plan, blockIdx.x, __shfl_sync(~0U, thread / 32, 0), first_segment,
                            plan.run());
  LaneStates A, carry = {}, dA = {};
  load_exponents(A, args, place);
  const std::int64_t run = place.segment / plan.run();
  float* const run_carry = problem.workspace + at.carries + run * plan.state_floats() + place.lane_at;
  if (!plan.in_turn || place.end < args.seqlen) load_lane(carry, run_carry);
  float dD = 0.0F;
  float ddelta_bias = 0.0F;
  const int lane = place.lane.lane;
  // What is this lane's once sums over states and channels are done.
  const int own_channel = place.lane.channel(0);
  const float D = shared.D[place.warp * kWarpChannels + own_channel];
  const bool own_is_odd = (lane & 2) != 0;  // of a pair of steps
  const int own_element = row_index(own_is_odd ? 1 : 0, own_channel);
  const int own_sum = (lane & 1) * kParallelStates + place.lane.state(0);

  const int tiles = static_cast<int>(place.tiles());
  int factor_tile = 0;
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    GradientTile& tile = shared.tiles[i % 2];
    float2* const factors = shared.factors[factor_tile][place.warp];
    factor_tile = factor_tile == GradientShared<Io>::kFactorTiles - 1 ? 0 : factor_tile + 1;
    role_barrier();
#pragma unroll
    for (int half = kHalves - 1; half >= 0; --half) {
      LaneStates h, before[kKeptSteps], decay[kKeptSteps];
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r) {
        const float elapsed = tile.elapsed[half][place.warp * kWarpChannels + place.lane.channel(r)];
        float local[kLaneStates], at_start[kLaneStates];
        load_states(local, reinterpret_cast<const float*>(&tile.states[half][r * kStateThreads + thread]));
        load_states(at_start,
                    reinterpret_cast<const float*>(&tile.states[kHalves][r * kStateThreads + thread]));
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s)
          h[r][s] = fmaf(exp2_approximate(elapsed * A[r][s]), at_start[s], local[s]);
      }
      float4* const half_own = tile.sequences[place.warp] + half * kKeptSteps * kRowPitch;
      float2* const half_factors = factors + half * kKeptSteps * kRowPitch;
      const float* const half_B = tile.projections[0] + half * kKeptSteps * kProjectionPitch;
      const float* const half_C = tile.projections[1] + half * kKeptSteps * kProjectionPitch;
#pragma unroll
      for (int t = 0; t < kKeptSteps; ++t) {
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
          for (int s = 0; s < kLaneStates; ++s) before[t][r][s] = h[r][s];
        step_forward(h, decay[t], A, half_own, half_B, place, t);
      }
      // What a pair of steps leaves is stored after the next one's operands are loaded: a load cannot be
      // moved above a store, and would wait for the shuffles that the store waits for.
      float4 gradients;
      float dB, dC;
      const auto store_pair = [&](int pair) {
        __syncwarp();  // all lanes have read these steps
        auto* const to = reinterpret_cast<float*>(half_factors + 2 * pair * kRowPitch) + own_sum;
        to[0] = dB;
        to[2 * kParallelStates] = dC;
        half_own[2 * pair * kRowPitch + own_element] = gradients;
      };
#pragma unroll
      for (int pair = kKeptSteps / 2 - 1; pair >= 0; --pair) {
        float B[2][kLaneStates], C[2][kLaneStates];
        float4 step[2][kLaneChannels];
#pragma unroll
        for (int k = 1; k >= 0; --k) {
          load_states(B[k], half_B + place.projection_at(2 * pair + k));
          load_states(C[k], half_C + place.projection_at(2 * pair + k));
#pragma unroll
          for (int r = 0; r < kLaneChannels; ++r)
            step[k][r] = half_own[row_index(2 * pair + k, place.lane.channel(r))];
        }
        const float2 factor = half_factors[2 * pair * kRowPitch + own_element];
        const float4 of_lane = half_own[2 * pair * kRowPitch + own_element];
        if (pair < kKeptSteps / 2 - 1) store_pair(pair + 1);
        StepSums sums[2];
#pragma unroll
        for (int k = 1; k >= 0; --k) {
          const int t = 2 * pair + k;
#pragma unroll
          for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
            for (int s = 0; s < kLaneStates; ++s) {
              const float after = t + 1 < kKeptSteps ? before[(t + 1) % kKeptSteps][r][s] : h[r][s];
              step_back(carry[r][s], dA[r][s], sums[k], r, s, step[k][r], decay[t][r][s], A[r][s], B[k][s],
                        C[k][s], before[t][r][s], after);
            }
        }
        add_over_states(sums[0], sums[1], lane);
        add_over_channels(sums[0], sums[1], lane);
        const float of_delta = (kLn2 * sums[0].of_exponent[0] + of_lane.w * sums[0].of_input[0]) * factor.x;
        dD += of_lane.z * of_lane.w;
        ddelta_bias += of_delta;
        gradients = {fmaf(of_lane.x, sums[0].of_input[0], D * of_lane.z), of_delta,
                     fmaf(D, of_lane.w, sums[0].y[0]) * factor.y, 0.0F};
        dB = sums[0].dB[0];
        dC = sums[0].dC[0];
      }
      store_pair(0);
    }
  }
  role_barrier();

  store_lane(problem.workspace + at.states + place.segment * plan.state_floats() + place.lane_at, dA);
  // The other lane that has this channel has the other step of each pair.
  dD += shuffle_xor(dD, 2);
  ddelta_bias += shuffle_xor(ddelta_bias, 2);
  if ((lane & 2) == 0) {
    const std::int64_t row = run * plan.rows() + place.row() + own_channel;
    problem.workspace[at.dD + row] = dD;
    problem.workspace[at.ddelta_bias + row] = ddelta_bias;
  }
  if (place.segment > 0) {
    if (plan.in_turn) store_lane(run_carry - plan.state_floats(), carry);
    return;
  }
  if (problem.args.dinitial_state == nullptr) return;
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s)
      if (place.exists(r, s, args.dstate))
        problem.args
            .dinitial_state[place.block.b * args.dim * args.dstate + place.state_at(r, s, args.dstate)] =
            carry[r][s];
}

template <class Io, bool pieces>
__global__ void __launch_bounds__(kGradientThreads, 1)
    gradient_kernel(const ParallelProblem problem, const std::int64_t first_segment) {
#if __CUDA_ARCH__ < 900
  __trap();  // blocks have too little shared memory there
#else
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<GradientShared<Io>*>(memory);
  load_channels(
      shared.bias, shared.D, 0, kParallelChannels, problem.args.scan,
      ParallelPlace(problem.args.scan, problem.plan, blockIdx.x, 0, first_segment, problem.plan.run()));
  __syncthreads();
  if (threadIdx.x < kStateThreads) {
    take_registers<kComputeRegisters>();
    go_back<Io>(problem, first_segment, shared);
  } else {
    give_registers<kHelperRegisters>();
    help<Io, pieces>(problem, first_segment, shared);
  }
#endif
}

}  // namespace ssmbench::parallel_bwd
