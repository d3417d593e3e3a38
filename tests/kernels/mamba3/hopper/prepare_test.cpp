// The index maps of the preparation of Mamba-3's scans for Hopper.

#include "kernels/mamba3/hopper/prepare.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "catch.h"
#include "support/mamba3_problem.h"

using namespace ssmbench;
using namespace ssmbench::mamba3_hopper;
using namespace ssmbench::test;

namespace {

Mamba3 scan_of(std::int64_t batch, std::int64_t seqlen, std::int64_t nheads, std::int64_t angles) {
  return Mamba3(mamba3_problem({{"batch", batch},
                                {"seqlen", seqlen},
                                {"nheads", nheads},
                                {"dstate", size(128)},
                                {"rope_angles", angles}}));
}

}  // namespace

TEST_CASE("mamba3 hopper: blocks prepare each step of each head once", "[mamba3]") {
  for (const std::int64_t batch : {1, 3})
    for (const std::int64_t seqlen : {1, 64, 65, 256, 257, 1000})
      for (const std::int64_t nheads : {1, 7, 8, 9, 32})
        for (const std::int64_t angles : {1, 4, 31, 32, 40, 64}) {
          const PrepareGrid grid(scan_of(batch, seqlen, nheads, angles));
          REQUIRE(grid.row >= angles);
          REQUIRE(grid.heads * grid.row <= kPrepareThreads);
          CHECK(grid.shared_bytes() <= 72 * 1024);  // two blocks a multiprocessor, and more
          std::set<std::tuple<int, int, int>> seen;
          for (std::int64_t i = 0; i < batch * grid.segments * grid.slices; ++i) {
            const PrepareBlock block = prepare_block(i, grid.slices, grid.segments);
            CHECK(block.part * kSegment < seqlen);
            for (int head = block.slice * grid.heads;
                 head < std::min<std::int64_t>((block.slice + 1) * grid.heads, nheads); ++head)
              CHECK(seen.insert({block.batch, block.part, head}).second);
          }
          CHECK(std::ssize(seen) == batch * ((seqlen + kSegment - 1) / kSegment) * nheads);
          CHECK(std::get<0>(*seen.rbegin()) == batch - 1);
          CHECK((grid.spans * kSpan >= seqlen && (grid.spans - 1) * kSpan < seqlen));
        }
}

TEST_CASE("mamba3 hopper: four pairs a lane are all states of a row, paired as the rotation pairs them",
          "[mamba3]") {
  for (const bool interleaved : {true, false})
    for (const int dstate : {8, 16, 24, 72, 128}) {
      const Mamba3 scan(mamba3_problem(
          {{"dstate", size(dstate)}, {"rotary_pairing", interleaved ? "interleaved" : "halves"}}));
      std::vector<int> held(static_cast<std::size_t>(dstate));
      for (int quad = 0; 8 * quad < dstate; ++quad) {
        const int first = first_of_quad(quad, interleaved);
        const int rest = rest_of_quad(quad, interleaved, dstate);
        CHECK((first % 4 == 0 && rest % 4 == 0));
        for (int i = 0; i < 4; ++i) {
          ++held.at(static_cast<std::size_t>(first + i));
          ++held.at(static_cast<std::size_t>(rest + i));
          // Element i of the first four and of the other four, as pairs 4·quad … 4·quad + 3 have them.
          const int pair = 4 * quad + (interleaved ? i / 2 : i);
          CHECK(first + i ==
                (interleaved && i % 2 == 1 ? scan.second_of_pair(pair) : scan.first_of_pair(pair)));
          const int other = 4 * quad + (interleaved ? 2 + i / 2 : i);
          CHECK(rest + i ==
                (interleaved && i % 2 == 0 ? scan.first_of_pair(other) : scan.second_of_pair(other)));
        }
      }
      CHECK(std::ranges::all_of(held, [](int count) { return count == 1; }));
    }
}
