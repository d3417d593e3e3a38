#pragma once

// From y^r to out: the skip, the norm over a row, the gate, and the sum over ranks.

#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/vectors.cuh"

namespace ssmbench::mamba3 {

/// (mean y² + eps)^(-1/2) of a row, by a whole warp.
__device__ inline float inverse_of_norm(const float* y, int headdim) {
  float squares = 0.0F;
  for (int p = static_cast<int>(threadIdx.x) % kWarpThreads; p < headdim; p += kWarpThreads)
    squares += y[p] * y[p];
#pragma unroll
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2)
    squares += __shfl_xor_sync(0xFFFFFFFFU, squares, distance);
  return 1.0F / sqrtf(squares / static_cast<float>(headdim) + static_cast<float>(kMamba3NormEps));
}

/// Z of head dim p; 0 without.
template <class Io>
__device__ float load_z(const Mamba3Args& args, const HeadAt& at, std::int64_t t, int p) {
  return args.Z == nullptr ? 0.0F : load<Io>(args.Z, at.step(args.scan, t) * args.scan.headdim + p);
}

/// Writes out of head dim p. y: of rank 0, with `stride` to that of the next; it has the skip. `inverses`:
/// one for each rank where there is a norm.
template <class Io>
__device__ void store_out(const Mamba3Args& args, const HeadAt& at, std::int64_t t, int p, float z,
                          const float* y, std::int64_t stride, const float* inverses) {
  const Mamba3& scan = args.scan;
  const std::int64_t row = at.step(scan, t) * scan.headdim;
  float sum = 0.0F;
  for (int r = 0; r < scan.rank; ++r) {
    const std::int64_t factors = at.factor(scan, r, scan.headdim);
    float value = y[r * stride];
    if (args.norm != nullptr) value *= inverses[r] * args.norm[at.head * scan.headdim + p];
    if (args.Z != nullptr) value *= silu(z * factor_at(args.mimo_z, factors, p));
    if (!scan.reduces_ranks) store<Io>(args.out, at.out(scan, t, r) + p, value);
    sum += value * factor_at(args.mimo_out, factors, p);
  }
  if (scan.reduces_ranks) store<Io>(args.out, row + p, sum);
}

}  // namespace ssmbench::mamba3
