#pragma once

// The common case of cuda-fused for selective_scan_bwd: the kernel that goes forward, and what launches need
// to know of both. The picture is in fused_bwd_parallel.cu, instantiations are in a file per io dtype.

#include "kernels/selective_scan/fused_bwd/gradient_kernel.cuh"

namespace ssmbench {

namespace parallel_bwd {

inline constexpr int kSegmentWarps = kSegmentThreads / 32;
inline constexpr int kSegmentChannels = kSegmentWarps * kWarpChannels;
static_assert(kSegmentChannels * kSegmentBlocks == kParallelChannels);

/// Shared memory: C, dy, dout and z for the carries only. B and C are there for two tiles, so that a tile
/// takes one barrier.
template <class Io, bool with_carry>
struct SegmentShared {
  using Staged = std::conditional_t<with_carry, float4, float2>;

  float projections[2][with_carry ? 2 : 1][kParallelSteps * kProjectionPitch];
  float bias[kSegmentChannels], D[kSegmentChannels];
  Staged sequences[kSegmentWarps][kParallelSteps * kRowPitch];
  StagedSlots<Io> raw[kSegmentWarps][with_carry ? 4 : 2];
};

template <class Io, bool pieces, bool with_carry>
__global__ void __launch_bounds__(kSegmentThreads, with_carry ? 4 : 5)
    segment_kernel(const ParallelProblem problem, const std::int64_t first_segment, const bool keep_tiles,
                   const bool keep_ends) {
  constexpr Staging kStaging = with_carry ? Staging::sequences : Staging::input;
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<SegmentShared<Io, with_carry>*>(memory);
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const int first_warp = static_cast<int>(blockIdx.x % kSegmentBlocks) * kSegmentWarps;
  const ParallelPlace place(args, plan, blockIdx.x / kSegmentBlocks,
                            first_warp + static_cast<int>(threadIdx.x) / 32, first_segment, 1);
  const int warp = place.warp - first_warp;
  const int steps = static_cast<int>(place.end - place.begin);
  const SequenceStage<Io, pieces> sequence(problem.args, place.warp_count, place.lane.lane);
  std::int64_t sequence_at = sequence.first_at(place.warp_row, place.begin);
  const int thread = static_cast<int>(threadIdx.x);
  ProjectionStage<Io> projection(args, place, place.begin, thread);
  const bool projects = thread < ProjectionStage<Io>::kThreads / (with_carry ? 1 : 2);  // C too, or B only
  typename ProjectionStage<Io>::Loaded loaded{};
  sequence.template fetch<kStaging>(shared.raw[warp], sequence_at, steps);
  if (projects) loaded = projection.load(steps);
  load_channels(shared.bias, shared.D, first_warp * kWarpChannels, kSegmentChannels, args, place);
  __syncthreads();

  LaneStates A, h = {}, product, carry = {};
  load_exponents(A, args, place);
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s) product[r][s] = 1.0F;
  float delta_sum[kLaneChannels] = {};
  auto* const own = shared.sequences[warp];
  // Of the next place whose states are kept.
  const std::int64_t kept = (place.segment - first_segment) * plan.kept();
  float* kept_states = problem.workspace + at.kept_states + kept * plan.state_floats() + place.lane_at;
  float* kept_sums = problem.workspace + at.kept_sums + kept * plan.rows();

  for (int start = 0; start < steps; start += kParallelSteps) {
    if (start > 0) __syncwarp();  // all lanes are done with `own`
    auto& projections = shared.projections[start / kParallelSteps & 1];
    copy_async_commit();
    copy_async_wait<0>();
    if (projects) projection.finish(loaded, projections);
    sequence.template stage<kStaging, kStaged>(own, nullptr, shared.raw[warp],
                                               shared.bias + warp * kWarpChannels, steps - start);
    sequence_at += kParallelSteps * args.sequence.time;
    projection.move();
    const int left = steps - start - kParallelSteps;
    if (left > 0) {
      sequence.template fetch<kStaging>(shared.raw[warp], sequence_at, left);
      if (projects) loaded = projection.load(left);
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
          const auto step = own[row_index(t, place.lane.channel(r))];
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

}  // namespace parallel_bwd

/// The kernels of one io dtype, and the shared memory that they need.
struct ParallelKernels {
  using Segment = void (*)(ParallelProblem, std::int64_t first_segment, bool keep_tiles, bool keep_ends);
  using Gradient = void (*)(ParallelProblem, std::int64_t first_segment);

  Segment segment, segment_with_carry;
  Gradient gradient;
  std::size_t segment_bytes, segment_with_carry_bytes, gradient_bytes;
};

template <class Io>
ParallelKernels parallel_kernels(bool pieces) {
  using namespace parallel_bwd;
  ParallelKernels kernels{segment_kernel<Io, false, false>, segment_kernel<Io, false, true>,
                          gradient_kernel<Io, false>,       sizeof(SegmentShared<Io, false>),
                          sizeof(SegmentShared<Io, true>),  sizeof(GradientShared<Io>)};
  if (pieces) {
    kernels.segment = segment_kernel<Io, true, false>;
    kernels.segment_with_carry = segment_kernel<Io, true, true>;
    kernels.gradient = gradient_kernel<Io, true>;
  }
  return kernels;
}

}  // namespace ssmbench
