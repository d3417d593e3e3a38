#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace ssmbench {

/// Ten rounds of Philox4x32, through Random123. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
/// as easy as 1, 2, 3" (SC 2011), section 4.2.
std::array<std::uint32_t, 4> philox4x32_10(const std::array<std::uint32_t, 4>& counter,
                                           const std::array<std::uint32_t, 2>& key);

/// An endless sequence of random 32-bit words, any of which can be had without those before it.
/// Word i is word i mod 4 of Philox4x32-10 with the seed as its key and the counter (i div 4, FNV-1a of the
/// name), each as two words, low one first.
class Stream {
 public:
  Stream(std::int64_t seed, std::string_view name);

  /// Words first, first + 1, … of the stream; first ≥ 0.
  void words(std::int64_t first, std::span<std::uint32_t> out) const;
  /// Word w as (w + ½)/2³²: uniform on (0, 1), ends excluded.
  void uniforms(std::int64_t first, std::span<double> out) const;
  /// The normal quantile of each uniform: N(0, 1), within ±6.4.
  void normals(std::int64_t first, std::span<double> out) const;

 private:
  std::uint64_t seed_;
  std::uint64_t name_hash_;
};

}  // namespace ssmbench
