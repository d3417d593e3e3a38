#include "team/counted_team.h"

#include <algorithm>

namespace ssmbench {

void CountedTeam::all_gather(const void* from, void* to, std::size_t bytes, void* stream) {
  calls_.push_back({What::all_gather, bytes});
  team_.all_gather(from, to, bytes, stream);
}

void CountedTeam::all_reduce(float* values, std::size_t count, void* stream) {
  calls_.push_back({What::all_reduce, count * sizeof(float)});
  team_.all_reduce(values, count, stream);
}

void CountedTeam::all_to_all(const void* from, void* to, std::size_t bytes, void* stream) {
  calls_.push_back({What::all_to_all, bytes});
  team_.all_to_all(from, to, bytes, stream);
}

void CountedTeam::send(const void* from, std::size_t bytes, int to, void* stream) {
  calls_.push_back({What::send, bytes, to});
  team_.send(from, bytes, to, stream);
}

void CountedTeam::receive(void* to, std::size_t bytes, int from, void* stream) {
  calls_.push_back({What::receive, bytes, from});
  team_.receive(to, bytes, from, stream);
}

double CountedTeam::wire_bytes() const {
  const double ranks = size();
  double sum = 0;
  for (const auto& call : calls_) {
    const auto bytes = static_cast<double>(call.bytes);
    if (call.what == What::all_gather || call.what == What::all_to_all) sum += (ranks - 1) * bytes;
    if (call.what == What::all_reduce) sum += 2 * (ranks - 1) / ranks * bytes;
    if (call.what == What::send) sum += bytes;
  }
  return sum;
}

void CountedTeam::replay(void* stream) {
  std::size_t most = 0;
  for (const auto& call : calls_) most = std::max(most, call.bytes * static_cast<std::size_t>(size()));
  if (most > bytes_) {
    from_ = device_.allocate(most);
    to_ = device_.allocate(most);
    bytes_ = most;
    device_.fill(from_.get(), 0, most);
  }
  for (const auto& [what, bytes, peer] : calls_) {
    switch (what) {
      case What::all_gather:
        team_.all_gather(from_.get(), to_.get(), bytes, stream);
        break;
      case What::all_reduce:
        team_.all_reduce(static_cast<float*>(from_.get()), bytes / sizeof(float), stream);
        break;
      case What::all_to_all:
        team_.all_to_all(from_.get(), to_.get(), bytes, stream);
        break;
      case What::send:
        team_.send(from_.get(), bytes, peer, stream);
        break;
      case What::receive:
        team_.receive(to_.get(), bytes, peer, stream);
    }
  }
}

}  // namespace ssmbench
