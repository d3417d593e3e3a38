#pragma once

#include <cuda_runtime_api.h>

#include "device/digest.h"

namespace ssmbench {

/// Spans that one launch digests; passed by value, well under the 4 KB that kernels' parameters may take.
struct DigestBatch {
  static constexpr int kCapacity = 64;
  int count = 0;
  MemorySpan spans[kCapacity];
};

/// Adds the digest (device/digest.h) of span i, in device memory, to sums[i], in device memory too.
void enqueue_digests(const DigestBatch& batch, unsigned long long* sums, cudaStream_t stream);

/// Keeps the stream busy for that long, on one thread.
void enqueue_delay(unsigned microseconds, cudaStream_t stream);

}  // namespace ssmbench
