// Slices of tensors that change places, between two launches of an implementation.
//
//   blockIdx.y: the pair
//   blockIdx.x, threadIdx.x: words x, x + threads of the row of blocks, …
//
// Words of 2 bytes: every dtype is a multiple of that, and in a layout with channels innermost a row of the
// slice is a single element.

#include <algorithm>
#include <cstdint>

#include "base/cuda_check.h"
#include "device/cuda/exchange.h"

namespace ssmbench {
namespace {

constexpr unsigned kExchangeThreads = 256;
constexpr unsigned kExchangeBlocks = 2048;  // per pair: several waves on any GPU
using Word = std::uint16_t;

__global__ void exchange_kernel(const ExchangeBatch batch) {
  const SlicePair pair = batch.pairs[blockIdx.y];
  const std::size_t width = pair.width / sizeof(Word);
  const std::size_t words = width * pair.rows;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * kExchangeThreads;
  for (std::size_t i = blockIdx.x * kExchangeThreads + threadIdx.x; i < words; i += step) {
    const std::size_t offset = i / width * (pair.pitch / sizeof(Word)) + i % width;
    Word* const first = static_cast<Word*>(pair.first) + offset;
    Word* const second = static_cast<Word*>(pair.second) + offset;
    const Word word = *first;
    *first = *second;
    *second = word;
  }
}

}  // namespace

void enqueue_exchange(const ExchangeBatch& batch, cudaStream_t stream) {
  std::size_t longest = 0;
  for (int i = 0; i < batch.count; ++i)
    longest = std::max(longest, batch.pairs[i].width / sizeof(Word) * batch.pairs[i].rows);
  const std::size_t blocks = (longest + kExchangeThreads - 1) / kExchangeThreads;
  if (blocks == 0) return;
  const dim3 grid(static_cast<unsigned>(std::min<std::size_t>(blocks, kExchangeBlocks)), batch.count);
  exchange_kernel<<<grid, kExchangeThreads, 0, stream>>>(batch);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
