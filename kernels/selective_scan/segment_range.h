#pragma once

#include <cstdint>

namespace ssmbench {

/// Steps [begin, end) of a segment of time, or of several.
struct SegmentRange {
  std::int64_t begin, end;
};

}  // namespace ssmbench
