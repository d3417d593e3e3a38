#include "kernels/selective_scan/fused_general/map.h"

#include <algorithm>
#include <vector>

#include "catch.h"

using namespace ssmbench;
using namespace ssmbench::fused_general;

namespace {

// 1: one lane, 3 idle states. 4, 5: one lane full, second begins. 15, 16, 17: four lanes all but full, full,
// fifth begins (and three are added). 64: 16 lanes. 127, 128, 129: a warp full, a second begins. 255, 256:
// the limit.
constexpr std::int64_t kStates[] = {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 255, 256};
// 1, 3, 5: less than any block. 31 to 33, 63 to 65, 127 to 129: around the block sizes. 300: several blocks.
constexpr std::int64_t kChannels[] = {1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300};

}  // namespace

TEST_CASE("general: every (batch, channel, state) belongs to one thread") {
  constexpr std::int64_t kBatch = 2;
  for (const std::int64_t dstate : kStates)
    for (const std::int64_t channels_per_group : kChannels)
      for (const std::int64_t groups : {1, 3}) {
        INFO("dstate " << dstate << ", channels per group " << channels_per_group << ", groups " << groups);
        const GeneralPlan plan = plan_general(channels_per_group, dstate, false);
        const std::int64_t dim = groups * channels_per_group;
        std::vector<int> visits(static_cast<std::size_t>(kBatch * dim * dstate));
        for (std::int64_t block = 0; block < kBatch * groups * plan.blocks_per_group; ++block) {
          const BlockChannels channels = block_channels(plan, block, groups, channels_per_group);
          for (int thread = 0; thread < plan.threads(); ++thread) {
            const int c = plan.channel_of(thread);
            if (c >= channels.count) continue;
            const std::int64_t first = plan.first_state_of(thread);
            for (std::int64_t n = first; n < std::min(first + kThreadStates, dstate); ++n)
              ++visits.at(static_cast<std::size_t>((channels.b * dim + channels.first + c) * dstate + n));
          }
        }
        CHECK(visits == std::vector<int>(visits.size(), 1));
      }
}

TEST_CASE("general: two complex states a thread take up to four warps a channel") {
  for (std::int64_t dstate = 1; dstate <= 256; ++dstate)
    for (const std::int64_t channels_per_group : kChannels) {
      INFO("dstate " << dstate << ", channels per group " << channels_per_group);
      const GeneralPlan plan = plan_general(channels_per_group, dstate, true, kThreadComplexStates);
      CHECK(plan.states() >= dstate);
      CHECK(plan.states() == plan.lanes() * kThreadComplexStates);
      CHECK(plan.first_state_of(plan.lanes() - 1) == plan.states() - kThreadComplexStates);
      CHECK(plan.partials() == (dstate > 128 ? 4 : dstate > 64 ? 2 : 1));
      CHECK(plan.threads() % 32 == 0);
      CHECK(plan.threads() <= kGeneralMaxThreads);
      CHECK(plan.shared_bytes() <= kDefaultSharedBytes);
      CHECK(plan.steps() >= 8);
    }
}

TEST_CASE("general: blocks are whole warps within their limits, real and complex") {
  for (const bool complex : {false, true})
    for (std::int64_t dstate = 1; dstate <= 256; ++dstate)
      for (const std::int64_t channels_per_group : kChannels) {
        INFO("dstate " << dstate << ", channels per group " << channels_per_group << ", complex " << complex);
        const GeneralPlan plan = plan_general(channels_per_group, dstate, complex);
        CHECK(plan.states() >= dstate);
        CHECK(plan.partials() == (dstate > 128 ? 2 : 1));
        CHECK(plan.threads() % 32 == 0);
        CHECK(plan.threads() <= kGeneralMaxThreads);
        CHECK(plan.shared_bytes() <= kDefaultSharedBytes);
        CHECK(plan.steps() >= 8);
        CHECK((plan.blocks_per_group - 1) * plan.channels() < channels_per_group);
      }
}

TEST_CASE("general: the lanes that add their sums by xor shuffles are in one warp, of one channel and part") {
  for (const std::int64_t dstate : kStates) {
    const GeneralPlan plan = plan_general(300, dstate, false);
    for (int thread = 0; thread < plan.threads(); ++thread)
      for (int distance = plan.lanes_in_warp() / 2; distance > 0; distance /= 2) {
        const int partner = thread ^ distance;
        if (plan.channel_of(partner) != plan.channel_of(thread) || partner / 32 != thread / 32 ||
            plan.partial_of(partner) != plan.partial_of(thread))
          FAIL("thread " << thread << " and " << partner << " at dstate " << dstate);
      }
  }
}

TEST_CASE("general: a thread's states in the B and C tiles are aligned to 16 bytes and inside them") {
  for (const bool complex : {false, true})
    for (const std::int64_t dstate : kStates) {
      const GeneralPlan plan = plan_general(300, dstate, complex);
      CHECK(plan.projection_pitch() * plan.value_floats % 4 == 0);
      CHECK(plan.projection_values() * plan.value_floats % 4 == 0);  // C's tile starts where B's ends
      CHECK(plan.first_state_of(plan.threads() - 1) + kThreadStates <= plan.projection_pitch());
    }
}

TEST_CASE("general: segments of a sequence have each of its steps once, in order") {
  GeneralPlan plan = plan_general(300, 16, false);
  for (const std::int64_t count : {1, 2, 7})
    for (const std::int64_t length : {0, 1, 31, 32, 33, 64, 200, 1000}) {
      plan.segments.count = count;
      const SequenceBorders one{nullptr};
      REQUIRE(one.at(3, length).begin == 0);
      REQUIRE(one.at(3, length).end == length);
      const std::int32_t cu_seqlens[]{0, 17, static_cast<std::int32_t>(17 + length)};
      const SegmentRange sequence = SequenceBorders{cu_seqlens}.at(1, 5000);
      std::int64_t next = 17;
      for (int segment = 0; segment < count; ++segment) {
        const SegmentRange range = plan.steps_of(segment, sequence);
        INFO("segment " << segment << " of " << count << ", length " << length);
        REQUIRE(range.begin == next);
        REQUIRE(range.end >= range.begin);
        const std::int64_t steps = range.end - range.begin;
        REQUIRE((steps % plan.steps() == 0 || range.end == 17 + length));
        next = range.end;
      }
      REQUIRE(next == 17 + length);
    }
}
