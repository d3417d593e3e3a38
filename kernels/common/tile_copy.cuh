#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "base/cuda_check.h"
#include "kernels/common/mma.cuh"

// Copies of whole tiles between memory and shared memory by the tensor memory accelerator, as thin wrappers
// of PTX: one thread starts them, and a barrier in shared memory says when they have arrived. They need
// compute capability 9.0: on older ones the code compiles, and traps.
//
// Source: PTX ISA, "Tensors", "cp.async.bulk.tensor" and "mbarrier".

namespace ssmbench {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SSMBENCH_NEEDS_SM90(...) __trap()
#else
#define SSMBENCH_NEEDS_SM90(...) __VA_ARGS__
#endif

/// A tensor of three dimensions, x innermost, and the tiles that it is copied in.
struct TiledTensor {
  const void* data;         ///< aligned to 16 bytes
  int element_bytes;        ///< 2 or 4
  std::uint64_t x, y, z;    ///< sizes; a row of x is a multiple of 16 bytes
  unsigned tile_x, tile_y;  ///< of a tile, which has one z; at most 256 each
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
};

/// Throws DeviceError when the driver does not know such maps, or not this one.
inline CUtensorMap map_of(const TiledTensor& tensor) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                              &found));
#else
  check_cuda(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess) throw DeviceError("the driver has no cuTensorMapEncodeTiled");

  const std::uint64_t row = tensor.x * static_cast<std::uint64_t>(tensor.element_bytes);
  const cuuint64_t sizes[]{tensor.x, tensor.y, tensor.z};
  const cuuint64_t strides[]{row, row * tensor.y};
  const cuuint32_t tile[]{tensor.tile_x, tensor.tile_y, 1};
  const cuuint32_t every[]{1, 1, 1};
  CUtensorMap map;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, tensor.element_bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 3,
      const_cast<void*>(tensor.data), sizes, strides, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
      tensor.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  return map;
}

using TileBarrier = std::uint64_t;

/// A barrier a phase of which ends with so many expect_tiles() and the bytes that they expect.
__device__ inline void init_barrier(TileBarrier* barrier, int threads = 1) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(threads)
                   : "memory"));
}

/// What this thread has written to shared memory is seen by the tile copies that are started after it, once
/// the threads that start them have synchronized with this one.
__device__ inline void fence_tile_copies() {
  SSMBENCH_NEEDS_SM90(asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"));
}

/// Announces the bytes of the tiles that are copied next.
__device__ inline void expect_tiles(TileBarrier* barrier, int bytes) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
      : "memory"));
}

/// Waits until the barrier's phase, 0 or 1 in turn, has ended.
__device__ inline void wait_tiles(TileBarrier* barrier, int phase) {
  unsigned arrived = 0;
  while (arrived == 0)
    SSMBENCH_NEEDS_SM90(
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(arrived)
                     : "r"(shared_address(barrier)), "r"(phase)
                     : "memory"));
}

/// Starts to copy the tile at (x, y, z), x innermost; elements outside of the tensor become zeros.
__device__ inline void load_tile(void* shared, const CUtensorMap& map, int x, int y, int z,
                                 TileBarrier* barrier) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                   "{%2, %3, %4}], [%5];\n" ::"r"(shared_address(shared)),
                   "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
                   : "memory"));
}

/// Starts to copy a tile back, those elements that are inside of the tensor, as a group of its own.
__device__ inline void store_tile(const CUtensorMap& map, int x, int y, int z, const void* shared) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];\n"
                   "cp.async.bulk.commit_group;\n" ::"l"(&map),
                   "r"(x), "r"(y), "r"(z), "r"(shared_address(shared))
                   : "memory"));
}

/// Waits until at most `kPending` of this thread's youngest store_tile have yet to read shared memory.
template <int kPending>
__device__ inline void wait_tiles_read() {
  SSMBENCH_NEEDS_SM90(asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory"));
}

}  // namespace ssmbench
