#pragma once

// Descriptions of tensors for the copy engine (TMA), made on the host.
//
// Source: CUDA driver API, "cuTensorMapEncodeTiled".

#include <cuda.h>

#include <cstdint>
#include <string>

#include "base/cuda_check.h"
#include "base/errors.h"

namespace ssmbench::hopper {

inline constexpr unsigned kTileColumns = 64;  ///< 128 bytes of 16-bit elements

/// A tensor in C order, (sizes[rank − 1], …, sizes[0]), and the tiles in which it is copied.
struct TiledTensor {
  const void* data;              ///< aligned to 16 bytes
  int rank;                      ///< 3 or 4
  std::uint64_t sizes[4];        ///< innermost first; rows of sizes[0] are multiples of 16 bytes
  unsigned tile[4];              ///< at most 256 each; of swizzled tiles, rows are as long as the swizzle's
  int element_bytes = 2;         ///< or 4
  bool rounded_to_tf32 = false;  ///< elements are f32, and are rounded as they are copied, to nearest even
  /// Of a part of a larger tensor: elements from one index of dimension i + 1 to the next, multiples of 16
  /// bytes; 0: as many as dimension i spans.
  std::uint64_t pitches[3] = {};
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
};

/// Throws DeviceError when the driver has no tensor maps, or rejects this one.
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

  cuuint64_t sizes[4], strides[4];
  cuuint32_t tile[4];
  std::uint64_t stride = static_cast<std::uint64_t>(tensor.element_bytes);
  for (int i = 0; i < tensor.rank; ++i) {
    sizes[i] = tensor.sizes[i];
    stride *= tensor.sizes[i];  // of dimension i + 1, in bytes
    if (i < 3 && tensor.pitches[i] != 0)
      stride = tensor.pitches[i] * static_cast<std::uint64_t>(tensor.element_bytes);
    strides[i] = stride;
    tile[i] = tensor.tile[i];
  }
  const cuuint32_t every[]{1, 1, 1, 1};
  CUtensorMap map;
  const CUtensorMapDataType bits =
      tensor.element_bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, tensor.rounded_to_tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : bits,
      static_cast<cuuint32_t>(tensor.rank), const_cast<void*>(tensor.data), sizes, strides, tile, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, tensor.swizzle, tensor.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  return map;
}

}  // namespace ssmbench::hopper
