#include "kernels/common/scan/lookback_map.h"

#include <map>
#include <utility>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("tickets cover every tile once, each after all that it waits for") {
  for (const std::int64_t rows : {1, 2, 7})
    for (const std::int64_t tiles : {1, 2, 5}) {
      std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> ticket_of;
      for (std::int64_t ticket = 0; ticket < rows * tiles; ++ticket) {
        const auto [tile, row] = lookback_tile(ticket, rows);
        REQUIRE(row >= 0);
        REQUIRE(row < rows);
        REQUIRE(ticket_of.emplace(std::pair(tile, row), ticket).second);
      }
      for (const auto& [tile, ticket] : ticket_of)
        for (std::int64_t earlier = 0; earlier < tile.first; ++earlier)
          CHECK(ticket_of.at({earlier, tile.second}) < ticket);
    }
}

TEST_CASE("look-back tiles keep 64 bits") {
  CHECK(lookback_tile(2147483646, 1).tile == 2147483646);
  CHECK(lookback_tile(2147483646, 2147483647).row == 2147483646);
}
