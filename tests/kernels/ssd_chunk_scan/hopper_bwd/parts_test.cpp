#include "kernels/ssd_chunk_scan/hopper_bwd/parts.h"

#include "catch.h"

using namespace ssmbench::ssd_hopper_bwd;

TEST_CASE("hopper backward: parts of walks run at once, and have chunks") {
  int cut = 0;
  for (const std::int64_t heads : {1, 2, 3, 7, 24, 66, 67, 131, 132, 133, 264, 265, 100000})
    for (const std::int64_t chunks : {1, 2, 3, 17, 64, 1000, 33554431}) {
      const int parts = walk_parts(heads, chunks);
      REQUIRE(parts >= 1);
      CHECK(parts <= chunks);
      if (parts == 1) continue;
      CHECK(2 * heads * parts <= kWalkBlocks);
      ++cut;
    }
  CHECK(cut > 5);
}

TEST_CASE("hopper backward: parts of walks for their ends have chunks, and fill a GPU twice at most") {
  for (const std::int64_t walks : {1, 2, 80, 160, 264, 528, 529, 100000})
    for (const std::int64_t chunks : {1, 2, 3, 17, 64, 1000, 33554431}) {
      const int parts = end_parts(walks, chunks);
      REQUIRE(parts >= 1);
      CHECK(parts <= chunks);
      if (parts > 1) CHECK(walks * parts <= 2 * kWalkBlocks);
    }
  CHECK(end_parts(160, 4096) == 3);
  CHECK(end_parts(80, 4096) == 6);
}

TEST_CASE("hopper backward: few long heads are cut, short or many ones are not") {
  CHECK(walk_parts(1, 1024) > 16);
  CHECK(walk_parts(8, 1024) > 1);
  CHECK(walk_parts(8, 4) == 1);
  CHECK(walk_parts(256, 64) == 1);
}

TEST_CASE("hopper backward: a block walks two heads of a group where multiprocessors have two walks") {
  CHECK(walks_in_pairs(256, 1, 32));
  CHECK(walks_in_pairs(32, 4, 32));
  CHECK_FALSE(walks_in_pairs(256, 1, 1));   // the heads have B and C of their own
  CHECK_FALSE(walks_in_pairs(255, 1, 15));  // a group's last head would be alone
  CHECK_FALSE(walks_in_pairs(66, 1, 66));   // each walk has a multiprocessor
}
