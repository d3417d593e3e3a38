#pragma once

// Tiles of tensors copied between memory and shared memory by the copy engine (TMA): one thread starts a
// copy, an mbarrier says when it has arrived. The tensors are described by tensor_map.h.
//
// Source: PTX ISA, "cp.async.bulk" and "cp.async.bulk.tensor".

#include <cuda.h>

#include <cstdint>

#include "kernels/common/hopper/mbarrier.cuh"

namespace ssmbench::hopper {

/// Where a tile starts, innermost dimension first. What lies outside of the tensor is loaded as zeros and not
/// stored.
struct TileOrigin {
  int at[4];
};
/// The same in a tensor of three dimensions.
struct TileOrigin3 {
  int at[3];
};

__device__ inline void load_tile(std::uint32_t shared, const CUtensorMap& map, const TileOrigin& from,
                                 std::uint32_t barrier) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], [%6];\n" ::"r"(shared),
      "l"(&map), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]), "r"(from.at[3]), "r"(barrier)
      : "memory"));
}
__device__ inline void load_tile(std::uint32_t shared, const CUtensorMap& map, const TileOrigin3& from,
                                 std::uint32_t barrier) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];\n" ::"r"(shared),
      "l"(&map), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]), "r"(barrier)
      : "memory"));
}

/// Starts to copy bytes as they lie in memory: a multiple of 16, both ends aligned to that.
__device__ inline void load_bytes(std::uint32_t shared, const void* from, int bytes, std::uint32_t barrier) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
          shared),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory"));
}

/// Starts to copy bytes to the L2 cache: a multiple of 16, aligned to that.
__device__ inline void prefetch_bytes(const void* from, int bytes) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(__cvta_generic_to_global(from)), "r"(bytes)
      : "memory"));
}

/// Starts to copy a tile back, as a group of its own.
__device__ inline void store_tile(const CUtensorMap& map, const TileOrigin& to, std::uint32_t shared) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n"
                   "cp.async.bulk.commit_group;\n" ::"l"(&map),
                   "r"(to.at[0]), "r"(to.at[1]), "r"(to.at[2]), "r"(to.at[3]), "r"(shared)
                   : "memory"));
}
__device__ inline void store_tile(const CUtensorMap& map, const TileOrigin3& to, std::uint32_t shared) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];\n"
                   "cp.async.bulk.commit_group;\n" ::"l"(&map),
                   "r"(to.at[0]), "r"(to.at[1]), "r"(to.at[2]), "r"(shared)
                   : "memory"));
}

/// The same of bytes as they lie in memory.
__device__ inline void store_bytes(void* to, std::uint32_t shared, int bytes) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                   "cp.async.bulk.commit_group;\n" ::"l"(__cvta_generic_to_global(to)),
                   "r"(shared), "r"(bytes)
                   : "memory"));
}

/// Waits until all but this thread's `kPending` youngest stores have read shared memory.
template <int kPending = 0>
__device__ inline void wait_stores_read() {
  SSMBENCH_NEEDS_SM90(asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory"));
}

}  // namespace ssmbench::hopper
