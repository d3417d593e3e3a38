#pragma once

// What comes after SISO's gradient kernel of cuda-hopper: dAngles, dADT, dDT and dTrap of a chunk of a head, by a block.
// The formulas are those of tensor_bwd/finish.h. A thread has four steps of four pairs, a warp 16 steps of all pairs of
// an angle tile:
//
//   dθ to shared memory and back    from the order of products' fragments to that of time
//   Θ = Σ dθ of later steps         over a thread's steps, a warp's lanes, the block's warps, later chunks
//   Σ ω·Θ over pairs                over a thread's pairs, then lanes

#include "kernels/common/mma.cuh"
#include "kernels/mamba3/tensor_bwd/finish.h"

namespace ssmbench::mamba3_bwd {

inline constexpr int kFinishThreads = kSpanParts * kTileVectors;
inline constexpr int kFinishWarps = kFinishThreads / 32;

/// Memory of a block that finishes a chunk.
struct alignas(16) ChunkFinishMemory {
  static constexpr int kPitch = kTilePairs + kAngleVector;  ///< rows in different banks
  float dtheta[kSteps * kPitch];                            ///< [step][pair]
  float warps[kFinishWarps][kTilePairs];                    ///< Σ dθ of a warp's steps
  float of_rates[kSteps];                                   ///< Σ ω·Θ
  StepFlows flows;
};

template <class Io>
class ChunkFinish {
  using Memory = ChunkFinishMemory;

 public:
  __device__ ChunkFinish(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& from, Memory& memory,
                         const Span& row)
      : args_(args), plan_(plan), from_(from), memory_(memory), row_(row) {}

  /// By all threads of a block.
  __device__ void run() const {
    const auto thread = static_cast<int>(threadIdx.x);
    // All that is loaded is on its way before the first of it is waited for.
    TileLoads loads = load_tile({thread, 0});
    constexpr int kOwnFlows = kFlowRows * kSteps / kFinishThreads;
    float own[kOwnFlows];
#pragma unroll
    for (int i = 0; i < kOwnFlows; ++i) own[i] = flows().flow_at(i * kFinishThreads + thread);
    if (thread < row_.steps) flows().load_step(thread);
#pragma unroll
    for (int i = 0; i < kOwnFlows; ++i) flows().keep_flow(i * kFinishThreads + thread, own[i]);
    if (thread < kSteps) memory_.of_rates[thread] = 0.0F;
    for (int tile = 0; tile < plan_.angle_tiles; ++tile) {
      const Place place{thread, tile};
      Rates turns[kPartSteps];
      add_turns(turns, loads, place);
      Rates rates[kPartSteps];
      take_rates(rates, loads, place);
      const float4 later = loads.later;
      if (tile + 1 < plan_.angle_tiles) loads = load_tile({thread, tile + 1});
      __syncthreads();  // sums of warps, and flows
      if (tile == 0 && thread < 2 * kSpanSums) flows().add_run(thread);
      store_rates(rates, turns, later, place);
      __syncthreads();  // of the next tile, and of what is stored below
    }
    if (thread >= row_.steps) return;
    flows().add_past(thread);
    flows().store(thread, memory_.of_rates[thread]);
  }

 private:
  struct Place {
    int lane, warp, tile;
    int part;    ///< of four steps
    int column;  ///< the first of four pairs of the tile
    int pair;    ///< the same of all

    __device__ Place(int thread, int of_tile)
        : lane(thread % 32),
          warp(thread / 32),
          tile(of_tile),
          part(thread / kTileVectors),
          column(thread % kTileVectors * kAngleVector),
          pair(of_tile * kTilePairs + column) {}
  };

  __device__ StepGradients<Io, Siso> flows() const {
    return {args_, plan_, from_, memory_.flows, row_};
  }

  static constexpr int kTurnVectors = kTilePairs / (2 * kApartPairs);
  /// What a thread loads of a tile of pairs.
  struct TileLoads {
    float4 turns[kTurnVectors];  ///< dθ, in the order of products' fragments
    float4 later;                ///< Σ dθ of later chunks
    uint2 rates[kPartSteps];     ///< where all vectors of pairs are whole
  };
  __device__ bool whole_vectors() const {
    return plan_.angles % kAngleVector == 0;
  }

  /// Without branches but for numbers of pairs that are not in models.
  __device__ __forceinline__ TileLoads load_tile(const Place& place) const {
    TileLoads to;
    const auto* const tile =
        reinterpret_cast<const float4*>(from_.dtheta + plan_.angle_tile(row_.index, place.tile));
#pragma unroll
    for (int i = 0; i < kTurnVectors; ++i) to.turns[i] = __ldg(tile + i * kFinishThreads + threadIdx.x);
    const float* const later = from_.turns + row_.index * plan_.angles + place.pair;
    const auto of_later = [&](int k) { return place.pair + k < plan_.angles ? __ldg(later + k) : 0.0F; };
    to.later = make_float4(of_later(0), of_later(1), of_later(2), of_later(3));
    if (whole_vectors()) {
      const int pair = min(place.pair, plan_.angles - kAngleVector);
      const auto* const rates =
          static_cast<const __nv_bfloat16*>(args_.in.rates) + row_.step(plan_, 0) * plan_.angles + pair;
      const int pitch = static_cast<int>(plan_.nheads) * plan_.angles;
#pragma unroll
      for (int u = 0; u < kPartSteps; ++u)
        to.rates[u] = __ldg(reinterpret_cast<const uint2*>(
            rates + std::int64_t{min(place.part * kPartSteps + u, row_.steps - 1)} * pitch));
    }
    return to;
  }

  /// tanh of the rates, of other ones where a step or a pair is not there.
  __device__ __forceinline__ void take_rates(Rates (&to)[kPartSteps], const TileLoads& loads,
                                             const Place& place) const {
    if (whole_vectors()) {
#pragma unroll
      for (int u = 0; u < kPartSteps; ++u) {
        const float2 first = unpack_pair<__nv_bfloat16>(loads.rates[u].x);
        const float2 second = unpack_pair<__nv_bfloat16>(loads.rates[u].y);
        to[u][0] = first.x;
        to[u][1] = first.y;
        to[u][2] = second.x;
        to[u][3] = second.y;
      }
    } else {
      load_rates<Io, Siso>(args_.in, plan_, row_, place.part, place.pair, to);
    }
#pragma unroll
    for (Rates& of_step : to)
#pragma unroll
      for (float& rate : of_step) rate = mamba3_hopper::fast_tanh(rate);
  }

  /// Σ dθ from each step on within the warp's steps, and the sums of warps.
  __device__ __forceinline__ void add_turns(Rates (&to)[kPartSteps], const TileLoads& loads,
                                            const Place& place) const {
    __syncwarp();  // the tile before has been read
    // Vectors of a thread are of the same steps, which are its warp's.
    const AngleAt at = angle_at(static_cast<int>(threadIdx.x) % kFinishThreads);
    float* const of_step = memory_.dtheta + at.t * Memory::kPitch + at.pair;
    constexpr int kApart = kApartSteps * Memory::kPitch;
#pragma unroll
    for (int i = 0; i < kTurnVectors; ++i) {
      of_step[2 * kApartPairs * i] = loads.turns[i].x;
      of_step[2 * kApartPairs * i + kApart] = loads.turns[i].y;
      of_step[2 * kApartPairs * i + kApartPairs] = loads.turns[i].z;
      of_step[2 * kApartPairs * i + kApartPairs + kApart] = loads.turns[i].w;
    }
    __syncwarp();
    float sums[kAngleVector] = {};
#pragma unroll
    for (int u = kPartSteps - 1; u >= 0; --u) {
      const int t = place.part * kPartSteps + u;
      const float4 of_step =
          *reinterpret_cast<const float4*>(memory_.dtheta + t * Memory::kPitch + place.column);
      const float dtheta[kAngleVector] = {of_step.x, of_step.y, of_step.z, of_step.w};
#pragma unroll
      for (int k = 0; k < kAngleVector; ++k) {
        sums[k] += t < row_.steps ? dtheta[k] : 0.0F;
        to[u][k] = sums[k];
      }
    }
#pragma unroll
    for (float& sum : sums) {
      const float next = __shfl_down_sync(0xFFFFFFFFU, sum, kTileVectors);
      if (place.lane < 32 - kTileVectors) sum += next;
      const float after = __shfl_down_sync(0xFFFFFFFFU, sum, 2 * kTileVectors);
      if (place.lane < 32 - 2 * kTileVectors) sum += after;
    }
    if (place.lane < kTileVectors)
      *reinterpret_cast<float4*>(memory_.warps[place.warp] + place.column) =
          make_float4(sums[0], sums[1], sums[2], sums[3]);
#pragma unroll
    for (int k = 0; k < kAngleVector; ++k) {
      const float later = __shfl_down_sync(0xFFFFFFFFU, sums[k], kTileVectors);
#pragma unroll
      for (int u = 0; u < kPartSteps; ++u)
        if (place.lane < 32 - kTileVectors) to[u][k] += later;
    }
  }

  __device__ __forceinline__ void store_rates(const Rates (&rates)[kPartSteps],
                                              const Rates (&turns)[kPartSteps], const float4& later,
                                              const Place& place) const {
    constexpr float kPi = 0.5F * kTurnInRadians;
    float behind[kAngleVector] = {later.x, later.y, later.z, later.w};
#pragma unroll
    for (int warp = kFinishWarps - 1; warp > 0; --warp) {
      const float4 of_warp = *reinterpret_cast<const float4*>(memory_.warps[warp] + place.column);
      const float sums[kAngleVector] = {of_warp.x, of_warp.y, of_warp.z, of_warp.w};
#pragma unroll
      for (int k = 0; k < kAngleVector; ++k) behind[k] += warp > place.warp ? sums[k] : 0.0F;
    }
    const int pairs = plan_.angles - place.pair;
    const int pitch = static_cast<int>(plan_.nheads) * plan_.angles;
    void* const drates =
        Io::element(args_.drates, row_.step(plan_, place.part * kPartSteps) * plan_.angles + place.pair);
#pragma unroll
    for (int u = 0; u < kPartSteps; ++u) {
      const int t = place.part * kPartSteps + u;
      const bool exists = t < row_.steps;
      const float dt = exists ? memory_.flows.steps[t].dt : 0.0F;
      float of_rates = 0.0F;
      float of_step[kAngleVector];
#pragma unroll
      for (int k = 0; k < kAngleVector; ++k) {
        const float rate = rates[u][k];
        const float turn = kPi * (behind[k] + turns[u][k]);
        of_rates += k < pairs ? rate * turn : 0.0F;
        of_step[k] = (1.0F - rate * rate) * dt * turn;
      }
      of_rates = sum_lanes<1, 4>(of_rates);
      if (place.lane % kTileVectors == 0) memory_.of_rates[t] += of_rates;
      if (exists) store_step(drates, u * pitch, of_step, pairs);
    }
  }

  /// `pairs`: that there are from the first of four on.
  __device__ __forceinline__ void store_step(void* to, int at, const float (&drates)[kAngleVector],
                                             int pairs) const {
    if (plan_.angles % kAngleVector == 0) {
      if (pairs > 0) Io::store_four(to, at, drates);
      return;
    }
#pragma unroll
    for (int k = 0; k < kAngleVector; ++k)
      if (k < pairs) Io::store(to, at + k, drates[k]);
  }

  const Mamba3BwdArgs& args_;
  const Plan& plan_;
  const Workspace& from_;
  Memory& memory_;
  const Span& row_;
};

}  // namespace ssmbench::mamba3_bwd
