#pragma once

// The turning warpgroup of a head: q and k of Q and K, biases added, pairs turned, rounded, in tiles of their
// own. Pair i is state i of either half of a row.
//
// Warps 0 and 1 have Q, 2 and 3 K, each 32 states of either half. A lane has 8 states of both halves of a
// rank, and every second step: its biases stay in registers, and its loads and stores are of 16 bytes.

#include "kernels/common/io_types.cuh"
#include "kernels/mamba3/hopper/fused/block.cuh"

namespace ssmbench::mamba3_fused {

template <class T>
class TurnWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  static constexpr int kVectorStates = 8;
  static constexpr int kWarpStates = 4 * kVectorStates;
  static constexpr int kLaneRows = kPartRows / 8;  ///< of a part, 8 apart

 public:
  __device__ TurnWarpgroup(const FusedArgs& args, const Shared& shared) : args_(args), shared_(shared) {
    const float* bias = (is_k() ? args.in.K_bias : args.in.Q_bias) +
                        (std::int64_t{Head(args, slot()).head} * kRank + lane() % kRank) * kStates +
                        first_state();
#pragma unroll
    for (int i = 0; i < kVectorStates; ++i) {
      low_bias_[i] = bias[i];
      high_bias_[i] = bias[kHalf + i];
    }
  }

  __device__ void run() {
    // Known to be the same of all lanes.
    if (__shfl_sync(kAllLanes, first_state(), 0) < T::kPairs)
      run_as<true>();
    else
      run_as<false>();
  }

 private:
  // Asked for anew where they are needed: no register is left to keep them in.
  __device__ static int lane() {
    return group_thread() % 32;
  }
  __device__ static int slot() {
    return head_slot<T>();
  }
  __device__ static int is_k() {
    return group_thread() / 64;
  }
  /// The lane's of the lower half. In the second head of a block the warps that turn take turns, so that all
  /// schedulers have as many.
  __device__ static int first_state() {
    return (group_thread() / 32 % 2 ^ slot()) * kWarpStates + lane() / 8 * kVectorStates;
  }
  /// Of the lane's first vector in a part's tile.
  __device__ static std::uint32_t offset() {
    const int row = lane() % 8;
    return row * 128 + ((first_state() / kVectorStates ^ row) << 4);
  }

  template <bool kTurns>
  __device__ __forceinline__ void run_as() {
    hopper::RingPosition<kPartDepth> part_at;
    ChunkCount at;
    const std::uint32_t vector = is_k() * 2 * kPartTile + offset();
    for (; has_chunk(args_, static_cast<int>(at.count)); at.advance()) {
      shared_.turned(slot()).wait_empty(at);
      if constexpr (kTurns) shared_.turns(slot()).wait_full(at);
      std::uint32_t to = shared_.q_tile(slot(), at) + is_k() * kOperand + offset();
      // Of the lane's step.
      const int step = lane() / kRank % 2;
      std::uint32_t turns =
          shared_.turn_tile(slot(), at) +
          (step * T::kPairs + first_state() + turn_slot(step, 0)) * static_cast<int>(sizeof(float2));
#pragma unroll 1
      for (int part = 0; part < kParts; ++part) {
        shared_.parts().wait_full(part_at);
        const std::uint32_t from = shared_.part(part_at) + vector;
        uint4 low[kLaneRows], high[kLaneRows];
#pragma unroll
        for (int row = 0; row < kLaneRows; ++row) {
          low[row] = *shared_.template at_address<uint4>(from + row * 1024);
          high[row] = *shared_.template at_address<uint4>(from + row * 1024 + kPartTile);
        }
#pragma unroll
        for (int row = 0; row < kLaneRows; ++row) {
          turn<kTurns>(low[row], high[row], turns + row * 2 * T::kPairs * static_cast<int>(sizeof(float2)));
          *shared_.template at_address<uint4>(to + row * 1024) = low[row];
          *shared_.template at_address<uint4>(to + row * 1024 + kTile) = high[row];
        }
        turns += kPartSteps * T::kPairs * static_cast<int>(sizeof(float2));
        to += kPartTile;
        // Not before what was loaded is used: an arrival overtakes loads from shared memory.
        warp_arrive(shared_.parts().empty(part_at), lane());
        part_at.advance();
      }
      hopper::fence_async_proxy();
      warp_arrive(shared_.turned(slot()).full(at), lane());
      if constexpr (kTurns) hopper::barrier_arrive(shared_.turns(slot()).empty(at));
    }
  }

  /// `turns`: of the step's pairs from the lane's first on. The second four lie before them in odd steps.
  template <bool kTurns>
  __device__ __forceinline__ void turn(uint4& low, uint4& high, std::uint32_t turns) const {
    std::uint32_t* const lows = &low.x;
    std::uint32_t* const highs = &high.x;
    [[maybe_unused]] const std::uint32_t others = turns ^ turn_slot(1, 0) * static_cast<int>(sizeof(float2));
#pragma unroll
    for (int i = 0; i < kVectorStates / 2; ++i) {
      float2 a = unpack_pair<Io>(lows[i]);
      float2 b = unpack_pair<Io>(highs[i]);
      a = {a.x + low_bias_[2 * i], a.y + low_bias_[2 * i + 1]};
      b = {b.x + high_bias_[2 * i], b.y + high_bias_[2 * i + 1]};
      if constexpr (kTurns) {
        // Cosine and sine of two pairs.
        const float4 of = *shared_.template at_address<float4>((i < 2 ? turns : others) + i % 2 * 16);
        lows[i] = pack_pair<Io>(a.x * of.x - b.x * of.y, a.y * of.z - b.y * of.w);
        highs[i] = pack_pair<Io>(a.x * of.y + b.x * of.x, a.y * of.w + b.y * of.z);
      } else {
        lows[i] = pack_pair<Io>(a.x, a.y);
        highs[i] = pack_pair<Io>(b.x, b.y);
      }
    }
  }

  const FusedArgs& args_;
  Shared shared_;
  float low_bias_[kVectorStates], high_bias_[kVectorStates];
};

}  // namespace ssmbench::mamba3_fused
