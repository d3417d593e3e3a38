#include "kernels/selective_scan/fused_general/tile_walk.h"

#include <vector>

#include "catch.h"

using namespace ssmbench::fused_general;

TEST_CASE("threads share a tile's elements, each at its index, along memory") {
  struct Sizes {
    int rows_log2, steps_log2, threads;
  };
  // More threads than rows, the same number, fewer: 256 states of two channels.
  for (const Sizes& tile :
       {Sizes{0, 5, 32}, Sizes{2, 4, 128}, Sizes{7, 5, 128}, Sizes{8, 3, 128}, Sizes{4, 5, 64}})
    for (const bool along_time : {true, false}) {
      const int rows = (1 << tile.rows_log2) - (tile.rows_log2 > 1 ? 1 : 0);
      const int steps = (1 << tile.steps_log2) - 3;
      const Axis row_axis{tile.rows_log2, rows, along_time ? 1000 : 1, 100};
      const Axis time_axis{tile.steps_log2, steps, along_time ? 1 : 1000, 1};
      std::vector<int> visits(static_cast<std::size_t>(100 << tile.rows_log2));
      int there = 0;
      for (int thread = 0; thread < tile.threads; ++thread) {
        bool first = true;
        stage(
            row_axis, time_axis, thread, tile.threads, [](const TileElement& at) { return at.in_tile; },
            [&](const TileElement& at, int loaded) {
              const int step = at.in_tile % 100;
              CHECK(loaded == at.in_tile);
              CHECK(at.in_tile / 100 == at.row);
              CHECK(at.offset == at.row * row_axis.stride + step * time_axis.stride);
              CHECK(at.exists == (at.row < rows && step < steps));
              if (first)
                CHECK((along_time ? step : at.row) ==
                      thread % (1 << (along_time ? tile.steps_log2 : tile.rows_log2)));
              first = false;
              there += at.exists ? 1 : 0;
              ++visits.at(static_cast<std::size_t>(at.in_tile));
            });
      }
      CHECK(there == rows * steps);
      for (int row = 0; row < 1 << tile.rows_log2; ++row)
        for (int step = 0; step < 1 << tile.steps_log2; ++step)
          CHECK(visits.at(static_cast<std::size_t>(row * 100 + step)) == 1);
    }
}
