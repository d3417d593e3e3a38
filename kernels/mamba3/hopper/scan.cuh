#pragma once

#include "kernels/mamba3/hopper/scan.h"
#include "kernels/ssd_chunk_scan/hopper/kernel.cuh"

namespace ssmbench::mamba3_hopper {

template <class Io, int kStates, bool kGated>
ssd_hopper::Variant scan_of() {
  using namespace ssd_hopper;
  using Outputs = GivenTraits<Io, Pass::outputs, 1, kStates, kGated>;
  using States = GivenTraits<Io, Pass::states, 1, kStates, false>;
  return {ssd_kernel<Outputs>, Outputs::Layout::kBytes, ssd_parts_kernel<States>, States::Layout::kBytes};
}

template <class Io>
ssd_hopper::Variant scan_for(int states, bool gated) {
  if (states == 64) return gated ? scan_of<Io, 64, true>() : scan_of<Io, 64, false>();
  return gated ? scan_of<Io, 128, true>() : scan_of<Io, 128, false>();
}

}  // namespace ssmbench::mamba3_hopper
