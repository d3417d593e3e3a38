#include "kernels/ssd_chunk_scan/hopper/plan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "catch.h"
#include "kernels/ssd_chunk_scan/hopper/layout.h"

using namespace ssmbench::ssd_hopper;

namespace {

std::vector<Plan> plans() {
  std::vector<Plan> all;
  for (const std::int64_t batch : {1, 3})
    for (const std::int64_t seqlen : {1, 64, 65, 640, 4096})
      for (const auto& [nheads, groups] : {std::pair{1, 1}, {7, 1}, {6, 2}, {6, 6}, {48, 1}, {128, 8}})
        for (const std::int64_t headdim : {8, 64, 72, 192})
          for (const int multiprocessors : {3, 132})
            for (const int tiles : {1, 2})
              for (const int states : {128, 256}) {
                const PlanSizes sizes{batch, seqlen, nheads, groups, headdim, states};
                if (tiles == 2) {
                  all.push_back(plan_for(sizes, multiprocessors));
                  PlanSizes f32 = sizes;
                  f32.states = 128;
                  f32.f32 = true;
                  all.push_back(plan_for(f32, multiprocessors));
                }
                const Plan whole = plan_with(sizes, multiprocessors, tiles, 1);
                all.push_back(whole);
                const int most = multiprocessors / (whole.cluster * whole.items);
                for (int parts = 2; parts <= std::min(most, whole.chunks.value); parts += 3)
                  all.push_back(plan_with(sizes, multiprocessors, tiles, parts));
              }
  return all;
}

}  // namespace

TEST_CASE("hopper: every row tile of every head belongs to one item, and items to one group") {
  for (const Plan& plan : plans()) {
    std::set<std::tuple<int, int, int>> seen;  // batch, head, row
    for (int i = 0; i < plan.items; ++i) {
      const Item item = plan.item(i);
      REQUIRE(item.first.head >= 0);
      for (int tile = 0; tile < 2; ++tile) {
        const auto [head, row] = item.tile(tile);
        if (head < 0) continue;
        CHECK(tile < plan.tiles_per_item);
        CHECK(head / plan.heads_per_group == item.group);
        CHECK((row % kRows == 0 && row / kRows < plan.row_tiles.value));
        CHECK(seen.insert({item.b, head, row}).second);
      }
    }
    const auto heads = static_cast<std::size_t>(plan.groups.value * plan.heads_per_group);
    const auto batches =
        static_cast<std::size_t>(plan.items / (plan.groups.value * plan.items_per_group.value));
    CHECK(seen.size() == heads * batches * static_cast<std::size_t>(plan.row_tiles.value));
  }
}

TEST_CASE("hopper: every chunk of every item belongs to one segment") {
  for (const Plan& plan : plans()) {
    REQUIRE(plan.blocks >= 1);
    std::vector<int> visits(static_cast<std::size_t>(plan.items * plan.chunks.value));
    for (int block = 0; block < plan.blocks; ++block) {
      REQUIRE(plan.segments(block) >= 1);
      for (int i = 0; i < plan.segments(block); ++i) {
        const Segment segment = plan.segment(block, i);
        CHECK(segment.first < segment.end);
        for (int chunk = segment.first; chunk < segment.end; ++chunk)
          ++visits.at(static_cast<std::size_t>(segment.item * plan.chunks.value + chunk));
      }
    }
    CHECK(visits == std::vector<int>(visits.size(), 1));
  }
}

TEST_CASE("hopper: a cut item goes from one block to the next, which needs it last") {
  for (const Plan& plan : plans()) {
    int cut = 0;
    for (int block = 0; block < plan.blocks; ++block) {
      const int segments = plan.segments(block);
      for (int i = 0; i < segments; ++i) {
        const Segment segment = plan.segment(block, i);
        if (segment.end < plan.chunks.value) {  // handed on: before anything is waited for, to the next block
          CHECK((plan.parts > 1 || i == 0));
          const Segment rest = plan.segment(block + 1, plan.segments(block + 1) - 1);
          CHECK((rest.item == segment.item && rest.first == segment.end));
          ++cut;
        }
        if (segment.first > 0) CHECK(i == segments - 1);
      }
    }
    CHECK((plan.states_cross() || cut == 0));
  }
}

TEST_CASE("hopper: the parts of an item are one segment of a block each, of nearly equal length") {
  int in_parts = 0;
  for (const Plan& plan : plans()) {
    if (plan.parts == 1) continue;
    ++in_parts;
    REQUIRE(plan.blocks == plan.items * plan.parts);
    CHECK_FALSE(plan.hands_over());
    for (int block = 0; block < plan.blocks; ++block) {
      REQUIRE(plan.segments(block) == 1);
      const Segment segment = plan.segment(block, 0);
      CHECK(segment.item == block / plan.parts);
      CHECK((segment.first == 0) == (block % plan.parts == 0));
      CHECK((segment.end == plan.chunks.value) == (block % plan.parts == plan.parts - 1));
      const int chunks = segment.end - segment.first;
      CHECK((chunks == plan.share || chunks == plan.share + 1));
    }
  }
  CHECK(in_parts > 100);
}

TEST_CASE("hopper: divisors divide") {
  for (const int divisor : {1, 2, 3, 7, 64, 100, 132, 65535, 65536, 1000003, 2147483647})
    for (const int number : {0, 1, 2, 3, 63, 64, 65, 99, 100, 101, 65535, 65536, 2147483646, 2147483647})
      CHECK(Divisor(divisor).quotient(number) == number / divisor);
}

TEST_CASE("hopper: two tiles of 256 states are in a cluster of two blocks") {
  for (const std::int64_t nheads : {1, 3, 24, 48, 128}) {
    const Plan plan = plan_for({8, 4096, nheads, 1, 128, 256}, 132);
    CHECK((plan.tiles_per_item == 2 && plan.cluster == 2));
    CHECK((plan.blocks * plan.cluster <= 132 || plan.blocks == plan.items));
  }
  // 192 items in 3 rounds of 66; 96 are cut, since the second round would be half empty.
  CHECK(plan_for({8, 4096, 24, 1, 128, 256}, 132).blocks == 192);
  CHECK(plan_for({8, 4096, 24, 1, 64, 256}, 132).blocks == 66);
  // Where the second tile would be absent, there is no cluster.
  CHECK(plan_for({1, 4096, 1, 1, 64, 256}, 132).cluster == 1);
  CHECK(plan_for({1, 4096, 1, 1, 64, 128}, 132).cluster == 1);
  CHECK(plan_for({8, 4096, 32, 1, 64, 128}, 132).cluster == 1);
}

TEST_CASE("hopper: items of f32 tensors have two tiles") {
  for (const std::int64_t nheads : {1, 24, 32})
    for (const std::int64_t batch : {1, 8}) {
      const Plan plan = plan_for({batch, 4096, nheads, 1, 64, 128, true}, 132);
      CHECK((plan.tiles_per_item == 2 && plan.cluster == 1 && plan.blocks <= 132));
    }
  CHECK(plan_for({1, 4096, 8, 8, 64, 128, true}, 132).tiles_per_item == 2);
}

TEST_CASE("hopper: one tile an item where two would leave multiprocessors idle") {
  CHECK(plan_for({8, 4096, 32, 1, 64}, 132).tiles_per_item == 2);
  CHECK(plan_for({1, 4096, 128, 8, 64}, 132).tiles_per_item == 1);
  CHECK(plan_for({1, 256, 1, 1, 64}, 132).tiles_per_item == 1);
}

TEST_CASE("hopper: few heads are cut into parts, if they are long") {
  const auto parts = [](const PlanSizes& sizes) { return plan_for(sizes, 132).parts; };
  CHECK(parts({1, 8192, 32, 1, 64}) == 4);
  CHECK(parts({1, 256, 32, 1, 64}) == 1);
  CHECK(parts({8, 4096, 32, 1, 64}) == 1);
  CHECK(parts({1, 8192, 128, 8, 64}) == 1);
  for (const std::int64_t seqlen : {4096, 65536, 1048576}) {
    const Plan plan = plan_for({1, seqlen, 1, 1, 64}, 132);
    CHECK((plan.parts > 16 && plan.blocks <= 132 && plan.parts <= plan.chunks.value));
  }
}

TEST_CASE("hopper: scalars have a place each") {
  std::set<int> steps;
  for (int step = 0; step < 16; ++step) steps.insert(slot_of_step(step));
  CHECK((steps.size() == 16 && *steps.rbegin() == 15));
  std::set<int> pairs;
  for (int pair = 0; pair < kSteps / 2; ++pair) pairs.insert(slot_of_pair(pair));
  CHECK((pairs.size() == kSteps / 2 && *pairs.rbegin() == kSteps / 2 - 1));
  std::set<int> squares;
  for (int row = 1; row < 4; ++row)
    for (int column = 0; column < row; ++column) squares.insert(square_below(row, column));
  CHECK((squares.size() == 6 && *squares.rbegin() == 5));
}
