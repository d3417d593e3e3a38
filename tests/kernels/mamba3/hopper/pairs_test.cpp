// cuda-hopper's SISO scan of two heads a block: when there are two, and index maps against what lanes load.

#include <set>

#include "catch.h"
#include "kernels/mamba3/hopper/pairs/layout.h"
#include "kernels/mamba3/hopper/rotated_plan.h"

using namespace ssmbench;
using namespace ssmbench::mamba3_pairs;

namespace {

constexpr int kDstate = 128;

bool has_pairs(std::int64_t batch, std::int64_t nheads, std::int64_t groups) {
  return mamba3_hopper::RotatedPlan({batch, 4096, nheads, groups, 64}).has_pairs;
}

}  // namespace

TEST_CASE("mamba3 pairs: columns of an accumulator are states, each once", "[mamba3]") {
  std::set<int> states;
  for (int j = 0; j < kDstate / 8; ++j)
    for (int lane = 0; lane < 4; ++lane)
      for (int bit = 0; bit < 2; ++bit) {
        const int state = state_of_column(j, lane) + bit;
        states.insert(state);
        CHECK((state < 64) == (j < 8));
      }
  CHECK((std::ssize(states) == kDstate && *states.begin() == 0 && *states.rbegin() == kDstate - 1));
}

TEST_CASE("mamba3 pairs: a lane finds biases of k of its vectors", "[mamba3]") {
  std::set<int> places;
  for (int n = 0; n < kDstate; ++n) places.insert(index_of_key_bias(n));
  CHECK((std::ssize(places) == kDstate && *places.rbegin() == kDstate - 1));
  for (int tile = 0; tile < 2; ++tile)
    for (int vector = 0; vector < 8; ++vector)
      for (int i = 0; i < 8; ++i)
        CHECK(index_of_key_bias(64 * tile + 8 * vector + i) == 64 * tile + i / 4 * 32 + 4 * vector + i % 4);
}

TEST_CASE("mamba3 pairs: a lane finds biases of q in the order of its fragments", "[mamba3]") {
  std::set<int> places;
  for (int n = 0; n < kDstate; ++n) places.insert(index_of_query_bias(n));
  CHECK((std::ssize(places) == kDstate && *places.rbegin() == kDstate - 1));
  for (int lane = 0; lane < 4; ++lane) {
    for (int j = 0; j < 8; ++j)  // two columns at a time, four states by one instruction
      for (int bit = 0; bit < 2; ++bit)
        CHECK(index_of_query_bias(state_of_column(j, lane) + bit) == j / 2 * 16 + 4 * lane + j % 2 * 2 + bit);
    for (int k = 0; k < 4; ++k)
      for (int i = 0; i < 4; ++i)
        CHECK(index_of_query_bias(64 + 16 * k + 2 * lane + i / 2 * 8 + i % 2) == 64 + 16 * k + 4 * lane + i);
  }
}

TEST_CASE("mamba3 pairs: two heads are a block where multiprocessors have more than one to do", "[mamba3]") {
  CHECK(has_pairs(8, 32, 1));
  CHECK(has_pairs(8, 66, 1));         // two pairs each
  CHECK_FALSE(has_pairs(4, 32, 1));   // a multiprocessor for each head
  CHECK_FALSE(has_pairs(4, 40, 1));   // 160 heads share 132 multiprocessors; 80 pairs would leave 52 idle
  CHECK_FALSE(has_pairs(8, 40, 1));   // pairs would be cut
  CHECK_FALSE(has_pairs(8, 32, 32));  // groups have no second head
}
