#include "verify/significand.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ssmbench {
namespace {

/// Bits of the significand of bf16, and of f16 and tf32.
constexpr std::array<int, 2> kBits{8, 11};
/// Fewer different numbers tell nothing.
constexpr double kLeast = 16;

/// What f32's significand has beyond so many bits, of 2^(24 − bits).
std::uint32_t rest_of(float number, int bits) {
  return std::bit_cast<std::uint32_t>(number) & ((1U << static_cast<unsigned>(24 - bits)) - 1);
}

/// At least a quarter as far from the nearest number of so many bits as any is: an implementation that adds
/// little to an exact state keeps its bits.
bool is_far(float number, int bits) {
  const std::uint32_t spacing = 1U << static_cast<unsigned>(24 - bits);
  const std::uint32_t rest = rest_of(number, bits);
  return std::min(rest, spacing - rest) >= spacing / 8;
}

/// Off by no more than a few roundings to so many bits: what cancellation leaves has few bits as well.
bool is_near(float number, float right, int bits) {
  return std::abs(number - right) <= std::ldexp(8.0F, -bits) * std::abs(right);
}

}  // namespace

void ShortNumbers::add(double got, double expected) {
  const auto number = static_cast<float>(got);
  const auto right = static_cast<float>(expected);
  if (!std::isnormal(number) || !std::isnormal(right)) return;
  for (std::size_t i = 0; i < formats_.size(); ++i) {
    if (!is_far(right, kBits.at(i)) || !is_near(number, right, kBits.at(i))) continue;
    Format& format = formats_.at(i);
    ++format.far;
    if (rest_of(number, kBits.at(i)) != 0) continue;
    ++format.fitting;
    format.distinct.add(got);
  }
}

void ShortNumbers::add(const ShortNumbers& part) {
  for (std::size_t i = 0; i < formats_.size(); ++i) {
    formats_.at(i).far += part.formats_.at(i).far;
    formats_.at(i).fitting += part.formats_.at(i).fitting;
    formats_.at(i).distinct.add(part.formats_.at(i).distinct);
  }
}

std::optional<int> ShortNumbers::bits(double claimed) const {
  for (std::size_t i = 0; i < formats_.size(); ++i) {
    const Format& format = formats_.at(i);
    const bool is_claimed = std::ldexp(1.0, -kBits.at(i)) <= claimed;
    if (!is_claimed && 16 * format.fitting > 15 * format.far && format.distinct.count() >= kLeast)
      return kBits.at(i);
  }
  return {};
}

}  // namespace ssmbench
