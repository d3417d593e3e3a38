#pragma once

#include "kernels/mamba3/hopper/scan.h"

namespace ssmbench::mamba3_pairs {

/// The scan of two heads of a group a block, for a padded dstate of 64 or 128, with or without Z. Its plan
/// has items of two row tiles, and both hand on states by themselves.
template <class Io>
mamba3_hopper::RotatedVariant pairs_scan_for(int states, bool gated);

}  // namespace ssmbench::mamba3_pairs
