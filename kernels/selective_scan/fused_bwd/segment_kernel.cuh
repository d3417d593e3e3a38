#pragma once

// The fast kernels of selective_scan_bwd: the kernel that goes forward over segments. The picture is in
// kernel.cuh.

#include "kernels/selective_scan/fused_bwd/producer.cuh"

namespace ssmbench::fused_bwd {

inline constexpr int kSegmentWarps = kSegmentThreads / 32;
inline constexpr int kSegmentChannels = kSegmentWarps * kWarpChannels;
static_assert(kSegmentChannels * kSegmentBlocks == kBlockChannels);

/// Shared memory: C, dy, dout and z for the carries only. B and C are there for two tiles, so that a tile
/// takes one barrier.
template <class Io, bool with_carry>
struct SegmentShared {
  using Staged = std::conditional_t<with_carry, StepInputs, StepInput>;

  float projections[2][with_carry ? 2 : 1][kTileSteps * kProjectionPitch];
  float bias[kSegmentChannels], D[kSegmentChannels];
  Staged sequences[kSegmentWarps][kTileSteps * kRowPitch];
  StagedVectors<Io> raw[kSegmentWarps][with_carry ? 4 : 2];
};

/// `with_states`, or carries alone.
template <class Io, bool vectorized, bool with_states, bool with_carry, bool idle_warps>
__global__ void __launch_bounds__(kSegmentThreads, with_carry ? 4 : 5)
    segment_kernel(const KernelArgs kernel, const std::int64_t first_segment, const bool keep_tiles,
                   const bool keep_ends) {
  static_assert(with_states || with_carry);
  constexpr Staging kStaging = with_carry ? Staging::sequences : Staging::input;
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<SegmentShared<Io, with_carry>*>(memory);
  const ScanArgs& args = kernel.args.scan;
  const BackwardPlan& plan = kernel.plan;
  const BackwardWorkspace& at = kernel.at;
  const unsigned blocks = idle_warps ? plan.segment_blocks() : kSegmentBlocks;
  const int first_warp = static_cast<int>(blockIdx.x % blocks) * kSegmentWarps;
  const WarpCoordinates own(args, plan, blockIdx.x / blocks, first_warp + static_cast<int>(threadIdx.x) / 32,
                            first_segment, 1);
  if (idle_warps && first_warp * kWarpChannels >= own.block.count)
    return;  // nobody reads what it would leave
  const int warp = own.warp - first_warp;
  const int steps = static_cast<int>(own.end - own.begin);
  const SequenceTile<Io, vectorized> sequence(kernel.args, own.warp_count, own.lane.lane);
  std::int64_t sequence_at = sequence.first_at(own.warp_row, own.begin);
  const int thread = static_cast<int>(threadIdx.x);
  ProjectionTile<Io> projection(kernel, own, own.begin, thread);
  constexpr int kHalf = ProjectionTile<Io>::kThreads / 2;  // which has B; the other one has C
  const bool projects = thread >= (with_states ? 0 : kHalf) && thread < (with_carry ? 2 * kHalf : kHalf);
  typename ProjectionTile<Io>::Loaded loaded{};
  sequence.template fetch<kStaging>(shared.raw[warp], sequence_at, steps);
  if (projects) loaded = projection.load(steps);
  load_channels(shared.bias, shared.D, first_warp * kWarpChannels, kSegmentChannels, args, own);
  __syncthreads();

  LaneStates A, h = {}, product, carry = {};
  load_exponents(A, kernel, own);
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s) product[r][s] = 1.0F;
  float delta_sum[kLaneChannels] = {};
  auto* const staged = shared.sequences[warp];
  // For the next step before which states are kept.
  const std::int64_t kept = (own.segment - first_segment) * plan.kept();
  float* kept_states = kernel.workspace + at.kept_states + kept * plan.state_floats() + own.lane_at;
  float* kept_sums = kernel.workspace + at.kept_sums + kept * plan.rows();

  for (int start = 0; start < steps; start += kTileSteps) {
    if (start > 0) __syncwarp();  // all lanes are done with `staged`
    auto& projections = shared.projections[start / kTileSteps & 1];
    copy_async_commit();
    copy_async_wait<0>();
    if (projects) projection.finish(loaded, projections);
    sequence.template stage<kStaging, kStaged>(staged, nullptr, shared.raw[warp],
                                               shared.bias + warp * kWarpChannels, steps - start);
    sequence_at += kTileSteps * args.sequence.time;
    projection.move();
    const int left = steps - start - kTileSteps;
    if (left > 0) {
      sequence.template fetch<kStaging>(shared.raw[warp], sequence_at, left);
      if (projects) loaded = projection.load(left);
    }
    __syncthreads();
    if constexpr (idle_warps)
      if (own.warp_count <= 0) continue;
#pragma unroll 1
    for (int half = 0; half < kHalves; ++half) {
      if (with_states && keep_tiles) {
        store_lane(kept_states, h);
        store_row_sums(kept_sums, delta_sum, own);
        kept_states += plan.state_floats();
        kept_sums += plan.rows();
      }
#pragma unroll
      for (int k = 0; k < kKeptSteps; ++k) {
        const int t = half * kKeptSteps + k;
        float B[kLaneStates], C[kLaneStates];
        if constexpr (with_states) load_vectors(B, projections[0] + projection_at(own.lane, t));
        if constexpr (with_carry) load_vectors(C, projections[1] + projection_at(own.lane, t));
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r) {
          const auto step = staged[row_index(t, own.lane.channel(r))];
          delta_sum[r] += step.delta;
#pragma unroll
          for (int s = 0; s < kLaneStates; ++s) {
            const float decay = exp2_approximate(step.delta * A[r][s]);
            if constexpr (with_states) h[r][s] = fmaf(decay, h[r][s], step.delta_u * B[s]);
            if constexpr (with_carry) {
              product[r][s] *= decay;
              carry[r][s] = fmaf(product[r][s], step.dy * C[s], carry[r][s]);
            }
          }
        }
      }
    }
  }
  if (!keep_ends) return;
  const std::int64_t states_at = own.segment * plan.state_floats() + own.lane_at;
  if constexpr (with_states) store_lane(kernel.workspace + at.states + states_at, h);
  if constexpr (with_carry) store_lane(kernel.workspace + at.carries + states_at, carry);
  store_row_sums(kernel.workspace + at.delta_sums + own.segment * plan.rows(), delta_sum, own);
}

}  // namespace ssmbench::fused_bwd
