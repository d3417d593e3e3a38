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
  float4 states[kHalves + 1][kParallelThreads];
  float elapsed[kHalves][kParallelThreads];
  /// dB and dC of a tile: of each lane, four steps of one state of one of them.
  float4 sums[2][kParallelWarps][kParallelSteps / kGroupSteps][32];
};

using LaneStates = float[kLaneStates];

/// A·log2(e) of a thread's states; zero where there is none.
__device__ inline void load_exponents(LaneStates& to, const ScanArgs& args, const ParallelPlace& place) {
#pragma unroll
  for (int s = 0; s < kLaneStates; ++s)
    to[s] = place.exists(s, args.dstate) ? kLog2e * args.A[place.state_at(s, args.dstate)] : 0.0F;
}

template <class Io, bool pieces, bool with_carry>
__global__ void __launch_bounds__(kParallelThreads, with_carry ? 3 : 4)
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
  ProjectionStage projection(args, place, place.begin, with_carry);
  sequence.template fetch<kStaging>(shared.raw, 0, steps);
  projection.load<Io>(steps);
  load_channels(shared.bias, shared.D, args, place);
  __syncthreads();

  LaneStates A, h = {}, product, carry = {};
  load_exponents(A, args, place);
#pragma unroll
  for (int s = 0; s < kLaneStates; ++s) product[s] = 1.0F;
  float delta_sum = 0.0F;
  float4* const own = shared.sequences[place.warp];
  // Of the next place whose states are kept; a segment's start is none.
  const std::int64_t kept = (place.segment - first_segment) * (plan.kept() - 1);
  float* kept_states = problem.workspace + at.tile_states + kept * plan.state_floats() + place.lane_at;
  float* kept_sums = problem.workspace + at.tile_sums + kept * plan.rows();

  for (int start = 0; start < steps; start += kParallelSteps) {
    if (start > 0) __syncwarp();  // all lanes are done with `own`
    auto& projections = shared.projections[start / kParallelSteps & 1];
    copies_done();
    projection.finish<Io>(projections);
    sequence.template stage<kStaging>(own, nullptr, shared.raw, shared.bias, steps - start);
    sequence.move(1);
    projection.move(1);
    const int left = steps - start - kParallelSteps;
    if (left > 0) {
      sequence.template fetch<kStaging>(shared.raw, 0, left);
      projection.load<Io>(left);
    }
    __syncthreads();
#pragma unroll 8
    for (int t = 0; t < kParallelSteps; ++t) {
      if (t % kKeptSteps == 0 && keep_tiles && start + t > 0) {
        store_states(kept_states, h);
        store_row_sum(kept_sums, delta_sum, place);
        kept_states += plan.state_floats();
        kept_sums += plan.rows();
      }
      LaneStates B, C;
      load_states(B, projections[0] + place.projection_at(t));
      if constexpr (with_carry) load_states(C, projections[1] + place.projection_at(t));
      const float4* const from = &own[row_index(t, place.lane.channel())];
      float4 step;
      if constexpr (with_carry) {
        step = *from;
      } else {
        const float2 input = *reinterpret_cast<const float2*>(from);
        step = {input.x, input.y, 0.0F, 0.0F};
      }
      delta_sum += step.x;
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) {
        const float decay = exp2_fast(step.x * A[s]);
        h[s] = fmaf(decay, h[s], step.y * B[s]);
        if constexpr (with_carry) {
          product[s] *= decay;
          carry[s] = fmaf(product[s], step.z * C[s], carry[s]);
        }
      }
    }
  }
  if (!keep_ends) return;
  const std::int64_t states_at = place.segment * plan.state_floats() + place.lane_at;
  store_states(problem.workspace + at.states + states_at, h);
  if constexpr (with_carry) store_states(problem.workspace + at.carries + states_at, carry);
  store_row_sum(problem.workspace + at.delta_sums + place.segment * plan.rows(), delta_sum, place);
}

/// One step of all of a thread's states, whose decays it leaves.
__device__ inline void step_forward(LaneStates& h, LaneStates& decay, const LaneStates& A, const float4* own,
                                    const float* B_of_tile, const ParallelPlace& place, int t) {
  LaneStates B;
  load_states(B, B_of_tile + place.projection_at(t));
  const float2 step = *reinterpret_cast<const float2*>(&own[row_index(t, place.lane.channel())]);
#pragma unroll
  for (int s = 0; s < kLaneStates; ++s) {
    decay[s] = exp2_fast(step.x * A[s]);
    h[s] = fmaf(decay[s], h[s], step.y * B[s]);
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
  int valid =
      place.valid(last_start);  // steps; only the last tile, which is the first, may have fewer than 16
  SequenceStage<Io, pieces> sequence(problem.args, place, last_start);
  ProjectionStage projection(args, place, last_start, true);
  // Of the tile to fetch: at the start of its segment; kept at its start, from zero; ΣΔ to there.
  const std::int64_t segment = place.segment + tile / tiles_of_segment;
  const std::int64_t kept = (segment - first_segment) * (plan.kept() - 1) + of_segment * kHalves - 1;
  const float* first = problem.workspace + at.states + segment * plan.state_floats() + place.lane_at;
  const float* kept_states = problem.workspace + at.tile_states + kept * plan.state_floats() + place.lane_at;
  const float* kept_sums =
      problem.workspace + at.tile_sums + kept * plan.rows() + place.row() + place.lane.channel();
  const auto fetch = [&](int tiles, int steps) {
    sequence.template fetch<Staging::gradients>(shared.raw, tiles, steps);
    projection.load<Io>(steps);
    copy_piece(&shared.states[kHalves][threadIdx.x], reinterpret_cast<const float4*>(first), true);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const bool inner = half > 0 || of_segment > 0;  // else it is the segment's start
      copy_piece(&shared.states[half][threadIdx.x],
                 reinterpret_cast<const float4*>(inner ? kept_states + half * plan.state_floats() : first),
                 inner);
      copy_piece(&shared.elapsed[half][threadIdx.x], inner ? kept_sums + half * plan.rows() : first, inner);
    }
  };
  fetch(0, valid);
  load_channels(shared.bias, shared.D, args, place);
  projection.finish<Io>(shared.projections[tile & 1]);
  __syncthreads();

  LaneStates A, carry = {}, dA = {};
  load_exponents(A, args, place);
  const std::int64_t run = place.segment / plan.run();
  float* const run_carry = problem.workspace + at.carries + run * plan.state_floats() + place.lane_at;
  if (!plan.in_turn || place.end < args.seqlen) load_states(carry, run_carry);
  float dD = 0.0F;
  float ddelta_bias = 0.0F;
  float4* const own = shared.sequences[place.warp];
  float2* const factors = shared.factors[place.warp];
  const int lane = place.lane.lane;
  const float D = shared.D[place.warp * kWarpChannels + place.lane.channel()];

  // dB and dC of a tile: the second half of the warps, each of them a group of steps. A barrier has to be
  // between it and the sums.
  const int group = place.warp - kParallelWarps / 2;
  float* shares =
      problem.workspace + ((lane & 1) == 0 ? at.shares_B : at.shares_C) + place.lane.state(0) +
      (place.block_index * plan.span + last_start - first_segment * plan.segment + group * kGroupSteps) *
          kParallelStates;
  const auto add_warps = [&](int of_tile) {
    static_assert(kParallelWarps / 2 == kParallelSteps / kGroupSteps);
    if (group < 0) return;
    float sum[kGroupSteps];
    load_states(sum, reinterpret_cast<const float*>(&shared.sums[of_tile & 1][0][group][lane]));
#pragma unroll
    for (int warp = 1; warp < kParallelWarps; ++warp) {
      float term[kGroupSteps];
      load_states(term, reinterpret_cast<const float*>(&shared.sums[of_tile & 1][warp][group][lane]));
#pragma unroll
      for (int k = 0; k < kGroupSteps; ++k) sum[k] += term[k];
    }
#pragma unroll
    for (int k = 0; k < kGroupSteps; ++k) shares[k * kParallelStates] = sum[k];
    shares -= kParallelSteps * kParallelStates;
  };

  const int last_tile = tile;
  for (; tile >= 0; --tile) {
    const auto& projections = shared.projections[tile & 1];
    LaneStates at_halves[kHalves];
    copies_done();
    sequence.template stage<Staging::gradients>(own, factors, shared.raw, shared.bias, valid);
    LaneStates at_start;
    load_states(at_start, reinterpret_cast<const float*>(&shared.states[kHalves][threadIdx.x]));
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float elapsed = shared.elapsed[half][threadIdx.x];
      load_states(at_halves[half], reinterpret_cast<const float*>(&shared.states[half][threadIdx.x]));
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s)
        at_halves[half][s] = fmaf(exp2_fast(elapsed * A[s]), at_start[s], at_halves[half][s]);
    }
    // A segment's start is no place that is kept.
    const int places = of_segment > 0 ? kHalves : kHalves - 1;
    kept_states -= places * plan.state_floats();
    kept_sums -= places * plan.rows();
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
    for (int half = kParallelSteps / kKeptSteps - 1; half >= 0; --half) {
      LaneStates h, before[kKeptSteps], decay[kKeptSteps];
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) h[s] = at_halves[kHalves - 1][s];
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) at_halves[kHalves - 1][s] = at_halves[0][s];
      static_assert(kHalves == 2);
      float4* const half_own = own + half * kKeptSteps * kRowPitch;
      const float2* const half_factors = factors + half * kKeptSteps * kRowPitch;
      const float* const half_B = projections[0] + half * kKeptSteps * kProjectionPitch;
      const float* const half_C = projections[1] + half * kKeptSteps * kProjectionPitch;
#pragma unroll
      for (int t = 0; t < kKeptSteps; ++t) {
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s) before[t][s] = h[s];
        step_forward(h, decay[t], A, half_own, half_B, place, t);
      }
      // B and C of the next tile leave the registers before going back needs them.
      if (half > 0 && tile > 0) projection.finish<Io>(shared.projections[(tile - 1) & 1]);
      projection.drop();
#pragma unroll
      for (int part = kKeptSteps / kGroupSteps - 1; part >= 0; --part) {
        float of_exponent[kGroupSteps], of_input[kGroupSteps], y[kGroupSteps], of_channels[kGroupSteps];
#pragma unroll
        for (int k = kGroupSteps - 1; k >= 0; --k) {
          const int t = part * kGroupSteps + k;
          LaneStates B, C;
          load_states(B, half_B + place.projection_at(t));
          load_states(C, half_C + place.projection_at(t));
          const float4 step = half_own[row_index(t, place.lane.channel())];
          StepSums sums;
#pragma unroll
          for (int s = 0; s < kLaneStates; ++s) {
            const float after = t + 1 < kKeptSteps ? before[(t + 1) % kKeptSteps][s] : h[s];
            step_back(carry[s], dA[s], sums, s, step, decay[t][s], A[s], B[s], C[s], before[t][s], after);
          }
          of_exponent[k] = sums.of_exponent;
          of_input[k] = sums.of_input;
          y[k] = sums.y;
          of_channels[k] = add_over_channels(sums, lane);
        }
        const int own_index = row_index(part * kGroupSteps + place.lane.step(), place.lane.channel());
        const float4 of_lane = half_own[own_index];
        const float2 factor = half_factors[own_index];
        const float input_sum = add_over_states(of_input, lane);
        const float of_delta = (kLn2 * add_over_states(of_exponent, lane) + of_lane.w * input_sum) * factor.x;
        const float dz = fmaf(D, of_lane.w, add_over_states(y, lane)) * factor.y;
        dD += of_lane.z * of_lane.w;
        ddelta_bias += of_delta;
        __syncwarp();  // all lanes have read these steps
        shared.sums[tile & 1][place.warp][half * (kKeptSteps / kGroupSteps) + part][lane] = {
            of_channels[0], of_channels[1], of_channels[2], of_channels[3]};
        half_own[own_index] = {fmaf(of_lane.x, input_sum, D * of_lane.z), of_delta, dz, 0.0F};
      }
    }
    __syncwarp();
    sequence.store(own, valid);
    sequence.move(-1);
    valid = kParallelSteps;
  }
  __syncthreads();
  add_warps(0);

  store_states(problem.workspace + at.states + place.segment * plan.state_floats() + place.lane_at, dA);
  // The other lanes that have this channel have the other steps of each group.
#pragma unroll
  for (int distance = 2; distance <= 4; distance *= 2) {
    dD += shuffle_xor(dD, distance);
    ddelta_bias += shuffle_xor(ddelta_bias, distance);
  }
  store_row_sum(problem.workspace + at.dD + run * plan.rows(), dD, place);
  store_row_sum(problem.workspace + at.ddelta_bias + run * plan.rows(), ddelta_bias, place);
  if (place.segment > 0) {
    if (plan.in_turn) store_states(run_carry - plan.state_floats(), carry);
    return;
  }
  if (problem.args.dinitial_state == nullptr) return;
#pragma unroll
  for (int s = 0; s < kLaneStates; ++s)
    if (place.exists(s, args.dstate))
      problem.args.dinitial_state[place.block.b * args.dim * args.dstate + place.state_at(s, args.dstate)] =
          carry[s];
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
