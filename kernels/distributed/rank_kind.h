#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "model/implementation.h"

namespace ssmbench {

/// A copy of elements between two places in the memory of a device.
struct RegionCopy {
  static constexpr int kMaxAxes = 6;
  int axes = 0;
  std::int64_t shape[kMaxAxes] = {};
  std::int64_t from_strides[kMaxAxes] = {}, to_strides[kMaxAxes] = {};  ///< in elements
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t element_bytes = 0;  ///< 1, 2, 4 or 8
};

/// Ranks on one kind of device: what they compute a problem of their own with, and how they copy.
struct RankKind {
  DeviceKind device;
  const char* prefix;  ///< of the names of their implementations
  /// Null where there is none.
  const Implementation* (*implementation)(const Problem& problem);
  /// What that claims for an operation.
  Arithmetic (*arithmetic)(const std::string& op, DType io);
  void (*copy)(const RegionCopy& region, void* stream);
};

/// CPUs: cpu-simd where it does the problem, else cpu-scalar.
const RankKind& host_ranks();
/// GPUs, each rank's the current one of its thread: kernels on tensor cores for 16 bits, of f32 arithmetic for
/// f32. Only in builds with CUDA.
const RankKind& cuda_ranks();

/// The reason where a rank has nothing to compute its part with.
std::optional<std::string> cannot_compute(const RankKind& ranks, const Problem& part);

}  // namespace ssmbench
