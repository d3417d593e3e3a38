#pragma once

// What a shard's steps add up to, for each of many rows (channels, heads, states): sums or products in
// doubles. Two kernels, so that a long sequence of few rows fills a GPU:
//
//   slices   a thread for each row and slice of time; neighbouring rows are neighbouring threads
//            or, where neighbours in memory are steps, a warp
//   rows     a thread for each row: the slices' values, in their order
//
// Where a row's value may be enough, so that the rest of its steps does not matter, slices go in rounds, each of
// twice as many as the one before, and leave out the rows whose slices in earlier rounds were enough.
//
// All orders are fixed.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/cuda_check.h"
#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

namespace ssmbench {

inline constexpr unsigned kFoldThreads = 128;

/// How the steps of `rows` rows are cut.
struct TimeSlices {
  std::int64_t rows, steps;  ///< all steps
  std::int64_t count, of_slice;

  constexpr TimeSlices(std::int64_t all_rows, std::int64_t all_steps)
      : rows(all_rows), steps(all_steps), count(1), of_slice(all_steps) {
    constexpr std::int64_t kEnoughThreads = 1 << 17;
    constexpr std::int64_t kLeastSteps = 64;
    const std::int64_t most = std::min(kEnoughThreads / rows, ceil_div(steps, kLeastSteps));
    of_slice = ceil_div(steps, std::max<std::int64_t>(most, 1));
    count = ceil_div(steps, of_slice);
  }
  /// Values that the slices leave.
  SSMBENCH_HD constexpr std::int64_t values() const { return rows * count; }
};

/// The value of the slices of a row before `slice`, in their order.
template <class Fold>
__device__ typename Fold::Value value_before(const TimeSlices& slices, const typename Fold::Value* partial,
                                             std::int64_t row, std::int64_t slice) {
  typename Fold::Value value = Fold::identity();
#pragma unroll 8  // loads in flight together
  for (std::int64_t i = 0; i < slice; ++i) value = Fold::join(value, partial[i * slices.rows + row]);
  return value;
}

/// Slices from `first` on, one for each blockIdx.y.
template <class Fold>
__global__ void fold_slices(const Fold fold, const TimeSlices slices, std::int64_t first,
                            typename Fold::Value* partial) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kFoldThreads + threadIdx.x;
  if (row >= slices.rows) return;
  const std::int64_t slice = first + blockIdx.y;
  const std::int64_t begin = slice * slices.of_slice;
  std::int64_t end = min(begin + slices.of_slice, slices.steps);
  if constexpr (Fold::kMayBeEnough)
    if (fold.is_enough(row, value_before<Fold>(slices, partial, row, first))) end = begin;
  typename Fold::Value value = Fold::identity();
#pragma unroll 4  // loads in flight together
  for (std::int64_t t = begin; t < end; ++t) value = Fold::join(value, fold.term(row, t));
  partial[slice * slices.rows + row] = value;
}

/// Blocks of fold_slices_along, for 132 multiprocessors: few enough that a kernel beside them finds room.
inline constexpr std::int64_t kFoldBlocksAlong = 4 * 132;

/// Of a warp's lanes, in lane 0.
template <class Fold>
__device__ double over_lanes(double value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = Fold::join(value, __shfl_down_sync(~0U, value, distance));
  return value;
}

/// Whether the slices of a row before `first` are enough; the same for all lanes of the warp.
template <class Fold>
__device__ bool were_enough(const Fold& fold, const TimeSlices& slices, const double* partial,
                            std::int64_t row, std::int64_t first, int lane) {
  double value = Fold::identity();
  for (std::int64_t i = lane; i < first; i += 32) value = Fold::join(value, partial[i * slices.rows + row]);
  return fold.is_enough(row, __shfl_sync(~0U, over_lanes<Fold>(value), 0));
}

/// `count` slices from `first` on. Lanes take steps in turn.
template <class Fold>
__global__ void __launch_bounds__(kFoldThreads)
    fold_slices_along(const Fold fold, const TimeSlices slices, std::int64_t first, std::int64_t count,
                      typename Fold::Value* partial) {
  static_assert(std::is_same_v<typename Fold::Value, double>);
  constexpr int kWarps = kFoldThreads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       i < count * slices.rows; i += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const std::int64_t slice = first + i / slices.rows;
    const std::int64_t row = i % slices.rows;
    const std::int64_t begin = slice * slices.of_slice;
    std::int64_t end = min(begin + slices.of_slice, slices.steps);
    if constexpr (Fold::kMayBeEnough)
      if (were_enough(fold, slices, partial, row, first, lane)) end = begin;
    double value = Fold::identity();
#pragma unroll 8  // loads in flight together
    for (std::int64_t t = begin + lane; t < end; t += 32) value = Fold::join(value, fold.term(row, t));
    value = over_lanes<Fold>(value);
    if (lane == 0) partial[slice * slices.rows + row] = value;
  }
}

template <class Fold>
__global__ void fold_rows(const Fold fold, const TimeSlices slices, const typename Fold::Value* partial) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kFoldThreads + threadIdx.x;
  if (row >= slices.rows) return;
  fold.store(row, value_before<Fold>(slices, partial, row, slices.count));
}

template <class Fold>
void join_slices(const Fold& fold, const TimeSlices& slices, const typename Fold::Value* partial,
                 cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(slices.rows, std::int64_t{kFoldThreads}));
  fold_rows<<<blocks, kFoldThreads, 0, stream>>>(fold, slices, partial);
  check_cuda(cudaGetLastError());
}

/// Calls round(first, count) for the slices of each round.
template <class Fold, class Round>
void in_rounds(const TimeSlices& slices, const Round& round) {
  std::int64_t count = Fold::kMayBeEnough ? 1 : slices.count;
  for (std::int64_t first = 0; first < slices.count; first += count, count *= 2)
    round(first, std::min(count, slices.count - first));
}

/// Fold has a Value, identity(), join(Value, Value), term(row, step) and store(row, Value); and kMayBeEnough,
/// with is_enough(row, Value) where that is true. `partial` has room for slices.values().
template <class Fold>
void fold_time(const Fold& fold, const TimeSlices& slices, typename Fold::Value* partial,
               cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(slices.rows, std::int64_t{kFoldThreads}));
  in_rounds<Fold>(slices, [&](std::int64_t first, std::int64_t count) {
    const dim3 grid(blocks, static_cast<unsigned>(count));
    fold_slices<<<grid, kFoldThreads, 0, stream>>>(fold, slices, first, partial);
    check_cuda(cudaGetLastError());
  });
  join_slices(fold, slices, partial, stream);
}

/// The same of doubles, where steps are neighbours in memory.
template <class Fold>
void fold_time_along(const Fold& fold, const TimeSlices& slices, double* partial, cudaStream_t stream) {
  constexpr std::int64_t kWarps = kFoldThreads / 32;
  in_rounds<Fold>(slices, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t blocks = std::min(ceil_div(count * slices.rows, kWarps), kFoldBlocksAlong);
    fold_slices_along<<<static_cast<unsigned>(blocks), kFoldThreads, 0, stream>>>(fold, slices, first, count,
                                                                                  partial);
    check_cuda(cudaGetLastError());
  });
  join_slices(fold, slices, partial, stream);
}

}  // namespace ssmbench
