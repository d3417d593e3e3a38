#pragma once

#include "kernels/ssd_chunk_scan/hopper/variants.h"

namespace ssmbench::mamba3_hopper {

/// The kernels of Mamba-2's cuda-hopper for items of one row tile, with given weights of steps, for a padded
/// dstate of 64 or 128: with or without Z, and of rows (step, rank), whose out is in f32.
template <class Io>
ssd_hopper::Variant scan_for(int states, bool gated);
template <class Io>
ssd_hopper::Variant ranked_scan_for(int states);
/// The same for packed sequences.
template <class Io>
ssd_hopper::PackedVariant packed_scan_for(int states, bool gated);
template <class Io>
ssd_hopper::PackedVariant packed_ranked_scan_for(int states);

/// A kernel that rotates q and k itself, and the threads and the shared memory of its blocks.
template <class Args>
struct RotatedKernel {
  void (*kernel)(Args);
  int threads, shared_bytes;
};
using RotatedVariant = RotatedKernel<ssd_hopper::HopperArgs>;
template <class Io>
RotatedVariant rotated_scan_for(int states, bool gated);
/// The same for packed sequences.
using PackedRotatedVariant = RotatedKernel<ssd_hopper::PackedArgs>;
template <class Io>
PackedRotatedVariant packed_rotated_scan_for(int states, bool gated);

}  // namespace ssmbench::mamba3_hopper
