#pragma once

// cuda-sequential for linear_scan: a lane per channel, one step after the other, every byte moved once. On
// Hopper, where rows of channels are aligned to 16 bytes, by tma_kernel.cuh; else by this kernel:
//
//   warp    128 bytes of neighbouring channels of a batch: 32 (f16, bf16: 64), one (two) on each lane; alone
//           in its block, and nothing is shared between blocks
//
//   memory        a, b ──── copies of 16, 4 or 2 bytes a lane ──────────┐            ┌──> out, the same way
//                                                                       v            │
//   shared memory    tile t+1 … t+7: on their way       tile t: a, b  ──────>  h, where a was
//                                                                  lane after step
//   registers                                           h of the lane's channels, from tile to tile
//
// Memory binds, and needs bytes in flight: at 4.2 TB/s and 0.7 µs 3 MB, 22 KB on each of an H200's 132
// multiprocessors. A warp has 7 tiles of 4 KB in flight, so that one per multiprocessor is enough, and the
// 512 (256) warps of 8 · 2048 channels run all at once. A block has 32 KB of shared memory, 6 of them fit.
// Registers: 64 with accesses of 16 bytes, of which 32 hold a tile's a and b; 96 and 168 with smaller ones.
//
// A single state is carried per channel and no maps are combined: the roundings are those of the plain loop.
// With few channels, under some 32 (64) per multiprocessor, the latency of the steps binds, some 30 cycles
// each: cuda-lookback is the faster one there.
//
// Accesses are of 4 bytes where rows are aligned to 4 or 8 bytes only, and of 2 in f16 and bf16 with an odd
// dim or pointer; the latter go through registers, which waits for memory once per tile. On an H200 they
// reach 2.4 (f32), 1.9 and 0.4 TB/s at 8 · 2046 and 8 · 2047 channels.

#include "kernels/common/mma.cuh"
#include "kernels/linear_scan/args.h"
#include "kernels/linear_scan/channel_tiles.h"
#include "kernels/linear_scan/sequential/map.h"
#include "kernels/linear_scan/sequential/word.cuh"

namespace ssmbench::sequential {

/// Starts to copy 4 bytes from global to shared memory, as copy_async_16 does 16.
__device__ inline void copy_async_4(std::uint32_t shared, const void* global) {
  SSMBENCH_NEEDS_SM80(asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(shared),
                                   "l"(__cvta_generic_to_global(global))
                                   : "memory"));
}

/// Starts to copy a lane's bytes of one pass.
template <int kAccessBytes>
__device__ void copy_in(char* shared, const char* memory) {
  if constexpr (kAccessBytes == 16)
    copy_async_16(shared_address(shared), memory);
  else
    copy_async_4(shared_address(shared), memory);
}

/// Two elements of 2 bytes; the first one twice where the second does not exist.
__device__ inline ushort2 load_pair(const char* memory, bool second) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(memory);
  return {__ldg(from), __ldg(from + (second ? 1 : 0))};
}

/// A lane's bytes of one pass; with accesses of 2 bytes the second one only if it exists.
template <int kAccessBytes>
__device__ void copy_out(char* memory, const char* shared, bool second) {
  if constexpr (kAccessBytes == 16) {
    *reinterpret_cast<uint4*>(memory) = *reinterpret_cast<const uint4*>(shared);
  } else if constexpr (kAccessBytes == 4) {
    *reinterpret_cast<unsigned*>(memory) = *reinterpret_cast<const unsigned*>(shared);
  } else {
    const ushort2 two = *reinterpret_cast<const ushort2*>(shared);
    auto* to = reinterpret_cast<std::uint16_t*>(memory);
    to[0] = two.x;
    if (second) to[1] = two.y;
  }
}

template <class Io>
constexpr int kChannels = kSequentialBytes / static_cast<int>(sizeof(Io));

template <class Io, int kAccessBytes>
__global__ void __launch_bounds__(32) sequential_linear_kernel(const LinearScanArgs args) {
  using Map = SequentialMap<kAccessBytes>;
  constexpr int kLaneChannels = Word<Io>::kChannels;
  extern __shared__ uint4 shared[];
  char* const ring = reinterpret_cast<char*>(shared);
  const int lane = static_cast<int>(threadIdx.x);

  // What the lane moves: from step step_of(lane) on, every kStepsOfPass-th.
  const auto [batch, first] = channel_tile(blockIdx.x, args.dim, kChannels<Io>);
  const std::int64_t row = args.dim * static_cast<std::int64_t>(sizeof(Io));
  const std::int64_t byte = first * static_cast<std::int64_t>(sizeof(Io)) + Map::byte_of(lane);
  const bool exists = byte < row;
  const bool second = byte + 2 < row;
  const std::int64_t origin = (batch * args.seqlen + Map::step_of(lane)) * row + (exists ? byte : 0);
  const char* const a = static_cast<const char*>(args.a) + origin;
  const char* const b = static_cast<const char*>(args.b) + origin;
  char* const out = static_cast<char*>(args.out) + origin;
  char* const own = ring + sequential_at(Map::step_of(lane), Map::byte_of(lane));

  const auto steps_of = [&](std::int64_t tile) {
    const std::int64_t start = tile * kSequentialSteps;
    return start < args.seqlen ? steps_within(start, kSequentialSteps, args.seqlen) : 0;
  };
  // Accesses of 2 bytes: in place of an element that does not exist one that does is read, so that no branch
  // keeps the loads from being in flight together.
  const auto fetch_pairs = [&](std::int64_t tile) {
    const int steps = steps_of(tile);
    if (steps == 0) return;
    ushort2 loaded[kSequentialSteps][2];
    std::int64_t offset = tile * kSequentialSteps * row;
#pragma unroll
    for (int step = 0; step < kSequentialSteps; ++step) {
      loaded[step][0] = load_pair(a + offset, second);
      loaded[step][1] = load_pair(b + offset, second);
      if (step + 1 < steps) offset += row;
    }
#pragma unroll
    for (int step = 0; step < kSequentialSteps; ++step) {
      char* const to = own + sequential_slot(tile) + sequential_at(step, 0);
      *reinterpret_cast<ushort2*>(to) = loaded[step][0];
      *reinterpret_cast<ushort2*>(to + kSequentialTensorBytes) = loaded[step][1];
    }
  };
  /// Calls `move` with the offsets in memory and in shared memory of the lane's accesses to a tile.
  const auto for_accesses = [&](std::int64_t tile, const auto& move) {
    const int steps = exists ? steps_of(tile) - Map::step_of(lane) : 0;
    std::int64_t offset = tile * kSequentialSteps * row;
#pragma unroll
    for (int pass = 0; pass < Map::kPasses; ++pass) {
      const int step = pass * Map::kStepsOfPass;
      if (step < steps) move(offset, sequential_slot(tile) + sequential_at(step, 0));
      offset += Map::kStepsOfPass * row;
    }
  };
  const auto fetch = [&](std::int64_t tile) {
    if constexpr (kAccessBytes == 2) {
      fetch_pairs(tile);
    } else {
      for_accesses(tile, [&](std::int64_t offset, int at) {
        copy_in<kAccessBytes>(own + at, a + offset);
        copy_in<kAccessBytes>(own + at + kSequentialTensorBytes, b + offset);
      });
      copy_async_commit();
    }
  };

  float h[kLaneChannels] = {};
#pragma unroll 1
  for (int tile = 0; tile < kSequentialTiles - 1; ++tile) fetch(tile);
  const std::int64_t tiles = ceil_div(args.seqlen, kSequentialSteps);
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    copy_async_wait<kSequentialTiles - 2>();
    __syncwarp();  // the tile is there, and all lanes have read what the next fetch writes over
    fetch(tile + kSequentialTiles - 1);

    // Past the last step and the last channel there is garbage, which nobody stores.
    auto* words = reinterpret_cast<Word<Io>*>(ring + sequential_slot(tile)) + lane;
    scan_words<kSequentialSteps, kSequentialBytes / 4>(words, words + kSequentialTensorBytes / 4, h);
    __syncwarp();
    for_accesses(
        tile, [&](std::int64_t offset, int at) { copy_out<kAccessBytes>(out + offset, own + at, second); });
  }
}

}  // namespace ssmbench::sequential
