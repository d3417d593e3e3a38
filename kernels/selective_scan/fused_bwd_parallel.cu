// cuda-fused for selective_scan_bwd, the common case: real A, zoh, variable B and C, 9 to 16 states. Segments
// of time are done side by side, so that a batch of one fills the GPU too.
//
//   block    4 warps: 64 channels of one group, one segment of 64 to 256 steps
//   warp     16 channels; a thread has two of them and four states of each
//
//     lane bits    4 3 | 2 1 | 0      channels  4·(bits 4..3) + 2·(bit 0) + {0, 1}
//                                     states    4·(bits 2..1) + {0, 1, 2, 3}
//
//   segment_kernel   ├──►  ├──►  ├──►  all segments from zero: h at each tile and at the end, and what the
//                    ◄──┤  ◄──┤  ◄──┤  end's carry is at the start, Σ_t (Π_{s≤t} Ā_s)·dy_t·C_t, on the way
//   combine_kernel   ├─────►─────►──►  the true h at the starts, the true carries at the ends: a chain over
//                    ◄──◄─────◄──────┤ segments with Ā = e^(A·ΣΔ), a thread per state
//   gradient_kernel  ◄──┤  ◄──┤  ◄──┤  all segments, last tile first
//   share_kernel, sums_kernel          sums over blocks of dB and dC, over segments and batches of the rest
//
// With carry_t = Ā_t·g_t, g_t = dy_t·C_t + carry_{t+1}. Where there are channels enough to fill the GPU, a
// block of gradient_kernel goes through all segments in turn, ◄───◄───◄──┤, with the carry in registers, and
// segment_kernel leaves the carries out (plan.in_turn). If the workspace would grow too large, states at
// tiles are kept for a span of several segments only: segment_kernel goes over each span once more.
//
// gradient_kernel, a tile of 16 steps:
//
//     fetch    u, delta, dout, z in 16-byte pieces of time, h at the tile, while the tile before is computed:
//              copied to where each thread finds its own; B and C to registers
//     stage    {Δ, Δ·u, dy, u}, {Δ's slope, dz/y}      a warp its own channels
//              B and C, as four copies                 by the block
//     half     twice, the later 8 steps first: forward to it; forward through it, states and decays into
//              registers; back, two steps at a time: sums over states (du, ∂Δ, y) and over channels (dB, dC)
//              by shuffles, which leave each lane one (channel, step) and one (state, step); then du,
//              ddelta, dz of these
//     store    du, ddelta, dz as staged; dB and dC added over the warps, to the workspace
//
// One barrier a tile, since what all warps use is there for two tiles: B and C of the next one are staged,
// and the sums of the one before are added, around it.
//
// Exchanging sums between lanes takes two instructions per pair of values where lanes keep their states and
// channels in orders of their own (ParallelLane), four where what is kept is selected. That is why B and C
// lie in shared memory in each of the four orders.
//
// Registers: per pair of channel and state h, carry, A, the sum of dA: 32; h and Ā of 8 steps: 128; and B, C,
// Δ, Δ·u, dy of two steps. All 255 are used, so that two blocks share an SM, which is what 8 · 2048 channels
// have. What is loaded into a register that has then to be spilled is waited for at once: hence B and C last,
// and h at the tile in shared memory. Shared memory: 86 KB. No atomics, all orders of sums are fixed. What
// was measured: docs/performance-notes.md.

#include "kernels/selective_scan/fused_bwd_parallel.h"

#include "device/cuda_check.h"
#include "kernels/selective_scan/fused_bwd_parallel_tile.cuh"

namespace ssmbench {
namespace {

using namespace parallel_bwd;

constexpr int kParallelWarps = kParallelThreads / 32;
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

/// Shared memory of both kernels that go over time; the gradient kernel has all of it. What all warps use is
/// there for two tiles, so that a tile takes one barrier.
struct ParallelShared {
  float projections[2][2][kParallelSteps * kProjectionPitch];
  float bias[kParallelChannels], D[kParallelChannels];
  float4 sequences[kParallelWarps][kParallelSteps * kWarpChannels];
  RawSlots raw;
};
struct GradientShared : ParallelShared {
  float2 factors[kParallelWarps][kParallelSteps * kWarpChannels];
  float4 states[2][kLaneChannels][kParallelThreads];  ///< of the next tile: from zero; at the segment's start
  /// [tile][warp][pair of steps]: dB, dC [step][state]
  float sums[2][kParallelWarps][kParallelSteps / 2][4 * kParallelStates];
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
    segment_kernel(const ParallelProblem problem, const std::int64_t first_segment, const bool keep_tiles,
                   const bool keep_ends) {
  constexpr Staging kStaging = with_carry ? Staging::sequences : Staging::input;
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<ParallelShared*>(memory);
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const ParallelPlace place(args, plan, first_segment, 1);
  ProjectionStage projection(args);
  const auto fetch = [&](std::int64_t start) {
    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      fetch_tile<Io, pieces, kStaging>(shared.raw, problem.args, place, start);
      projection.load<Io>(args, place, start);
    });
  };
  fetch(place.begin);
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
  const std::int64_t tiles = place.tiles();

  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t start = place.begin + tile * kParallelSteps;
    if (tile > 0) {
      if (keep_tiles) {
        const std::int64_t inner = (place.segment - first_segment) * (plan.tiles() - 1) + tile - 1;
        store_lane(problem.workspace + at.tile_states + inner * plan.state_floats(), place.lane_at, h);
        store_row_sums(problem.workspace + at.tile_sums + inner * plan.rows(), delta_sum, place);
      }
      __syncwarp();  // all lanes are done with `own`
    }
    auto& projections = shared.projections[tile & 1];
    copies_done();
    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      projection.finish<Io>(projections);
      stage_tile<Io, pieces, kStaging>(own, nullptr, shared.raw, shared.bias, problem.args, place, start);
      if (tile + 1 < tiles) {
        fetch_tile<Io, pieces, kStaging>(shared.raw, problem.args, place, start + kParallelSteps);
        projection.load<Io>(args, place, start + kParallelSteps);
      }
    });
    __syncthreads();
#pragma unroll 4
    for (int t = 0; t < kParallelSteps; ++t) {
      float B[kLaneStates], C[kLaneStates];
      load_states(B, projections[0] + place.projection_at(t));
      if constexpr (with_carry) load_states(C, projections[1] + place.projection_at(t));
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r) {
        const float4* const from = &own[Element{t, place.lane.channel(r)}.index()];
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
  if (!keep_ends) return;
  const std::int64_t states_at = place.segment * plan.state_floats() + place.lane_at;
  store_lane(problem.workspace + at.states, states_at, h);
  if constexpr (with_carry) store_lane(problem.workspace + at.carries, states_at, carry);
  store_row_sums(problem.workspace + at.delta_sums + place.segment * plan.rows(), delta_sum, place);
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

/// One step of all of a thread's states, whose decays it leaves.
__device__ inline void step_forward(LaneStates& h, LaneStates& decay, const LaneStates& A, const float4* own,
                                    const float* B_of_tile, const ParallelPlace& place, int t) {
  float B[kLaneStates];
  load_states(B, B_of_tile + place.projection_at(t));
#pragma unroll
  for (int r = 0; r < kLaneChannels; ++r) {
    const float2 step = *reinterpret_cast<const float2*>(&own[Element{t, place.lane.channel(r)}.index()]);
#pragma unroll
    for (int s = 0; s < kLaneStates; ++s) {
      decay[r][s] = exp2_fast(step.x * A[r][s]);
      h[r][s] = fmaf(decay[r][s], h[r][s], step.y * B[s]);
    }
  }
}

__global__ void __launch_bounds__(kParallelThreads, 2)
    gradient_kernel(const ParallelProblem problem, const std::int64_t first_segment) {
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<GradientShared*>(memory);
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const FusedBackwardParallelWorkspace& at = problem.at;
  const ParallelPlace place(args, plan, first_segment, plan.run());
  ProjectionStage projection(args);
  float elapsed[kLaneChannels] = {};
  const int tiles_of_segment = static_cast<int>(plan.tiles());
  int tile = static_cast<int>(place.tiles()) - 1;
  int segment = tile / tiles_of_segment;  // of the run; where the tile to fetch is
  int of_segment = tile % tiles_of_segment;
  const auto fetch = [&](std::int64_t start) {
    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      fetch_tile<Io, pieces, Staging::gradients>(shared.raw, problem.args, place, start);
      projection.load<Io>(args, place, start);
    });
    const std::int64_t inner =
        (place.segment - first_segment + segment) * (tiles_of_segment - 1) + of_segment - 1;
    const float* const from_zero = problem.workspace + at.tile_states + inner * plan.state_floats();
    const float* const first =
        problem.workspace + at.states + (place.segment + segment) * plan.state_floats();
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      const std::int64_t of_lane = place.lane_at + r * kParallelThreads * kLaneStates;
      if (of_segment > 0) copy_16(&shared.states[0][r][threadIdx.x], from_zero + of_lane);
      copy_16(&shared.states[1][r][threadIdx.x], first + of_lane);
      elapsed[r] =
          of_segment > 0
              ? problem.workspace[at.tile_sums + inner * plan.rows() + place.row() + place.lane.channel(r)]
              : 0.0F;
    }
  };
  fetch(place.begin + tile * kParallelSteps);
  load_channels(shared.bias, shared.D, args, place);
  __syncthreads();

  LaneStates A, carry = {}, dA = {};
  load_exponents(A, args, place);
  const std::int64_t run = place.segment / plan.run();
  float* const run_carry = problem.workspace + at.carries + run * plan.state_floats();
  if (!plan.in_turn || place.end < args.seqlen) load_lane(carry, run_carry, place.lane_at);
  float dD = 0.0F;
  float ddelta_bias = 0.0F;
  float4* const own = shared.sequences[place.warp];
  float2* const factors = shared.factors[place.warp];
  const int lane = place.lane.lane;
  // What is this lane's once sums over states and channels are done.
  const int own_channel = place.lane.channel(0);
  const float D = shared.D[place.warp * kWarpChannels + own_channel];
  const bool own_is_odd = (lane & 2) != 0;  // of a pair of steps
  const int own_element = Element{own_is_odd ? 1 : 0, own_channel}.index();
  const int own_sum = (lane & 1) * kParallelStates + place.lane.state(0);

  // dB and dC of a tile, four states of a step a thread. A barrier has to be between it and the sums.
  const auto add_warps = [&](int of_tile) {
    const int which = threadIdx.x / (kParallelThreads / 2);
    const int quad = threadIdx.x % (kParallelThreads / 2);
    const int step = quad / (kParallelStates / 4);
    const int from = which * 2 * kParallelStates + step % 2 * kParallelStates + quad % 4 * 4;
    float sum[kLaneStates];
    load_states(sum, shared.sums[of_tile & 1][0][step / 2] + from);
#pragma unroll
    for (int warp = 1; warp < kParallelWarps; ++warp) {
      float term[kLaneStates];
      load_states(term, shared.sums[of_tile & 1][warp][step / 2] + from);
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) sum[s] += term[s];
    }
    const std::int64_t share = place.block_index * plan.span + place.begin + of_tile * kParallelSteps -
                               first_segment * plan.segment + step;
    float* const shares = problem.workspace + (which == 0 ? at.shares_B : at.shares_C);
    store_states(shares + share * kParallelStates + quad % 4 * 4, sum);
  };

  const int last_tile = tile;
  for (; tile >= 0; --tile) {
    const std::int64_t start = place.begin + tile * kParallelSteps;
    auto& projections = shared.projections[tile & 1];
    LaneStates first;
    copies_done();
    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      projection.finish<Io>(projections);
      stage_tile<Io, pieces, Staging::gradients>(own, factors, shared.raw, shared.bias, problem.args, place,
                                                 start);
    });
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      float local[kLaneStates];
      load_states(local, reinterpret_cast<const float*>(&shared.states[0][r][threadIdx.x]));
      load_states(first[r], reinterpret_cast<const float*>(&shared.states[1][r][threadIdx.x]));
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s)
        first[r][s] = fmaf(exp2_fast(elapsed[r] * A[r][s]), first[r][s], of_segment == 0 ? 0.0F : local[s]);
    }
    if (--of_segment < 0) {
      of_segment = tiles_of_segment - 1;
      --segment;
    }
    if (tile > 0) fetch(start - kParallelSteps);
    __syncthreads();
    if (tile < last_tile) add_warps(tile + 1);

#pragma unroll 1
    for (int half = kParallelSteps / kKeptSteps - 1; half >= 0; --half) {
      LaneStates h, before[kKeptSteps], decay[kKeptSteps];
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s) h[r][s] = first[r][s];
      if (half > 0) {
#pragma unroll 4
        for (int t = 0; t < kKeptSteps; ++t) step_forward(h, decay[0], A, own, projections[0], place, t);
      }
      float4* const half_own = own + half * kKeptSteps * kWarpChannels;
      const float2* const half_factors = factors + half * kKeptSteps * kWarpChannels;
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
      // What a pair of steps leaves is stored after the next one's operands are loaded: a load cannot be
      // moved above a store, and would wait for the shuffles that the store waits for.
      float4 gradients;
      float dB, dC;
      const auto store_pair = [&](int pair) {
        __syncwarp();  // all lanes have read these steps
        float* const to = shared.sums[tile & 1][place.warp][half * kKeptSteps / 2 + pair];
        to[own_sum] = dB;
        to[2 * kParallelStates + own_sum] = dC;
        half_own[2 * pair * kWarpChannels + own_element] = gradients;
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
            step[k][r] = half_own[Element{2 * pair + k, place.lane.channel(r)}.index()];
        }
        const float2 factor = half_factors[2 * pair * kWarpChannels + own_element];
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
    with_staging(problem.io, problem.pieces, [&]<class Io, bool pieces>() {
      store_sequences<Io, pieces>(own, problem.args, place, start);
    });
  }
  __syncthreads();
  add_warps(0);

  store_lane(problem.workspace + at.states + place.segment * plan.state_floats(), place.lane_at, dA);
  // The other lane that has this channel has the other step of each pair.
  dD += shuffle_xor(dD, 2);
  ddelta_bias += shuffle_xor(ddelta_bias, 2);
  if ((lane & 2) == 0) {
    const std::int64_t row = run * plan.rows() + place.row() + own_channel;
    problem.workspace[at.dD + row] = dD;
    problem.workspace[at.ddelta_bias + row] = ddelta_bias;
  }
  if (place.segment > 0) {
    if (plan.in_turn) store_lane(run_carry - plan.state_floats(), place.lane_at, carry);
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

/// dA, dD, ddelta_bias: sums over batches and segments. In order.
///
///   block    32 neighbouring states of the channels, in the order of the workspace; 32 channels in the last
///            blocks. Times 8 slices: every eighth run of all batches
__global__ void __launch_bounds__(kCombineThreads)
    sums_kernel(const ParallelProblem problem, const std::int64_t state_blocks) {
  __shared__ float partial[kSumSlices][kSumWidth];
  const FusedBackwardParallelPlan& plan = problem.plan;
  const ScanGradientArgs& args = problem.args;
  const int column = static_cast<int>(threadIdx.x) % kSumWidth;
  const int slice = static_cast<int>(threadIdx.x) / kSumWidth;
  // Complete in slice 0; all threads of a block have to call it.
  const auto sum = [&](std::int64_t from, std::int64_t of_run, std::int64_t of_batch) {
    const auto runs = static_cast<unsigned>(plan.runs());
    const unsigned terms = static_cast<unsigned>(plan.batch) * runs;
    float total = 0.0F;
#pragma unroll 4
    for (unsigned i = slice; i < terms; i += kSumSlices) {
      const unsigned b = i / runs;
      total += problem.workspace[from + (i - b * runs) * of_run + b * of_batch];
    }
    __syncthreads();
    partial[slice][column] = total;
    __syncthreads();
    for (int other = 1; slice == 0 && other < kSumSlices; ++other) total += partial[other][column];
    return total;
  };
  if (blockIdx.x < state_blocks) {
    const StoredState state(args.scan, plan, static_cast<std::int64_t>(blockIdx.x) * kSumWidth + column);
    const float dA = sum(problem.at.states + state.index, plan.run() * plan.state_floats(),
                         plan.state_floats() / plan.batch);
    if (slice == 0 && state.exists) args.dA[state.in_channels] = dA;
    return;
  }
  const StoredRow row(plan, (blockIdx.x - state_blocks) * kSumWidth + column);
  const float dD = sum(problem.at.dD + row.index, plan.rows(), plan.rows() / plan.batch);
  const float ddelta_bias = sum(problem.at.ddelta_bias + row.index, plan.rows(), plan.rows() / plan.batch);
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
  const auto allow = [](auto* kernel, std::size_t bytes) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  };
  allow(segment_kernel<false>, sizeof(ParallelShared));
  allow(segment_kernel<true>, sizeof(ParallelShared));
  allow(gradient_kernel, sizeof(GradientShared));
}

void ParallelBackward::launch(cudaStream_t stream, const AddShares& add_shares) const {
  const ParallelProblem problem{
      args_, io_, in_pieces(args_, io_), plan_, fused_backward_parallel_workspace(plan_), workspace_};
  const bool one_span = plan_.spans() == 1;
  const auto forward = plan_.in_turn ? segment_kernel<false> : segment_kernel<true>;
  forward<<<grid_of(plan_.segments() * plan_.blocks()), kParallelThreads, sizeof(ParallelShared), stream>>>(
      problem, 0, one_span, true);
  check_cuda(cudaGetLastError());
  // What blocks go through in turn needs no carries beforehand.
  combine_kernel<<<dim3(grid_of(plan_.state_floats() / kCombineThreads), plan_.in_turn ? 1 : 2),
                   kCombineThreads, 0, stream>>>(problem);
  check_cuda(cudaGetLastError());
  for (std::int64_t span = plan_.spans() - 1; span >= 0; --span) {
    const std::int64_t first = span * plan_.span_segments();
    const std::int64_t end = std::min((span + 1) * plan_.span, plan_.seqlen);
    const std::int64_t segments = std::min(first + plan_.span_segments(), plan_.segments()) - first;
    if (!one_span) {
      segment_kernel<false>
          <<<grid_of(segments * plan_.blocks()), kParallelThreads, sizeof(ParallelShared), stream>>>(
              problem, first, true, false);
      check_cuda(cudaGetLastError());
    }
    gradient_kernel<<<grid_of(ceil_div(segments, plan_.run()) * plan_.blocks()), kParallelThreads,
                      sizeof(GradientShared), stream>>>(problem, first);
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
