#include "team/link_ceilings.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace ssmbench {
namespace {

constexpr std::size_t kSmall = 8;
constexpr std::size_t kLarge = std::size_t{1} << 28;
constexpr int kWarmUps = 3;
constexpr int kSmallSamples = 101;  // odd
constexpr int kLargeSamples = 11;

/// The median of what the slowest rank takes, ms.
double median_ms(RankLinks& links, int samples, const std::function<void()>& call) {
  std::vector<double> ms;
  for (int i = 0; i < kWarmUps + samples; ++i) {
    const double slowest = links.of_host().agree(links.time_together(call, kQueuedMs).ms);
    if (i >= kWarmUps) ms.push_back(slowest);
  }
  std::ranges::nth_element(ms, ms.begin() + samples / 2);
  return ms[static_cast<std::size_t>(samples / 2)];
}

}  // namespace

LinkCeilings measure_links(RankLinks& links) {
  Device& device = links.device();
  Communicator& team = links.of_device();
  const auto ranks = static_cast<std::size_t>(team.size());
  const Device::Buffer from = device.allocate(kLarge);
  const Device::Buffer to = device.allocate(kLarge * ranks);
  device.fill(from.get(), 0, kLarge);
  device.fill(to.get(), 0, kLarge * ranks);
  const auto gather = [&](std::size_t bytes) {
    return [&, bytes] { team.all_gather(from.get(), to.get(), bytes, device.stream()); };
  };
  const std::size_t message = kLarge / ranks;
  const auto exchange = [&] { team.all_to_all(from.get(), to.get(), message, device.stream()); };
  const auto rate = [&](std::size_t bytes, double ms) {
    return static_cast<double>(bytes * (ranks - 1)) / ms * 1e3;
  };
  return {.latency_ms = median_ms(links, kSmallSamples, gather(kSmall)),
          .gather_bytes = rate(kLarge, median_ms(links, kLargeSamples, gather(kLarge))),
          .all_to_all_bytes = rate(message, median_ms(links, kLargeSamples, exchange))};
}

}  // namespace ssmbench
