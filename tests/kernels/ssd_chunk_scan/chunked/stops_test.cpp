// Pieces of packed sequences between the steps whose states are wanted.

#include "kernels/ssd_chunk_scan/chunked/stops.h"

#include <algorithm>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

/// Walks the pieces of sequences as walk_pieces_kernel does, with the number of steps as the state, and
/// checks that each stop finds the steps of its own sequence up to it.
void check_pieces(const std::vector<std::int32_t>& cu_seqlens, const std::vector<std::int32_t>& states_at) {
  const PieceEnds all{cu_seqlens.data(), states_at.data(), static_cast<std::int64_t>(cu_seqlens.size()) - 1,
                      static_cast<std::int64_t>(states_at.size())};
  std::vector<std::int32_t> ends(all.count() + 1, -7);
  std::vector<std::int32_t> stops(all.count(), -7);
  for (std::int64_t i = 0; i < all.count(); ++i) Pieces{ends.data(), stops.data()}.put(all, i);
  CHECK(ends.front() == 0);
  CHECK(ends.back() == cu_seqlens.back());
  CHECK(std::ranges::is_sorted(ends));
  std::vector<bool> found(states_at.size(), false);
  std::size_t sequence = 0;
  std::int32_t steps = 0;
  for (std::int64_t piece = 0; piece < all.count(); ++piece) {
    steps += ends[piece + 1] - ends[piece];
    CAPTURE(piece, sequence);
    if (stops[piece] < 0) {
      CHECK(ends[piece + 1] == cu_seqlens[sequence + 1]);
      CHECK(steps == cu_seqlens[sequence + 1] - cu_seqlens[sequence]);
      ++sequence;
      steps = 0;
      continue;
    }
    const auto stop = static_cast<std::size_t>(stops[piece]);
    REQUIRE(stop < states_at.size());
    CHECK_FALSE(found[stop]);
    found[stop] = true;
    CHECK(cu_seqlens[sequence] <= states_at[stop]);
    CHECK(states_at[stop] < cu_seqlens[sequence + 1]);
    CHECK(steps == states_at[stop] + 1 - cu_seqlens[sequence]);
  }
  CHECK(sequence + 1 == cu_seqlens.size());
  CHECK(std::ranges::find(found, false) == found.end());
}

}  // namespace

TEST_CASE("cuda-chunked cuts packed sequences at the steps whose states are wanted") {
  check_pieces({0, 10}, {4});
  check_pieces({0, 10}, {9, 0, 4, 4});        // any order, twice, the first and the last step
  check_pieces({0, 3, 3, 3, 10}, {2, 3, 9});  // beside empty sequences
  check_pieces({0, 0, 5, 5}, {4});            // that begin and end
  check_pieces({0, 1, 2, 3}, {2, 1, 0});      // every step
  check_pieces({0, 100, 164, 1000}, {163, 99, 100, 500, 227, 164});
}
