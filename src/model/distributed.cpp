#include "model/distributed.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

namespace ssmbench {
namespace {

std::vector<DistributedImplementation>& distributed_registry() {
  static std::vector<DistributedImplementation> all;
  return all;
}

std::size_t largest_workspace(const DistributedImplementation& implementation, const Problem& whole,
                              int ranks) {
  std::size_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank)
    bytes = std::max(bytes, implementation.workspace_bytes(whole, rank, ranks));
  return bytes;
}

}  // namespace

const std::vector<DistributedImplementation>& distributed_implementations() {
  return distributed_registry();
}

const DistributedImplementation* distributed_implementation(const std::string& op, const std::string& name) {
  const auto found = std::ranges::find_if(distributed_registry(), [&](const DistributedImplementation& each) {
    return each.op == op && each.name == name;
  });
  return found == distributed_registry().end() ? nullptr : &*found;
}

const std::vector<Implementation>& team_implementations(int ranks) {
  static std::map<int, std::vector<Implementation>> known;
  const auto [place, is_new] = known.try_emplace(ranks);
  if (!is_new) return place->second;
  for (const auto& each : distributed_registry())
    place->second.push_back(
        {.name = each.name,
         .op = each.op,
         .device = each.device,
         .summary = each.summary,
         .arithmetic = each.arithmetic,
         .unsupported = [&each, ranks](const Problem& whole) { return each.unsupported(whole, ranks); },
         .workspace_bytes = [&each,
                             ranks](const Problem& whole) { return largest_workspace(each, whole, ranks); },
         .bind = [](const Problem& /*whole*/, const TensorSet& /*tensors*/, void* /*workspace*/) -> Launch {
           throw std::logic_error("bound on a device of one rank");
         }});
  return place->second;
}

std::size_t bytes_of_rank(const DistributedImplementation& implementation, const Problem& whole, int rank,
                          int ranks) {
  const Box box = implementation.box(whole, rank, ranks);
  std::size_t bytes = implementation.workspace_bytes(whole, rank, ranks);
  for (const auto& spec : whole.tensors()) bytes += part_of(spec, box).bytes();
  return bytes;
}

std::size_t bytes_of_ranks(const DistributedImplementation& implementation, const Problem& whole, int ranks) {
  std::size_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) bytes += bytes_of_rank(implementation, whole, rank, ranks);
  return bytes;
}

DistributedRegistration::DistributedRegistration(DistributedImplementation implementation) {
  auto& all = distributed_registry();
  const auto key = [](const DistributedImplementation& i) { return std::tie(i.op, i.name); };
  const auto place = std::ranges::lower_bound(all, key(implementation), std::less<>(), key);
  if (place != all.end() && key(*place) == key(implementation))
    throw std::logic_error(
        fmt::format("{} is registered twice for {}", implementation.name, implementation.op));
  all.insert(place, std::move(implementation));
}

}  // namespace ssmbench
