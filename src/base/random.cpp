#include "base/random.h"

#include <Random123/philox.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/fnv1a.h"
#include "base/random_lanes.h"

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
  const std::size_t calls = (out.size() - at) / kWordsPerCall;
  philox_calls(key, name_hash_, block, calls, out.data() + at);
  block += calls;
  at += calls * kWordsPerCall;
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
    normal_quantiles(words.data(), words.size(), values.data());
  });
}

}  // namespace ssmbench
