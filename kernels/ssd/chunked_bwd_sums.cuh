#pragma once

// cuda-chunked backward, after the gradients: sums over batch and time, and over slices of heads. Every sum
// has one order.

#include "kernels/ssd/args.h"
#include "kernels/ssd/bwd_tile.cuh"

namespace ssmbench {

inline constexpr int kSumColumns = 32;
inline constexpr int kSumRows = 16;

/// The column sums of head_sums, as a matrix of batch × chunks rows and nheads × sums columns. One block per
/// 32 columns; thread (i, j) adds rows j, j + 16, … of column i, thread (i, 0) what they got.
static __global__ void __launch_bounds__(kSumColumns* kSumRows)
    ssd_head_sums_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan, const float* head_sums) {
  __shared__ float parts[kSumRows][kSumColumns];
  const std::int64_t columns = args.in.nheads * plan.sums;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  float sum = 0.0F;
  if (column < columns)
    for (std::int64_t row = threadIdx.y; row < args.in.batch * plan.chunks; row += kSumRows)
      sum += head_sums[row * columns + column];
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int j = 1; j < kSumRows; ++j) sum += parts[j][threadIdx.x];
  const std::int64_t head = column / plan.sums;
  const std::int64_t which = column % plan.sums;
  if (which == 0) args.dA[head] = sum;
  if (which == 1 && args.ddt_bias != nullptr) args.ddt_bias[head] = sum;
  if (which >= 2) args.dD[head * (plan.sums - 2) + which - 2] = sum;
}

/// dB and dC from the slices' parts, one thread per element of either.
template <class T>
__global__ void __launch_bounds__(256)
    ssd_projections_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan, const float* parts) {
  const std::int64_t all = args.in.batch * args.in.seqlen * args.in.groups * args.in.dstate;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= 2 * all) return;
  float sum = 0.0F;
  for (std::int64_t slice = 0; slice < plan.slices; ++slice) sum += parts[slice * 2 * all + i];
  T* const target = static_cast<T*>(i < all ? args.dB : args.dC);
  target[i < all ? i : i - all] = from_float<T>(sum);
}

}  // namespace ssmbench
