#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/selective_scan/args.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// What implementations that have one sequence a batch lack; nothing where the problem packs none.
std::optional<std::string> packs_sequences(const Problem& problem);

/// A selective_scan_fwd in host memory as scans without cu_seqlens: itself, or one of a batch of 1 for each
/// sequence, which may have no steps.
class SequenceScans {
 public:
  /// The tensors have to fit the problem.
  SequenceScans(const Problem& problem, const TensorSet& tensors);

  /// cu_seqlens is read here: it may change from launch to launch.
  std::vector<ScanArgs> of(const ScanArgs& args) const;

 private:
  ScanArgs sequence(const ScanArgs& args, std::int64_t m) const;

  const std::int32_t* cu_seqlens_;  ///< (count_ + 1,), or null
  std::int64_t count_;
  std::int64_t element_bytes_, projection_bytes_, state_floats_;
};

}  // namespace ssmbench
