#include "kernels/distributed/local_scan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

namespace ssmbench {

void HostScan::compare(const float* state, const float* kept, RerunProgress* progress, void* /*stream*/) {
  if (progress->done != 0) return;
  ++progress->ranges;
  const auto bytes = static_cast<std::size_t>(sizes().state_floats) * sizeof(float);
  if (std::memcmp(state, kept, bytes) == 0) progress->done = 1;  // NaN too: bits, not values
}

void HostScan::copy_state(const float* from, float* to, void* /*stream*/) {
  if (from == nullptr)
    std::fill_n(to, sizes().state_floats, 0.0F);
  else
    std::copy_n(from, sizes().state_floats, to);
}

void HostScan::begin_second_pass(const float* state, RerunProgress* progress) const {
  const std::span all(state, static_cast<std::size_t>(sizes().state_floats));
  const bool zeros = std::ranges::all_of(all, [](float x) { return std::bit_cast<std::uint32_t>(x) == 0; });
  *progress = {.done = zeros ? 1 : 0, .ranges = 0, .differ = 0};
}

}  // namespace ssmbench
