#pragma once

#include "kernels/ssd_chunk_scan/hopper_bwd/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::ssd_hopper_bwd {

template <class Io>
Variant variant_for(int states, bool gated) {
  const auto of = []<class T>(T) { return Variant{ssd_hopper_gradients_kernel<T>, Layout<T>::kBytes}; };
  if (states == 64) return gated ? of(Traits<Io, 64, true>()) : of(Traits<Io, 64, false>());
  return gated ? of(Traits<Io, 128, true>()) : of(Traits<Io, 128, false>());
}

}  // namespace ssmbench::ssd_hopper_bwd
