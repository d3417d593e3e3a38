// The index maps of cuda-hopper's fused MIMO scan, against the fragments of its products.

#include <set>

#include "catch.h"
#include "kernels/mamba3/hopper/fused/layout.h"

using namespace ssmbench::mamba3_fused;

TEST_CASE("mamba3 fused: a lane finds the columns of its fragments of its rank in one vector", "[mamba3]") {
  std::set<int> slots;
  for (int rank = 0; rank < kRank; ++rank)
    for (int column = 0; column < kStates; ++column) slots.insert(fragment_slot(rank, column));
  CHECK((std::ssize(slots) == kRank * kStates && *slots.rbegin() == kRank * kStates - 1));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < kStates / 16; ++i) {
      const int rank = lane / 4 % kRank;  // of row lane / 4, and of that 8 on
      const int first = 16 * i + lane % 4 * 2;
      const int vector = 16 * i + lane % 16;
      int place = 0;
      for (const int column : {first, first + 1, first + 8, first + 9})
        CHECK(fragment_slot(rank, column) == 4 * vector + place++);
    }
}

TEST_CASE("mamba3 fused: a lane finds the steps of its columns of a product side by side", "[mamba3]") {
  std::set<int> slots;
  for (int step = 0; step < kSteps; ++step) slots.insert(slot_of_step(step));
  CHECK((std::ssize(slots) == kSteps && *slots.rbegin() == kSteps - 1));
  for (int lane = 0; lane < 4; ++lane)
    for (int j = 0; j < kRows / 8; ++j) {
      const int column = 8 * j + 2 * lane;
      CHECK(column / kRank == (column + 1) / kRank);
      CHECK(slot_of_step(column / kRank) == lane / 2 * (kSteps / 2) + j);
    }
}

TEST_CASE(
    "mamba3 fused: eight head dims of a rank are a vector of words, and lanes' vectors are side by side",
    "[mamba3]") {
  std::set<int> slots;
  for (int rank = 0; rank < kRank; ++rank)
    for (int part = 0; part < 2; ++part)
      for (int word = 0; word < kHeaddim / 2; ++word) {
        slots.insert(word_slot(rank, part, word));
        CHECK(word_slot(rank, part, word) ==
              word_slot(rank, part, 0) + word / 4 * 4 + word % 4);  // lane word / 4 has all of a vector
      }
  CHECK((std::ssize(slots) == kRank * kHeaddim && *slots.rbegin() == kRank * kHeaddim - 1));
}

TEST_CASE("mamba3 fused: eight f32 factors of a rank are two vectors, and lanes' vectors are side by side",
          "[mamba3]") {
  std::set<int> slots;
  for (int rank = 0; rank < kRank; ++rank)
    for (int p = 0; p < kHeaddim; ++p) {
      slots.insert(float_slot(rank, p));
      const int half = p % 8 / 4;
      CHECK(float_slot(rank, p) == word_slot(rank, half, p / 8 * 4 + p % 4));
    }
  CHECK((std::ssize(slots) == kRank * kHeaddim && *slots.rbegin() == kRank * kHeaddim - 1));
}
