#pragma once

// The fast kernel of cuda-fused, from Hopper on: real A, variable B and C, methods of one sample, tensors
// that are read and written by 16 bytes. Sequential in time; the states of a channel are spread over lanes,
// in registers.
//
//   team     128 threads that scan some channels, and 128 helpers that prepare their tiles
//   block    1 to 4 teams of one group (rows_teams), which share B and C; first the scanners of all teams,
//            then the helpers
//
//     shape (RowsShape)     4 × 4    4 × 4    4 × 4    2 × 8    4 × 8
//     states of a lane      4        4        4        2        4
//     lanes of a channel    4        4        4        8        8
//     channels of a team    32       32       32       16       16
//     teams of a block      1 to 4   1, 2     1        1        1
//     registers             64       93       64       78       102
//     shared memory of the largest block (RowsMemory)
//       16-bit elements     184 KB                     132 KB   107 KB
//       f32                 226 KB   188 KB   55 KB    166 KB   111 KB
//
//     Which thread is which: RowsMap::channel_of and lane_of; lane l has states l·kStates and on
//
//   tile     32 (8 lanes: 64) steps of these channels, in one of two places in shared memory:
//
//     helpers    │ finish 0, stage 2 in A │ finish 1, stage 3 in B │ finish 2, stage 4 in A │
//     scanners   │ scan 1 in B            │ scan 2 in A            │ scan 3 in B            │
//
//     copy     u, delta, z, B, C as they are, 1 to 3 tiles ahead, by the tensor memory accelerator, to
//              places of their own, where u and z stay until their tile is finished (RowsMemory)
//     stage    {Δ, Δ·u} and, once per block, f32 B and C
//     scan     h ← Ā·h + c·B,  y = Σ C·h over the thread's own states; where shared memory
//              is scarce neighbouring lanes add their parts of y (RowsMap::kParts); these go where
//              {Δ, Δ·u} were
//     finish   out = (Σ parts + D·u)·silu(z)
//
// All threads of a block meet at one barrier a tile. So the scan waits for nothing else, as long as helpers
// need less time for a tile than it does, and the GPU has twice the warps to choose from.
//
// Per (element, state) the scan takes FMUL Δ·A', MUFU.EX2, FMUL Δu·B, FFMA h, FFMA y, and 1.4 (2 × 8: 1.1)
// for reading shared memory, adding and storing y and the loop. Staging and finishing take some 38
// instructions an element, 3 of them on the MUFU. What binds is in docs/performance-notes.md.

#include "kernels/common/warp_roles.cuh"
#include "kernels/selective_scan/fused/producer.cuh"
#include "kernels/selective_scan/fused/step.cuh"

namespace ssmbench {

using RowsKernel = void (*)(ScanArgs, std::int64_t blocks_per_group, MethodParameters, rows::RowsMaps);

/// The kernel of one io dtype, given as its device type, and one layout; null where there is none.
template <class Io>
RowsKernel rows_kernel_for(MethodId method, RowsShape shape, bool along_time);

namespace rows {

/// Groups of 4 steps that one iteration of the scan's loop takes: the more, the more loads are under way
/// while the steps before are computed. The whole tile for zoh; for other methods 128 pairs of a step and a
/// state, which is the whole tile but where a channel has 8 lanes of 4 states. 13 to 29 KB of code.
template <Family family, class Map>
constexpr int kUnrolled = family == Family::zoh ? 2 * Map::kLanes : 32 / Map::kStates;

__device__ inline void load_four(float* to, const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}

/// A thread's parts of y in 4 steps. Where there are fewer parts than lanes, neighbours in bit 0 of the lane
/// add theirs first, each keeping half of the steps.
template <class Map>
__device__ void store_parts(float* tile, int lane, int channel, int step, const float (&y)[4]) {
  if constexpr (Map::kParts == Map::kLanes) {
    *reinterpret_cast<float4*>(tile + Map::part_at(lane, channel, step)) = float4{y[0], y[1], y[2], y[3]};
  } else {
    const bool late = (lane & 1) != 0;
    const float first = (late ? y[2] : y[0]) + __shfl_xor_sync(~0U, late ? y[0] : y[2], Map::kFirstLaneBit);
    const float second = (late ? y[3] : y[1]) + __shfl_xor_sync(~0U, late ? y[1] : y[3], Map::kFirstLaneBit);
    *reinterpret_cast<float2*>(tile + Map::part_at(lane >> 1, channel, step) + (late ? 2 : 0)) =
        float2{first, second};
  }
}

/// Calls call(s, exists, at, state_at) for each state of a thread: its number, and where it lies in A and in
/// tensors of states.
template <class Map, class Call>
__device__ void for_states(const ScanArgs& args, const RowsTeam& team, int thread, const Call& call) {
  const int channel = Map::channel_of(thread);
  const std::int64_t d = team.first + channel;
#pragma unroll
  for (int s = 0; s < Map::kStates; ++s) {
    const int state = Map::lane_of(thread) * Map::kStates + s;
    const bool exists = channel < team.count && state < args.dstate;
    call(s, exists, d * args.dstate + state, (team.b * args.dim + d) * args.dstate + state);
  }
}

/// What a scanner does.
template <class Map, Family family, class Memory>
__device__ void scan(const ScanArgs& args, const RowsTeam& team, const MethodParameters& method,
                     const RowsShared<Map, Memory>& shared, int thread) {
  using Step = RowsStep<family, (Map::kMostTeams * Map::kBlocks <= 2)>;
  constexpr int kStates = Map::kStates;
  const int channel = Map::channel_of(thread);
  const int lane = Map::lane_of(thread);
  float h[kStates];
  decltype(Step::state(method, 0.0F)) A[kStates];
  for_states<Map>(args, team, thread, [&](int s, bool exists, std::int64_t at, std::int64_t state_at) {
    h[s] = exists && args.initial_state != nullptr ? args.initial_state[state_at] : 0.0F;
    A[s] = Step::state(method, exists ? args.A[at] : 0.0F);
  });

  int place = 0;  // of two
  for (std::int64_t start = 0; start < args.seqlen; start += Map::kSteps) {
    float* const tile = shared.sequences + place * Map::kSequenceFloats;
    const float* const projections = shared.projections + place * (2 * Map::kProjectionFloats) + 4 * lane;
    role_barrier();
    float y[4];
#pragma unroll(kUnrolled <family, Map>)
    for (int t = 0; t < Map::kSteps; t += 4) {
      float pairs[8], B[4 * kStates], C[4 * kStates];
      load_four(pairs, tile + Map::step_at(channel, t));
      load_four(pairs + 4, tile + Map::step_at(channel, t) + 4);
#pragma unroll
      for (int k = 0; k < 4; k += Map::kStepsAtOnce) {
        const float* from = projections + Map::projection_at(t + k, 0);
        load_four(B + k * kStates, from);
        load_four(C + k * kStates, from + Map::kProjectionFloats);
      }
      // Parts lie where {Δ, Δ·u} of these and of the next 4 steps have been.
      __syncwarp();
      if (t > 0) store_parts<Map>(tile, lane, channel, t - 4, y);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Step step(method, pairs[2 * k], pairs[2 * k + 1]);
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          const int i = k * kStates + s;
          h[s] = step(A[s], h[s], B[i]);
          y[k] = s == 0 ? C[i] * h[s] : C[i] * h[s] + y[k];
        }
      }
    }
    store_parts<Map>(tile, lane, channel, Map::kSteps - 4, y);
    place ^= 1;
  }
  role_barrier();

  for_states<Map>(args, team, thread, [&](int s, bool exists, std::int64_t /*at*/, std::int64_t state_at) {
    if (exists) args.last_state[state_at] = h[s];
  });
}

/// What a helper does. Before the barrier after which `tile` is scanned, it finishes what the scan has left
/// of the last but one, and stages `tile` in its place; after it one helper of the team has the raw tiles
/// replaced that have been read.
template <class Map, class Io, bool kTakesGain, bool kAlongTime, class Memory>
__device__ void help(const ScanArgs& args, const RowsMaps& maps, const RowsTeam& team,
                     const RowsShared<Map, Memory>& shared, int thread) {
  RowsHelper<Map, Io, kTakesGain, kAlongTime> helper(args, team, shared, thread);
  const int tiles = static_cast<int>(ceil_div(args.seqlen, Map::kSteps));
  const auto copy = [&](int tile) {
    if (thread == 0 && tile < tiles + 2) copy_tile<Map, Memory, kAlongTime>(args, maps, team, shared, tile);
  };
  for (int tile = 0; tile < Memory::kAhead; ++tile) copy(tile);
#pragma unroll 1  // twice the code would leave less of the instruction cache to the scan
  for (int tile = 0; tile < tiles + 2; ++tile) {
    helper.wait(tile);
    if (tile >= 2) {
      helper.finish(tile - 2);
      __syncwarp();  // other threads of the warp have read what it writes
    }
    if (tile < tiles) helper.stage(tile);
    if (tile <= tiles) role_barrier();
    copy(tile + Memory::kAhead);
  }
}

/// A block has 1 to kMostTeams teams: first the scanners of all, then the helpers of all.
template <class Io, Family family, class Map, bool kAlongTime>
__global__ void __launch_bounds__(Map::kMostTeams* Map::kThreads, Map::kBlocks)
    rows_kernel(const ScanArgs args, const std::int64_t blocks_per_group, const MethodParameters method,
                const __grid_constant__ RowsMaps maps) {
  using Memory = RowsMemory<Map, kAlongTime, sizeof(Io)>;
  extern __shared__ __align__(1024) float4 memory[];
  const int teams = static_cast<int>(blockDim.x) / Map::kThreads;
  // Exchanged so that the compiler knows it to be the same in all of a warp.
  const int part = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / kRowsScanners, 0);
  const int index = part < teams ? part : part - teams;
  const int thread = static_cast<int>(threadIdx.x) % kRowsScanners;
  const RowsShared<Map, Memory> shared(memory, index);
  const RowsTeam team = rows_team<Map>(args, blocks_per_group, teams, index);
  if (part < teams && thread < Map::kChannels) {
    const bool exists = thread < team.count;
    shared.bias[thread] = exists && args.delta_bias != nullptr ? args.delta_bias[team.first + thread] : 0.0F;
    shared.D[thread] = exists && args.D != nullptr ? args.D[team.first + thread] : 0.0F;
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < Memory::kAhead; ++i) init_barrier(shared.arrived + i, teams);
    fence_tile_copies();
  }
  __syncthreads();
  if (part < teams) {
    scan<Map, family>(args, team, method, shared, thread);
  } else {
    help<Map, Io, RowsStep<family>::kTakesGain, kAlongTime>(args, maps, team, shared, thread);
  }
}

}  // namespace rows

template <class Io>
RowsKernel rows_kernel_for(MethodId method, RowsShape shape, bool along_time) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) -> RowsKernel {
    if constexpr (two_samples(family)) {
      return nullptr;
    } else {
      return with_rows_shape<sizeof(Io)>(shape, [&](auto states, auto lanes, auto teams) -> RowsKernel {
        using Map = RowsMap<states, lanes, teams>;
        return along_time ? rows::rows_kernel<Io, family, Map, true>
                          : rows::rows_kernel<Io, family, Map, false>;
      });
    }
  });
}

}  // namespace ssmbench
