#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

namespace ssmbench::test {

/// A block whose threads come in an order of their own in each loop.
class ShuffledTeam {
 public:
  explicit ShuffledTeam(unsigned seed) : random_(seed) {}

  template <class Body>
  void for_all(int count, const Body& body) const {
    order_.resize(static_cast<std::size_t>(count));
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random_);
    const std::vector<int> order = order_;
    for (const int i : order) body(i);
  }

 private:
  mutable std::mt19937 random_;
  mutable std::vector<int> order_;
};

}  // namespace ssmbench::test
