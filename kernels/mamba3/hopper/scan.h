#pragma once

#include "kernels/ssd_chunk_scan/hopper/variants.h"

namespace ssmbench::mamba3_hopper {

/// The kernels of Mamba-2's cuda-hopper for items of one row tile, with given weights of steps, for a padded dstate
/// of 64 or 128, with or without Z.
template <class Io>
ssd_hopper::Variant scan_for(int states, bool gated);

}  // namespace ssmbench::mamba3_hopper
