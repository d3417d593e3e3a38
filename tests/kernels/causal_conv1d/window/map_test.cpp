// Every channel and step belongs to one thread of cuda-window, whatever the shape.

#include "kernels/causal_conv1d/window/map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;
using namespace ssmbench::window;

TEST_CASE("runs of channels-last blocks cover every step of every channel once") {
  for (const std::int64_t batch : {1, 3, 70})
    for (const std::int64_t dim : {1, 8, 9, 63, 256, 300, 521})
      for (const std::int64_t seqlen : {1, 7, 64, 65, 1000})
        for (const int channels : {4, 8}) {
          CAPTURE(batch, dim, seqlen, channels);
          const ChannelPlan plan = plan_channels(batch, dim, seqlen, channels, kForwardRun);
          REQUIRE(plan.groups() * plan.runs() == kChannelThreads);
          std::vector<int> taken(static_cast<std::size_t>(batch * dim * seqlen), 0);
          for (std::int64_t block = 0; block < plan.blocks(); ++block)
            for (int thread = 0; thread < kChannelThreads; ++thread) {
              const ChannelPosition at = channel_position(plan, block, thread);
              if (at.batch >= batch || at.group < plan.shared_groups) continue;
              for (std::int64_t d = at.channel; d < std::min(dim, at.channel + channels); ++d)
                for (std::int64_t t = at.step; t < std::min(seqlen, at.step + plan.steps); ++t)
                  ++taken[static_cast<std::size_t>((at.batch * dim + d) * seqlen + t)];
            }
          REQUIRE(taken == std::vector<int>(taken.size(), 1));
        }
}

TEST_CASE("runs are as long as makes whole waves of blocks") {
  // 4096 channels are 16 tiles of 256: 33 blocks of each are one wave of 528.
  const ChannelPlan plan = plan_channels(1, 4096, 33 * kChannelThreads / kWarpThreads * 100, 8, kForwardRun);
  CHECK(plan.steps == 100);
  CHECK(plan.blocks() == 16 * 33);
  CHECK(plan_channels(1, 64, 64, 8, kForwardRun).steps == 8);
}

TEST_CASE("short sequences share a block") {
  const ChannelPlan plan = plan_channels(4096, 256, 8, 8, kForwardRun);
  CHECK(plan.steps == 8);
  CHECK(plan.run_tiles == 4096 / plan.runs());
}

TEST_CASE("a block's partial sums have a number of their own") {
  const ChannelPlan plan = plan_channels(2, 300, 1000, 4, kForwardRun);
  for (std::int64_t block = 0; block < plan.blocks(); ++block) {
    const ChannelPosition at = channel_position(plan, block, 0);
    CHECK(at.run_tile == block / plan.group_tiles);
    CHECK(at.run_tile < plan.run_tiles);
  }
}

TEST_CASE("where rows are no whole vectors, tiles of channels overlap by a group") {
  CHECK(plan_channels(1, 1037, 64, 8, kForwardRun).shared_groups == 1);
  CHECK(plan_channels(1, 1040, 64, 8, kForwardRun).shared_groups == 0);
  CHECK(plan_channels(1, 250, 64, 8, kForwardRun).shared_groups == 0);  // one tile
  const ChannelPlan plan = plan_channels(1, 1037, 64, 8, kForwardRun);
  CHECK(channel_position(plan, 0, 0).channel == -8);
  CHECK(channel_position(plan, 1, 0).channel == channel_position(plan, 0, 31).channel);
}

TEST_CASE("vectors that a run loads whole are in the tensor") {
  const int channels = 8;
  for (const std::int64_t batch : {1, 2, 3})
    for (const std::int64_t dim : {1, 2, 3, 7, 9, 17, 259})
      for (const std::int64_t seqlen : {1, 2, 5, 40}) {
        const ChannelPlan plan = plan_channels(batch, dim, seqlen, channels, kForwardRun);
        std::int64_t whole = 0;
        for (std::int64_t block = 0; block < plan.blocks(); ++block)
          for (int thread = 0; thread < kChannelThreads; ++thread) {
            const ChannelPosition at = channel_position(plan, block, thread);
            if (at.batch >= batch) continue;
            const std::int64_t last = std::min(at.step + plan.steps, seqlen) - 1;
            if (may_pass_end(at, channels, last, batch, seqlen, dim)) continue;
            ++whole;
            const std::int64_t end = (at.batch * seqlen + last) * dim + at.channel + 2 * channels;
            if (end > batch * seqlen * dim) FAIL_CHECK(batch << ' ' << dim << ' ' << seqlen << ' ' << end);
          }
        CHECK((whole > 0 || dim < 259 || seqlen < 40));
      }
}

TEST_CASE("segments cover a row, wherever its first vector begins") {
  for (const std::int64_t seqlen : {1, 1023, 1024, 1025, 10000, 2041, 2048})
    for (const int tiles : {kForwardTiles, kBackwardTiles})
      for (const int element_bytes : {2, 4}) {
        const RowPlan plan = plan_rows(seqlen, tiles, element_bytes);
        const std::int64_t before = seqlen % (16 / element_bytes) == 0 ? 0 : 16 / element_bytes - 1;
        CHECK(plan.segments * plan.segment_steps >= seqlen + before);
        CHECK((plan.segments - 1) * plan.segment_steps < seqlen + before);
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
            const UpdatePosition at = update_position(plan, block, thread);
            for (std::int64_t row = at.row; row < std::min(batch, at.row + plan.rows); ++row)
              for (std::int64_t d = at.channel; d < std::min(dim, at.channel + channels); ++d)
                ++taken[static_cast<std::size_t>(row * dim + d)];
          }
        CAPTURE(batch, dim, channels);
        REQUIRE(taken == std::vector<int>(taken.size(), 1));
      }
}

TEST_CASE("runs of rows make whole waves of blocks") {
  // 10240 channels are ten blocks side by side: 52 runs of ten rows are one wave of 528.
  CHECK(plan_update(512, 10240, 8, 16).rows == 10);
  CHECK(plan_update(512, 10240, 8, 4).rows == 2);
  CHECK(plan_update(4096, 10240, 8, 4).rows == 4);
  CHECK(plan_update(1, 10240, 8, 16).rows == 1);
}
