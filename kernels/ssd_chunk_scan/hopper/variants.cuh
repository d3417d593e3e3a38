#pragma once

#include "kernels/ssd_chunk_scan/hopper/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper/variants.h"

namespace ssmbench::ssd_hopper {

template <class Io, int kTiles, int kStates, bool kGated>
Variant variant_of() {
  using Outputs = Traits<Io, Pass::outputs, kTiles, kStates, kGated>;
  using States = Traits<Io, Pass::states, kTiles, kStates, false>;
  return {ssd_kernel<Outputs>, Outputs::Layout::kBytes, ssd_parts_kernel<States>, States::Layout::kBytes};
}

template <class Io, int kTiles>
Variant variant_for(int states, bool gated) {
  if (states == 64) return gated ? variant_of<Io, kTiles, 64, true>() : variant_of<Io, kTiles, 64, false>();
  return gated ? variant_of<Io, kTiles, 128, true>() : variant_of<Io, kTiles, 128, false>();
}

template <class Io, int kTiles, int kStates, bool kGated>
PackedVariant packed_variant_of() {
  using Outputs = PackedTraits<Io, kTiles, kStates, kGated>;
  return {ssd_kernel<Outputs>, Outputs::Layout::kBytes};
}

template <class Io, int kTiles>
PackedVariant packed_variant_for(int states, bool gated) {
  if (states == 64)
    return gated ? packed_variant_of<Io, kTiles, 64, true>() : packed_variant_of<Io, kTiles, 64, false>();
  return gated ? packed_variant_of<Io, kTiles, 128, true>() : packed_variant_of<Io, kTiles, 128, false>();
}

}  // namespace ssmbench::ssd_hopper
