#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ssmbench::test {

using Floats = std::vector<float>;

/// All states h_t = a_t·h_{t−1} + b_t of a row, in f32.
using Order = std::function<Floats(const Floats& a, const Floats& b)>;

inline Floats in_sequence(const Floats& a, const Floats& b) {
  Floats h(a.size());
  float state = 0;
  for (std::size_t t = 0; t < h.size(); ++t) h[t] = state = a[t] * state + b[t];
  return h;
}

/// Chunks from a state of 0, and what they inherit by products of decays.
inline Floats in_chunks(const Floats& a, const Floats& b) {
  constexpr std::size_t kChunk = 256;
  Floats h(a.size());
  float carry = 0;
  for (std::size_t first = 0; first < h.size(); first += kChunk) {
    float state = 0;
    float decay = 1;
    for (std::size_t t = first; t < first + kChunk; ++t) {
      state = a[t] * state + b[t];
      decay *= a[t];
      h[t] = state + decay * carry;
    }
    carry = h[first + kChunk - 1];
  }
  return h;
}

/// Kogge and Stone's scan of pairs.
inline Floats in_a_tree(const Floats& a, const Floats& b) {
  Floats decay = a;
  Floats h = b;
  for (std::size_t reach = 1; reach < h.size(); reach *= 2)
    for (std::size_t t = h.size(); t-- > reach;) {
      h[t] = decay[t] * h[t - reach] + h[t];
      decay[t] *= decay[t - reach];
    }
  return h;
}

inline float to_nearest(double x) {
  return static_cast<float>(x);
}
inline float toward_zero(double x) {
  const auto nearest = static_cast<float>(x);
  return static_cast<double>(nearest) > x ? std::nextafter(nearest, 0.0F) : nearest;
}

/// As ex2.approx: 2 roundoffs off at most, and a third of one too small in the mean.
inline float approximate(double x) {
  const double draw =
      static_cast<double>(std::bit_cast<std::uint64_t>(x) * 0x9E3779B97F4A7C15U >> 40) * 0x1p-24;
  return static_cast<float>(x * (1 + 0x1p-24 * (1.67 * (2 * draw - 1) - 0.33)));
}

}  // namespace ssmbench::test
