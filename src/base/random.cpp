#include "base/random.h"

#include <Random123/philox.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/fnv1a.h"
#include "base/portable_math.h"

namespace ssmbench {
namespace {

// Words are drawn and transformed this many at a time: a buffer that stays in the first-level cache.
constexpr std::size_t kBlock = 1024;
constexpr std::size_t kWordsPerCall = 4;

std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32U);
}

/// (word + ½)/2³² − ½, exact; by way of a signed integer, which every SIMD unit converts to double.
double centred(std::uint32_t word) {
  return (static_cast<double>(std::bit_cast<std::int32_t>(word ^ 0x80000000U)) + 0.5) * 0x1p-32;
}

// The normal quantile at ½ + q. Source: Wichura, "Algorithm AS 241: The percentage points of the normal
// distribution", Applied Statistics 37 (1988), PPND7: relative error about 1e-7, the resolution of f32. Its
// third region starts at a tail of e^-25 = 1.4e-11, which 32-bit words (tail ≥ 2^-33) never reach.
constexpr double kCentralHalfWidth = 0.425;

double central_quantile(double q) {
  const double r = kCentralHalfWidth * kCentralHalfWidth - q * q;
  const double numerator =
      ((5.9109374720e+01 * r + 1.5929113202e+02) * r + 5.0434271938e+01) * r + 3.3871327179e+00;
  const double denominator = ((6.7187563600e+01 * r + 7.8757757664e+01) * r + 1.7895169469e+01) * r + 1.0;
  return q * numerator / denominator;
}

double tail_quantile(double q) {
  const double r = std::sqrt(-portable::log(0.5 - std::fabs(q))) - 1.6;
  const double numerator =
      ((1.7023821103e-01 * r + 1.3067284816e+00) * r + 2.7568153900e+00) * r + 1.4234372777e+00;
  const double denominator = (1.2021132975e-01 * r + 7.3700164250e-01) * r + 1.0;
  return std::copysign(numerator / denominator, q);
}

/// Calls transform(words, values) on consecutive pieces of `out`.
template <class Transform>
void in_blocks(const Stream& stream, std::int64_t first, std::span<double> out, const Transform& transform) {
  std::array<std::uint32_t, kBlock> words;
  for (std::size_t done = 0; done < out.size(); done += kBlock) {
    const std::size_t count = std::min(kBlock, out.size() - done);
    stream.words(first + static_cast<std::int64_t>(done), {words.data(), count});
    transform(std::span<const std::uint32_t>(words.data(), count), out.subspan(done, count));
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(const std::array<std::uint32_t, 4>& counter,
                                           const std::array<std::uint32_t, 2>& key) {
  const auto result =
      r123::Philox4x32_R<10>()({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
  return {result[0], result[1], result[2], result[3]};
}

Stream::Stream(std::int64_t seed, std::string_view name)
    : seed_(std::bit_cast<std::uint64_t>(seed)), name_hash_(fnv1a(name)) {}

void Stream::words(std::int64_t first, std::span<std::uint32_t> out) const {
  const std::array<std::uint32_t, 2> key{low(seed_), high(seed_)};
  const auto call = [&](std::uint64_t block) {
    return philox4x32_10({low(block), high(block), low(name_hash_), high(name_hash_)}, key);
  };
  auto block = static_cast<std::uint64_t>(first) / kWordsPerCall;
  auto skipped = static_cast<std::size_t>(first) % kWordsPerCall;
  std::size_t at = 0;
  if (skipped != 0) {  // a range that starts inside a call
    const auto four = call(block++);
    while (skipped < kWordsPerCall && at < out.size()) out[at++] = four[skipped++];
  }
  for (; at + kWordsPerCall <= out.size(); at += kWordsPerCall) {
    const auto four = call(block++);
    std::copy_n(four.begin(), kWordsPerCall, out.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (at < out.size()) {
    const auto four = call(block);
    for (std::size_t i = 0; at < out.size(); ++i) out[at++] = four[i];
  }
}

void Stream::uniforms(std::int64_t first, std::span<double> out) const {
  in_blocks(*this, first, out, [](std::span<const std::uint32_t> words, std::span<double> values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5 + centred(words[i]);
  });
}

void Stream::normals(std::int64_t first, std::span<double> out) const {
  in_blocks(*this, first, out, [](std::span<const std::uint32_t> words, std::span<double> values) {
    // Two passes: the first has no branch and vectorises, the second corrects the 15% in the tails.
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = central_quantile(centred(words[i]));
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const double q = centred(words[i]); std::fabs(q) > kCentralHalfWidth) values[i] = tail_quantile(q);
  });
}

}  // namespace ssmbench
