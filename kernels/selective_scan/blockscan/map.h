#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Which thread of cuda-blockscan does what. Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// A tile is threads × items time steps; thread i holds the `items` neighbouring steps from i·items on.
struct BlockScanShape {
  int threads;
  int items;
  constexpr int tile() const { return threads * items; }
};

/// Ordered by tile. Short rows get short tiles, so that few lanes idle; more than 16 items do not fit in
/// registers.
inline constexpr std::array<BlockScanShape, 5> kBlockScanShapes{
    {{32, 4}, {32, 8}, {32, 16}, {64, 16}, {128, 16}}};

/// Index of the smallest shape whose tile covers the row, or of the largest one.
constexpr std::size_t blockscan_shape_for(std::int64_t seqlen) {
  std::size_t shape = 0;
  while (shape + 1 < kBlockScanShapes.size() && kBlockScanShapes[shape].tile() < seqlen) ++shape;
  return shape;
}

}  // namespace ssmbench
