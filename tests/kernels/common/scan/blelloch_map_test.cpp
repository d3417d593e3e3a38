#include "kernels/common/scan/blelloch_map.h"

#include <algorithm>
#include <set>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

/// A run of neighbouring steps, the map of which it stands for: joining two that are not neighbours, or in
/// the wrong order, is a mistake that numbers could hide.
struct Run {
  int first, end;
  bool operator==(const Run&) const = default;
};

Run join(Run left, Run right) {
  REQUIRE(left.end == right.first);
  return {left.first, right.end};
}

/// The nodes that threads of one phase touch; none may be touched twice.
void check_disjoint(int threads, int stride, int tile) {
  std::set<int> nodes;
  for (int thread = 0; thread < threads; ++thread) {
    const auto [left, right] = blelloch_pair(thread, stride);
    REQUIRE(left >= 0);
    REQUIRE(right < tile);
    REQUIRE(nodes.insert(left).second);
    REQUIRE(nodes.insert(right).second);
  }
}

}  // namespace

TEST_CASE("the up and down sweep give each step what is before it, in order") {
  // The smallest tree; one of a few levels; the tiles of linear_scan and of selective_scan_fwd.
  for (const int tile : {2, 8, 128, 256}) {
    const int threads = tile / 2;
    std::vector<Run> tree;
    for (int i = 0; i < tile; ++i) tree.push_back({i, i + 1});
    for (int stride = 1; stride <= threads; stride *= 2) {
      check_disjoint(threads / stride, stride, tile);
      for (int thread = 0; thread < threads / stride; ++thread) {
        const auto [left, right] = blelloch_pair(thread, stride);
        tree[right] = join(tree[left], tree[right]);
      }
    }
    CHECK(tree[tile - 1] == Run{0, tile});
    tree[tile - 1] = {-1, 0};  // the state that enters
    for (int stride = threads; stride >= 1; stride /= 2)
      for (int thread = 0; thread < threads / stride; ++thread) {
        const auto [left, right] = blelloch_pair(thread, stride);
        const Run parent = tree[right];
        tree[right] = join(parent, tree[left]);
        tree[left] = parent;
      }
    for (int i = 0; i < tile; ++i) CHECK(tree[i] == Run{-1, i});
  }
}

TEST_CASE("padded slots are distinct, and a level of the tree spreads over banks") {
  std::set<int> slots;
  for (int i = 0; i < 256; ++i) {
    CHECK(padded_index(i) < padded_index(256));
    slots.insert(padded_index(i));
  }
  CHECK(slots.size() == 256);
  // Without padding the eight pairs at stride 16 all lie in one bank of 32.
  std::set<int> banks;
  for (int thread = 0; thread < 8; ++thread) banks.insert(padded_index(blelloch_pair(thread, 16).right) % 32);
  CHECK(banks.size() == 8);
}
