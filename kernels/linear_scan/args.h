#pragma once

#include <cstdint>

namespace ssmbench {

/// linear_scan as every implementation takes it: (batch, seqlen, dim) in the io dtype, dim innermost.
struct LinearScanArgs {
  std::int64_t batch, seqlen, dim;
  const void* a;
  const void* b;
  void* out;
};

}  // namespace ssmbench
