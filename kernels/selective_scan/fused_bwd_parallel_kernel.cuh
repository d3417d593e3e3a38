#pragma once

// The common case of cuda-fused for selective_scan_bwd: the two kernels that go over time. The picture is in
// fused_bwd_parallel.cu, instantiations are in a file per io dtype.

#include "kernels/selective_scan/fused_bwd_parallel_tile.cuh"

namespace ssmbench {

/// Everything that kernels know of a problem.
struct ParallelProblem {
  ScanGradientArgs args;
  FusedBackwardParallelPlan plan;
  FusedBackwardParallelWorkspace at;
  float* workspace;
};

namespace parallel_bwd {

inline constexpr int kParallelWarps = kParallelThreads / 32;
inline constexpr int kHalves = kParallelSteps / kKeptSteps;

/// Shared memory of both kernels; the gradient kernel has all of it. What all warps use is there for two
/// tiles, so that a tile takes one barrier.
template <class Io>
struct SegmentShared {
  float projections[2][2][kParallelSteps * kProjectionPitch];
  float bias[kParallelChannels], D[kParallelChannels];
  float4 sequences[kParallelWarps][kParallelSteps * kRowPitch];
  RawSlots<Io> raw;
};
template <class Io>
struct GradientShared : SegmentShared<Io> {
  float2 factors[kParallelWarps][kParallelSteps * kRowPitch];
  /// Of the next tile: at its halves, from zero; at the segment's start; ΣΔ from there to the halves.
  float4 states[kHalves + 1][kLaneChannels][kParallelThreads];
  float elapsed[kHalves][kLaneChannels][kParallelThreads];
  /// [tile][warp][pair of steps]: dB, dC [step][state]
  float sums[2][kParallelWarps][kParallelSteps / 2][4 * kParallelStates];
};

using LaneStates = float[kLaneChannels][kLaneStates];

/// A thread's states in the workspace.
__device__ inline void load_lane(LaneStates& to, const float* from) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) load_states(to[r], from + r * kParallelThreads * kLaneStates);
}
__device__ inline void store_lane(float* to, const LaneStates& from) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) store_states(to + r * kParallelThreads * kLaneStates, from[r]);
}

/// A·log2(e) of a thread's states; zero where there is none.
__device__ inline void load_exponents(LaneStates& to, const ScanArgs& args, const ParallelPlace& place) {
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s)
      to[r][s] = place.exists(r, s, args.dstate) ? kLog2E * args.A[place.state_at(r, s, args.dstate)] : 0.0F;
}

template <class Io, bool pieces, bool with_carry>
__global__ void __launch_bounds__(kParallelThreads, with_carry ? 4 : 5)
    segment_kernel(const ParallelProblem problem, const std::int64_t first_segment, const bool keep_tiles,
                   const bool keep_ends) {
  constexpr Staging kStaging = with_carry ? Staging::sequences : Staging::input;
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<SegmentShared<Io>*>(memory);
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const ParallelPlace place(args, plan, first_segment, 1);
  const int steps = static_cast<int>(place.end - place.begin);
  SequenceStage<Io, pieces> sequence(problem.args, place, place.begin);
  ProjectionStage<Io> projection(args, place, place.begin, with_carry);
  sequence.template fetch<kStaging>(shared.raw, 0, steps);
  projection.load(steps);
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
  // Of the next place whose states are kept.
  const std::int64_t kept = (place.segment - first_segment) * plan.kept();
  float* kept_states = problem.workspace + at.kept_states + kept * plan.state_floats() + place.lane_at;
  float* kept_sums = problem.workspace + at.kept_sums + kept * plan.rows();

  for (int start = 0; start < steps; start += kParallelSteps) {
    if (start > 0) __syncwarp();  // all lanes are done with `own`
    auto& projections = shared.projections[start / kParallelSteps & 1];
    copies_done();
    projection.finish(projections);
    sequence.template stage<kStaging>(own, nullptr, shared.raw, shared.bias, steps - start);
    sequence.move(1);
    projection.move(1);
    const int left = steps - start - kParallelSteps;
    if (left > 0) {
      sequence.template fetch<kStaging>(shared.raw, 0, left);
      projection.load(left);
    }
    __syncthreads();
#pragma unroll 1
    for (int half = 0; half < kHalves; ++half) {
      if (keep_tiles) {
        store_lane(kept_states, h);
        store_row_sums(kept_sums, delta_sum, place);
        kept_states += plan.state_floats();
        kept_sums += plan.rows();
      }
#pragma unroll
      for (int k = 0; k < kKeptSteps; ++k) {
        const int t = half * kKeptSteps + k;
        float B[kLaneStates], C[kLaneStates];
        load_states(B, projections[0] + place.projection_at(t));
        if constexpr (with_carry) load_states(C, projections[1] + place.projection_at(t));
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r) {
          const float4* const from = &own[row_index(t, place.lane.channel(r))];
          float4 step;
          if constexpr (with_carry) {
            step = *from;
          } else {
            const float2 input = *reinterpret_cast<const float2*>(from);
            step = {input.x, input.y, 0.0F, 0.0F};
          }
          delta_sum[r] += step.x;
#pragma unroll
          for (int s = 0; s < kLaneStates; ++s) {
            const float decay = exp2_approximate(step.x * A[r][s]);
            h[r][s] = fmaf(decay, h[r][s], step.y * B[s]);
            if constexpr (with_carry) {
              product[r][s] *= decay;
              carry[r][s] = fmaf(product[r][s], step.z * C[s], carry[r][s]);
            }
          }
        }
      }
    }
  }
  if (!keep_ends) return;
  const std::int64_t states_at = place.segment * plan.state_floats() + place.lane_at;
  store_lane(problem.workspace + at.states + states_at, h);
  if constexpr (with_carry) store_lane(problem.workspace + at.carries + states_at, carry);
  store_row_sums(problem.workspace + at.delta_sums + place.segment * plan.rows(), delta_sum, place);
}

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

template <class Io, bool pieces>
__global__ void __launch_bounds__(kParallelThreads, 2)
    gradient_kernel(const ParallelProblem problem, const std::int64_t first_segment) {
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<GradientShared<Io>*>(memory);
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const ParallelPlace place(args, plan, first_segment, plan.run());
  const int tiles_of_segment = static_cast<int>(plan.tiles());
  int tile = static_cast<int>(place.tiles()) - 1;
  int of_segment = tile % tiles_of_segment;  // the tile to fetch
  const std::int64_t last_start = place.begin + tile * kParallelSteps;
  // Steps of a tile: only the last, which is the first to be done, may have fewer than 16.
  int valid = place.valid(last_start);
  SequenceStage<Io, pieces> sequence(problem.args, place, last_start);
  ProjectionStage<Io> projection(args, place, last_start, true);
  // Of the tile to fetch: at the start of its segment; kept at its start, from zero; ΣΔ to there.
  const std::int64_t segment = place.segment + tile / tiles_of_segment;
  const std::int64_t kept = (segment - first_segment) * plan.kept() + of_segment * kHalves;
  const float* first = problem.workspace + at.states + segment * plan.state_floats() + place.lane_at;
  const float* kept_states = problem.workspace + at.kept_states + kept * plan.state_floats() + place.lane_at;
  const float* kept_sums = problem.workspace + at.kept_sums + kept * plan.rows() + place.row();
  const auto fetch = [&](int tiles, int steps) {
    sequence.template fetch<Staging::gradients>(shared.raw, tiles, steps);
    projection.load(steps);
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      const int of_lane = r * kParallelThreads * kLaneStates;
      copy_bytes(&shared.states[kHalves][r][threadIdx.x], first + of_lane, true);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        copy_bytes(&shared.states[half][r][threadIdx.x], kept_states + half * plan.state_floats() + of_lane,
                   true);
        copy_bytes(&shared.elapsed[half][r][threadIdx.x],
                   kept_sums + half * plan.rows() + place.lane.channel(r), true);
      }
    }
  };
  fetch(0, valid);
  load_channels(shared.bias, shared.D, args, place);
  projection.finish(shared.projections[tile & 1]);
  __syncthreads();

  LaneStates A, carry = {}, dA = {};
  load_exponents(A, args, place);
  const std::int64_t run = place.segment / plan.run();
  float* const run_carry = problem.workspace + at.carries + run * plan.state_floats() + place.lane_at;
  if (!plan.in_turn || place.end < args.seqlen) load_lane(carry, run_carry);
  float dD = 0.0F;
  float ddelta_bias = 0.0F;
  float4* const own = shared.sequences[place.warp];
  float2* const factors = shared.factors[place.warp];
  const int lane = place.lane.lane;
  // What is this lane's once sums over states and channels are done.
  const int own_channel = place.lane.channel(0);
  const float D = shared.D[place.warp * kWarpChannels + own_channel];
  const bool own_is_odd = (lane & 2) != 0;  // of a pair of steps
  const int own_element = row_index(own_is_odd ? 1 : 0, own_channel);
  const int own_sum = (lane & 1) * kParallelStates + place.lane.state(0);

  // dB and dC of a tile, four states of a step a thread. A barrier has to be between it and the sums.
  const int which = threadIdx.x / (kParallelThreads / 2);
  const int quad = threadIdx.x % (kParallelThreads / 2);
  const int share_step = quad / (kParallelStates / 4);
  float* shares = problem.workspace + (which == 0 ? at.shares_B : at.shares_C) + quad % 4 * 4 +
                  (place.block_index * plan.span + last_start - first_segment * plan.segment + share_step) *
                      kParallelStates;
  const auto add_warps = [&](int of_tile) {
    const int from = which * 2 * kParallelStates + share_step % 2 * kParallelStates + quad % 4 * 4;
    float sum[kLaneStates];
    load_states(sum, shared.sums[of_tile & 1][0][share_step / 2] + from);
#pragma unroll
    for (int warp = 1; warp < kParallelWarps; ++warp) {
      float term[kLaneStates];
      load_states(term, shared.sums[of_tile & 1][warp][share_step / 2] + from);
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) sum[s] += term[s];
    }
    store_states(shares, sum);
    shares -= kParallelSteps * kParallelStates;
  };

  const int last_tile = tile;
  for (; tile >= 0; --tile) {
    const auto& projections = shared.projections[tile & 1];
    LaneStates at_halves[kHalves];
    copies_done();
    sequence.template stage<Staging::gradients>(own, factors, shared.raw, shared.bias, valid);
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      float at_start[kLaneStates];
      load_states(at_start, reinterpret_cast<const float*>(&shared.states[kHalves][r][threadIdx.x]));
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const float elapsed = shared.elapsed[half][r][threadIdx.x];
        float local[kLaneStates];
        load_states(local, reinterpret_cast<const float*>(&shared.states[half][r][threadIdx.x]));
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s)
          at_halves[half][r][s] = fmaf(exp2_approximate(elapsed * A[r][s]), at_start[s], local[s]);
      }
    }
    kept_states -= kHalves * plan.state_floats();
    kept_sums -= kHalves * plan.rows();
    if (--of_segment < 0) {
      of_segment = tiles_of_segment - 1;
      first -= plan.state_floats();
    }
    if (tile > 0) {
      projection.move(-1);
      fetch(-1, kParallelSteps);
    }
    __syncthreads();
    if (tile < last_tile) add_warps(tile + 1);

#pragma unroll 1
    for (int half = kHalves - 1; half >= 0; --half) {
      LaneStates h, before[kKeptSteps], decay[kKeptSteps];
      static_assert(kHalves == 2);
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s) {
          h[r][s] = at_halves[1][r][s];
          at_halves[1][r][s] = at_halves[0][r][s];
        }
      float4* const half_own = own + half * kKeptSteps * kRowPitch;
      const float2* const half_factors = factors + half * kKeptSteps * kRowPitch;
      const float* const half_B = projections[0] + half * kKeptSteps * kProjectionPitch;
      const float* const half_C = projections[1] + half * kKeptSteps * kProjectionPitch;
#pragma unroll
      for (int t = 0; t < kKeptSteps; ++t) {
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
          for (int s = 0; s < kLaneStates; ++s) before[t][r][s] = h[r][s];
        step_forward(h, decay[t], A, half_own, half_B, place, t);
      }
      // B and C of the next tile leave the registers before going back needs them.
      if (half > 0 && tile > 0) projection.finish(shared.projections[(tile - 1) & 1]);
      projection.drop();
      // What a pair of steps leaves is stored after the next one's operands are loaded: a load cannot be
      // moved above a store, and would wait for the shuffles that the store waits for.
      float4 gradients;
      float dB, dC;
      const auto store_pair = [&](int pair) {
        __syncwarp();  // all lanes have read these steps
        float* const to = shared.sums[tile & 1][place.warp][half * kKeptSteps / 2 + pair];
        to[own_sum] = dB;
        to[2 * kParallelStates + own_sum] = dC;
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
        const float4 of_lane = own_is_odd ? step[1][0] : step[0][0];
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
    __syncwarp();
    sequence.store(own, valid);
    sequence.move(-1);
    valid = kParallelSteps;
  }
  __syncthreads();
  add_warps(0);

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

}  // namespace parallel_bwd

/// The kernels of one io dtype, and the shared memory that they need.
struct ParallelKernels {
  using Segment = void (*)(ParallelProblem, std::int64_t first_segment, bool keep_tiles, bool keep_ends);
  using Gradient = void (*)(ParallelProblem, std::int64_t first_segment);

  Segment segment, segment_with_carry;
  Gradient gradient;
  std::size_t segment_bytes, gradient_bytes;
};

template <class Io>
ParallelKernels parallel_kernels(bool pieces) {
  using namespace parallel_bwd;
  ParallelKernels kernels{segment_kernel<Io, false, false>, segment_kernel<Io, false, true>,
                          gradient_kernel<Io, false>, sizeof(SegmentShared<Io>), sizeof(GradientShared<Io>)};
  if (pieces) {
    kernels.segment = segment_kernel<Io, true, false>;
    kernels.segment_with_carry = segment_kernel<Io, true, true>;
    kernels.gradient = gradient_kernel<Io, true>;
  }
  return kernels;
}

}  // namespace ssmbench
