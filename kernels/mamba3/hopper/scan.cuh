#pragma once

#include "kernels/mamba3/hopper/scan.h"
#include "kernels/ssd_chunk_scan/hopper/kernel.cuh"

namespace ssmbench::mamba3_hopper {

template <class Outputs, class States>
ssd_hopper::Variant variant_of() {
  return {ssd_hopper::ssd_kernel<Outputs>, Outputs::Layout::kBytes, ssd_hopper::ssd_parts_kernel<States>,
          States::Layout::kBytes};
}

template <class Io, int kStates, bool kGated>
ssd_hopper::Variant scan_of() {
  using namespace ssd_hopper;
  return variant_of<GivenTraits<Io, Pass::outputs, 1, kStates, kGated>,
                    GivenTraits<Io, Pass::states, 1, kStates, false>>();
}
template <class Io>
ssd_hopper::Variant scan_for(int states, bool gated) {
  if (states == 64) return gated ? scan_of<Io, 64, true>() : scan_of<Io, 64, false>();
  return gated ? scan_of<Io, 128, true>() : scan_of<Io, 128, false>();
}

template <class Outputs, class States>
ssd_hopper::PackedVariant packed_variant_of() {
  using namespace ssd_hopper;
  return {ssd_kernel<PackedOf<Outputs>>, Outputs::Layout::kBytes, ssd_parts_kernel<PackedOf<States>>,
          States::Layout::kBytes};
}

template <class Io, int kStates, bool kGated>
ssd_hopper::PackedVariant packed_scan_of() {
  using namespace ssd_hopper;
  return packed_variant_of<GivenTraits<Io, Pass::outputs, 1, kStates, kGated>,
                           GivenTraits<Io, Pass::states, 1, kStates, false>>();
}
template <class Io>
ssd_hopper::PackedVariant packed_scan_for(int states, bool gated) {
  if (states == 64) return gated ? packed_scan_of<Io, 64, true>() : packed_scan_of<Io, 64, false>();
  return gated ? packed_scan_of<Io, 128, true>() : packed_scan_of<Io, 128, false>();
}

template <class Io, int kStates>
ssd_hopper::Variant ranked_scan_of() {
  using namespace ssd_hopper;
  return variant_of<RankedTraits<Io, Pass::outputs, 1, kStates>,
                    RankedTraits<Io, Pass::states, 1, kStates>>();
}
template <class Io>
ssd_hopper::Variant ranked_scan_for(int states) {
  return states == 64 ? ranked_scan_of<Io, 64>() : ranked_scan_of<Io, 128>();
}

template <class Io, int kStates>
ssd_hopper::PackedVariant packed_ranked_scan_of() {
  using namespace ssd_hopper;
  return packed_variant_of<RankedTraits<Io, Pass::outputs, 1, kStates>,
                           RankedTraits<Io, Pass::states, 1, kStates>>();
}
template <class Io>
ssd_hopper::PackedVariant packed_ranked_scan_for(int states) {
  return states == 64 ? packed_ranked_scan_of<Io, 64>() : packed_ranked_scan_of<Io, 128>();
}

}  // namespace ssmbench::mamba3_hopper
