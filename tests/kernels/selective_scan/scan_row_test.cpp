#include "kernels/selective_scan/scan_row.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("scan rows cover every channel once, with the group that repeat-interleaving gives") {
  constexpr std::int64_t kBatch = 3;
  for (const std::int64_t groups : {1, 2, 5})
    for (const std::int64_t channels_per_group : {1, 2, 3, 7}) {
      const std::int64_t dim = groups * channels_per_group;
      std::vector<int> visits(static_cast<std::size_t>(kBatch * dim));
      for (std::int64_t block = 0; block < kBatch * dim; ++block) {
        const ScanRow row = scan_row(block, dim, channels_per_group);
        ++visits.at(static_cast<std::size_t>(row.b * dim + row.d));
        // Channels of group g are the run from g·(D/G) on.
        CHECK(row.g * channels_per_group <= row.d);
        CHECK(row.d < (row.g + 1) * channels_per_group);
      }
      CHECK(visits == std::vector<int>(visits.size(), 1));
    }
}

TEST_CASE("scan rows keep 64 bits") {
  const std::int64_t block = 2147483646;  // the last block of the largest grid
  CHECK(scan_row(block, 1, 1).b == block);
  CHECK(scan_row(block, 2147483647, 1).d == block);
}
