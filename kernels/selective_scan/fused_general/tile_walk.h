#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

// How threads share the elements of a tile of time steps that they move between memory and shared memory.
// Host and device, so that the CPU tests cover it.

namespace ssmbench::fused_general {

/// One axis of a tile: 2^size_log2 elements, of which `end` exist, apart by `stride` in the tensor and by
/// `pitch` in the tile.
struct Axis {
  int size_log2, end;
  std::int64_t stride;
  int pitch;
};

/// An element of a tile.
struct TileElement {
  bool exists;          ///< else it is past the end of an axis
  int row;              ///< channel or state
  std::int64_t offset;  ///< in the tensor, from the tile's first element
  int in_tile;
};

/// load(element), then store(element, what it loaded), for a thread's elements of a tile. Neighbouring
/// threads take neighbours along the axis that is contiguous in memory. A few loads are in flight at a time,
/// since staging waits for the latency of memory.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class Load, class Store>
SSMBENCH_HD void stage(const Axis& rows, const Axis& steps, int thread, int threads, const Load& load,
                       const Store& store) {
  constexpr int kInFlight = 4;
  const bool along_time = steps.stride == 1;
  const Axis inner = along_time ? steps : rows;
  const Axis outer = along_time ? rows : steps;
  const int apart = threads >> inner.size_log2 > 1 ? threads >> inner.size_log2 : 1;
  for (int i = thread & ((1 << inner.size_log2) - 1); i < 1 << inner.size_log2; i += threads) {
    for (int first = thread >> inner.size_log2; first < 1 << outer.size_log2; first += kInFlight * apart) {
      const std::int64_t offset = i * inner.stride + first * outer.stride;
      const int in_tile = i * inner.pitch + first * outer.pitch;
      const auto element = [&](int k) {
        const int j = first + k * apart;
        return TileElement{i < inner.end && j < outer.end, along_time ? j : i,
                           offset + k * (apart * outer.stride), in_tile + k * (apart * outer.pitch)};
      };
      decltype(load(element(0))) loaded[kInFlight];
      for (int k = 0; k < kInFlight; ++k) loaded[k] = load(element(k));
      for (int k = 0; k < kInFlight; ++k)
        if (first + k * apart < 1 << outer.size_log2) store(element(k), loaded[k]);
    }
  }
}

}  // namespace ssmbench::fused_general
