#pragma once

#include "base/cuda_attribute.h"
#include "kernels/common/hopper/tensor_map.h"
#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/linear_scan/bind.h"
#include "kernels/linear_scan/sequential/map.h"
#include "kernels/linear_scan/sequential/word.cuh"

// cuda-sequential on Hopper and newer, where rows of channels are aligned to 16 bytes.
//
//   block   1 or 4 warps: 128 or 512 bytes of neighbouring channels of a batch
//   lane    4 bytes of them: one channel (f16, bf16: two)
//
//   memory        a, b ──── thread 0 loads whole tiles by TMA ─────────┐             ┌──> out, the same way
//                                                                      v             │
//   shared memory    tile t+1 … t+6 (t+4): in flight   tile t: a, b  ─────> h, where a was     t−1: going out
//                                                                lane after step
//
// A tile is 16 steps: 4 instructions a step of a lane (f16, bf16: 11) and some 60 in all for the rest. TMA
// itself leaves out what is past the last step and the last channel. Shared memory: 32 KB with
// one warp, of which 24 are in flight; 96 KB with four, of which 64 are. Registers: 30 to 37.
//
// Why two shapes: 8 · 2048 channels are 128 blocks of 512 bytes in f32, one per multiprocessor. As 512 blocks
// of 128 bytes the first ends after half of the time, and the last ones do not have enough in flight. In f16
// and bf16 they would be 64 blocks, too few.

namespace ssmbench {

/// The tensors (batch, seqlen, dim) in tiles.
struct SequentialTma {
  CUtensorMap a, b, out;
  int tiles_of_row;  ///< along the channels
  int seqlen;
};

template <class Io, int kWarps>
__global__ void __launch_bounds__(SequentialTmaMap<kWarps>::kThreads)
    sequential_tma_kernel(const __grid_constant__ SequentialTma scan) {
  using Map = SequentialTmaMap<kWarps>;
  __shared__ std::uint64_t barriers[Map::kTiles];
  extern __shared__ __align__(128) unsigned tiles[];
  const int thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.x);
  const int batch = block / scan.tiles_of_row;
  const int channel = (block - batch * scan.tiles_of_row) * (Map::kBytes / static_cast<int>(sizeof(Io)));
  const auto slot = [&](int tile) { return tiles + tile % Map::kTiles * (2 * Map::kTensorWords); };
  const auto arrived = [&](int tile) { return shared_address(&barriers[tile % Map::kTiles]); };
  const auto synchronize = [] {
    if constexpr (kWarps == 1)
      __syncwarp();
    else
      __syncthreads();
  };

  if (thread == 0) {
    for (int tile = 0; tile < Map::kTiles; ++tile) hopper::barrier_init(arrived(tile), 1);
    hopper::fence_async_proxy();
  }
  synchronize();
  const auto fetch = [&](int tile) {
    const int step = tile * Map::kSteps;
    if (thread != 0 || step >= scan.seqlen) return;
    const hopper::TileOrigin3 from{{channel, step, batch}};
    hopper::barrier_arrive_expect(arrived(tile), 2 * Map::kTensorWords * 4);
    hopper::load_tile(shared_address(slot(tile)), scan.a, from, arrived(tile));
    hopper::load_tile(shared_address(slot(tile) + Map::kTensorWords), scan.b, from, arrived(tile));
  };

  // The pipeline depth. Two tiles of the ring are not in flight: the one that is scanned, and the one before,
  // until it is read.
  constexpr int kDepth = Map::kTiles - 2;
  float h[Word<Io>::kChannels] = {};
  for (int tile = 0; tile < kDepth; ++tile) fetch(tile);
  for (int tile = 0; tile * Map::kSteps < scan.seqlen; ++tile) {
    if (thread == 0) hopper::wait_stores_read<1>();  // what the next fetch writes over has been read
    fetch(tile + kDepth);
    while (!hopper::barrier_try_wait(arrived(tile), tile / Map::kTiles % 2)) {
    }
    auto* const words = reinterpret_cast<Word<Io>*>(slot(tile)) + thread;
    scan_words<Map::kSteps, Map::kThreads>(words, words + Map::kTensorWords, h);
    hopper::fence_async_proxy();
    synchronize();
    if (thread == 0)
      hopper::store_tile(scan.out, hopper::TileOrigin3{{channel, tile * Map::kSteps, batch}},
                         shared_address(slot(tile)));
  }
  if (thread == 0) hopper::wait_stores_read();
}

/// Whether the current device has TMA, and the problem fits its coordinates.
inline bool fits_tma(const LinearScanArgs& args) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return cuda_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 && args.batch < kMost &&
         args.seqlen < kMost && args.dim < kMost &&
         args.seqlen < 128 * kMost / args.dim;  // bytes of a batch: under 2^40
}

template <class Io, int kWarps>
Launch sequential_tma_launch(const LinearScanArgs& args) {
  using Map = SequentialTmaMap<kWarps>;
  constexpr int kElementBytes = static_cast<int>(sizeof(Io));
  constexpr int kChannels = Map::kBytes / kElementBytes;
  const auto map = [&](const void* data) {
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    return hopper::tensor_map({.data = data,
                               .rank = 3,
                               .sizes = {size(args.dim), size(args.seqlen), size(args.batch)},
                               .tile = {kChannels, Map::kSteps, 1},
                               .element_bytes = kElementBytes,
                               .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE,
                               .promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE});
  };
  const SequentialTma scan{map(args.a), map(args.b), map(args.out),
                           static_cast<int>(ceil_div(args.dim, kChannels)), static_cast<int>(args.seqlen)};
  const auto kernel = sequential_tma_kernel<Io, kWarps>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Map::kSharedBytes));
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
  return launch_of(kernel, args.batch * scan.tiles_of_row, dim3(Map::kThreads), Map::kSharedBytes, scan);
}

/// All three tensors and the rows of channels are aligned to 16 bytes, and fits_tma(args).
template <class Io>
Launch sequential_tma_launch(const LinearScanArgs& args) {
  const std::int64_t channel_bytes = args.batch * args.dim * static_cast<std::int64_t>(sizeof(Io));
  if (sequential_tma_warps(channel_bytes) == 4) return sequential_tma_launch<Io, 4>(args);
  return sequential_tma_launch<Io, 1>(args);
}

}  // namespace ssmbench
