#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace ssmbench {

/// Vectors of zeros. Most of their time is the first touch of their memory, when the system clears each page: they
/// are in large pages where these can be had, which all threads touch.
class Zeros {
 public:
  /// Makes room for so many. The vector must stay where it is until fill(). Throws std::bad_alloc.
  template <class T>
  void add(std::vector<T>& vector, std::size_t count) {
    vector.reserve(count);
    touch_pages(vector.data(), count * sizeof(T));
    fills_.push_back([&vector, count] { vector.resize(count); });
  }
  /// All of them, side by side.
  void fill() const;

 private:
  static void touch_pages(void* memory, std::size_t bytes);

  std::vector<std::function<void()>> fills_;
};

template <class T>
std::vector<T> zeros(std::size_t count) {
  std::vector<T> all;
  Zeros one;
  one.add(all, count);
  one.fill();
  return all;
}

}  // namespace ssmbench
