#include "kernels/distributed/local_scan.h"

#include <algorithm>
#include <cstring>

namespace ssmbench {

void HostScan::compare(const float* state, const float* kept, RerunProgress* progress, void* /*stream*/) {
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

}  // namespace ssmbench
