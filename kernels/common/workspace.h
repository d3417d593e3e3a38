#pragma once

#include <cstdint>

#include "kernels/common/index_math.h"

namespace ssmbench {

/// Lays the parts of a workspace out one after the other, in floats, each on a 256-byte line.
class WorkspaceLayout {
 public:
  /// Where a part of `floats` begins; 0 floats take no room.
  constexpr std::int64_t take(std::int64_t floats) {
    constexpr std::int64_t kLine = 64;
    const std::int64_t begin = end_;
    end_ += ceil_div(floats, kLine) * kLine;
    return begin;
  }
  constexpr std::int64_t floats() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

}  // namespace ssmbench
