// Every channel and step belongs to one thread of cuda-window, whatever the shape.

#include "kernels/causal_conv1d/window/map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;
using namespace ssmbench::window;

TEST_CASE("runs of channels-last blocks cover every step of every channel once") {
  for (const std::int64_t batch : {1, 3})
    for (const std::int64_t dim : {1, 8, 9, 63, 256, 300})
      for (const std::int64_t seqlen : {1, 7, 64, 65, 1000})
        for (const int channels : {4, 8}) {
          CAPTURE(batch, dim, seqlen, channels);
          const ChannelPlan plan = plan_channels(batch, dim, seqlen, channels, 8, 64);
          REQUIRE(plan.groups() * plan.runs() == kChannelThreads);
          std::vector<int> taken(static_cast<std::size_t>(batch * dim * seqlen), 0);
          for (std::int64_t block = 0; block < plan.blocks(batch); ++block)
            for (int thread = 0; thread < kChannelThreads; ++thread) {
              const ChannelPlace place = channel_place(plan, block, thread);
              for (std::int64_t d = place.channel; d < std::min(dim, place.channel + channels); ++d)
                for (std::int64_t t = place.step; t < std::min(seqlen, place.step + plan.steps); ++t)
                  ++taken[static_cast<std::size_t>((place.batch * dim + d) * seqlen + t)];
            }
          REQUIRE(taken == std::vector<int>(taken.size(), 1));
        }
}

TEST_CASE("runs get shorter until there are threads enough, and no shorter") {
  CHECK(plan_channels(64, 4096, 8192, 8, 8, 64).steps == 64);
  CHECK(plan_channels(1, 64, 64, 8, 8, 64).steps == 8);
}

TEST_CASE("a block's partial sums have a number of their own") {
  const ChannelPlan plan = plan_channels(2, 300, 1000, 4, 16, 128);
  for (std::int64_t block = 0; block < plan.blocks(2); ++block) {
    const ChannelPlace place = channel_place(plan, block, 0);
    CHECK(place.partial == block / plan.group_tiles);
    CHECK(place.partial / plan.run_tiles == place.batch);
    CHECK(place.partial < 2 * plan.run_tiles);
  }
}

TEST_CASE("segments cover a row") {
  for (const std::int64_t seqlen : {1, 1023, 1024, 1025, 10000})
    for (const int tiles : {kForwardTiles, kBackwardTiles}) {
      const RowPlan plan = plan_rows(seqlen, tiles);
      CHECK(plan.segments * plan.segment_steps >= seqlen);
      CHECK((plan.segments - 1) * plan.segment_steps < seqlen);
      CHECK(plan.blocks(3) * kRowWarps >= 3 * plan.segments);
    }
}

TEST_CASE("a step's threads take every channel of every row once") {
  for (const std::int64_t batch : {1, 5, 4096})
    for (const std::int64_t dim : {1, 100, 1032})
      for (const int channels : {1, 8}) {
        const UpdatePlan plan = plan_update(batch, dim, channels, 16);
        std::vector<int> taken(static_cast<std::size_t>(batch * dim), 0);
        for (std::int64_t block = 0; block < plan.blocks(); ++block)
          for (int thread = 0; thread < kUpdateThreads; ++thread) {
            const UpdatePlace place = update_place(plan, block, thread);
            for (std::int64_t row = place.row; row < std::min(batch, place.row + plan.rows); ++row)
              for (std::int64_t d = place.channel; d < std::min(dim, place.channel + channels); ++d)
                ++taken[static_cast<std::size_t>(row * dim + d)];
          }
        CAPTURE(batch, dim, channels);
        REQUIRE(taken == std::vector<int>(taken.size(), 1));
      }
}
