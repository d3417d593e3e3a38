#pragma once

namespace ssmbench::mamba3_bwd {

/// A block's threads, as the Team of functions that it runs (prepare.h).
template <int kBlockThreads>
struct Threads {
  template <class Body>
  __device__ void for_all(int count, const Body& body) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlockThreads) body(i);
    __syncthreads();
  }
};

}  // namespace ssmbench::mamba3_bwd
