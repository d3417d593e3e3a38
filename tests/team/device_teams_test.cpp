// Ranks that exchange memory of their devices: by copies through the host's, and by NCCL.

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "device/cpu.h"
#include "support/gpu.h"
#include "support/rank_threads.h"
#include "support/ranks.h"
#include "team/nccl_team.h"
#include "team/rank_links.h"
#include "team/staged_team.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void must_hold(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

float sent_by(int rank, std::size_t i) {
  return 1000.0F * static_cast<float>(rank) + static_cast<float>(i % 997);
}

/// Floats in a device's memory.
class Floats {
 public:
  Floats(Device& device, std::size_t count)
      : device_(device), count_(count), buffer_(device.allocate(count * sizeof(float))) {}
  float* data() const { return static_cast<float*>(buffer_.get()); }
  std::vector<float> values() const {
    std::vector<float> host(count_);
    device_.copy_out(host.data(), buffer_.get(), count_ * sizeof(float));
    return host;
  }

 private:
  Device& device_;
  std::size_t count_;
  Device::Buffer buffer_;
};

/// Every call, with `count` floats for each rank.
void exchange_floats(Device& device, Communicator& team, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(team.size());
  const auto own = static_cast<std::size_t>(team.rank());
  std::vector<float> values(count * ranks);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sent_by(team.rank(), i);
  const std::size_t bytes = count * sizeof(float);
  const Floats from(device, values.size());
  const Floats to(device, values.size());
  device.copy_in(from.data(), values.data(), values.size() * sizeof(float));
  const auto all_of = [&](const char* what, const auto& expected) {
    const auto found = to.values();
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < count; ++i)
        must_hold(found[rank * count + i] == expected(static_cast<int>(rank), i), what);
  };
  team.all_gather(from.data(), to.data(), bytes, device.stream());
  all_of("all_gather", [](int rank, std::size_t i) { return sent_by(rank, i); });
  team.all_to_all(from.data(), to.data(), bytes, device.stream());
  all_of("all_to_all", [&](int rank, std::size_t i) { return sent_by(rank, own * count + i); });
  team.all_reduce(from.data(), count, device.stream());
  const auto sums = from.values();
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < team.size(); ++rank) sum += sent_by(rank, i);
    must_hold(sums[i] == sum, "all_reduce");
  }
  if (own > 0) {  // from the first rank to the last
    team.receive(to.data(), bytes, team.rank() - 1, device.stream());
    must_hold(to.values().at(count - 1) == sent_by(team.rank() - 1, count - 1), "receive");
  }
  device.copy_in(from.data(), values.data(), bytes);
  if (own + 1 < ranks) team.send(from.data(), bytes, team.rank() + 1, device.stream());
  team.barrier();
  must_hold(team.agree(team.rank()) == team.size() - 1, "agree");
}

/// One piece, several, and a part of one.
const std::vector<std::size_t> kCounts{1, 5, 2 * StagedTeam::kPiece / sizeof(float) + 3};

}  // namespace

TEST_CASE("ranks exchange memory of their devices through that of the host") {
  for (const int ranks : {1, 2, 3})
    for (const auto& ending : run_ranks(ranks, [](Communicator& host) {
           const auto device = open_cpu();
           StagedTeam team(host, *device);
           for (const std::size_t count : kCounts) exchange_floats(*device, team, count);
         }))
      CHECK(ending == "");
}

TEST_CASE("ranks that share a GPU exchange its memory", "[gpu]") {
  if (!gpu_or_skip()) return;
  for (const int ranks : {1, 2, 3})
    CHECK(run_rank_threads(ranks, [](Communicator& host) {
            const auto device = open_device(DeviceKind::cuda);
            RankLinks links(host, *device, DataPath::host_memory);
            for (const std::size_t count : kCounts) exchange_floats(*device, links.of_device(), count);
          }) == "");
}

TEST_CASE("a rank by itself exchanges memory of its GPU by NCCL", "[gpu]") {
  if (!gpu_or_skip()) return;
  if (nccl_version().empty()) {
    WARN("there is no NCCL here");
    return;
  }
  CHECK(run_rank_threads(1, [](Communicator& host) {
          const auto device = open_device(DeviceKind::cuda);
          RankLinks links(host, *device, DataPath::nccl);
          for (const std::size_t count : kCounts) exchange_floats(*device, links.of_device(), count);
        }) == "");
}
