#pragma once

#include "kernels/ssd_chunk_scan/hopper/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper/variants.h"

namespace ssmbench::ssd_hopper {

template <class Io, int kTiles, int kStates, bool kGated>
Variant variant_of() {
  constexpr bool kPairs = kTiles == 2 && kStates == 256;
  using Outputs = std::conditional_t<kPairs, PairTraits<Io, Pass::outputs, kStates, kGated>,
                                     Traits<Io, Pass::outputs, kTiles, kStates, kGated>>;
  using States = std::conditional_t<kPairs, PairTraits<Io, Pass::states, kStates, false>,
                                    Traits<Io, Pass::states, kTiles, kStates, false>>;
  return {ssd_kernel<Outputs>, Outputs::Layout::kBytes, ssd_parts_kernel<States>, States::Layout::kBytes};
}

template <class Io, int kTiles>
Variant variant_for(int states, bool gated) {
  if (states == 64) return gated ? variant_of<Io, kTiles, 64, true>() : variant_of<Io, kTiles, 64, false>();
  if (states == 128)
    return gated ? variant_of<Io, kTiles, 128, true>() : variant_of<Io, kTiles, 128, false>();
  return gated ? variant_of<Io, kTiles, 256, true>() : variant_of<Io, kTiles, 256, false>();
}

template <class Io, int kTiles, int kStates, bool kGated>
PackedVariant packed_variant_of(bool stops) {
  using Outputs = PackedTraits<Io, Pass::outputs, kTiles, kStates, kGated>;
  using WithStops = PackedTraits<Io, Pass::outputs, kTiles, kStates, kGated, true>;
  const auto kernel = stops ? ssd_kernel<WithStops> : ssd_kernel<Outputs>;
  if constexpr (kTiles == 2) {
    return {kernel, Outputs::Layout::kBytes, nullptr, 0};
  } else {
    using States = PackedTraits<Io, Pass::states, 1, kStates, false>;
    return {kernel, Outputs::Layout::kBytes, ssd_parts_kernel<States>, States::Layout::kBytes};
  }
}

template <class Io, int kTiles>
PackedVariant packed_variant_for(int states, bool gated, bool stops) {
  if (states == 64)
    return gated ? packed_variant_of<Io, kTiles, 64, true>(stops)
                 : packed_variant_of<Io, kTiles, 64, false>(stops);
  if constexpr (kTiles == 1)
    if (states == 256)
      return gated ? packed_variant_of<Io, 1, 256, true>(stops) : packed_variant_of<Io, 1, 256, false>(stops);
  return gated ? packed_variant_of<Io, kTiles, 128, true>(stops)
               : packed_variant_of<Io, kTiles, 128, false>(stops);
}

}  // namespace ssmbench::ssd_hopper
