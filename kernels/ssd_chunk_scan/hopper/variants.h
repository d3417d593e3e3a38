#pragma once

#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

/// The kernels, and the threads and dynamic shared memory of their blocks.
struct Variant {
  void (*kernel)(HopperArgs);
  int shared_bytes;
  void (*parts_kernel)(HopperArgs);  ///< the pass of states before it, where items are in parts
  int parts_shared_bytes;
  int threads = kThreads;
  int parts_threads = kStateThreads;
  int state_groups = 1;  ///< warpgroups of a block that hand on states, with a flag each
};

/// The same for packed sequences.
struct PackedVariant {
  void (*kernel)(PackedArgs);
  int shared_bytes;
  void (*parts_kernel)(PackedArgs);  ///< null for items of two tiles, which are not in parts
  int parts_shared_bytes;
};

/// Those for items of one or two row tiles, for a padded dstate of 64, 128 or 256, with or without z. Two tiles
/// of 256 states are in a cluster of two blocks; in packed sequences there is one.
/// Compiled in files of their own, since each takes its time.
template <class Io, int kTiles>
Variant variant_for(int states, bool gated);
/// Of f32 tensors, items of two row tiles, for a padded dstate of 64 or 128.
Variant tf32_variant(int states);
/// `stops`: with states on the way.
template <class Io, int kTiles>
PackedVariant packed_variant_for(int states, bool gated, bool stops);

}  // namespace ssmbench::ssd_hopper
