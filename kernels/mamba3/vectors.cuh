#pragma once

// What Mamba-3's CUDA kernels share: where a head finds its tensors, and Q and K with their biases, rotated.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/io_types.cuh"
#include "kernels/mamba3/args.h"
#include "kernels/mamba3/phase.h"

namespace ssmbench::mamba3 {

/// One head of one sequence.
struct HeadAt {
  std::int64_t index, batch, head;  ///< index: of its states

  __device__ std::int64_t step(const Mamba3& scan, std::int64_t t) const {
    return (batch * scan.seqlen + t) * scan.nheads + head;
  }
  __device__ std::int64_t scalar(const Mamba3& scan, std::int64_t t) const {
    return (batch * scan.nheads + head) * scan.seqlen + t;
  }
  __device__ std::int64_t state(const Mamba3& scan) const { return index * scan.nheads + head; }
  __device__ std::int64_t k_state(const Mamba3& scan, int r) const {
    return ((index * scan.rank + r) * scan.nheads + head) * scan.dstate;
  }
  /// Row r of Q or K.
  __device__ std::int64_t row(const Mamba3& scan, int heads_per_group, std::int64_t t, int r) const {
    return (((batch * scan.seqlen + t) * scan.rank + r) * scan.groups + head / heads_per_group) * scan.dstate;
  }
  /// Row r of the biases, and of MIMO_V, MIMO_Z and MIMO_Out with `width` headdim.
  __device__ std::int64_t factor(const Mamba3& scan, int r, std::int64_t width) const {
    return (head * scan.rank + r) * width;
  }
  /// out of rank r, which there is one of where ranks are summed.
  __device__ std::int64_t out(const Mamba3& scan, std::int64_t t, int r) const {
    if (scan.reduces_ranks) return step(scan, t) * scan.headdim;
    return (((batch * scan.seqlen + t) * scan.rank + r) * scan.nheads + head) * scan.headdim;
  }
};

template <class Io>
__device__ float load(const void* data, std::int64_t at) {
  return to_float(static_cast<const Io*>(data)[at]);
}
template <class Io>
__device__ void store(void* data, std::int64_t at, float value) {
  static_cast<Io*>(data)[at] = from_float<Io>(value);
}

template <class Io>
__device__ float rate_of(const Mamba3Args& args, std::int64_t at) {
  return args.scan.is_mimo ? static_cast<const float*>(args.rates)[at] : load<Io>(args.rates, at);
}

/// α, γ, and (1 − λ)·DT of a step.
struct StepScalars {
  float alpha, gamma, previous;
};
template <class Io>
__device__ StepScalars scalars_of(const Mamba3Args& args, std::int64_t at) {
  const float trap = load<Io>(args.trap, at);
  const float dt = args.dt[at];
  return {expf(args.adt[at]), dt / (1.0F + expf(-trap)), dt / (1.0F + expf(trap))};
}

/// The states of pair i.
struct Pair {
  int first, second;
};
__device__ inline Pair pair_of(const Mamba3& scan, int i) {
  if (scan.interleaved) return {2 * i, 2 * i + 1};
  return {i, i + static_cast<int>(scan.dstate) / 2};
}

/// Writes pair `pair` of a row of Q or K with its bias, turned by the angle with this sine and cosine.
template <class Io>
__device__ void store_rotated(const void* from, std::int64_t row, const float* bias, Pair pair, float sine,
                              float cosine, float* to) {
  const float x0 = load<Io>(from, row + pair.first) + bias[pair.first];
  const float x1 = load<Io>(from, row + pair.second) + bias[pair.second];
  to[pair.first] = x0 * cosine - x1 * sine;
  to[pair.second] = x0 * sine + x1 * cosine;
}

/// MIMO_V, MIMO_Z or MIMO_Out of a head dim.
__device__ inline float factor_at(const float* all, std::int64_t row, std::int64_t p) {
  return all == nullptr ? 1.0F : all[row + p];
}

}  // namespace ssmbench::mamba3
