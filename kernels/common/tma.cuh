#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "base/cuda_check.h"
#include "kernels/common/mma.cuh"

// TMA: copies of whole tiles between memory and shared memory, as thin wrappers of PTX. One thread starts
// them, and an mbarrier in shared memory completes a phase when they have arrived. They need compute
// capability 9.0: on older ones the code compiles, and traps.
//
// Source: PTX ISA, "Tensors", "cp.async.bulk.tensor" and "mbarrier".

namespace ssmbench {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SSMBENCH_NEEDS_SM90(...) __trap()
#else
#define SSMBENCH_NEEDS_SM90(...) __VA_ARGS__
#endif

/// A tensor of three dimensions, x innermost, and the tiles in which it is copied.
struct TiledTensor {
  const void* data;         ///< aligned to 16 bytes
  int element_bytes;        ///< 2 or 4
  std::uint64_t x, y, z;    ///< sizes; a row of x is a multiple of 16 bytes
  unsigned tile_x, tile_y;  ///< of a tile, which has one z; at most 256 each
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
};

/// Throws DeviceError when the driver has no tensor maps, or rejects this one.
inline CUtensorMap make_tensor_map(const TiledTensor& tensor) {
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

using Mbarrier = std::uint64_t;

/// A phase of the mbarrier completes with `threads` calls of arrive_expect_bytes() and the bytes that these
/// expect.
__device__ inline void init_mbarrier(Mbarrier* barrier, int threads = 1) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(threads)
                   : "memory"));
}

/// Makes what this thread has written to shared memory visible to TMA copies that are started later, by
/// threads that have synchronized with this one.
__device__ inline void fence_async_proxy() {
  SSMBENCH_NEEDS_SM90(asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"));
}

/// Arrives, and announces the bytes of the copies that are started next.
__device__ inline void arrive_expect_bytes(Mbarrier* barrier, int bytes) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
      : "memory"));
}

/// Waits for the completion of the phase of this parity, 0 and 1 in turn.
__device__ inline void wait_mbarrier(Mbarrier* barrier, int parity) {
  unsigned arrived = 0;
  while (arrived == 0)
    SSMBENCH_NEEDS_SM90(
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(arrived)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory"));
}

/// Starts the load of the tile at (x, y, z), x innermost; elements outside of the tensor become zeros.
__device__ inline void tma_load(void* shared, const CUtensorMap& map, int x, int y, int z,
                                Mbarrier* barrier) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                   "{%2, %3, %4}], [%5];\n" ::"r"(shared_address(shared)),
                   "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
                   : "memory"));
}

/// Starts the store of a tile, those elements that are inside of the tensor, as a bulk group of its own.
__device__ inline void tma_store(const CUtensorMap& map, int x, int y, int z, const void* shared) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];\n"
                   "cp.async.bulk.commit_group;\n" ::"l"(&map),
                   "r"(x), "r"(y), "r"(z), "r"(shared_address(shared))
                   : "memory"));
}

/// Waits until all but this thread's `kPending` youngest stores have read shared memory.
template <int kPending>
__device__ inline void tma_store_wait_read() {
  SSMBENCH_NEEDS_SM90(asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory"));
}

}  // namespace ssmbench
