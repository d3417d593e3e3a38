#include "kernels/selective_scan/blockscan/map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("the block-scan shape is the smallest whose chunk covers the row") {
  struct Expected {
    std::int64_t seqlen;
    int chunk;
  };
  for (const auto& [seqlen, chunk] : {
           Expected{1, 128},  // the shortest row
           Expected{127, 128},
           Expected{128, 128},  // fills the smallest chunk
           Expected{129, 256},  // one step too many for it
           Expected{256, 256},
           Expected{257, 512},
           Expected{512, 512},
           Expected{513, 1024},
           Expected{1024, 1024},
           Expected{1025, 2048},
           Expected{2048, 2048},
           Expected{2049, 2048},  // several chunks from here on
           Expected{std::int64_t{1} << 40, 2048},
       }) {
    INFO("seqlen " << seqlen);
    CHECK(kBlockScanShapes[blockscan_shape_for(seqlen)].chunk() == chunk);
  }
}

TEST_CASE("block-scan shapes are whole warps, ordered by chunk") {
  int previous = 0;
  for (const auto& shape : kBlockScanShapes) {
    CHECK(shape.threads % 32 == 0);  // the transposes work warp by warp
    CHECK(shape.chunk() > previous);
    previous = shape.chunk();
  }
}

TEST_CASE("block-scan blocks cover every row once, with the group that repeat-interleaving gives") {
  constexpr std::int64_t kBatch = 3;
  for (const std::int64_t groups : {1, 2, 5})
    for (const std::int64_t channels_per_group : {1, 2, 3, 7}) {
      const std::int64_t dim = groups * channels_per_group;
      std::vector<int> visits(static_cast<std::size_t>(kBatch * dim));
      for (std::int64_t block = 0; block < kBatch * dim; ++block) {
        const ScanRow row = blockscan_row(block, dim, channels_per_group);
        ++visits.at(static_cast<std::size_t>(row.b * dim + row.d));
        // Channels of group g are the run from g·(D/G) on.
        CHECK(row.g * channels_per_group <= row.d);
        CHECK(row.d < (row.g + 1) * channels_per_group);
      }
      CHECK(visits == std::vector<int>(visits.size(), 1));
    }
}

TEST_CASE("block-scan rows keep 64 bits") {
  const std::int64_t block = 2147483646;  // the last block of the largest grid
  CHECK(blockscan_row(block, 1, 1).b == block);
  CHECK(blockscan_row(block, 2147483647, 1).d == block);
}
