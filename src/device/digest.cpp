#include "device/digest.h"

#include <algorithm>
#include <cstring>

namespace ssmbench {

std::uint64_t digest(const MemorySpan& span) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  // Waking up other threads takes as long as reading a few hundred KB.
  constexpr std::int64_t kWordsWorthThreads = 1 << 16;
  const auto* const bytes = static_cast<const std::byte*>(span.data);
  const auto words = static_cast<std::int64_t>(span.bytes / kWord);
  std::uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (words > kWordsWorthThreads)
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * kWord, kWord);
    sum += digest_of_word(word, i);
  }
  if (const std::size_t rest = span.bytes % kWord; rest > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + words * kWord, rest);
    sum += digest_of_word(word, words);
  }
  return sum;
}

}  // namespace ssmbench
