#pragma once

// Q or K of a warp's 16 rows in fragments: biases added, pairs turned. Pair i is state i of either half of a
// row, and a thread has both: fragments of the same columns of both tiles.

#include "kernels/common/hopper/fragments.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/mamba3/hopper/fused/block.cuh"

namespace ssmbench::mamba3_fused {

/// Where a lane finds its fragments, biases and turns.
template <class T>
class Turner {
  using Io = typename T::Io;

 public:
  static constexpr int kTurnedFragments = T::kPairs / 16;
  static constexpr int kFragments = kHalf / 16;  ///< of a half of a row

  /// `bias`: a table of the shared memory.
  __device__ Turner(const SharedMemory<T>& shared, std::uint32_t bias, int thread)
      : fragment_(hopper::fragment_offset(thread / 32, thread % 32)),
        bias_(shared.template at_address<float4>(bias) + thread % 16),
        turns_((thread / 16 + thread / 32 * 2) * kStepBytes + thread % 4 * 16) {}

  /// Fragments at columns 16·i on of both halves, as they are stored.
  __device__ __forceinline__ void load(std::uint32_t (&low)[4], std::uint32_t (&high)[4], int i,
                                       std::uint32_t tile) const {
    load_matrices(low, address(tile, i));
    load_matrices(high, address(tile, i) + kTile);
  }
  /// Adds biases, turns and rounds. `turns`: of the chunk; only if the fragments' pairs turn.
  template <bool kTurned>
  __device__ __forceinline__ void turn(std::uint32_t (&low)[4], std::uint32_t (&high)[4], int i,
                                       const SharedMemory<T>& shared, std::uint32_t turns) const {
    const float4 bias_low = bias_[16 * i];
    const float4 bias_high = bias_[16 * (i + kFragments)];
    if constexpr (!kTurned) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        low[part] = rounded(plus(low[part], bias_low, part));
        high[part] = rounded(plus(high[part], bias_high, part));
      }
      return;
    }
    const auto* const from = shared.template at_address<float4>(turns + turns_ + i * 128);
    constexpr int kTwoSteps = 2 * kStepBytes / 16;  // the rows of parts 1 and 3
    const float4 of_parts[]{from[0], from[kTwoSteps], from[4], from[kTwoSteps + 4]};
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float2 a = plus(low[part], bias_low, part);
      const float2 b = plus(high[part], bias_high, part);
      const float4& turn = of_parts[part];  // cosine and sine of two pairs
      low[part] = rounded({a.x * turn.x - b.x * turn.y, a.y * turn.z - b.y * turn.w});
      high[part] = rounded({a.x * turn.y + b.x * turn.x, a.y * turn.w + b.y * turn.z});
    }
  }
  /// Where the fragment's columns 16·i on lie in a tile.
  __device__ __forceinline__ std::uint32_t address(std::uint32_t tile, int i) const {
    return tile + (fragment_ ^ i * 32);
  }

 private:
  static constexpr int kStepBytes = T::kPairs * 8;

  /// Parts 0 and 1 are two columns of either row, 2 and 3 those 8 on.
  __device__ static float2 plus(std::uint32_t bits, const float4& bias, int part) {
    const float2 two = unpack_pair<Io>(bits);
    return part < 2 ? float2{two.x + bias.x, two.y + bias.y} : float2{two.x + bias.z, two.y + bias.w};
  }
  __device__ static std::uint32_t rounded(float2 two) {
    return pack_pair<Io>(two.x, two.y);
  }

  std::uint32_t fragment_;
  const float4* bias_;
  int turns_;
};

}  // namespace ssmbench::mamba3_fused
