#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ssmbench {

/// A matrix for SIMD loops: rows begin at cache lines and end in zeros up to a multiple of 32 numbers.
template <class T>
class PaddedRows {
 public:
  PaddedRows(std::int64_t rows, std::int64_t columns)
      : stride_(padded(columns)), lines_(static_cast<std::size_t>(rows * stride_ / kLine)) {}

  static constexpr std::int64_t padded(std::int64_t columns) {
    return (columns + kPadding - 1) / kPadding * kPadding;
  }
  std::int64_t stride() const { return stride_; }
  T* data() { return lines_.empty() ? nullptr : lines_.front().numbers; }
  const T* data() const { return lines_.empty() ? nullptr : lines_.front().numbers; }
  T* row(std::int64_t i) { return data() + i * stride_; }
  const T* row(std::int64_t i) const { return data() + i * stride_; }
  void clear() { std::ranges::fill(lines_, Line{}); }

 private:
  static constexpr std::int64_t kPadding = 32;
  static constexpr std::int64_t kLine = 64 / sizeof(T);
  struct alignas(64) Line {
    T numbers[kLine] = {};
  };

  std::int64_t stride_;
  std::vector<Line> lines_;
};

}  // namespace ssmbench
