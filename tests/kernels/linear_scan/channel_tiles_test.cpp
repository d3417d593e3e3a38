#include "kernels/linear_scan/channel_tiles.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("channel tiles cover every channel of every batch once, and cross no batch") {
  constexpr std::int64_t kBatch = 3;
  // One channel; one less than a tile, a tile, one more; several tiles and a rest.
  for (const std::int64_t dim : {1, 7, 8, 9, 29}) {
    constexpr int kChannels = 8;
    std::vector<int> visits(static_cast<std::size_t>(kBatch * dim));
    for (std::int64_t tile = 0; tile < channel_tiles(kBatch, dim, kChannels); ++tile) {
      const auto [batch, first] = channel_tile(tile, dim, kChannels);
      REQUIRE(first < dim);
      for (std::int64_t d = first; d < first + kChannels && d < dim; ++d)
        ++visits.at(static_cast<std::size_t>(batch * dim + d));
    }
    CHECK(visits == std::vector<int>(visits.size(), 1));
  }
}
