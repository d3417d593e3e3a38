#pragma once

// The projections of MIMO around a scan of rows (step, rank):
//
//   up    a thread for 8 head dims of a step and head: V^r = V·MIMO_V^r, rounded, for all ranks
//   down  a warp for a step and head, a lane for two head dims of each 64:
//           y^r + D·V^r | norm, sums by shuffles | silu(Z·MIMO_Z^r) | Σ y^r·MIMO_Out^r, or y^r each
//
// Both are bound by memory. y is in f32: rounded before the sum over ranks, it would be a second rounding of
// out.

#include "kernels/common/activations.h"
#include "kernels/common/vector.cuh"
#include "kernels/mamba3/hopper/ranks.h"
#include "kernels/mamba3/vectors.cuh"

namespace ssmbench::mamba3_hopper {

using mamba3::HeadAt;

inline constexpr int kRankThreads = 256;

template <class Io>
__global__ void __launch_bounds__(kRankThreads)
    up_projection_kernel(const Mamba3Args args, const RankRows to, const std::int64_t vectors) {
  const Mamba3& scan = args.scan;
  const std::int64_t index = std::int64_t{blockIdx.x} * kRankThreads + threadIdx.x;
  if (index >= vectors) return;
  const int in_row = static_cast<int>(scan.headdim) / 8;
  const std::int64_t row = index / in_row;  // (batch, step, head)
  const int p = static_cast<int>(index - row * in_row) * 8;
  const std::int64_t step = row / scan.nheads;
  const std::int64_t head = row - step * scan.nheads;
  float v[8];
  unpack(*reinterpret_cast<const Elements8<Io>*>(static_cast<const Io*>(args.V) + row * scan.headdim + p), v);
  for (int rank = 0; rank < scan.rank; ++rank) {
    float factors[8];
    load_vectors(factors, args.mimo_v + (head * scan.rank + rank) * scan.headdim + p);
#pragma unroll
    for (int i = 0; i < 8; ++i) factors[i] *= v[i];
    const std::int64_t at = ((step * scan.rank + rank) * scan.nheads + head) * scan.headdim + p;
    store_elements(static_cast<Io*>(to.v) + at, pack<Io>(factors));
  }
}

/// Σ over the lanes of a warp, the same bits in each.
__device__ inline float sum_of_lanes(float value) {
#pragma unroll
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  return value;
}

/// A lane's pairs of head dims of a step and head, for all ranks.
template <class Io, int kRanks>
struct RankedRow {
  static constexpr int kPairs = static_cast<int>(kMaxRankHeaddim) / (2 * kWarpThreads);

  const Mamba3Args& args;
  std::int64_t step, head;
  int lane;
  float2 y[kPairs][kRanks];

  __device__ int column(int pair) const { return 2 * kWarpThreads * pair + 2 * lane; }
  __device__ bool has(int pair) const { return column(pair) < args.scan.headdim; }
  __device__ float2 pair_of(const void* tensor, int pair) const {
    const std::int64_t at = (step * args.scan.nheads + head) * args.scan.headdim + column(pair);
    return unpack_pair<Io>(*reinterpret_cast<const std::uint32_t*>(static_cast<const Io*>(tensor) + at));
  }
  /// MIMO_V, MIMO_Z or MIMO_Out.
  __device__ float2 factors(const float* of, int rank, int pair) const {
    return *reinterpret_cast<const float2*>(of + (head * kRanks + rank) * args.scan.headdim + column(pair));
  }
  __device__ std::int64_t ranked(int rank, int pair) const {
    return ((step * kRanks + rank) * args.scan.nheads + head) * args.scan.headdim + column(pair);
  }

  /// y with the skip.
  __device__ __forceinline__ void load(const RankRows& rows) {
    const float skip = args.D == nullptr ? 0.0F : args.D[head];
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (!has(pair)) break;
      const float2 v = args.D == nullptr ? float2{} : pair_of(args.V, pair);
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank) {
        float2& to = y[pair][rank];
        to = *reinterpret_cast<const float2*>(rows.y + ranked(rank, pair));
        if (args.D == nullptr) continue;
        const float2 up = factors(args.mimo_v, rank, pair);
        to = {to.x + skip * (v.x * up.x), to.y + skip * (v.y * up.y)};
      }
    }
  }
  /// y over the root of its mean square, times the norm's weight.
  __device__ __forceinline__ void normalize() {
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      float squares = 0.0F;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair)
        if (has(pair)) squares += y[pair][rank].x * y[pair][rank].x + y[pair][rank].y * y[pair][rank].y;
      const float mean = sum_of_lanes(squares) / static_cast<float>(args.scan.headdim);
      const float inverse = 1.0F / sqrtf(mean + static_cast<float>(kMamba3NormEps));
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (!has(pair)) break;
        const float2 weight =
            *reinterpret_cast<const float2*>(args.norm + head * args.scan.headdim + column(pair));
        y[pair][rank] = {y[pair][rank].x * (inverse * weight.x), y[pair][rank].y * (inverse * weight.y)};
      }
    }
  }
  /// Gates, and stores.
  __device__ __forceinline__ void store() const {
    Io* const out = static_cast<Io*>(args.out);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (!has(pair)) break;
      const float2 z = args.Z == nullptr ? float2{} : pair_of(args.Z, pair);
      float2 sum{};
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank) {
        float2 value = y[pair][rank];
        if (args.Z != nullptr) {
          const float2 gate = factors(args.mimo_z, rank, pair);
          value = {value.x * fast_silu(z.x * gate.x), value.y * fast_silu(z.y * gate.y)};
        }
        if (!args.scan.reduces_ranks) {
          *reinterpret_cast<std::uint32_t*>(out + ranked(rank, pair)) = pack_pair<Io>(value.x, value.y);
          continue;
        }
        const float2 down = factors(args.mimo_out, rank, pair);
        sum = {sum.x + value.x * down.x, sum.y + value.y * down.y};
      }
      if (args.scan.reduces_ranks)
        *reinterpret_cast<std::uint32_t*>(out + (step * args.scan.nheads + head) * args.scan.headdim +
                                          column(pair)) = pack_pair<Io>(sum.x, sum.y);
    }
  }
};

template <class Io, int kRanks>
__global__ void __launch_bounds__(kRankThreads)
    down_projection_kernel(const Mamba3Args args, const RankRows rows, const std::int64_t warps) {
  const std::int64_t index =
      (std::int64_t{blockIdx.x} * kRankThreads + threadIdx.x) / kWarpThreads;  // (batch, step, head)
  if (index >= warps) return;
  const std::int64_t step = index / args.scan.nheads;
  RankedRow<Io, kRanks> row{args, step, index - step * args.scan.nheads,
                            static_cast<int>(threadIdx.x) % kWarpThreads};
  row.load(rows);
  if (args.norm != nullptr) row.normalize();
  row.store();
}

}  // namespace ssmbench::mamba3_hopper
