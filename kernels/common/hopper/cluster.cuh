#pragma once

// Clusters of two thread blocks on neighbouring multiprocessors: one copy brings a tile to both, and barriers
// of the other block are arrived at from here.
//
// Source: PTX ISA, "Cluster", "mapa", "mbarrier.arrive" and "cp.async.bulk.tensor".

#include <cuda.h>

#include <cstdint>

#include "kernels/common/hopper/mbarrier.cuh"
#include "kernels/common/hopper/tma.cuh"

namespace ssmbench::hopper {

/// Waits for all threads of the cluster that have not ended. What they wrote before is seen, barriers too.
__device__ inline void cluster_sync() {
  SSMBENCH_NEEDS_SM90(asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::
                                       : "memory"));
}

/// Arrives at the barrier that has this address in block `rank` of the cluster, and orders nothing: for slots
/// that tensor cores alone have read, and are known to have. (To release costs a fence of the whole GPU.)
__device__ inline void cluster_barrier_arrive(std::uint32_t barrier, int rank) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("{\n"
                   ".reg .b32 mapped;\n"
                   "mapa.shared::cluster.u32 mapped, %0, %1;\n"
                   "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [mapped];\n"
                   "}\n" ::"r"(barrier),
                   "r"(rank)
                   : "memory"));
}

/// As load_tile(), to the same address in both blocks of a cluster of two. Its bytes complete on a barrier that
/// has the same address in both.
__device__ inline void load_tile_of_pair(std::uint32_t shared, const CUtensorMap& map, const TileOrigin& from,
                                         std::uint32_t barrier) {
  [[maybe_unused]] constexpr std::uint16_t kBoth = 3;
  SSMBENCH_NEEDS_SM90(asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;\n" ::"r"(shared),
      "l"(&map), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]), "r"(from.at[3]), "r"(barrier), "h"(kBoth)
      : "memory"));
}

}  // namespace ssmbench::hopper
