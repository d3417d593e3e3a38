#pragma once

// The common case of cuda-fused for selective_scan_bwd: what the kernel that goes back has in shared memory,
// and what its helpers do. The picture is in fused_bwd_parallel.cu.

#include "kernels/common/warp_roles.cuh"
#include "kernels/selective_scan/fused_bwd/projections.cuh"
#include "kernels/selective_scan/fused_bwd/sequences.cuh"

namespace ssmbench::parallel_bwd {

inline constexpr int kHalves = kParallelSteps / kKeptSteps;
inline constexpr int kBlockWarps = kStateThreads / 32;
inline constexpr int kStagedAtOnce = 4;  // elements that a helper has registers for

/// What a tile is computed from; {du, ddelta, dz} take the place of what is staged.
struct GradientTile {
  float4 sequences[kBlockWarps][kParallelSteps * kRowPitch];
  float projections[2][kParallelSteps * kProjectionPitch];
  /// At the halves, from zero; at the segment's start. ΣΔ from there to the halves.
  float4 states[kHalves + 1][kLaneChannels * kStateThreads];
  float elapsed[kHalves][kParallelChannels];
};

template <class Io>
struct GradientShared {
  static constexpr int kTiles = 2;
  /// One more, because all helpers add up what one tile leaves there, while some stage the next but one.
  static constexpr int kFactorTiles = 3;

  GradientTile tiles[kTiles];
  /// {Δ's slope, dz/y}; of a pair of steps then dB, dC [step][state].
  float2 factors[kFactorTiles][kBlockWarps][kParallelSteps * kRowPitch];
  float bias[kParallelChannels], D[kParallelChannels];
  /// u, delta, dout, z.
  StagedSlots<Io> raw[kBlockWarps][4];
};
static_assert(2 * kRowPitch * sizeof(float2) >= 4 * kParallelStates * sizeof(float));

/// The helper that this thread is. Read again each time, so that what follows from it is computed again as
/// well, and takes no registers meanwhile.
__device__ inline int helper_again() {
  int thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread - kStateThreads;
}

/// What a helper does, of the channels of one of the warps that compute. Before the barrier after which a
/// tile is computed, it stores what the last but one has left, and stages the tile in its place.
template <class Io, bool pieces>
__device__ void help(const ParallelProblem& problem, std::int64_t first_segment, GradientShared<Io>& shared) {
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const ParallelPlace place(args, plan, blockIdx.x, 0, first_segment, plan.run());
  const int warp = __shfl_sync(~0U, helper_again() / 32, 0);
  const int tiles_of_segment = static_cast<int>(plan.tiles());
  const int tiles = static_cast<int>(place.tiles());
  const std::int64_t last_start = place.begin + (tiles - 1) * kParallelSteps;
  // Only the last tile, which is the first to be done, may have fewer than 16 steps.
  const int last_valid = place.valid(last_start);
  const auto valid_of = [&](int tile) { return tile == 0 ? last_valid : kParallelSteps; };
  const auto sequence = [&] {
    return SequenceStage<Io, pieces>(problem.args, place.warp_count - warp * kWarpChannels,
                                     helper_again() % 32);
  };
  // Of the tile to stage.
  std::int64_t sequence_at =
      sequence().first_at(place.warp_row + warp * kWarpChannels * args.sequence.dim, last_start);
  const std::int64_t tile_away = kParallelSteps * args.sequence.time;

  // One half of the helpers stages B and C, the other adds dB and dC.
  const bool projects = warp < ProjectionStage<Io>::kThreads / 32;
  const auto projection_of = [&](int tile) {
    return ProjectionStage<Io>(args, place, last_start - tile * kParallelSteps, helper_again());
  };

  // Of the tile to stage: at the start of its segment; kept at its start, from zero; ΣΔ to there.
  int of_segment = (tiles - 1) % tiles_of_segment;
  const std::int64_t segment = place.segment + (tiles - 1) / tiles_of_segment;
  const std::int64_t kept = (segment - first_segment) * plan.kept() + of_segment * kHalves;
  const std::int64_t of_block = place.block_index * kBlockStates;
  const float* first = problem.workspace + at.states + segment * plan.state_floats() + of_block;
  const float* kept_states = problem.workspace + at.kept_states + kept * plan.state_floats() + of_block;
  const float* kept_sums = problem.workspace + at.kept_sums + kept * plan.rows() + place.row_of_block;
  const auto fetch_states = [&](GradientTile& tile) {
    const int thread = helper_again();
#pragma unroll
    for (int state = 0; state < kLaneChannels * kStateThreads; state += kHelperThreads) {
      const int i = thread + state;
      copy_async_16(shared_address(&tile.states[kHalves][i]), first + i * kLaneStates);
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        copy_async_16(shared_address(&tile.states[half][i]),
                      kept_states + half * plan.state_floats() + i * kLaneStates);
    }
    constexpr int kSumPieces = kParallelChannels / 4;
    if (thread < kHalves * kSumPieces)
      copy_async_16(shared_address(reinterpret_cast<float4*>(tile.elapsed) + thread),
                    kept_sums + thread / kSumPieces * plan.rows() + thread % kSumPieces * 4);
    copy_async_commit();
    kept_states -= kHalves * plan.state_floats();
    kept_sums -= kHalves * plan.rows();
    if (--of_segment < 0) {
      of_segment = tiles_of_segment - 1;
      first -= plan.state_floats();
    }
  };

  // dB and dC of a tile, four states of a step a thread.
  float* const shares_B =
      problem.workspace + at.shares_B +
      (place.block_index * plan.span + last_start - first_segment * plan.segment) * kParallelStates;
  const auto add_warps = [&](const float2(&sums)[kBlockWarps][kParallelSteps * kRowPitch], int tile) {
    constexpr int kQuads = kParallelSteps * kParallelStates / kLaneStates;  // of dB or dC
    const int thread = helper_again() - ProjectionStage<Io>::kThreads;
    const int which = thread / kQuads;
    const int step = thread % kQuads / (kParallelStates / kLaneStates);
    const int state = thread % (kParallelStates / kLaneStates) * kLaneStates;
    const float* const from = reinterpret_cast<const float*>(sums[0] + step / 2 * 2 * kRowPitch) +
                              (2 * which + step % 2) * kParallelStates + state;
    float total[kLaneStates] = {};
#pragma unroll
    for (int other = 0; other < kBlockWarps; ++other) {
      float term[kLaneStates];
      load_states(term, from + other * 2 * kParallelSteps * kRowPitch);
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) total[s] += term[s];
    }
    store_states(shares_B + (which == 0 ? 0 : at.shares_C - at.shares_B) +
                     (step - tile * kParallelSteps) * kParallelStates + state,
                 total);
  };
  static_assert(kHelperThreads - ProjectionStage<Io>::kThreads ==
                2 * kParallelSteps * kParallelStates / kLaneStates);

  sequence().template fetch<Staging::gradients>(shared.raw[warp], sequence_at, last_valid);
  copy_async_commit();
  int factor_tile = 0;  // that is staged next
#pragma unroll 1
  for (int i = 0; i < tiles + 2; ++i) {
    GradientTile& tile = shared.tiles[i % 2];
    const bool exists = i < tiles;
    const int next_factor_tile = factor_tile == GradientShared<Io>::kFactorTiles - 1 ? 0 : factor_tile + 1;
    if (exists) {
      // B and C are waited for: there are no registers that could keep them meanwhile.
      fetch_states(tile);
      if (projects) {
        const ProjectionStage<Io> projection = projection_of(i);
        projection.finish(projection.load(valid_of(i)), tile.projections);
      }
    }
    if (i >= 2) {
      sequence().store(tile.sequences[warp], sequence_at + 2 * tile_away, valid_of(i - 2));
      if (!projects) add_warps(shared.factors[next_factor_tile], i - 2);  // (i − 2) mod 3
      __syncwarp();  // all lanes have read what is staged next
    }
    if (exists) {
      copy_async_wait<1>();
      sequence().template stage<Staging::gradients, kStagedAtOnce>(
          tile.sequences[warp], shared.factors[factor_tile][warp], shared.raw[warp],
          shared.bias + warp * kWarpChannels, valid_of(i));
      if (i + 1 < tiles)
        sequence().template fetch<Staging::gradients>(shared.raw[warp], sequence_at - tile_away,
                                                      kParallelSteps);
      copy_async_commit();
      copy_async_wait<1>();
    }
    sequence_at -= tile_away;
    if (i <= tiles) role_barrier();
    factor_tile = next_factor_tile;
  }
}

}  // namespace ssmbench::parallel_bwd
