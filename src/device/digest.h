#pragma once

#include <cstddef>
#include <cstdint>

namespace ssmbench {

/// Bytes in host or device memory, at any address.
struct MemorySpan {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// Each word of a span contributes to its digest by itself, so that words can be summed in any order.
/// Bijective in `word` (the finalizer of MurmurHash3, Appleby 2011): one changed word always changes the sum,
/// several leave it as it was once in 2^64.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline std::uint64_t
    digest_of_word(std::uint64_t word, std::uint64_t position) {
  std::uint64_t mixed = word + position * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 33)) * 0xFF51AFD7ED558CCDU;
  mixed = (mixed ^ (mixed >> 33)) * 0xC4CEB9FE1A85EC53U;
  return mixed ^ (mixed >> 33);
}

/// Sum of digest_of_word over the span's words of 8 bytes, the last one filled up with zeros, modulo 2^64.
/// The digest of host memory, on all cores.
std::uint64_t digest(const MemorySpan& span);

}  // namespace ssmbench
