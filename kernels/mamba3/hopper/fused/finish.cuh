#pragma once

// What a scanning warpgroup does with a chunk's Yᵀ: skip, norm, gates, the sum over ranks, and out.

#include "kernels/common/hopper/fragments.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/fused/block.cuh"

namespace ssmbench::mamba3_fused {

/// Where the rows of a tile of steps are that a lane points to.
__device__ __forceinline__ std::uint32_t address_of(const StepRow& row, std::uint32_t tile, int warp) {
  return tile + row.step * 128 + ((2 * warp + row.vector ^ row.step & 7) << 4);
}
/// V or Z of a lane's steps and head dims: where column j of head dims g + 8·half lies is word_of(j, half),
/// in its lower half for even j.
__device__ __forceinline__ void load_steps(std::uint32_t (&to)[8], std::uint32_t tile, int warp, int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    load_matrices_transposed(*reinterpret_cast<std::uint32_t(*)[4]>(to + 4 * i),
                             address_of(loaded_row(i, lane), tile, warp));
}
__device__ constexpr int word_of(int j, int half) {
  return j / 2 * 2 + half;
}

/// A lane's vector of a table.
template <class Vector, class T>
__device__ __forceinline__ Vector lane_factors(const SharedMemory<T>& shared, int slot, Factor which,
                                               int warp, int lane) {
  return shared.template at_address<Vector>(shared.table(slot, which))[(8 * warp + lane / 4) * 2 + lane % 2];
}

/// As stmatrix stores fragments, transposed: the inverse of load_matrices_transposed.
__device__ inline void store_matrices_transposed(std::uint32_t shared, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

template <class T>
class Finisher {
  using Io = typename T::Io;
  static constexpr int kColumns = kRows / 8;

 public:
  __device__ Finisher(const FusedArgs& args, const SharedMemory<T>& shared, int slot, int warp, int lane,
                      const ChunkCount& ring_at)
      : args_(args), shared_(shared), slot_(slot), warp_(warp), lane_(lane), ring_at_(ring_at) {}

  /// y[4j + 2·half + i]: of step 2j + t / 2, head dim g + 8·half and rank 2·(t % 2) + i.
  __device__ __forceinline__ void finish(float (&y)[32]) {
    if (args_.in.D != nullptr) add_skip(y);
    if (args_.in.norm != nullptr) normalize(y);
    const Gates gates(*this);
    if (args_.in.scan.reduces_ranks)
      store_sums(y, gates);
    else
      store_ranks(y, gates);
    // Not before what is made of V and Z is stored: an arrival overtakes loads whose values nothing has used.
    hopper::fence_async_proxy();  // out was put over Z
    warp_arrive(shared_.step_inputs(slot_).empty(ring_at_), lane_);
  }

 private:
  __device__ __forceinline__ float4 factors(Factor which) const {
    return lane_factors<float4>(shared_, slot_, which, warp_, lane_);
  }
  __device__ __forceinline__ static float element(const std::uint32_t (&words)[kColumns], int j, int half) {
    const float2 two = unpack_pair<Io>(words[word_of(j, half)]);
    return j % 2 == 0 ? two.x : two.y;
  }

  __device__ __forceinline__ void add_skip(float (&y)[32]) const {
    std::uint32_t v[kColumns];
    load_steps(v, shared_.v_tile(slot_, ring_at_), warp_, lane_);
    const float4 skip = factors(Factor::skip);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float of_v = element(v, j, half);
        y[4 * j + 2 * half] += of_v * (half == 0 ? skip.x : skip.z);
        y[4 * j + 2 * half + 1] += of_v * (half == 0 ? skip.y : skip.w);
      }
  }

  /// y over the root of the mean square of its step and rank, a column. Behind headdim y is 0.
  __device__ __forceinline__ void normalize(float (&y)[32]) const {
    float* const sums = shared_.template at_address<float>(shared_.q_tile(slot_, ring_at_) + kTile);
    warpgroup_barrier(1 + slot_);  // what lay there has been read
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int at = i / 2 * 4 + i % 2;
      float sum = y[at] * y[at] + y[at + 2] * y[at + 2];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
      if (lane_ < 4) sums[warp_ * kRows + i / 2 * 8 + 2 * lane_ + i % 2] = sum;
    }
    warpgroup_barrier(1 + slot_);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = 0.0F;
#pragma unroll
      for (int warp = 0; warp < kGroupWarps; ++warp)
        sum += sums[warp * kRows + i / 2 * 8 + 2 * (lane_ % 4) + i % 2];
      const float mean = sum / static_cast<float>(args_.in.scan.headdim);
      const float factor = 1.0F / sqrtf(mean + static_cast<float>(kMamba3NormEps));
      const int at = i / 2 * 4 + i % 2;
      y[at] *= factor;
      y[at + 2] *= factor;
    }
  }

  /// What y is multiplied with.
  struct Gates {
    float4 outer;
    float4 inner{};
    std::uint32_t z[kColumns]{};

    __device__ explicit Gates(const Finisher& of) : outer(of.factors(Factor::outer)) {
      if constexpr (T::kGated) {
        inner = of.factors(Factor::inner);
        load_steps(z, of.shared_.z_tile(of.slot_, of.ring_at_), of.warp_, of.lane_);
      }
    }
    /// The gates of y's column j, of head dim g + 8·half, but for Z.
    __device__ float2 of(int j, int half) const {
      const float2 of_outer = half == 0 ? float2{outer.x, outer.y} : float2{outer.z, outer.w};
      if constexpr (!T::kGated) return of_outer;
      const float z = z_of(j, half);
      return {gate(z, half == 0 ? inner.x : inner.z, of_outer.x),
              gate(z, half == 0 ? inner.y : inner.w, of_outer.y)};
    }
    __device__ float z_of(int j, int half) const { return T::kGated ? element(z, j, half) : 1.0F; }
    /// outer·σ(z·factor), given −log₂e·factor and 1/outer.
    __device__ static float gate(float z, float inner, float inverse) {
      return reciprocal_approximate(fmaf(exp2_approximate(z * inner), inverse, inverse));
    }
  };

  /// Where a row of the head and sequence lies in (B, L, H, P), or in (B, L, R, H, P).
  __device__ Io* out_row(int row) const {
    const Mamba3& scan = args_.in.scan;
    return static_cast<Io*>(args_.in.out) +
           (shared_.first_row(slot_) + std::int64_t{row} * static_cast<int>(scan.nheads)) *
               static_cast<int>(scan.headdim);
  }
  __device__ int first_step() const {
    return static_cast<int>(ring_at_.count) * kSteps;
  }
  __device__ bool exists(int step, int p) const {
    return step < static_cast<int>(args_.in.scan.seqlen) && p < static_cast<int>(args_.in.scan.headdim);
  }

  /// Sums over ranks, two of which are in the lane beside: either lane takes a head dim. By way of shared
  /// memory, over Z of the warp's head dims, to rows of 32 bytes.
  __device__ __forceinline__ void store_sums(const float (&y)[32], const Gates& gates) const {
    const bool takes_second = lane_ % 2 != 0;
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sums[2];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int j = 2 * i + part;
        const auto sum = [&](int half) {
          const float2 of = gates.of(j, half);
          return gates.z_of(j, half) * fmaf(y[4 * j + 2 * half], of.x, y[4 * j + 2 * half + 1] * of.y);
        };
        const float first = sum(0);
        const float second = sum(1);
        sums[part] =
            (takes_second ? second : first) + __shfl_xor_sync(kAllLanes, takes_second ? first : second, 1);
      }
      words[i] = pack_pair<Io>(sums[0], sums[1]);
    }
    const std::uint32_t tile = shared_.z_tile(slot_, ring_at_);
    __syncwarp();  // Z has been read
    store_matrices_transposed(address_of(stored_row(lane_), tile, warp_), words);
    __syncwarp();
    const StepRow row{lane_ / 2, lane_ % 2};
    const int step = first_step() + row.step;
    const int p = 16 * warp_ + 8 * row.vector;
    const uint4 vector = *shared_.template at_address<uint4>(address_of(row, tile, warp_));
    if (exists(step, p)) *reinterpret_cast<uint4*>(out_row(step) + p) = vector;
  }
  __device__ __forceinline__ void store_ranks(const float (&y)[32], const Gates& gates) const {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int step = first_step() + 2 * j + lane_ % 4 / 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int p = 16 * warp_ + lane_ / 4 + half * 8;
        const float2 of = gates.of(j, half);
        const float z = gates.z_of(j, half);
        if (!exists(step, p)) continue;
        Io* const to = out_row(step * kRank + 2 * (lane_ % 2)) + p;
        to[0] = from_float<Io>(y[4 * j + 2 * half] * of.x * z);
        to[args_.in.scan.nheads * args_.in.scan.headdim] = from_float<Io>(y[4 * j + 2 * half + 1] * of.y * z);
      }
    }
  }

  const FusedArgs& args_;
  const SharedMemory<T>& shared_;
  int slot_, warp_, lane_;
  const ChunkCount& ring_at_;
};

}  // namespace ssmbench::mamba3_fused
