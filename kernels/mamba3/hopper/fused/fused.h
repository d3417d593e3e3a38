#pragma once

#include "kernels/mamba3/hopper/fused/block.cuh"
#include "kernels/mamba3/hopper/prepare.h"
#include "model/dtype.h"

// The fused MIMO scan: what it takes, and its launch. The picture is in kernel.cuh.

namespace ssmbench::mamba3_fused {

/// A kernel, and the threads and dynamic shared memory of its blocks.
struct Variant {
  void (*kernel)(FusedArgs);
  int threads;
  int shared_bytes;
};
/// For `angles` rotated pairs, with or without Z.
template <class Io>
Variant variant_for(std::int64_t angles, bool gated);

/// Whether it takes a scan that cuda-hopper supports, and is the faster way.
bool takes(const Mamba3& scan, DType dtype);

/// Scans, with `weights` (s, γ and the seed) written before. Throws DeviceError when a tensor cannot be
/// mapped, and its launch when it cannot be launched.
Launch launch_fused(const Mamba3Args& args, DType dtype, const mamba3_hopper::PreparedRows& weights);

}  // namespace ssmbench::mamba3_fused
