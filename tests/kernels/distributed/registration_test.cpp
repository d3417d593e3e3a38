#include <algorithm>
#include <stdexcept>
#include <utility>

#include "catch.h"
#include "model/distributed.h"
#include "model/operation.h"

using namespace ssmbench;

TEST_CASE("the registry of distributed implementations is ordered, and every entry says who it is") {
  const auto& all = distributed_implementations();
  CHECK(all.size() == 20);  // scan and SSD: six ways forward, four of gradients
  CHECK(std::ranges::is_sorted(all, {},
                               [](const DistributedImplementation& i) { return std::pair(i.op, i.name); }));
  for (const auto& implementation : all) {
    INFO(implementation.name);
    CHECK(find_op(implementation.op) != nullptr);
    CHECK_FALSE(implementation.summary.empty());
    CHECK(implementation.name.starts_with(std::string(name_of(implementation.device)) + "-"));
  }
  const DistributedImplementation copy = all.front();
  CHECK_THROWS_AS(DistributedRegistration(copy), std::logic_error);
}
