#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/index_math.h"

namespace ssmbench {

/// Lays the arrays of a workspace out one after the other, each on a 256-byte line.
class WorkspaceLayout {
 public:
  /// Where an array begins, in bytes; one without elements takes no room.
  constexpr std::size_t take(std::int64_t elements, std::size_t element_bytes) {
    constexpr std::int64_t kLine = 256;
    const std::int64_t begin = bytes_;
    bytes_ += ceil_div(elements * static_cast<std::int64_t>(element_bytes), kLine) * kLine;
    return static_cast<std::size_t>(begin);
  }
  /// The same of floats, in floats.
  constexpr std::int64_t take_floats(std::int64_t floats) {
    return static_cast<std::int64_t>(take(floats, sizeof(float)) / sizeof(float));
  }
  constexpr std::size_t bytes() const { return static_cast<std::size_t>(bytes_); }
  constexpr std::int64_t floats() const { return bytes_ / static_cast<std::int64_t>(sizeof(float)); }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace ssmbench
