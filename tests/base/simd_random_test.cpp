#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/random_lanes.h"
#include "catch.h"
#include "support/simd_targets.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("words and normals have the same bits with every SIMD instruction set") {
  constexpr std::size_t kCalls = 301;  // no multiple of any width
  constexpr std::uint64_t kName = 0xcbf29ce484222325;
  constexpr std::uint64_t kFirst = 0xfffffff0;  // counters pass 32 bits
  std::vector<std::uint32_t> expected;
  for (std::uint64_t call = kFirst; call < kFirst + kCalls; ++call) {
    const auto four =
        philox4x32_10({static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32U),
                       static_cast<std::uint32_t>(kName), static_cast<std::uint32_t>(kName >> 32U)},
                      {0x9abcdef0, 0x12345678});
    expected.insert(expected.end(), four.begin(), four.end());
  }
  for (const std::uint32_t edge : {0x0U, 0x13333333U, 0x13333334U, 0xeccccccbU, 0xeccccccdU, 0xffffffffU})
    expected.push_back(edge);  // the smallest and largest, and where tails begin
  std::vector<double> first;
  on_every_target([&](const char* target) {
    INFO(target);
    std::vector<std::uint32_t> words(4 * kCalls);
    philox_calls({0x9abcdef0, 0x12345678}, kName, kFirst, kCalls, words.data());
    CHECK(std::equal(words.begin(), words.end(), expected.begin()));
    std::vector<double> values(expected.size());
    normal_quantiles(expected.data(), expected.size(), values.data());
    if (first.empty()) first = values;
    CHECK(values == first);
  });
}
