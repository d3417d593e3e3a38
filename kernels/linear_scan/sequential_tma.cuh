#pragma once

#include "kernels/common/launch.cuh"
#include "kernels/linear_scan/args.h"
#include "kernels/linear_scan/sequential_map.h"
#include "kernels/linear_scan/sequential_word.cuh"
#include "kernels/linear_scan/tile_copy.cuh"

// cuda-sequential on Hopper and newer, where rows of channels are aligned to 16 bytes.
//
//   warp    128 bytes of neighbouring channels of a batch, alone in its block: 32 (f16, bf16: 64), one (two)
//           on each lane
//
//   memory        a, b ─────── lane 0 starts copies of whole tiles ───────┐             ┌──> out, the same
//   way
//                                                                        v             │
//   shared memory    tile t+1 … t+6: on their way    tile t: a, b  ────────> h, where a was    t−1: going out
//                                                           lane after step
//
// A tile takes a dozen instructions of one lane and 4 (f16, bf16: 11) of the warp for each step. The copies
// leave out what is past the last step and the last channel by themselves.

namespace ssmbench {

/// The tensor (batch, seqlen, dim) as tiles of kSequentialTmaSteps steps and kSequentialBytes of channels.
template <class Io>
struct SequentialTma {
  CUtensorMap a, b, out;
  int tiles_of_row;  ///< along the channels
  int seqlen;
};

template <class Io>
__global__ void __launch_bounds__(32) sequential_tma_kernel(const __grid_constant__ SequentialTma<Io> scan) {
  constexpr int kWords = kSequentialBytes / 4;
  constexpr int kTensorWords = kSequentialTmaSteps * kWords;
  __shared__ TileBarrier arrived[kSequentialTmaTiles];
  extern __shared__ __align__(128) unsigned shared[];
  const int lane = static_cast<int>(threadIdx.x);
  const int batch = static_cast<int>(blockIdx.x) / scan.tiles_of_row;
  const int channel = (static_cast<int>(blockIdx.x) - batch * scan.tiles_of_row) *
                      (kSequentialBytes / static_cast<int>(sizeof(Io)));
  const auto slot = [&](int tile) {
    return reinterpret_cast<Word<Io>*>(shared) + tile % kSequentialTmaTiles * (2 * kTensorWords);
  };

  if (lane == 0) {
    for (auto& barrier : arrived) init_barrier(&barrier);
    fence_tile_copies();
  }
  __syncwarp();
  const auto fetch = [&](int tile) {
    const int step = tile * kSequentialTmaSteps;
    if (lane != 0 || step >= scan.seqlen) return;
    TileBarrier* const barrier = &arrived[tile % kSequentialTmaTiles];
    expect_tiles(barrier, 2 * kTensorWords * 4);
    load_tile(slot(tile), scan.a, channel, step, batch, barrier);
    load_tile(slot(tile) + kTensorWords, scan.b, channel, step, batch, barrier);
  };

  // Two tiles of the ring are not under way: the one that is scanned, and the one before, until it is read.
  constexpr int kAhead = kSequentialTmaTiles - 2;
  float h[Word<Io>::kChannels] = {};
  for (int tile = 0; tile < kAhead; ++tile) fetch(tile);
  for (int tile = 0; tile * kSequentialTmaSteps < scan.seqlen; ++tile) {
    if (lane == 0) wait_tiles_read<1>();  // all but the one before: what the next fetch writes over is out
    fetch(tile + kAhead);
    wait_tiles(&arrived[tile % kSequentialTmaTiles], tile / kSequentialTmaTiles % 2);
    Word<Io>* const words = slot(tile) + lane;
    scan_words<kSequentialTmaSteps, kWords>(words, words + kTensorWords, h);
    fence_tile_copies();
    __syncwarp();
    if (lane == 0) store_tile(scan.out, channel, tile * kSequentialTmaSteps, batch, slot(tile));
  }
  if (lane == 0) wait_tiles_read<0>();
}

/// Whether the current device has such copies, and the problem fits their 32-bit coordinates.
inline bool fits_tma(const LinearScanArgs& args) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  int device = 0;
  int major = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9 && args.batch < kMost && args.seqlen < kMost && args.dim < kMost &&
         args.seqlen * args.dim < kMost * 128;
}

/// All three tensors and the rows of channels are aligned to 16 bytes.
template <class Io>
Launch sequential_tma_launch(const LinearScanArgs& args, std::int64_t blocks) {
  constexpr int kBytes = static_cast<int>(sizeof(Io));
  const auto map = [&](const void* data) {
    return map_of({.data = data,
                   .element_bytes = kBytes,
                   .x = static_cast<std::uint64_t>(args.dim),
                   .y = static_cast<std::uint64_t>(args.seqlen),
                   .z = static_cast<std::uint64_t>(args.batch),
                   .tile_x = kSequentialBytes / kBytes,
                   .tile_y = kSequentialTmaSteps});
  };
  const SequentialTma<Io> scan{map(args.a), map(args.b), map(args.out), static_cast<int>(blocks / args.batch),
                               static_cast<int>(args.seqlen)};
  return launch_of(sequential_tma_kernel<Io>, blocks, dim3(32), kSequentialTmaSharedBytes, scan);
}

}  // namespace ssmbench
