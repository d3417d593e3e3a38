#include "kernels/selective_scan/block_channels.h"

#include <algorithm>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

// 1: one lane, 7 idle states. 8, 9: one lane full, second begins. 15, 16, 17: two lanes all but full, full,
// third begins (and a fourth is added). 64: 8 lanes. 128, 129: longer tiles stop to fit. 255, 256: the whole
// warp.
constexpr std::int64_t kStates[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 128, 129, 255, 256};
// 1, 3, 5: less than any block. 31 to 33, 63 to 65, 127 to 129: around the block sizes. 300: several blocks.
constexpr std::int64_t kChannels[] = {1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300};

}  // namespace

TEST_CASE("sequential: every (batch, channel, state) belongs to one thread") {
  constexpr std::int64_t kBatch = 2;
  for (const std::int64_t dstate : kStates)
    for (const std::int64_t channels_per_group : kChannels)
      for (const std::int64_t groups : {1, 3}) {
        INFO("dstate " << dstate << ", channels per group " << channels_per_group << ", groups " << groups);
        const SequentialPlan plan = plan_sequential(channels_per_group, dstate);
        const std::int64_t dim = groups * channels_per_group;
        std::vector<int> visits(static_cast<std::size_t>(kBatch * dim * dstate));
        bool groups_right = true;
        for (std::int64_t block = 0; block < kBatch * groups * plan.blocks_per_group; ++block) {
          const BlockChannels channels = block_channels(plan, block, groups, channels_per_group);
          for (int thread = 0; thread < plan.threads(); ++thread) {
            const int c = plan.channel_of(thread);
            if (c >= channels.count) continue;
            const std::int64_t d = channels.first + c;
            groups_right = groups_right && d / channels_per_group == channels.g;
            const std::int64_t first = plan.first_state_of(thread);
            for (std::int64_t n = first; n < std::min(first + kStatesPerThread, dstate); ++n)
              ++visits.at(static_cast<std::size_t>((channels.b * dim + d) * dstate + n));
          }
        }
        CHECK(visits == std::vector<int>(visits.size(), 1));
        CHECK(groups_right);
      }
}

TEST_CASE("sequential: no block is without channels, and each is whole warps within its limits") {
  for (std::int64_t dstate = 1; dstate <= 256; ++dstate)
    for (const std::int64_t channels_per_group : kChannels) {
      INFO("dstate " << dstate << ", channels per group " << channels_per_group);
      const SequentialPlan plan = plan_sequential(channels_per_group, dstate);
      CHECK(plan.states() >= dstate);
      CHECK((plan.lanes() == 1 || plan.states() < 2 * dstate));  // no lane without a state but by rounding
      CHECK(plan.lanes() <= 32);
      CHECK(plan.threads() % 32 == 0);
      CHECK(plan.threads() <= kSequentialMaxThreads);
      CHECK(plan.shared_bytes() <= kSequentialMaxSharedBytes);
      CHECK(plan.steps() >= 16);
      CHECK((plan.blocks_per_group - 1) * plan.channels() < channels_per_group);
    }
}

TEST_CASE("sequential: the lanes of a channel are neighbours in one warp, aligned for xor shuffles") {
  for (const std::int64_t dstate : kStates) {
    const SequentialPlan plan = plan_sequential(300, dstate);
    for (int thread = 0; thread < plan.threads(); ++thread)
      for (int distance = plan.lanes() / 2; distance > 0; distance /= 2) {
        const int partner = thread ^ distance;
        if (plan.channel_of(partner) != plan.channel_of(thread) || partner / 32 != thread / 32)
          FAIL("thread " << thread << " and " << partner << " at dstate " << dstate);
      }
  }
}

TEST_CASE("sequential: a thread's states in the B and C tiles are aligned to 16 bytes and inside them") {
  for (const std::int64_t dstate : kStates) {
    const SequentialPlan plan = plan_sequential(300, dstate);
    CHECK(plan.projection_pitch() % 4 == 0);
    CHECK(plan.projection_values() % 4 == 0);  // C's tile starts where B's ends
    CHECK(plan.first_state_of(plan.threads() - 1) + kStatesPerThread <= plan.projection_pitch());
  }
}

TEST_CASE("sequential: a small group gets small blocks") {
  CHECK(plan_sequential(1, 16).threads() == 32);
  CHECK(plan_sequential(17, 16).threads() == 64);   // 32 channels, two lanes each
  CHECK(plan_sequential(33, 16).threads() == 128);  // 64 channels
  CHECK(plan_sequential(1, 256).threads() == 32);   // one channel, a whole warp
}
