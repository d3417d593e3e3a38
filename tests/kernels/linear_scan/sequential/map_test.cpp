#include "kernels/linear_scan/sequential/map.h"

#include <algorithm>
#include <set>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

template <int kPiece>
void check_every_byte_once() {
  using Map = SequentialMap<kPiece>;
  std::vector<int> visits(kSequentialTensorBytes);
  for (int lane = 0; lane < 32; ++lane) {
    REQUIRE(Map::byte_of(lane) + Map::kBytes <= kSequentialBytes);  // within the step
    for (int pass = 0; pass < Map::kPasses; ++pass) {
      const int step = Map::step_of(lane) + pass * Map::kStepsOfPass;
      for (int byte = 0; byte < Map::kBytes; ++byte)
        ++visits.at(static_cast<std::size_t>(sequential_at(step, Map::byte_of(lane) + byte)));
    }
    REQUIRE(sequential_at(Map::step_of(lane), Map::byte_of(lane)) % std::max(kPiece, 4) == 0);
  }
  CHECK(std::ranges::count(visits, 1) == kSequentialTensorBytes);
}

}  // namespace

TEST_CASE("the lanes of cuda-sequential move every byte of a tile once") {
  check_every_byte_once<16>();
  check_every_byte_once<4>();
  check_every_byte_once<2>();
}

TEST_CASE("tiles that are in shared memory together do not overlap, at any time") {
  // The first ones, and some past 32 bits.
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, std::int64_t{1} << 33}) {
    std::set<int> slots;
    for (int i = 0; i < kSequentialTiles; ++i) slots.insert(sequential_slot(first + i));
    CHECK(slots.size() == kSequentialTiles);
    CHECK(*slots.begin() == 0);
    for (const int slot : slots) CHECK(slot % (2 * kSequentialTensorBytes) == 0);
    CHECK(*slots.rbegin() + 2 * kSequentialTensorBytes == kSequentialSharedBytes);
  }
}

TEST_CASE("accesses are no larger than the alignment") {
  CHECK(sequential_access_bytes(4096) == 16);
  CHECK(sequential_access_bytes(16) == 16);
  CHECK(sequential_access_bytes(8) == 4);
  CHECK(sequential_access_bytes(4) == 4);
  CHECK(sequential_access_bytes(2) == 2);
  CHECK(sequential_access_bytes(4096 | 6) == 2);  // a pointer, and an odd number of 2-byte elements
  CHECK(sequential_access_bytes(4096 | 12) == 4);
}

TEST_CASE("cuda-sequential takes four warps a block where there are enough of such blocks") {
  CHECK(sequential_tma_warps(8 * 2048 * 4) == 4);  // 128 blocks
  CHECK(sequential_tma_warps(8 * 2048 * 2) == 1);  // 64
  CHECK(sequential_tma_warps(96 * 512) == 4);
  CHECK(sequential_tma_warps(96 * 512 - 16) == 1);
  CHECK(sequential_tma_warps(16) == 1);
  CHECK(sequential_tma_warps(std::int64_t{1} << 40) == 4);
}

TEST_CASE("tiles that are copied as a whole keep to the limits of such copies") {
  // At most 256 elements along an axis, multiples of 128 bytes in shared memory, 227 KB of it.
  CHECK(SequentialTmaMap<4>::kBytes / 2 <= 256);
  CHECK(SequentialTmaMap<4>::kSteps <= 256);
  CHECK(SequentialTmaMap<1>::kTensorWords * 4 % 128 == 0);
  CHECK(SequentialTmaMap<4>::kTensorWords * 4 % 128 == 0);
  CHECK(SequentialTmaMap<1>::kSharedBytes == 32 * 1024);
  CHECK(SequentialTmaMap<4>::kSharedBytes == 96 * 1024);
}
