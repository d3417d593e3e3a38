#pragma once

#include "kernels/ssd_chunk_scan/hopper/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper/variants.h"

namespace ssmbench::ssd_hopper {

template <class Io, int kTiles>
Variant variant_for(int states, bool gated) {
  const auto of = []<class T>(T) { return Variant{ssd_kernel<T>, T::Layout::kBytes}; };
  if (states == 64) return gated ? of(Traits<Io, kTiles, 64, true>()) : of(Traits<Io, kTiles, 64, false>());
  return gated ? of(Traits<Io, kTiles, 128, true>()) : of(Traits<Io, kTiles, 128, false>());
}

}  // namespace ssmbench::ssd_hopper
