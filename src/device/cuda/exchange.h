#pragma once

#include <cuda_runtime_api.h>

#include "device/slices.h"

namespace ssmbench {

/// Pairs that one launch exchanges; passed by value, well under the 4 KB that kernels' parameters may take.
struct ExchangeBatch {
  static constexpr int kCapacity = 64;
  int count = 0;
  SlicePair pairs[kCapacity];
};

/// The slices of each pair, in device memory, change places.
void enqueue_exchange(const ExchangeBatch& batch, cudaStream_t stream);

}  // namespace ssmbench
