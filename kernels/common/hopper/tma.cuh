#pragma once

// Tiles of tensors copied between memory and shared memory by the copy engine (TMA): one thread starts a
// copy, an mbarrier says when it has arrived.
//
// Source: PTX ISA, "cp.async.bulk.tensor"; CUDA driver API, "cuTensorMapEncodeTiled".

#include <cuda.h>

#include <cstdint>
#include <string>

#include "base/cuda_check.h"

namespace ssmbench::hopper {

/// A tensor (sizes[3], …, sizes[0]) of 16-bit elements in C order. Its tiles are `tile_rows` of dimension 2
/// by kTileColumns of dimension 0; their rows are 128 bytes of shared memory, swizzled.
struct TiledTensor {
  const void* data;        ///< aligned to 16 bytes
  std::uint64_t sizes[4];  ///< innermost first; sizes[0] is a multiple of 8
  unsigned tile_rows;      ///< of dimension 2; at most 256
};

inline constexpr unsigned kTileColumns = 64;  ///< 128 bytes

/// Throws DeviceError when the driver does not know such maps, or not this one.
inline CUtensorMap tensor_map(const TiledTensor& tensor) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                              &found));
#else
  check_cuda(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess) throw DeviceError("the driver has no cuTensorMapEncodeTiled");

  constexpr std::uint64_t kElementBytes = 2;
  const auto& sizes = tensor.sizes;
  const cuuint64_t all[]{sizes[0], sizes[1], sizes[2], sizes[3]};
  const cuuint64_t strides[]{kElementBytes * sizes[0], kElementBytes * sizes[0] * sizes[1],
                             kElementBytes * sizes[0] * sizes[1] * sizes[2]};
  const cuuint32_t tile[]{kTileColumns, 1, tensor.tile_rows, 1};
  const cuuint32_t every[]{1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(tensor.data), all, strides, tile, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  return map;
}

/// Where a tile starts, innermost dimension first. What lies outside of the tensor is loaded as zeros and not
/// stored.
struct TileOrigin {
  int at[4];
};

__device__ inline void load_tile(std::uint32_t shared, const CUtensorMap& map, const TileOrigin& from,
                                 std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], [%6];\n" ::"r"(shared),
      "l"(&map), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]), "r"(from.at[3]), "r"(barrier)
      : "memory");
}

/// Starts to copy bytes as they lie in memory: a multiple of 16, both ends aligned to that.
__device__ inline void load_bytes(std::uint32_t shared, const void* from, int bytes, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
          shared),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Starts to copy a tile back, as a group of its own.
__device__ inline void store_tile(const CUtensorMap& map, const TileOrigin& to, std::uint32_t shared) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n"
      "cp.async.bulk.commit_group;\n" ::"l"(&map),
      "r"(to.at[0]), "r"(to.at[1]), "r"(to.at[2]), "r"(to.at[3]), "r"(shared)
      : "memory");
}

/// The same of bytes as they lie in memory.
__device__ inline void store_bytes(void* to, std::uint32_t shared, int bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;\n" ::"l"(__cvta_generic_to_global(to)),
      "r"(shared), "r"(bytes)
      : "memory");
}

/// Waits until this thread's stores have read shared memory.
__device__ inline void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

}  // namespace ssmbench::hopper
