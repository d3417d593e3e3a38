#include "kernels/ssd_chunk_scan/chunk_grid.h"

#include <set>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("SSD tiles: elements in shared memory") {
  const auto check = []<class T>(T) {
    constexpr int kRows = kSide<T>;
    std::set<int> places;
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kRows; ++column) {
        places.insert(tile_offset<T>(row, column));
        constexpr int kVector = 16 / sizeof(T);  // 16-byte vectors stay together
        CHECK(tile_offset<T>(row, column) ==
              tile_offset<T>(row, column / kVector * kVector) + column % kVector);
      }
    CHECK(places.size() == kRows * kRows);
    CHECK(*places.rbegin() == kRows * kRows - 1);
    // What one matrix load reads, 16 bytes of eight rows, lies in different banks.
    for (int column = 0; column < kRows; column += 16 / static_cast<int>(sizeof(T))) {
      std::set<std::size_t> banks;
      for (int row = 8; row < 16; ++row)
        banks.insert(static_cast<std::size_t>(tile_offset<T>(row, column)) * sizeof(T) % 128);
      CHECK(banks.size() == 8);
    }
  };
  check(float{});
  check(std::uint16_t{});
  check(CompactF32{});
}

TEST_CASE("SSD chunks: tiles cover a problem, and none is empty") {
  for (const int side : {32, 64})
    for (const std::int64_t size : {1, 31, 32, 33, 64, 65, 256}) {
      CAPTURE(side, size);
      const ChunkGrid grid = chunk_grid(2, size, 3, size, size, side);
      for (const std::int64_t tiles :
           {grid.chunks, std::int64_t{grid.headdim_tiles}, std::int64_t{grid.dstate_tiles}}) {
        CHECK(tiles * side >= size);
        CHECK((tiles - 1) * side < size);
      }
      CHECK(grid.rows == 2 * 3 * grid.chunks);
      CHECK(grid.row(1, grid.chunks - 1, 2, 3) == grid.rows - 1);
      CHECK(grid.state_tile(grid.rows - 1, grid.headdim_tiles - 1, grid.dstate_tiles - 1) ==
            grid.tiles() - 1);
    }
}
