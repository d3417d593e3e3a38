#pragma once

// The last step of the SSD gradients: sums over batch and time, and over slices of heads. Every sum has one
// order.

#include "base/cuda_check.h"
#include "kernels/common/index_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/args.h"

namespace ssmbench {

inline constexpr int kSumColumns = 32;
inline constexpr int kSumRows = 16;
inline constexpr int kProjectionsThreads = 256;

/// Sums dA, ddt_bias and dD over the rows of `parts`, (rows, nheads, sums): per head dA, ddt_bias, then dD.
/// One block per 32 columns; thread (i, j) adds rows j, j + 16, … of column i, thread (i, 0) what they got.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    ssd_head_sums_kernel(const SsdBwdArgs args, std::int64_t rows, int sums, const float* parts) {
  __shared__ float partial[kSumRows][kSumColumns];
  const std::int64_t columns = args.in.nheads * sums;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  float sum = 0.0F;
  if (column < columns) {
#pragma unroll 8  // loads that are under way together
    for (std::int64_t row = threadIdx.y; row < rows; row += kSumRows) sum += parts[row * columns + column];
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int j = 1; j < kSumRows; ++j) sum += partial[j][threadIdx.x];
  const std::int64_t head = column / sums;
  const std::int64_t which = column % sums;
  if (which == 0) args.dA[head] = sum;
  if (which == 1 && args.ddt_bias != nullptr) args.ddt_bias[head] = sum;
  if (which >= 2) args.dD[head * (sums - 2) + which - 2] = sum;
}

/// dB and dC from the sums of the slices, (slices, {dB, dC}, B, L, G, N); one thread per element of either.
template <class T>
__global__ void __launch_bounds__(kProjectionsThreads)
    ssd_projections_kernel(const SsdBwdArgs args, std::int64_t slices, const float* parts) {
  const std::int64_t all = args.in.batch * args.in.seqlen * args.in.groups * args.in.dstate;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kProjectionsThreads + threadIdx.x;
  if (i >= 2 * all) return;
  float sum = 0.0F;
  for (std::int64_t slice = 0; slice < slices; ++slice) sum += parts[slice * 2 * all + i];
  T* const target = static_cast<T*>(i < all ? args.dB : args.dC);
  target[i < all ? i : i - all] = from_float<T>(sum);
}

template <class T>
void launch_head_sums(const SsdBwdArgs& args, std::int64_t rows, int sums, const float* parts,
                      cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(args.in.nheads * sums, kSumColumns));
  ssd_head_sums_kernel<T><<<blocks, dim3(kSumColumns, kSumRows), 0, stream>>>(args, rows, sums, parts);
  check_cuda(cudaGetLastError());
}

/// Blocks that launch_projections takes.
inline std::int64_t projections_blocks(std::int64_t batch, std::int64_t seqlen, std::int64_t groups,
                                       std::int64_t dstate) {
  return ceil_div(2 * batch * seqlen * groups * dstate, kProjectionsThreads);
}

template <class T>
void launch_projections(const SsdBwdArgs& args, std::int64_t slices, const float* parts,
                        cudaStream_t stream) {
  const std::int64_t blocks =
      projections_blocks(args.in.batch, args.in.seqlen, args.in.groups, args.in.dstate);
  ssd_projections_kernel<T>
      <<<static_cast<unsigned>(blocks), kProjectionsThreads, 0, stream>>>(args, slices, parts);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
