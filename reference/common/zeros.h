#pragma once

#include <cstddef>
#include <vector>

namespace ssmbench {

/// Asks the system to back memory that has not been touched yet with large pages.
void prefer_large_pages(void* memory, std::size_t bytes);

/// In large pages where they can be had: most of the time that many zeros take is the first touch of their
/// pages.
template <class T>
std::vector<T> zeros(std::size_t count) {
  std::vector<T> all;
  all.reserve(count);
  prefer_large_pages(all.data(), count * sizeof(T));
  all.resize(count);
  return all;
}

}  // namespace ssmbench
