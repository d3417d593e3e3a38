// Digests of device memory, read where it lies.
//
//   blockIdx.y: the span
//   blockIdx.x, threadIdx.x: words x, x + threads of the row of blocks, …
//
// Integer sums have one result in any order, so that warps add theirs to the span's by atomics.

#include "device/cuda/digest.h"

#include <algorithm>

#include "base/cuda_check.h"

namespace ssmbench {
namespace {

constexpr unsigned kDigestThreads = 256;
constexpr unsigned kDigestBlocks = 2048;  // per span: several waves on any GPU
constexpr std::size_t kWord = sizeof(std::uint64_t);

/// The span's word at `i`, filled up with zeros beyond its end.
__device__ std::uint64_t word_at(const MemorySpan& span, std::size_t i) {
  const auto* const at = static_cast<const unsigned char*>(span.data) + i * kWord;
  const std::size_t left = span.bytes - i * kWord;
  if (left >= kWord && reinterpret_cast<std::uintptr_t>(at) % kWord == 0)
    return *reinterpret_cast<const std::uint64_t*>(at);
  std::uint64_t word = 0;
  for (unsigned byte = 0; byte < kWord && byte < left; ++byte)
    word |= static_cast<std::uint64_t>(at[byte]) << (8 * byte);
  return word;
}

__global__ void digest_kernel(const DigestBatch batch, unsigned long long* sums) {
  const MemorySpan span = batch.spans[blockIdx.y];
  const std::size_t words = (span.bytes + kWord - 1) / kWord;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * kDigestThreads;
  unsigned long long sum = 0;
  for (std::size_t i = blockIdx.x * kDigestThreads + threadIdx.x; i < words; i += step)
    sum += digest_of_word(word_at(span, i), i);
  for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
  if (threadIdx.x % warpSize == 0 && sum != 0) atomicAdd(sums + blockIdx.y, sum);
}

__global__ void delay_kernel(std::uint64_t nanoseconds) {
  const auto now = [] {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const std::uint64_t start = now();
  while (now() - start < nanoseconds) __nanosleep(1000);
}

}  // namespace

void enqueue_digests(const DigestBatch& batch, unsigned long long* sums, cudaStream_t stream) {
  std::size_t longest = 0;
  for (int i = 0; i < batch.count; ++i) longest = std::max(longest, batch.spans[i].bytes);
  const std::size_t blocks = (longest / kWord + kDigestThreads) / kDigestThreads;
  const dim3 grid(static_cast<unsigned>(std::min<std::size_t>(blocks, kDigestBlocks)), batch.count);
  digest_kernel<<<grid, kDigestThreads, 0, stream>>>(batch, sums);
  check_cuda(cudaGetLastError());
}

void enqueue_delay(unsigned microseconds, cudaStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(std::uint64_t{microseconds} * 1000);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
