#include "kernels/ssd_chunk_scan/hopper/packed.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "catch.h"

using namespace ssmbench::ssd_hopper;

namespace {

/// Sequences in a plan of them.
struct Packing {
  std::vector<std::int32_t> lengths, cu_seqlens{0};
  ssmbench::ssd_hopper::Plan plan;
  std::vector<PackedStart> starts;
  std::int64_t longest = 0;
  std::int64_t chunks = 0;

  Packing(const std::vector<std::int32_t>& steps, std::int64_t nheads, std::int64_t groups,
          std::int64_t headdim, int multiprocessors, int tiles)
      : lengths(steps) {
    for (const auto length : lengths) {
      cu_seqlens.push_back(cu_seqlens.back() + length);
      longest = std::max<std::int64_t>(longest, packed_chunks(length));
      chunks += packed_chunks(length);
    }
    const auto count = static_cast<std::int64_t>(lengths.size());
    plan = packed_plan_with({count, cu_seqlens.back(), nheads, groups, headdim}, multiprocessors, tiles);
    starts.resize(static_cast<std::size_t>(plan.blocks));
    const PackedShares shares(plan.items, plan.blocks, count, chunks, longest);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      shares.starts_in(static_cast<int>(i), before, packed_chunks(lengths[i]), starts.data());
      before += packed_chunks(lengths[i]);
    }
  }
  PackedSegments segments(int block) const {
    return {starts.at(static_cast<std::size_t>(block)), plan.items, cu_seqlens.data()};
  }
};

std::vector<Packing> packings() {
  const std::vector<std::vector<std::int32_t>> all{{1},
                                                   {4096},
                                                   {0, 0, 3, 0},
                                                   {64, 65, 63, 1, 0, 128, 129, 127},
                                                   {16, 4096, 2000, 700, 33, 0, 1, 1, 64},
                                                   std::vector<std::int32_t>(300, 16),
                                                   {8192, 1, 1, 1, 1}};
  std::vector<Packing> packings;
  for (const auto& lengths : all)
    for (const auto& [nheads, groups] : {std::pair{1, 1}, {7, 1}, {6, 2}, {48, 1}, {128, 8}})
      for (const std::int64_t headdim : {8, 64, 72})
        for (const int multiprocessors : {3, 132})
          for (const int tiles : {1, 2})
            packings.emplace_back(lengths, nheads, groups, headdim, multiprocessors, tiles);
  return packings;
}

}  // namespace

TEST_CASE("hopper: every chunk of every item of packed sequences belongs to one segment") {
  for (const Packing& packing : packings()) {
    std::set<std::tuple<int, int, int>> seen;  // sequence, item, chunk
    for (int block = 0; block < packing.plan.blocks; ++block) {
      int chunks = 0;
      for (auto segments = packing.segments(block); !segments.done(); segments.advance()) {
        const Segment segment = segments.segment();
        const auto sequence = static_cast<std::size_t>(segments.sequence());
        REQUIRE(sequence < packing.lengths.size());
        CHECK(segments.begin() == packing.cu_seqlens[sequence]);
        CHECK(segments.steps() == packing.lengths[sequence]);
        REQUIRE((segment.item >= 0 && segment.item < packing.plan.items));
        REQUIRE((segment.first >= 0 && segment.first < segment.end));
        REQUIRE(segment.end <= packed_chunks(segments.steps()));
        CHECK(segments.ends(segment) == (segment.end == packed_chunks(segments.steps())));
        for (int chunk = segment.first; chunk < segment.end; ++chunk, ++chunks)
          CHECK(seen.insert({segments.sequence(), segment.item, chunk}).second);
      }
      CHECK(chunks == packing.starts[static_cast<std::size_t>(block)].chunks);
    }
    CHECK(static_cast<std::int64_t>(seen.size()) == packing.chunks * packing.plan.items);
  }
}

TEST_CASE(
    "hopper: an item of a packed sequence is in two blocks at most, the second of which needs it last") {
  std::size_t cut = 0;
  for (const Packing& packing : packings()) {
    for (int block = 0; block < packing.plan.blocks; ++block) {
      int index = 0;
      for (auto segments = packing.segments(block); !segments.done(); segments.advance(), ++index) {
        const Segment segment = segments.segment();
        if (segments.ends(segment)) continue;
        ++cut;
        CHECK((index == 0 && segment.first == 0));  // handed on before anything is waited for
        PackedSegments last = packing.segments(block + 1);
        for (auto next = last; !next.done(); next.advance()) last = next;
        CHECK(last.sequence() == segments.sequence());
        CHECK(last.segment().item == segment.item);
        CHECK(last.segment().first == segment.end);
        CHECK(last.ends(last.segment()));
      }
    }
  }
  CHECK(cut > 100);
}

TEST_CASE(
    "hopper: blocks have equal shares of packed sequences and their beginnings, if those are not longer") {
  for (const Packing& packing : packings()) {
    const auto count = static_cast<std::int64_t>(packing.lengths.size());
    const std::int64_t all = (packing.chunks + count * kItemCost) * packing.plan.items;
    const std::int64_t even = (all + packing.plan.blocks - 1) / packing.plan.blocks;
    for (int block = 0; block < packing.plan.blocks; ++block) {
      std::int64_t cost = 0;
      for (auto segments = packing.segments(block); !segments.done(); segments.advance())
        cost += segments.segment().end - segments.segment().first +
                (segments.segment().first == 0 ? kItemCost : 0);
      // The first item's own cost may be counted to the block before.
      CHECK(cost <= std::max(even, packing.longest + kItemCost) + kItemCost);
    }
  }
}

TEST_CASE("hopper: what items cost is shared where packed sequences are short") {
  std::vector<std::int32_t> lengths(64, 64);  // items of one chunk, then as many chunks in one item each
  lengths.push_back(64 * 64);
  const Packing packing(lengths, 64, 1, 64, 8, 1);
  const auto chunks_of = [&](std::size_t block) { return packing.starts.at(block).chunks; };
  CHECK(chunks_of(6) > chunks_of(0) * 1.9);
  CHECK(chunks_of(6) < chunks_of(0) * 2.1);
}

namespace {

/// Parts of sequences, as the device plans them.
struct InParts {
  std::vector<PackedStart> starts;
  std::vector<std::int32_t> firsts;
  int chunks_of_part;

  InParts(const std::vector<int>& chunks, int items, int blocks) : starts(static_cast<std::size_t>(blocks)) {
    const auto parts = [&](int of_part) {
      int all = 0;
      for (const int its : chunks) all += PackedParts{items, of_part}.of_item(its);
      return all;
    };
    FirstThatFits search{1, *std::ranges::max_element(chunks)};
    while (!search.is_found()) search.narrow(parts(search.tried()) * items <= blocks);
    chunks_of_part = search.most;
    firsts.resize(chunks.size() * static_cast<std::size_t>(items) + 1, -1);
    int first = 0;
    const PackedParts of{items, chunks_of_part};
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      of.starts_in(static_cast<int>(i), first, chunks[i], starts.data(), firsts.data());
      first += of.of_item(chunks[i]) * items;
    }
    firsts.back() = first;
  }
};

}  // namespace

TEST_CASE("hopper: parts of packed sequences follow one another, and as many blocks as there are have one") {
  for (const auto& chunks : {std::vector<int>{128}, {64, 64}, {100, 1, 1, 26}, {1, 1, 1}, {7, 33, 2}})
    for (const int items : {1, 4, 9}) {
      const int blocks = 132;
      const InParts all(chunks, items, blocks);
      CHECK(all.chunks_of_part <= *std::ranges::max_element(chunks));
      std::size_t row = 0;
      for (std::size_t sequence = 0; sequence < chunks.size(); ++sequence)
        for (int item = 0; item < items; ++item, ++row) {
          int chunk = 0;
          for (int block = all.firsts[row]; block < all.firsts[row + 1]; ++block) {
            const PackedStart& start = all.starts.at(static_cast<std::size_t>(block));
            CHECK(start.sequence == static_cast<int>(sequence));
            CHECK(start.item == item);
            CHECK(start.end - start.chunks == chunk);
            CHECK((start.chunks > 0 && start.chunks <= all.chunks_of_part));
            chunk = start.end;
          }
          CHECK(chunk == chunks[sequence]);
        }
      CHECK(all.firsts.back() <= blocks);
      if (all.chunks_of_part == 1) continue;
      int more = 0;  // with parts of a chunk less
      for (const int its : chunks) more += PackedParts{items, all.chunks_of_part - 1}.of_item(its) * items;
      CHECK(more > blocks);
    }
}

TEST_CASE("hopper: few long packed sequences are in parts, of one tile") {
  const auto parts = [](std::int64_t sequences, std::int64_t steps, std::int64_t nheads) {
    const auto plan = packed_plan_for({sequences, steps, nheads, 1, 64}, 132);
    CHECK((plan.parts == 1 || plan.tiles_per_item == 1));
    CHECK((plan.parts == 1 || plan.blocks >= 2 * sequences * plan.items));
    return plan.parts > 1;
  };
  CHECK(parts(1, 8192, 8));
  CHECK(parts(4, 8192, 8));
  CHECK_FALSE(parts(64, 65536, 8));  // fill the GPU as they are
  CHECK_FALSE(parts(4, 256, 8));     // a chunk each
}

TEST_CASE("hopper: parts of packed sequences have a place each, which says what their steps are") {
  for (const Packing& packing : packings())
    for (const int each : {kSteps, 4 * kSteps}) {
      const auto count = static_cast<int>(packing.lengths.size());
      const std::int32_t* const borders = packing.cu_seqlens.data();
      const std::int64_t slots = packed_slots(borders[count], count, each);
      std::int64_t steps = 0, ends = 0;
      for (int slot = 0; slot < slots; ++slot) {
        const PackedPart part = packed_part_at(borders, count, slot, each);
        steps += part.steps;
        ends += part.ends ? 1 : 0;
      }
      CHECK(steps == borders[count]);
      CHECK(ends == count);
      std::set<int> seen;
      for (int sequence = 0; sequence < count; ++sequence) {
        const std::int32_t begin = borders[sequence], end = borders[sequence + 1];
        for (int index = 0; index == 0 || begin + index * each < end; ++index) {
          const int slot = packed_slot(begin, sequence, each) + index;
          CHECK(seen.insert(slot).second);
          REQUIRE(slot < slots);
          const PackedPart part = packed_part_at(borders, count, slot, each);
          CHECK(part.sequence == sequence);
          CHECK(part.index == index);
          CHECK(part.first == begin + index * each);
          CHECK(part.steps == std::min<std::int64_t>(end - part.first, each));
          CHECK(part.ends == (part.first + part.steps == end));
        }
      }
    }
}

TEST_CASE("hopper: a packed sequence ends at the step before the next one") {
  const std::vector<std::int32_t> borders{0, 0, 1, 3, 3, 3, 10};
  for (std::int32_t step = 0; step < 10; ++step)
    CHECK(ends_packed(borders.data(), 6, step) == (step == 0 || step == 2 || step == 9));
}

TEST_CASE("hopper: the first state that is wanted from a step on") {
  const std::vector<PackedStop> stops{{3, 0}, {3, 1}, {64, 2}, {90, 3}};
  const auto first = [&](int step) { return first_stop_from(stops.data(), 4, step); };
  CHECK(first(0) == 0);
  CHECK(first(3) == 0);
  CHECK(first(4) == 2);
  CHECK(first(65) == 3);
  CHECK(first(91) == 4);
  const auto row = [&](int begin, int steps) { return first_stop_of(stops.data(), 4, begin, steps).step; };
  CHECK(row(2, 10) == 1);
  CHECK(row(4, 61) == 60);
  CHECK(row(4, 60) == kNoStop);
  CHECK(row(91, 10) == kNoStop);
}

TEST_CASE("hopper: packed sequences that fill the GPU have items of two tiles") {
  CHECK(packed_plan_for({64, 64 * 2056, 32, 1, 64}, 132).tiles_per_item == 2);
  CHECK(packed_plan_for({64, 64 * 2056, 128, 8, 64}, 132).tiles_per_item == 2);
  CHECK(packed_plan_for({2, 8192, 32, 1, 64}, 132).tiles_per_item == 1);
}
