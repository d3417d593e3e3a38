// The index maps of cuda-hopper's fused MIMO scan, against the fragments of its products.

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "catch.h"
#include "kernels/mamba3/hopper/fused/layout.h"

using namespace ssmbench::mamba3_fused;

namespace {

constexpr int kColumns = kRows / 8;

/// Of column 8j + 2t of Yᵀ, and the next.
int step_of(int j, int t) {
  return (8 * j + 2 * t) / kRank;
}

}  // namespace

TEST_CASE("mamba3 fused: a lane finds the factors of its head dims and ranks in one vector", "[mamba3]") {
  std::set<int> slots;
  for (int rank = 0; rank < kRank; ++rank)
    for (int p = 0; p < kHeaddim; ++p) slots.insert(table_slot(rank, p));
  CHECK((std::ssize(slots) == kRank * kHeaddim && *slots.rbegin() == kRank * kHeaddim - 1));
  for (int warp = 0; warp < 4; ++warp)
    for (int lane = 0; lane < 32; ++lane) {
      const int vector = (8 * warp + lane / 4) * 2 + lane % 2;
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < kColumns; ++j) {
            const int rank = (8 * j + lane % 4 * 2 + i) % kRank;
            CHECK(table_slot(rank, 16 * warp + lane / 4 + 8 * half) == 4 * vector + 2 * half + i);
          }
    }
}

TEST_CASE("mamba3 fused: a lane finds the steps of its columns of a product side by side", "[mamba3]") {
  std::set<int> slots;
  for (int step = 0; step < kSteps; ++step) slots.insert(slot_of_step(step));
  CHECK((std::ssize(slots) == kSteps && *slots.rbegin() == kSteps - 1));
  for (int t = 0; t < 4; ++t)
    for (int j = 0; j < kColumns; ++j) {
      CHECK(step_of(j, t) == (8 * j + 2 * t + 1) / kRank);
      CHECK(slot_of_step(step_of(j, t)) == t / 2 * (kSteps / 2) + j);
    }
}

TEST_CASE("mamba3 fused: lanes that load and store transposed have the steps of their columns", "[mamba3]") {
  // Lane (g, t) gets of matrix m what lanes 8m + 2t and 8m + 2t + 1 point to, and stores it there.
  for (int t = 0; t < 4; ++t)
    for (int m = 0; m < 4; ++m)
      for (int i = 0; i < 2; ++i) {
        const int lane = 8 * m + 2 * t + i;
        for (int index = 0; index < 2; ++index) {
          const StepRow row = loaded_row(index, lane);
          CHECK((row.step == step_of(4 * index + m / 2 * 2 + i, t) && row.vector == m % 2));
        }
        const StepRow row = stored_row(lane);
        CHECK((row.step == step_of(2 * m + i, t) && row.vector == t % 2));
      }
  std::set<std::pair<int, int>> stored;
  for (int lane = 0; lane < 32; ++lane) stored.insert({stored_row(lane).step, stored_row(lane).vector});
  CHECK(std::ssize(stored) == 2 * kSteps);
}

TEST_CASE("mamba3 fused: eight lanes read cosines of two steps from different banks", "[mamba3]") {
  for (const int pairs : {32, 64})
    for (int pair = 0; pair < pairs; pair += 2) {
      std::set<int> banks;  // of four bytes
      for (const int step : {0, 1})
        for (int word = 0; word < 4; ++word)
          banks.insert((2 * (step * pairs + turn_slot(step, pair)) + word) % 32);
      CHECK(banks.size() == 8);
    }
}

TEST_CASE("mamba3 fused: the inverse of an outer factor is finite, and its inverse the factor", "[mamba3]") {
  for (const float x : {1.0F, -3.0F, 0x1p-126F, -0x1p-120F, 0x1p120F}) CHECK(finite_inverse(x) == 1.0F / x);
  for (const float x : {0.0F, -0.0F, 0x1p-127F, std::numeric_limits<float>::denorm_min()})
    CHECK(1.0F / finite_inverse(x) <= 0x1p-127F);
}
