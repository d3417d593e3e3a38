#include "model/distributed.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

namespace ssmbench {
namespace {

std::vector<DistributedImplementation>& registry() {
  static std::vector<DistributedImplementation> all;
  return all;
}

}  // namespace

const std::vector<DistributedImplementation>& distributed_implementations() {
  return registry();
}

DistributedRegistration::DistributedRegistration(DistributedImplementation implementation) {
  auto& all = registry();
  const auto key = [](const DistributedImplementation& i) { return std::tie(i.op, i.name); };
  const auto place = std::ranges::lower_bound(all, key(implementation), std::less<>(), key);
  if (place != all.end() && key(*place) == key(implementation))
    throw std::logic_error(
        fmt::format("{} is registered twice for {}", implementation.name, implementation.op));
  all.insert(place, std::move(implementation));
}

}  // namespace ssmbench
