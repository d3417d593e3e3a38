#include "kernels/selective_scan/blockscan/map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("the block-scan shape is the smallest whose tile covers the row") {
  struct Expected {
    std::int64_t seqlen;
    int tile;
  };
  for (const auto& [seqlen, tile] : {
           Expected{1, 128},  // the shortest row
           Expected{127, 128},
           Expected{128, 128},  // fills the smallest tile
           Expected{129, 256},  // one step too many for it
           Expected{256, 256},
           Expected{257, 512},
           Expected{512, 512},
           Expected{513, 1024},
           Expected{1024, 1024},
           Expected{1025, 2048},
           Expected{2048, 2048},
           Expected{2049, 2048},  // several tiles from here on
           Expected{std::int64_t{1} << 40, 2048},
       }) {
    INFO("seqlen " << seqlen);
    CHECK(kBlockScanShapes[blockscan_shape_for(seqlen)].tile() == tile);
  }
}

TEST_CASE("block-scan shapes are whole warps, ordered by tile") {
  int previous = 0;
  for (const auto& shape : kBlockScanShapes) {
    CHECK(shape.threads % 32 == 0);  // the transposes work warp by warp
    CHECK(shape.tile() > previous);
    previous = shape.tile();
  }
}
